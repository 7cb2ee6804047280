"""pad_to_multiple: on plain tensors, on streams, its errors."""

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import DTypeError, ShapeError


def row(*frames):
    return ds.tensor(np.array([[frames]], np.float32))


@pytest.mark.parametrize(
    "options, wanted",
    [
        ({}, [1, 2, 3, 0]),
        ({"padding": (2, 1)}, [0, 0, 1, 2, 3, 0, 0]),
        ({"mode": "replicate", "padding": (1, 0)}, [1, 1, 2, 3, 3]),
        ({"mode": "reflect", "padding": (2, 0)}, [3, 2, 1, 2, 3, 2]),
        ({"mode": "reflect", "padding": (4, 1)}, [0, 0, 3, 2, 1, 2, 3, 0, 0]),
        ({"value": 7.0}, [1, 2, 3, 7]),
        ({"least": 6}, [1, 2, 3, 0, 0, 0]),
        ({"least": 3}, [1, 2, 3, 0]),
    ],
)
def test_plain(options, wanted):
    assert F.pad_to_multiple(row(1, 2, 3), 2, **options).tolist() == [[wanted]]


def test_pads_of_nothing():
    assert F.pad_to_multiple(row(), 4, (2, 2), least=5).numpy().tolist() == [[[0] * 9]]
    assert F.pad_to_multiple(row(), 4, (2, 2), "replicate").shape == (1, 1, 0)


class WholeFrames(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 3, 8, stride=4)

    def forward(self, x):
        return self.conv(F.pad_to_multiple(x, 4, (4, 0), "reflect"))


def test_streams():
    """Frames leave with the four before them known; what is padded at the end leaves there."""
    engine = ds.compile(WholeFrames(), ("B", 2, "L"))
    assert engine.outputs[0].delay == 4
    x = np.random.default_rng(0).standard_normal((2, 13)).astype(np.float32)
    counts = [engine.step({"s": x[:, i : i + 1]}, sos=["s"] if i == 0 else ())["s"].shape[1] for i in range(13)]
    assert [i for i, n in enumerate(counts) if n] == [4, 7, 11]
    assert engine.step({}, eos=["s"])["s"].shape[1] == 1


def test_errors():
    for options in ({"multiple": 0}, {"multiple": 2, "padding": (-1, 0)}, {"multiple": 2, "least": -1}):
        with pytest.raises(ShapeError, match="pad_to_multiple: expected a multiple of 1 or more"):
            F.pad_to_multiple(row(1), **options)
    with pytest.raises(ShapeError, match="mode is constant, replicate or reflect, got 'circular'"):
        F.pad_to_multiple(row(1), 2, mode="circular")
    with pytest.raises(DTypeError, match="expected a tensor, got list"):
        F.pad_to_multiple([1.0], 2)
