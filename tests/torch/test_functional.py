"""Functions that torch has no name for, on torch streams."""

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from torch import nn

import dreamstream as ds
from dreamstream.errors import ModeError
from dreamstream.torch import functional


class Framed(nn.Module):
    """Whole frames, their running means, and the frames laid over each other again."""

    def forward(self, x):
        frames = functional.pad_to_multiple(x, multiple=4).unfold(2, 4, 4)
        return functional.overlap_add(frames, 4) + 1, functional.cumulative_mean(frames)


def test_inside_a_forward():
    x = torch.randn(2, 3, 10, generator=torch.Generator().manual_seed(0))
    model = ds.patch_module(Framed()).online()
    parts = []
    for begin, end in ((0, 3), (3, 9), (9, 10)):
        chunk = ds.stream_tensor(x[..., begin:end], ids=["a", "b"], sos=begin == 0, eos=end == 10)
        parts.append(model(chunk))
    padded = torch.nn.functional.pad(x, (0, 2))
    assert torch.equal(torch.cat([y.tensor() for y, _ in parts], 2), padded + 1)
    frames = padded.unfold(2, 4, 4)
    means = frames.cumsum(2) / torch.arange(1, 4).reshape(3, 1)
    torch.testing.assert_close(torch.cat([z.tensor() for _, z in parts], 2), means)


def test_gradients_flow():
    x = torch.randn(1, 2, 7, dtype=torch.float64)
    x = ds.stream_tensor(x, ids=["a"], sos=True, eos=True, requires_grad=True)

    class Padded(nn.Module):
        def forward(self, x):
            return functional.pad_to_multiple(x, 4, (3, 0), "reflect")

    y = ds.patch_module(Padded()).online()(x)
    y.tensor().square().sum().backward()
    times = torch.tensor([1.0, 2, 2, 2, 1, 2, 1])  # three frames in the mirror at the start, one at the end
    assert torch.allclose(x.grad, 2 * x.detach().tensor() * times, atol=1e-12)


def test_outside_a_forward():
    with pytest.raises(ModeError, match=r"streams inside an online forward only, at test_functional\.py"):
        functional.pad_to_multiple(torch.zeros(1, 1, 5), 4)
