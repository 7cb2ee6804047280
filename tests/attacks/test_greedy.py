"""Small files that ask for much time or memory: refused before anything is made, or answered at once.

tests/c/test_budget.c asks every operator; here are whole files, as `ds.load` sees them.
"""

import copy
import json
import pickle
import textwrap

import numpy as np
import pytest
from dsm_files import container, model_of, node, output, pattern, text_of
from processes import printed
from same_bits import content

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn

RATE = [100, 1]


def file_of(nodes, ends, outputs):
    structure = list(range(len(ends))) if len(ends) > 1 else 0
    return container({}, text_of(model_of("Greedy", 1, nodes, ends, outputs, structure)))


def one(op, size=1, rate=RATE, **attributes):
    return file_of([node(op, [0], "net.layer", **attributes)], [1], [output("y", ["B", "L", 0], size, rate)])


class Fourier(nn.Module):
    """The spectrum of each run of n samples; the power of its first bins."""

    def __init__(self, n):
        super().__init__()
        self.n = n

    def forward(self, x):
        real, imag = F.stft(x, self.n, hop_length=self.n, center=False)
        return (real.square() + imag.square())[:, :3]


def fourier(n):
    return content(ds.compile(Fourier(n), ("B", "L"), verify=False))


def tied(n, size):
    nodes = [node("linear", [i], f"net.{i}", ["w", None]) for i in range(n)]
    model = model_of("Greedy", size, nodes, [n], [output("y", ["B", "L", 0], size, RATE)])
    return container({"w": pattern(size, size)}, text_of(model))


BIG = 1 << 29
REFUSED = {
    "pad": one("pad", left=BIG, right=BIG, mode="constant", value=0.0),
    "pad_left": one("pad", left=BIG, right=0, mode="replicate", value=0.0),
    "delay": one("delay", frames=BIG),
    "crop": one("slice", start=0, crop=BIG, step=1),
}
TAKEN = {  # with the frames that are fed
    "a large prime": (fourier(65_537), 65_537),
    "twice a large prime": (fourier(2 * 65_537), 2 * 65_537),
    "a power of a prime": (fourier(61**3), 61**3),
    "a stride of 2^23": (one("slice", start=0, crop=0, step=1 << 23, rate=[25, 1 << 21]), 1),
    "a weight of many": (tied(2000, 64), 1),
}

RUN = """
    import sys, time, resource, json
    import numpy as np
    import dreamstream as ds
    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for path, n in zip(sys.argv[1::2], map(int, sys.argv[2::2])):
        before, began, said = peak(), time.perf_counter(), ""
        try:
            engine = ds.load(path)
            sizes = [s for s in engine.inputs[0].dimensions[1:] if s != "L"]
            engine.step({"a": np.ones((*sizes, n), np.float32)}, "a", "a")
        except ds.StreamLimitError as error:
            said = str(error)
        print(json.dumps([said, time.perf_counter() - began, peak() - before]))
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """By name what was said of a file, the seconds that it took, and the megabytes; all in one process."""
    folder = tmp_path_factory.mktemp("greedy")
    arguments = []
    for i, (text, n) in enumerate((*((text, 1) for text in REFUSED.values()), *TAKEN.values())):
        path = folder / f"{i}.dsm"
        path.write_bytes(text)
        arguments += [str(path), str(n)]
    said = printed("-c", textwrap.dedent(RUN), *arguments)
    return dict(zip((*REFUSED, *TAKEN), map(json.loads, said.splitlines()), strict=True))


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_it_is_made(name, results):
    said, seconds, grown = results[name]
    assert "unless max_bytes says otherwise" in said and "net.layer" in said
    assert seconds < 2 and grown < 20, (seconds, grown)


@pytest.mark.parametrize("name", TAKEN)
def test_answered_at_once(name, results):
    said, seconds, grown = results[name]
    assert said == "" and seconds < 4 and grown < 120, (said, seconds, grown)


def test_a_key_given_twice_at_the_end():
    """Takes time by the number of keys, not by its square."""
    keys = ",".join(f'"k{i}":0' for i in range(100_000))
    with pytest.raises(ds.FormatError, match="keys that differ, got 'k99999'"):
        ds.load(f'{{"dreamstream":{{{keys},"k99999":0}},"tensors":{{}}}}'.encode())


# ---------------------------------------------------------------- max_bytes
def conv():
    return nn.Sequential(nn.Conv1d(4, 8, 5)).eval()


def test_max_bytes():
    model = conv()
    engine = ds.compile(model, ("B", 4, "L"))
    file = content(engine)
    for make in (
        lambda n: ds.compile(model, ("B", 4, "L"), verify=False, max_bytes=n),
        lambda n: ds.load(file, max_bytes=n),
    ):
        with pytest.raises(ds.StreamLimitError, match=r"^0 \(conv1d\) takes .*; at most 1000 are allowed"):
            make(1000)
        small = make(40_000)
        x = np.ones((4, 6), np.float32)
        y = small.step({"a": x, "b": x}, sos=["a", "b"])
        long = np.ones((4, 4000), np.float32)
        for again in range(2):  # it is as if the call had not been made
            with pytest.raises(ds.StreamLimitError, match="max_bytes is 40000: shorter chunks") as caught:
                small.step({"a": x, "b": long})
            assert caught.value.ids == ("b",), again
        rest = small.step({"a": x, "b": x})
        whole = engine.step({"a": np.concatenate([x, x], 1)}, "a", restart=True)["a"]
        np.testing.assert_array_equal(np.concatenate([y["b"], rest["b"]], 1), whole)
        for wrong in (0, -1, 1.5, 2**63):
            with pytest.raises(ValueError, match="max_bytes is a number from 1"):
                make(wrong)


def test_max_bytes_goes_with_the_engine():
    engine = ds.compile(conv(), ("B", 4, "L"), max_bytes=40_000)
    long = np.ones((4, 4000), np.float32)
    for other in (copy.copy(engine), pickle.loads(pickle.dumps(engine))):
        with pytest.raises(ds.StreamLimitError, match="max_bytes"):
            other.step({"a": long}, "a")


def test_what_is_large_for_good_reasons_is_taken():
    """Contexts, strides and look-aheads of real models are far below the default."""
    for model, spec in (
        (nn.AvgPool1d(100_000), ("B", 64, "L")),
        (nn.Conv1d(1, 1, 2, stride=480_000), ("B", 1, "L")),
        (nn.Conv1d(2, 2, 3, dilation=200_000), ("B", 2, "L")),
        (nn.Sequential(nn.Resample(44_100, 16_000), nn.Conv1d(1, 4, 400, stride=160)), ("B", 1, "L")),
    ):
        ds.compile(model.eval(), spec, verify=False).close()
