"""Complex streams inside a forward: `torch.stft` and what follows from its result.

A complex stream is a pair of real ones. The transform is a convolution with windowed sines and cosines, so that it
streams and compiles like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ...array import Tensor, cat
from ...errors import NotStreamableError, ShapeError
from ...nn import functional as F
from ...stream.where import user_line
from .constants import Constant
from .conversions import with_value
from .mode import Forward, current
from .names import function

__all__ = ["Complex"]


class Complex:
    """A complex stream: two real ones of the same frames.

    Parameters
    ----------
    real, imag : native StreamTensor
    """

    is_stream = True

    def __init__(self, real: Any, imag: Any) -> None:
        self.real, self.imag = real, imag

    # what it is
    def __getattr__(self, name: str) -> Any:
        if name in ("dims", "shape", "ndim", "dim", "size"):
            return getattr(self.real, name)
        raise AttributeError(name)

    @property
    def dtype(self) -> torch.dtype:
        return torch.complex128 if self.real.dtype == np.float64 else torch.complex64

    def is_complex(self) -> bool:
        return True

    @property
    def requires_grad(self) -> bool:
        return any(p.value is not None and p.value.requires_grad for p in (self.real, self.imag))

    def detach(self) -> Complex:
        return Complex(*(with_value(p, torch.Tensor.detach) for p in (self.real, self.imag)))

    @property
    def data(self) -> Complex:
        return self.detach()

    # its parts
    def abs(self) -> Any:
        return self.real.hypot(self.imag)

    __abs__ = abs

    def angle(self) -> Any:
        return self.imag.atan2(self.real)

    def conj(self) -> Complex:
        return Complex(self.real, -self.imag)

    resolve_conj = contiguous = clone = lambda self: self

    def view_as_real(self) -> Any:
        return cat([self.real.unsqueeze(-1), self.imag.unsqueeze(-1)], -1)

    # arithmetic
    def _parts(self, other: Any) -> tuple[Any, Any]:
        if isinstance(other, Complex):
            return other.real, other.imag
        if isinstance(other, complex):
            return other.real, other.imag
        if isinstance(other, Constant) and other.torch.is_complex():
            return other._like(other.torch.real), other._like(other.torch.imag)
        return other, None

    def add(self, other: Any) -> Complex:
        a, b = self._parts(other)
        return Complex(self.real + a, self.imag if b is None else self.imag + b)

    def sub(self, other: Any) -> Complex:
        a, b = self._parts(other)
        return Complex(self.real - a, self.imag if b is None else self.imag - b)

    def mul(self, other: Any) -> Complex:
        a, b = self._parts(other)
        if b is None:
            return Complex(self.real * a, self.imag * a)
        return Complex(self.real * a - self.imag * b, self.real * b + self.imag * a)

    def div(self, other: Any) -> Complex:
        a, b = self._parts(other)
        if b is not None:
            raise NotStreamableError(
                f"a quotient of complex streams at {user_line()}; multiply by the inverse"
            )
        return Complex(self.real / a, self.imag / a)

    def neg(self) -> Complex:
        return Complex(-self.real, -self.imag)

    __add__, __radd__, __sub__, __mul__, __rmul__, __truediv__, __neg__ = (
        add,
        add,
        sub,
        mul,
        mul,
        div,
        neg,
    )


def _on_both(name: str) -> Callable[..., Any]:
    def method(self: Complex, *args: Any, **kwargs: Any) -> Any:
        a, b = (getattr(part, name)(*args, **kwargs) for part in (self.real, self.imag))
        return tuple(map(Complex, a, b)) if isinstance(a, tuple) else Complex(a, b)

    return method


for _name in (
    "transpose", "permute", "unsqueeze", "squeeze", "reshape", "view", "flatten", "unflatten", "narrow", "select",
    "chunk", "split", "unbind", "movedim", "__getitem__", "sum", "mean",
):  # fmt: skip
    setattr(Complex, _name, _on_both(_name))


@function("view_as_real")
def view_as_real(forward: Forward, input: Any) -> Any:
    return input.view_as_real()


@function("view_as_complex")
def view_as_complex(forward: Forward, input: Any) -> Any:
    return Complex(input.select(-1, 0), input.select(-1, 1))


@function("angle")
def angle(forward: Forward, input: Any) -> Any:
    return input.angle() if isinstance(input, Complex) else (input * 0).atan2(input)


@function("complex")
def from_parts(forward: Forward, real: Any, imag: Any) -> Any:
    return Complex(real, imag)


@function("polar")
def polar(forward: Forward, abs: Any, angle: Any) -> Any:
    return Complex(abs * angle.cos(), abs * angle.sin())


@function("stft")
def stft(
    forward: Forward,
    input: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """``torch.stft``: frames of the padded signal, windowed, times cosines and sines."""
    x, n = input, n_fft
    if x.ndim != 2 or sorted(map(str, x.dims)) != ["B", "L"]:
        raise ShapeError(f"stft at {user_line()}: expected a stream (B, L), got {x.roles}")
    if onesided is False:
        raise NotStreamableError(
            f"stft at {user_line()}: onesided=False is not available; the other half is its mirror image"
        )
    if center:
        x = F.pad(x.unsqueeze(1), (n // 2, n // 2), mode=pad_mode)
    else:
        x = x.unsqueeze(1)
    step = hop_length or n // 4
    basis = _basis(n, win_length or n, window, normalized, x)
    bins = n // 2 + 1
    zeros = basis.new_zeros(
        2 * bins
    )  # what is nothing is +0, never -0, of which atan2 would make half a turn
    taps, bias = (Constant(t, forward.arrays) for t in (basis, zeros))
    both = F.conv1d(x, taps, bias, stride=step)  # (B, 2 bins, frames)
    out = Complex(both.narrow(1, 0, bins), both.narrow(1, bins, bins))
    return out if return_complex else out.view_as_real()


def _basis(n: int, width: int, window: Any, normalized: bool, x: Tensor) -> torch.Tensor:
    """Return the windowed cosines and negative sines ``(2 * bins, 1, n)``; a gradient flows to the window."""
    device = current().device
    taps = torch.ones(width, device=device) if window is None else window.torch
    taps = taps.to(torch.float64)
    if len(taps) != width or width > n:
        raise ShapeError(f"stft: the window has {len(taps)} elements, win_length is {width}, n_fft {n}")
    left = (n - width) // 2
    taps = torch.nn.functional.pad(taps, (left, n - width - left))
    if normalized:
        taps = taps / math.sqrt(n)
    turns = torch.outer(torch.arange(n // 2 + 1), torch.arange(n)).remainder(
        n
    )  # exact, before it is an angle
    angle = turns.to(torch.float64) * (2 * math.pi / n)
    sines = angle.sin().masked_fill(turns * 2 % n == 0, 0.0)
    waves = torch.cat([angle.cos(), -sines]).to(device) * taps
    return waves.unsqueeze(1).to(torch.float64 if x.dtype == np.float64 else torch.float32)
