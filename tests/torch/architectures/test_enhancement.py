"""The causal Demucs of denoiser: a U-net with an LSTM, whose input is padded until no layer leaves any over."""

import pytest
import torch

demucs = pytest.importorskip("denoiser.demucs")

from architectures import check

import dreamstream as ds
from dreamstream.errors import NotStreamableError


@pytest.mark.parametrize(
    "depth, lengths, delay", [(2, (300, 150, 36, 20, 5, 1), 35), (3, (300, 150, 149, 148, 85, 3), 147)]
)
def test_demucs(depth, lengths, delay):
    torch.manual_seed(0)
    model = demucs.Demucs(hidden=4, depth=depth, normalize=False, resample=1)
    assert check(model, ("B", "L"), lengths, 60) == [delay]


def test_two_directions_are_refused():
    """Rightly: the layer reads from the end."""
    model = demucs.Demucs(hidden=4, depth=2, normalize=False, resample=1, causal=False)
    with pytest.raises(NotStreamableError, match=r"lstm\.lstm \(LSTM\)"):
        ds.compile(model, ("B", "L"))
