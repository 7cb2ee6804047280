"""Fourier transforms of the features of frames, and of windows of samples; complex numbers are two tensors."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ...array import Tensor, zeros_like
from ...array.dtypes import require_float, require_same
from ...array.elementwise import with_frames
from ...dispatch import apply
from ...errors import NotStreamableError, ShapeError
from . import frames as framing
from .arguments import checked, require_positive
from .padding import pad
from .texts import described

__all__ = ["fft", "ifft", "irfft", "istft", "rfft", "stft"]

Pair = tuple[Tensor, Tensor]

LEAST = 1e-11  # of the squares of all windows over a sample that is computed from them
POWERS = {None: (0.0, 1.0), "backward": (0.0, 1.0), "ortho": (0.5, 0.5), "forward": (1.0, 0.0)}  # of 1 / n

_OVER = {
    "real": "The real parts.",
    "imag": "The imaginary parts, of the same shape.",
    "n": "Numbers along `dim`, which is cut, or filled up with zeros; as many as there are without it.",
    "dim": "The dimension, of features.",
    "norm": '{"backward", "ortho", "forward"}, optional: Who divides by n: the inverse, both by its root, or the '
    "other.",
}
_OF_WINDOWS = {
    "n_fft": "Samples of a transform.",
    "hop_length": "Samples from window to window; n_fft // 4 without it.",
    "win_length": "Samples of `window`, around which are zeros; n_fft without it.",
    "window": "``(win_length,)``; ones without it.",
    "normalized": "Whether transforms are divided by the root of n_fft, and inverses multiplied.",
    "onesided": "False: all n_fft bins, of which the second half mirrors the first; else n_fft // 2 + 1.",
}


# ---------------------------------------------------------------------- of the features of a frame
def _along(
    name: str, parts: Sequence[Tensor], dim: int, n: int | None, attributes: dict[str, Any]
) -> list[Tensor]:
    """Return an operator's outputs along a dimension of n numbers, or of those that there are."""
    require_same(name, **dict(zip(("real", "imag"), (p.dtype for p in parts))))
    axis = parts[0]._axis(name, dim)
    last = [_sized(name, checked(name, p).transpose(axis, -1), n) for p in parts]
    return [y.transpose(axis, -1) for y in apply(name, attributes, last, (), (..., 0))]


def _sized(name: str, x: Tensor, n: int | None) -> Tensor:
    """Return a tensor with n elements along its last dimension, which must be of features."""
    require_float(name, x.dtype)
    if x.is_stream and isinstance(x.dims[-1], str):  # type: ignore[attr-defined]
        raise NotStreamableError.here(
            f"{name}: its dimension is {x.dims[-1]} of a stream, and transforms are of all "  # type: ignore[attr-defined]
            "that there is; transform windows, by stft or unfold"
        )
    if n is None or n == x.shape[-1]:
        return x
    require_positive(name, n=n)
    return x[..., :n] if n < x.shape[-1] else pad(x, (0, n - x.shape[-1]))


def _size(x: Tensor, dim: int, n: int | None) -> int:
    return int(x.shape[dim]) if n is None else operator.index(n)


def _scaled(name: str, norm: str | None, n: int, inverse: bool, out: Sequence[Tensor]) -> Sequence[Tensor]:
    """Divide as `norm` says; operators do as in "backward"."""
    if norm not in POWERS:
        raise ShapeError(f"{name}: norm is backward, ortho or forward, got {norm!r}")
    power = POWERS[norm][inverse] - inverse
    return [y * float(n) ** -power for y in out] if power else out


@described(**{**_OVER, "input": "Of any shape, float32 or float64."})
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Pair:
    """Return the Fourier transform of real numbers, n // 2 + 1 complex ones: real parts, imaginary parts.

    Source: torch.fft.rfft.
    """
    out = _along("rfft", [input], dim, n, {})
    real, imag = _scaled("rfft", norm, _size(input, dim, n), False, out)
    return real, imag


@described(**{**_OVER, "n": "Numbers of the result; 2 (m - 1) of m complex ones without it."})
def irfft(real: Tensor, imag: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Return n real numbers, whose Fourier transform this is. Source: torch.fft.irfft."""
    size = 2 * (checked("irfft", real).shape[dim] - 1) if n is None else operator.index(n)
    require_positive("irfft", n=size)
    out = _along("irfft", [real, imag], dim, size // 2 + 1, {"size": size})
    return _scaled("irfft", norm, size, True, out)[0]


@described(**{**_OVER, "imag": "The imaginary parts, of the same shape; zeros without it."})
def fft(
    real: Tensor, imag: Tensor | None = None, n: int | None = None, dim: int = -1, norm: str | None = None
) -> Pair:
    """Return the Fourier transform of complex numbers: real parts, imaginary parts. Source: torch.fft.fft."""
    return _complex("fft", real, imag, n, dim, norm)


@described(**{**_OVER, "imag": "The imaginary parts, of the same shape; zeros without it."})
def ifft(
    real: Tensor, imag: Tensor | None = None, n: int | None = None, dim: int = -1, norm: str | None = None
) -> Pair:
    """Return the inverse of a Fourier transform: real parts, imaginary parts. Source: torch.fft.ifft."""
    return _complex("ifft", real, imag, n, dim, norm)


def _complex(name: str, real: Tensor, imag: Tensor | None, n: int | None, dim: int, norm: str | None) -> Pair:
    parts = [real, zeros_like(real) if imag is None else imag]
    out = _along(name, parts, dim, n, {})
    re, im = _scaled(name, norm, _size(real, dim, n), name == "ifft", out)
    return re, im


# ---------------------------------------------------------------------- of windows
@described(
    "Real and imaginary parts ``(..., bins, frames)``.",
    **_OF_WINDOWS,
    input="Samples ``(..., L)``.",
    center="Whether windows stand around multiples of `hop_length`; samples are padded by n_fft // 2 for that.",
    pad_mode='{"reflect", "constant", "replicate"}: With what.',
)
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
) -> Pair:
    """Return the Fourier transforms of windows of samples.

    Raises
    ------
    ShapeError
        For sizes that don't fit.

    Notes
    -----
    **Streaming.** A frame leaves with its window's last sample. Source: torch.stft.
    """
    x = checked("stft", input)
    taps = _window("stft", x, n_fft, win_length, window)
    half = n_fft // 2
    x = pad(x, (half, half), mode=pad_mode) if center else x
    x = x.unfold(-1, n_fft, _hop("stft", n_fft, hop_length))
    x = x if taps is None else x * taps
    out = fft(x) if onesided is False else rfft(x)
    real, imag = (y.transpose(-1, -2) for y in out)
    return (real * n_fft**-0.5, imag * n_fft**-0.5) if normalized else (real, imag)


@described(
    "Samples ``(..., L)``.",
    **_OF_WINDOWS,
    real="The real parts, ``(..., bins, frames)``.",
    imag="The imaginary parts.",
    center="Whether n_fft // 2 samples are taken off both ends.",
    length="int, optional: Samples of the result, which is cut, or filled up with zeros.",
)
def istft(
    real: Tensor,
    imag: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
) -> Tensor:
    """Return the samples whose transforms `stft` gave, or those that come nearest to it.

    Windowed inverse transforms are laid over each other and divided by the sum of the windows' squares.

    Raises
    ------
    ShapeError
        For sizes that don't fit, and windows that leave samples uncovered.

    Notes
    -----
    **Streaming.** A sample leaves with the last window that touches it. Source: torch.istft.
    """
    hop = _hop("istft", n_fft, hop_length)
    taps = _window("istft", checked("istft", real), n_fft, win_length, window)
    bins = n_fft if onesided is False else n_fft // 2 + 1
    if real.ndim < 2 or real.shape[-2] != bins:
        raise ShapeError(f"istft: expected (..., {bins} bins, frames) for n_fft={n_fft}, got {tuple(real.shape)}")
    require = partial(_require_cover, n_fft, hop, center)
    if taps is None:
        require(np.ones(n_fft))
    else:
        taps = taps._satisfying(require)
    real, imag = real.transpose(-1, -2), imag.transpose(-1, -2)
    x = ifft(real, imag)[0] if onesided is False else irfft(real, imag, n_fft)
    x = x * float(n_fft) ** 0.5 if normalized else x
    whole = zeros_like(x) + (1.0 if taps is None else taps * taps)
    x = x if taps is None else x * taps
    windows = framing.overlap_add(whole, hop).clamp_min(LEAST)  # what is below it is cut off
    y: Tensor = framing.overlap_add(x, hop) / windows
    half = n_fft // 2 if center else 0
    y = y[..., half:] if half else y
    if length is None:
        return with_frames(y[..., :-half]) if half else y
    longer: Tensor = pad(y, (0, length if isinstance(length, int) else hop))
    return with_frames(longer[..., :length])


def _hop(name: str, n_fft: int, hop_length: int | None) -> int:
    hop = n_fft // 4 if hop_length is None else operator.index(hop_length)
    require_positive(name, n_fft=n_fft, hop_length=hop)
    return hop


def _window(name: str, x: Tensor, n_fft: int, win_length: int | None, window: Tensor | None) -> Tensor | None:
    """Return the window of n_fft samples; None where it is ones."""
    width = n_fft if win_length is None else operator.index(win_length)
    if not 0 < width <= n_fft:
        raise ShapeError(f"{name}: win_length must be 1 to n_fft={n_fft}, got {width}")
    if window is None:
        if width == n_fft:
            return None
        window = Tensor(np.ones(width, x.dtype))
    if tuple(window.shape) != (width,):
        raise ShapeError(f"{name}: expected a window of shape ({width},), got {tuple(window.shape)}")
    left = (n_fft - width) // 2
    return window if width == n_fft else pad(window, (left, n_fft - width - left))


def _require_cover(n_fft: int, hop: int, center: bool, taps: Any) -> None:
    """Refuse windows whose squares don't add up to something everywhere, whatever the number of frames."""
    squares = np.square(taps.astype(np.float64))
    half = n_fft // 2 if center else 0
    most = 2 * math.ceil(n_fft / hop) + 1
    total = np.zeros((most - 1) * hop + n_fft)
    for frame in range(most):
        total[frame * hop : frame * hop + n_fft] += squares
        covered = total[half : frame * hop + n_fft - half]
        if len(covered) and covered.min() < LEAST:
            raise ShapeError(
                f"istft: windows {hop} samples apart leave samples uncovered, after {frame + 1} of them; give one "
                "without zeros there, a smaller hop_length, or center=True"
            )
