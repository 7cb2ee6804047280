"""Fourier transforms over the last feature axis; complex numbers are two tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from .registry import Step, framewise


@framewise("rfft")
def rfft(step: Step, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the parts of real numbers' transform."""
    n = x.shape[-1]
    if _by_products(x):
        cos, sin = _waves(x, n, n // 2 + 1, n)
        return x @ cos, -(x @ sin)
    return _parts(torch.fft.rfft(x))


@framewise("irfft")
def irfft(step: Step, real: Tensor, imag: Tensor) -> Tensor:
    """Return real numbers from their transform's parts."""
    n, bins = step.attributes["size"], real.shape[-1]
    if _by_products(real):
        cos, sin = _waves(real, bins, n, n)
        twice = real.new_tensor([1 if 2 * k in (0, n) else 2 for k in range(bins)])[:, None]  # for the mirrored
        return (real @ (cos * twice) - imag @ (sin * twice)) / n
    return torch.fft.irfft(torch.complex(real, imag), n)


@framewise("fft", "ifft")
def fft(step: Step, real: Tensor, imag: Tensor) -> tuple[Tensor, Tensor]:
    """Return the parts of the transform, or of its inverse."""
    n = real.shape[-1]
    if not _by_products(real):
        return _parts(getattr(torch.fft, step.name)(torch.complex(real, imag)))
    cos, sin = _waves(real, n, n, n)
    if step.name == "fft":
        return real @ cos + imag @ sin, imag @ cos - real @ sin
    return (real @ cos - imag @ sin) / n, (imag @ cos + real @ sin) / n


def _by_products(x: Tensor) -> bool:
    """Whether torch's transforms won't do: they take no empty tensors, and exported graphs know few of them."""
    return torch.onnx.is_in_onnx_export() or not x.numel()


def _waves(like: Tensor, rows: int, columns: int, n: int) -> tuple[Tensor, Tensor]:
    """Return cos and sin of 2 pi j k / n, exact where the angle is a half turn's multiple."""
    turns = torch.outer(torch.arange(rows), torch.arange(columns)).remainder(n)
    angle = turns.to(torch.float64) * (2 * torch.pi / n)
    sin = angle.sin().masked_fill(turns * 2 % n == 0, 0.0)
    return angle.cos().to(like), sin.to(like)


def _parts(z: Tensor) -> tuple[Tensor, Tensor]:
    real, imag = torch.view_as_real(z).unbind(-1)
    return real, imag
