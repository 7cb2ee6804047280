"""Random forwards of slices, pads, limits of lengths, fades, casts and masks on streams of few frames: offline's.

More of them::

    pytest -m "slow or not slow" tests/torch/test_short_streams.py
"""

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
