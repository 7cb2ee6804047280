"""Random forwards of slices, pads, limits of lengths, fades, casts and masks on streams of few frames: offline's.

More of them::

    pytest -m "slow or not slow" tests/torch/test_short_streams.py
"""

import numpy as np
import pytest
import torch
from random_graphs.short_streams import differences

import dreamstream as ds

N, MORE = 40, 2000


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(N, MORE, 2 * N))])
def test_they_are_offline(first):
    n_compared = 0
    for seed in range(first, first + (N if not first else 2 * N)):
        found, n = differences(seed)
        assert not found, found[0]
        n_compared += n
    assert n_compared > 10 * N


def padded_back(x, y):
    return torch.nn.functional.pad(y, (0, 0, 0, x.size(1) - y.size(1)))


def chosen(x, y):
    return x * 2 if y.size(1) > 0 else x


@pytest.mark.parametrize("f", [padded_back, chosen, lambda x, y: x * (1 if y.shape[1] == 0 else 2)])
@pytest.mark.parametrize("cut", [lambda x: x[:, 3:], lambda x: x[:, :-3], lambda x: x[:, 3:] * 2])
def test_what_is_asked_of_a_length_that_is_0_is_checked_at_ends(f, cut):
    """Values are offline's, or the stream is refused: never those of longer streams."""

    class Net(torch.nn.Module):
        def forward(self, x):
            return f(x, cut(x))

    model = ds.patch_module(Net()).online()
    engine = ds.compile(Net(), ("B", "L", 2), verify=False)
    for n in (1, 2, 3, 4, 9):
        x = torch.randn(n, 2)
        for run, own in ((model, x), (engine, x.numpy())):
            try:
                out = run(ds.stream_tensor([own], names=("B", "L", None), sos=True, eos=True, ids=["a"]))
            except ds.ShapeError as error:
                assert n < 4 and "at the end of the stream" in str(error)
                model.reset()
                engine.reset()
            else:
                torch.testing.assert_close(torch.as_tensor(np.asarray(out["a"])), Net()(x[None])[0])


def test_positions_of_a_stream_whose_length_falls_are_refused():
    """``x[:, :-1]`` of two frames has one, ``x[:, :0]`` of three none."""

    class Net(torch.nn.Module):
        def forward(self, x):
            y = x[:, : x.size(1) - 3]
            return y * torch.arange(y.size(1))[None, :, None]

    with pytest.raises(ds.NotStreamableError, match="it falls as frames come"):
        ds.compile(Net(), ("B", "L", 2))
    x = ds.stream_tensor([torch.randn(2, 2)], names=("B", "L", None), sos=True, ids=["a"])
    with pytest.raises(ds.NotStreamableError, match="it falls as frames come"):
        ds.patch_module(Net()).online()(x)
