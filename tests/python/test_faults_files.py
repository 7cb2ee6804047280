"""Loading, saving and copying where the n-th allocation fails, for every n: an error, and nothing left behind."""

import copy
import gc
import io

import faults
import pytest
from same_bits import answers, content

import dreamstream as ds
from dreamstream import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        ds.manual_seed(2)
        self.conv = nn.Conv1d(3, 4, 5, stride=2)
        self.rnn = nn.LSTM(4, 3, batch_first=True)

    def forward(self, x):
        y = self.conv(x).transpose(1, 2)
        return {"y": self.rnn(y)[0], "x": [y + 1]}


@pytest.fixture
def counted():
    faults.install()
    yield
    gc.collect()
    faults.uninstall()


def failing(call):
    """Call until no allocation fails; return what the call that succeeds does, and how many failed."""
    for n in range(1, 10_000):
        before = faults.stats()["live_blocks"]
        faults.arm(n)
        try:
            result = call()
        except ds.OutOfMemoryError:
            faults.arm(0)
            if faults.stats()["live_blocks"] != before:
                gc.collect()
            assert faults.stats()["live_blocks"] == before, n
        else:
            faults.arm(0)
            assert faults.stats()["bad_releases"] == 0
            return result, n - 1
    raise AssertionError("every allocation fails")


def test_load(counted, tmp_path):
    engine = ds.compile(Model().eval(), ("B", 3, "L"), verify=False)
    engine.save(tmp_path / "m.dsm")
    for source in tmp_path / "m.dsm", content(engine), content(engine, "json"), content(engine, "xml"):
        loaded, n = failing(lambda source=source: ds.load(source))
        assert n > 50 and answers(loaded) == answers(engine)


def test_save_and_copy(counted):
    engine = ds.compile(Model().eval(), ("B", 3, "L"), verify=False)
    whole = content(engine)
    for form in "dsm", "json":
        file, n = failing(lambda form=form: content(engine, form))
        assert n > 5 and content(ds.load(io.BytesIO(file))) == whole
    other, n = failing(lambda: copy.copy(engine))
    assert n >= 2 and answers(other) == answers(engine)
