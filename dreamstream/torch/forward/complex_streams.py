"""What torch's functions do with complex streams inside a forward: Fourier transforms, arithmetic, views."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ...array import Tensor, cat, stack, where, zeros_like
from ...array.writing import unsure
from ...errors import NotStreamableError, ShapeError
from ...nn import functional as F
from ...stream.where import user_line
from .complex_pair import Complex
from .constants import ComplexConstant, Constant, dtype_of
from .conversions import with_value
from .mode import Forward, current
from .names import COMPLEX, HANDLERS, attribute, function

__all__: list[str] = []

#: Linear in what they are given: of each part by itself.
LINEAR = (
    "transpose", "permute", "unsqueeze", "squeeze", "reshape", "view", "flatten", "unflatten", "narrow", "select",
    "chunk", "split", "unbind", "movedim", "__getitem__", "expand", "expand_as", "repeat", "unfold", "flip",
    "roll", "index_select", "cumsum", "sum", "mean", "neg", "__neg__", "repeat_interleave",
)  # fmt: skip


def _complex(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter what runs functions of these names where a complex stream is among their arguments."""

    def keep(fn: Callable[..., Any]) -> Callable[..., Any]:
        COMPLEX.update(dict.fromkeys(names, fn))
        return fn

    return keep


def _on_both(name: str) -> None:
    def run(forward: Forward, z: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(z, ComplexConstant):
            return getattr(z, name)(*args, **kwargs)
        return z.each(lambda part: getattr(part, name)(*args, **kwargs))

    COMPLEX[name] = run


for _name in LINEAR:
    _on_both(_name)


def _parts(x: Any) -> tuple[Any, Any]:
    """Return the parts of an operand; None for the imaginary one of a real operand."""
    if isinstance(x, (Complex, complex)):
        return x.real, x.imag
    if isinstance(x, ComplexConstant):
        return x._like(x.torch.real.contiguous()), x._like(x.torch.imag.contiguous())
    return x, None


def _both(x: Any) -> tuple[Any, Any]:
    """Return both parts of an operand, the imaginary one of a real one as zeros."""
    real, imag = _parts(x)
    if imag is None:
        imag = real._like(torch.zeros_like(real.torch)) if isinstance(real, Constant) else 0.0
        imag = zeros_like(real) if getattr(real, "is_stream", False) else imag
    return real, imag


def _sum(a: Any, b: Any) -> Any:
    """Return a + b, either of which may be nothing."""
    return b if a is None else a if b is None else a + b


def _less(a: Any, b: Any) -> Any:
    return a if b is None else -b if a is None else a - b


# ---------------------------------------------------------------------- parts
@_complex("abs", "__abs__", "absolute")
def absolute(forward: Forward, z: Any) -> Any:
    return z.real.hypot(z.imag)


@function("angle")
def angle(forward: Forward, input: Any) -> Any:
    below = where(input < 0, math.pi, 0.0)
    return where(input == input, below, input)


@_complex("angle")
def complex_angle(forward: Forward, input: Any) -> Any:
    return input.imag.atan2(input.real)


@_complex("conj", "conj_physical")
def conj(forward: Forward, z: Any) -> Any:
    return Complex(z.real, -z.imag)


@_complex("resolve_conj", "resolve_neg", "contiguous", "clone", "requires_grad_", "__pos__", "positive")
def unchanged(forward: Forward, z: Any, *_: Any, **__: Any) -> Any:
    return z


@attribute("real")
@function("real", "conj", "conj_physical", "resolve_conj", "resolve_neg")
def of_real(forward: Forward, *given: Any, **named: Any) -> Any:
    return next(iter((*given, *named.values())))


@_complex("detach")
def detach(forward: Forward, z: Any) -> Any:
    return with_value(z, torch.Tensor.detach)


@_complex("is_complex")
def is_complex(forward: Forward, input: Any) -> bool:
    return True


@_complex("is_floating_point", "is_conj", "is_neg")
def is_not(forward: Forward, input: Any) -> bool:
    return False


@_complex("dim", "ndimension")
def dim(forward: Forward, z: Any) -> int:
    return int(z.ndim)


@_complex("size")
def size(forward: Forward, z: Any, *args: Any, **kwargs: Any) -> Any:
    return z.real.size(*args, **kwargs) if args or kwargs else z.real.size()


@_complex("to", "type", "cpu", "cuda", "cfloat", "cdouble")
def to(forward: Forward, z: Any, *args: Any, **kwargs: Any) -> Any:
    wanted = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.dtype)]
    if any(w != z.dtype for w in wanted):
        raise NotStreamableError(f"a complex stream as {wanted[0]} at {user_line()}; take its real part, or abs")
    return z.each(lambda part: HANDLERS["to"](forward, part, *(a for a in args if a not in wanted)))


@function("view_as_complex")
def view_as_complex(forward: Forward, input: Any) -> Any:
    return Complex(input.select(-1, 0), input.select(-1, 1))


@_complex("real")
def real_part(forward: Forward, input: Any) -> Any:
    return input.real


@_complex("imag")
def imaginary_part(forward: Forward, input: Any) -> Any:
    return input.imag


@_complex("view_as_real")
def view_as_real(forward: Forward, input: Any) -> Any:
    out = cat([input.real.unsqueeze(-1), input.imag.unsqueeze(-1)], -1)
    return unsure(input.real, unsure(input.imag, out))


@function("complex")
def from_parts(forward: Forward, real: Any, imag: Any) -> Any:
    return Complex(real, imag)


@function("polar")
def polar(forward: Forward, abs: Any, angle: Any) -> Any:
    return Complex(abs * angle.cos(), abs * angle.sin())


# ---------------------------------------------------------------------- arithmetic
@_complex("add", "__add__", "__radd__")
def add(forward: Forward, a: Any, b: Any, *, alpha: Any = 1) -> Any:
    (p, q), (r, s) = _parts(a), _parts(b if alpha == 1 else mul(forward, b, alpha))
    return Complex(p + r, _sum(q, s))


@_complex("sub", "__sub__")
def sub(forward: Forward, a: Any, b: Any, *, alpha: Any = 1) -> Any:
    (p, q), (r, s) = _parts(a), _parts(b if alpha == 1 else mul(forward, b, alpha))
    return Complex(p - r, _less(q, s))


@_complex("__rsub__")
def rsub(forward: Forward, a: Any, b: Any) -> Any:
    return sub(forward, b, a)


def _bilinear(product: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """Return a product whose parts are sums of products of parts."""
    (p, q), (r, s) = _parts(a), _parts(b)
    if q is None and s is None:
        return product(p, r)
    if s is None:
        return Complex(product(p, r), product(q, r))
    if q is None:
        return Complex(product(p, r), product(p, s))
    return Complex(product(p, r) - product(q, s), product(p, s) + product(q, r))


@_complex("mul", "__mul__", "__rmul__")
def mul(forward: Forward, a: Any, b: Any) -> Any:
    return _bilinear(lambda x, y: x * y, a, b)


@_complex("square")
def square(forward: Forward, z: Any) -> Any:
    return mul(forward, z, z)


@_complex("reciprocal")
def reciprocal(forward: Forward, z: Any) -> Any:
    p, q = _parts(z)
    size = p * p + q * q
    return Complex(p / size, -q / size)


@_complex("div", "__truediv__", "true_divide")
def div(forward: Forward, a: Any, b: Any, *, rounding_mode: Any = None) -> Any:
    if rounding_mode is not None:
        raise NotStreamableError(f"a complex quotient at {user_line()} can't be rounded")
    p, q = _parts(b)
    if q is not None:
        return mul(forward, a, 1 / b if isinstance(b, complex) else reciprocal(forward, Complex(p, q)))
    return a.each(lambda part: part / p)


@_complex("__rtruediv__")
def rdiv(forward: Forward, a: Any, b: Any) -> Any:
    return div(forward, b, a)


@_complex("exp")
def exp(forward: Forward, z: Any) -> Any:
    return polar(forward, z.real.exp(), z.imag)


@_complex("log")
def log(forward: Forward, z: Any) -> Any:
    return Complex(absolute(forward, z).log(), complex_angle(forward, z))


@_complex("sqrt")
def sqrt(forward: Forward, z: Any) -> Any:
    return polar(forward, absolute(forward, z).sqrt(), complex_angle(forward, z) * 0.5)


@_complex("sgn")
def sgn(forward: Forward, z: Any) -> Any:
    size = absolute(forward, z)
    zero = size == 0
    return z.each(lambda part: where(zero, part, part / size))


@_complex("pow", "__pow__")
def power(forward: Forward, z: Any, exponent: Any) -> Any:
    if not isinstance(z, Complex) or not isinstance(exponent, (int, float)):
        raise NotStreamableError(
            f"a complex power at {user_line()}: exponents are Python numbers; write exp(y * log(x))"
        )
    if exponent == int(exponent) and 1 <= abs(exponent) <= 8:
        out = z
        for _ in range(int(abs(exponent)) - 1):
            out = mul(forward, out, z)
        return out if exponent > 0 else reciprocal(forward, out)
    return polar(forward, absolute(forward, z).pow(exponent), complex_angle(forward, z) * exponent)


# ---------------------------------------------------------------------- products
@_complex("matmul", "__matmul__", "__rmatmul__", "bmm", "mm")
def matmul(forward: Forward, a: Any, b: Any) -> Any:
    return _bilinear(lambda x, y: x @ y, a, b)


@_complex("linear")
def linear(forward: Forward, input: Any, weight: Any, bias: Any = None) -> Any:
    out = _bilinear(lambda x, w: F.linear(x, w), input, weight)
    return out if bias is None else add(forward, out, bias)


@_complex("einsum")
def einsum(forward: Forward, equation: Any, *operands: Any) -> Any:
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])

    def real(*parts: Any) -> Any:
        return HANDLERS["einsum"](forward, equation, *parts)

    if len(operands) == 1:
        return operands[0].each(real)
    if len(operands) != 2:
        raise NotStreamableError(f"einsum at {user_line()}: one or two operands and an equation stream")
    return _bilinear(real, *operands)


# ---------------------------------------------------------------------- put together
@_complex("cat", "concat", "concatenate")
def joined(forward: Forward, tensors: Any, dim: int = 0, *, axis: int | None = None) -> Any:
    return _together(cat, tensors, dim if axis is None else axis)


@_complex("stack")
def stacked(forward: Forward, tensors: Any, dim: int = 0) -> Any:
    return _together(stack, tensors, dim)


def _together(join: Callable[..., Any], tensors: Any, dim: int) -> Any:
    real, imag = zip(*map(_both, tensors))
    return Complex(join(list(real), dim), join(list(imag), dim))


@_complex("where_function")
def chosen(forward: Forward, condition: Any, input: Any, other: Any) -> Any:
    (p, q), (r, s) = _both(input), _both(other)
    return Complex(where(condition, p, r), where(condition, q, s))


@_complex("masked_fill")
def masked_fill(forward: Forward, z: Any, mask: Any, value: Any) -> Any:
    real, imag = _both(value)
    return Complex(z.real.masked_fill(mask, real), z.imag.masked_fill(mask, imag))


@_complex("pad")
def padded(forward: Forward, input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    real, imag = _both(0.0 if value is None else value)
    given = (None, None) if mode != "constant" else (float(real), float(imag))
    return Complex(F.pad(input.real, pad, mode, given[0]), F.pad(input.imag, pad, mode, given[1]))


@_complex("zeros_like", "empty_like")
def zeros(forward: Forward, input: Any, **_: Any) -> Any:
    return input.each(zeros_like)


@_complex("ones_like")
def ones(forward: Forward, input: Any, **_: Any) -> Any:
    return Complex(zeros_like(input.real) + 1, zeros_like(input.imag))


# ---------------------------------------------------------------------- writing
@_complex("__setitem__")
def assigned(forward: Forward, z: Any, index: Any, value: Any) -> None:
    if not isinstance(z, Complex):
        raise NotStreamableError(f"complex numbers are written into real ones, at {user_line()}: take their parts")
    real, imag = _both(value)
    z.real[index], z.imag[index] = real, imag


@_complex("copy_", "fill_")
def copied_into(forward: Forward, z: Any, value: Any, *_: Any) -> Any:
    assigned(forward, z, Ellipsis, value)
    return z


@_complex("zero_")
def zeroed(forward: Forward, z: Any) -> Any:
    return copied_into(forward, z, 0.0)


# ---------------------------------------------------------------------- Fourier transforms
@function("fft_rfft")
def rfft(forward: Forward, input: Any, n: Any = None, dim: int = -1, norm: Any = None) -> Any:
    return Complex(*F.rfft(input, n, dim, norm))


@_complex("fft_irfft")
def irfft(forward: Forward, input: Any, n: Any = None, dim: int = -1, norm: Any = None) -> Any:
    return F.irfft(input.real, input.imag, n, dim, norm)


def _transform(name: str) -> None:
    transform = getattr(F, name)

    def run(forward: Forward, input: Any, n: Any = None, dim: int = -1, norm: Any = None) -> Any:
        real, imag = (input.real, input.imag) if isinstance(input, Complex) else (input, None)
        return Complex(*transform(real, imag, n, dim, norm))

    COMPLEX[f"fft_{name}"] = HANDLERS[f"fft_{name}"] = run


_transform("fft")
_transform("ifft")


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
    if input.ndim != 2 or not _rows(input) or input.dims[1] != "L":
        raise ShapeError(f"stft at {user_line()}: expected a stream (B, L), got {input.roles}")
    taps = _window("stft", input, n_fft, win_length, window)
    out = Complex(*F.stft(input, n_fft, hop_length, None, taps, center, pad_mode, normalized, onesided))
    return out if return_complex else view_as_real(forward, out)


@_complex("istft")
def istft(
    forward: Forward,
    input: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Any = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: Any = None,
    return_complex: bool = False,
) -> Any:
    if return_complex:
        raise NotStreamableError(f"istft at {user_line()}: complex samples are not available")
    if input.ndim != 3 or not _rows(input) or input.dims[2] != "L":
        raise ShapeError(f"istft at {user_line()}: expected a stream (B, bins, L), got {input.roles}")
    taps = _window("istft", input.real, n_fft, win_length, window)
    return F.istft(input.real, input.imag, n_fft, hop_length, None, taps, center, normalized, onesided, length)


def _rows(x: Any) -> bool:
    """Whether the first dimension is that of streams, or of theirs joined with features."""
    return isinstance(x.dims[0], str) and x.dims[0] != "L"


def _window(name: str, x: Tensor, n: int, win_length: int | None, window: Any) -> Constant | None:
    """Return the window of n samples, of the stream's type; a gradient flows to what was given."""
    width = win_length or n
    if window is None and width == n:
        return None
    taps = torch.ones(width, device=current().device) if window is None else window.torch
    if taps.is_complex():
        raise NotStreamableError(f"{name} at {user_line()}: complex windows are not available")
    if taps.shape != (width,) or width > n:
        raise ShapeError(f"{name}: the window has {len(taps)} elements, win_length is {width}, n_fft {n}")
    left = (n - width) // 2
    taps = torch.nn.functional.pad(taps, (left, n - width - left)) if width < n else taps
    return Constant(taps.to(dtype_of(x.dtype.name)), current().arrays)
