"""The causal Demucs of denoiser: a U-net with an LSTM, whose input is padded until no layer leaves any over."""

import pytest

torch = pytest.importorskip("torch")
demucs = pytest.importorskip("denoiser.demucs")

from architectures import check

import dreamstream as ds
from dreamstream.errors import NotStreamableError
from dreamstream.torch.functional import pad_to_multiple

F = torch.nn.functional


@ds.register(demucs.Demucs)
def stream(model, mix):
    """Without normalisation and resampling; lengths that fit are shortest, shortest + step, ..."""
    assert not model.normalize and model.resample == 1
    step, shortest = model.stride**model.depth, model.valid_length(1)
    offset = -shortest % step
    x = pad_to_multiple(F.pad(mix.unsqueeze(1), (0, offset)), step, least=shortest + offset)
    x = F.pad(x, (0, -offset))
    skips = []
    for encode in model.encoder:
        x = encode(x)
        skips.append(x)
    x = model.lstm(x.permute(2, 0, 1))[0].permute(1, 2, 0)
    for decode in model.decoder:
        x = decode(x + skips.pop())
    return x[..., : mix.size(-1)]


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
