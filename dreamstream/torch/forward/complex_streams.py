"""What torch's functions do with complex streams inside a forward: Fourier transforms, arithmetic, views.

Where it is one line, it is a row of a table: by the names of torch's functions, what they give of the parts.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ...array import Tensor, cat, ones_like, stack, where, zeros_like
from ...array.first_frame import FirstFrame
from ...array.writing import unsure
from ...errors import NotStreamableError, ShapeError
from ...nn import functional as F
from ...stream.rules import Length
from ..run.functions import of_elements
from .complex_pair import Complex
from .constants import ComplexConstant, Constant, dtype_of
from .conversions import with_value
from .names import ATTRIBUTES, COMPLEX, HANDLERS, enter, function
from .own import elementwise, of_operands
from .recordings import noted, same
from .running import current

#: Linear in what they are given: of each part by itself.
LINEAR = (
    "transpose permute unsqueeze squeeze reshape view flatten unflatten narrow select chunk split unbind movedim "
    "__getitem__ expand expand_as repeat unfold flip roll index_select cumsum sum mean neg __neg__ "
    "repeat_interleave"
)


def _on_both(name: str) -> Callable[..., Any]:
    def run(z: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(z, ComplexConstant) and name not in ("expand", "repeat"):
            return getattr(z, name)(*args, **kwargs)
        return Complex(*_parts(z)).each(lambda part: getattr(part, name)(*args, **kwargs))

    return run


enter(COMPLEX, {name: _on_both(name) for name in LINEAR.split()})
enter(COMPLEX, {"view_as": lambda x, other: x if x is other else NotImplemented})  # as torch makes of results


def _part(x: torch.Tensor, which: int) -> torch.Tensor:
    """Return the real part of complex numbers, or the imaginary one."""
    return (x.imag if which else x.real).contiguous()


def _parts(x: Any) -> tuple[Any, Any]:
    """Return the parts of an operand; None for the imaginary one of a real operand."""
    if isinstance(x, (Complex, complex)):
        return x.real, x.imag
    if isinstance(x, ComplexConstant):
        return x._like(noted(_part, x.torch, 0)), x._like(noted(_part, x.torch, 1))
    return x, None


def _both(x: Any) -> tuple[Any, Any]:
    """Return both parts of an operand, the imaginary one of a real one as zeros."""
    real, imag = _parts(x)
    if imag is None:
        imag = real._like(noted(torch.zeros_like, real.torch)) if isinstance(real, Constant) else 0.0
        imag = zeros_like(real) if getattr(real, "is_stream", False) else imag
    return real, imag


def _number(real: Any, imag: Any) -> Any:
    """Return a number as torch has it, of its parts."""
    return real if imag is None else torch.complex(*torch.broadcast_tensors(*map(torch.as_tensor, (real, imag))))


def _own(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let torch's function of this name run in a call, with its values and gradients at 0 and at infinity."""
    operator, function = f"torch.complex_{name}", getattr(torch, name)

    def computed(a: Any, a_imag: Any = None, b: Any = None, b_imag: Any = None) -> Any:
        y = function(*(_number(*x) for x in ((a, a_imag), (b, b_imag)) if x[0] is not None))
        return tuple(torch.view_as_real(y).unbind(-1)) if y.is_complex() else y

    of_elements(operator, computed)

    def keep(composed: Callable[..., Any]) -> Callable[..., Any]:
        def run(a: Any, *others: Any, **named: Any) -> Any:
            parts = [*_parts(a), *(part for x in others for part in _parts(x))]
            given = {k: x for k, x in zip(("", "a_imag", "b", "b_imag"), parts) if x is not None}
            out = None if named else of_operands(operator, given)
            return composed(a, *others, **named) if out is None else Complex(*out) if len(out) > 1 else out[0]

        return run

    return keep


def cut_complex(table: torch.Tensor, index: Any) -> Any:
    """Return a table of complex numbers that is cut to a stream's length along one dimension, else None."""
    parts = index if isinstance(index, tuple) else (index,)
    if sum(isinstance(p, slice) and isinstance(p.stop, Length) for p in parts) > 1:
        return None
    arrays = current().arrays
    return Complex(*(Constant(part.contiguous(), arrays)[index] for part in (table.real, table.imag)))


# ---------------------------------------------------------------------- parts
@_own("abs")
def _absolute(z: Any) -> Any:
    return z.real.hypot(z.imag)


@_own("angle")
def _angle(input: Any) -> Any:
    return input.imag.atan2(input.real)


def _ones(x: Any) -> Any:
    return x._like(noted(torch.ones_like, x.torch)) if isinstance(x, Constant) else ones_like(x)


def _complex(real: Any, imag: Any) -> Complex:
    if any(isinstance(x, Constant) for x in (real, imag)) or real.features != imag.features:
        real, imag = real * _ones(imag), imag * _ones(real)
    return Complex(real, imag)


def _polar(abs: Any, angle: Any) -> Complex:
    return Complex(abs * angle.cos(), abs * angle.sin())


def _to(z: Any, *args: Any, **kwargs: Any) -> Any:
    wanted = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.dtype)]
    if any(w != z.dtype for w in wanted):
        raise NotStreamableError.here(f"a complex stream as {wanted[0]}", "; take its real part, or abs")
    return z.each(lambda part: HANDLERS["to"](part, *(a for a in args if a not in wanted)))


def view_as_real(input: Any) -> Any:
    """Return the parts side by side, on an axis of 2 at the end. Source: torch.view_as_real."""
    out = cat([input.real.unsqueeze(-1), input.imag.unsqueeze(-1)], -1)
    return unsure(input.real, unsure(input.imag, out))


ATTRIBUTES["real"] = lambda inner: inner
enter(
    HANDLERS,
    {
        "real conj conj_physical resolve_conj resolve_neg": lambda *x, **named: next(iter((*x, *named.values()))),
        "angle": elementwise(
            "angle", lambda input: where(input == input, (input < 0).to(input.dtype) * math.pi, input), torch.angle
        ),
        "view_as_complex": lambda input: Complex(input.select(-1, 0), input.select(-1, 1)),
        "complex": _complex,
        "polar": _polar,
    },
)
enter(
    COMPLEX,
    {
        "abs __abs__ absolute": _absolute,
        "angle": _angle,
        "conj conj_physical": lambda z: Complex(z.real, -z.imag),
        "resolve_conj resolve_neg contiguous clone requires_grad_ __pos__ positive": lambda z, *_, **__: z,
        "detach": lambda z: with_value(z, torch.Tensor.detach),
        "is_complex": lambda input: True,
        "is_floating_point is_conj is_neg": lambda input: False,
        "dim ndimension": lambda z: int(z.ndim),
        "size": lambda z, *args, **kwargs: z.real.size(*args, **kwargs),
        "to type cpu cuda cfloat cdouble": _to,
        "real": lambda input: input.real,
        "imag": lambda input: input.imag,
        "view_as_real": view_as_real,
    },
)


# ---------------------------------------------------------------------- arithmetic
def _sum(a: Any, b: Any, *, alpha: Any = 1, join: Callable[[Any, Any], Any] = operator.add) -> Complex:
    return _of_both(join, a, b if alpha == 1 else _product(b, alpha))


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


_difference = partial(_sum, join=operator.sub)
_product, _matrices = partial(_bilinear, operator.mul), partial(_bilinear, operator.matmul)


@_own("reciprocal")
def _reciprocal(z: Any) -> Complex:
    p, q = _parts(z)
    size = p * p + q * q
    return Complex(p / size, -q / size)


@_own("div")
def _quotient(a: Any, b: Any, *, rounding_mode: Any = None) -> Any:
    if rounding_mode is not None:
        raise NotStreamableError.here("a complex quotient", " can't be rounded")
    p, q = _parts(b)
    if q is not None:
        return _product(a, 1 / b if isinstance(b, complex) else _reciprocal(Complex(p, q)))
    return a.each(lambda part: part / p)


@_own("sgn")
def _sign(z: Any) -> Any:
    size = _absolute(z)
    zero = size == 0
    return z.each(lambda part: where(zero, part, part / size))


def _power(z: Any, exponent: Any) -> Any:
    if not isinstance(z, Complex) or not isinstance(exponent, (int, float)):
        raise NotStreamableError.here("a complex power: exponents are Python numbers; write exp(y * log(x))")
    return _real_power(z, exponent)


@_own("pow")
def _real_power(z: Any, exponent: Any) -> Any:
    if exponent == int(exponent) and 1 <= abs(exponent) <= 8:
        out = z
        for _ in range(int(abs(exponent)) - 1):
            out = _product(out, z)
        return out if exponent > 0 else _reciprocal(out)
    return _polar(_absolute(z).pow(exponent), _angle(z) * exponent)


def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    out = _bilinear(F.linear, input, weight)
    return out if bias is None else _sum(out, bias)


def _einsum(equation: Any, *operands: Any) -> Any:
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])

    def real(*parts: Any) -> Any:
        return HANDLERS["einsum"](equation, *parts)

    if len(operands) == 1:
        return operands[0].each(real)
    if len(operands) != 2:
        raise NotStreamableError.here("einsum: one or two operands and an equation stream")
    return _bilinear(real, *operands)


enter(
    COMPLEX,
    {
        "add __add__ __radd__": _sum,
        "sub __sub__": _difference,
        "__rsub__": lambda a, b: _difference(b, a),
        "mul __mul__ __rmul__": _product,
        "square": lambda z: _product(z, z),
        "reciprocal": _reciprocal,
        "div __truediv__ true_divide": _quotient,
        "__rtruediv__": lambda a, b: _product(_reciprocal(a), b),
        "exp": _own("exp")(lambda z: _polar(z.real.exp(), z.imag)),
        "log": _own("log")(lambda z: Complex(_absolute(z).log(), _angle(z))),
        "sqrt": _own("sqrt")(lambda z: _polar(_absolute(z).sqrt(), _angle(z) * 0.5)),
        "sgn": _sign,
        "pow __pow__": _power,
        "matmul __matmul__ bmm mm": _matrices,
        "__rmatmul__": lambda a, b: _matrices(b, a),
        "linear": _linear,
        "einsum": _einsum,
    },
)


# ---------------------------------------------------------------------- put together, and written into
def _of_both(join: Callable[..., Any], *operands: Any) -> Complex:
    """Return what is made of the real parts, and of the imaginary ones."""
    return Complex(*(join(*parts) for parts in zip(*map(_both, operands))))


def _joined(tensors: Any, dim: int = 0, *, axis: int | None = None, join: Callable[..., Any] = cat) -> Complex:
    return _of_both(lambda *parts: join(list(parts), dim if axis is None else axis), *tensors)


def _padded(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Complex:
    fixed = mode == "constant"
    by = 0.0 if value is None else value
    return _of_both(lambda part, v: F.pad(part, pad, mode, float(v) if fixed else None), input, by)


def _assign(z: Any, index: Any, value: Any) -> None:
    if not isinstance(z, Complex):
        raise NotStreamableError.here("complex numbers are written into real ones,", ": take their parts")
    real, imag = _both(value)
    z.real[index], z.imag[index] = real, imag


def _alike(made: str, z: Any, **_: Any) -> Any:
    """Return zeros or ones like a complex stream; like its first frame without L, what every stream has alike."""
    real, imag = z.real, z.imag
    if not isinstance(real, FirstFrame):
        return Complex((ones_like if made == "ones" else zeros_like)(real), zeros_like(imag))
    if not real.keeps:
        return getattr(real._seen, f"new_{made}")(real.shape, dtype=z.dtype)
    likes = (real, getattr(torch, f"{made}_like")), (imag, torch.zeros_like)
    return Complex(*(part.apply_function(like.__name__, like, (part,), {}) for part, like in likes))


def _fill(z: Any, value: Any = 0.0, *_: Any) -> Any:
    _assign(z, Ellipsis, value)
    return z


enter(
    COMPLEX,
    {
        "cat concat concatenate": _joined,
        "stack": partial(_joined, join=stack),
        "where_function": lambda condition, input, other: _of_both(partial(where, condition), input, other),
        "masked_fill": lambda z, mask, value: _of_both(lambda part, v: part.masked_fill(mask, v), z, value),
        "pad": _padded,
        "zeros_like empty_like": partial(_alike, "zeros"),
        "ones_like": partial(_alike, "ones"),
        "__setitem__": _assign,
        "copy_ fill_ zero_": _fill,
    },
)


# ---------------------------------------------------------------------- Fourier transforms
def _transform(transform: Callable[..., Any]) -> Callable[..., Complex]:
    def run(input: Any, n: Any = None, dim: int = -1, norm: Any = None) -> Complex:
        real, imag = (input.real, input.imag) if isinstance(input, Complex) else (input, None)
        return Complex(*transform(real, imag, n, dim, norm))

    return run


_BOTH = {"fft_fft": _transform(F.fft), "fft_ifft": _transform(F.ifft)}
enter(HANDLERS, {"fft_rfft": lambda input, *how, **named: Complex(*F.rfft(input, *how, **named)), **_BOTH})
enter(COMPLEX, {"fft_irfft": lambda z, *how, **named: F.irfft(z.real, z.imag, *how, **named), **_BOTH})


@function("stft")
def stft(
    input: Any, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None,
    center: bool = True, pad_mode: str = "reflect", normalized: bool = False, onesided: bool | None = None,
    return_complex: bool | None = None, align_to_window: bool | None = None,
) -> Any:  # fmt: skip
    if input.ndim != 2 or not _rows(input) or input.dims[1] != "L":
        raise ShapeError.here(f"stft: expected a stream (B, L), got {input.roles}")
    if align_to_window:
        raise NotStreamableError.here("stft: align_to_window=True does not stream")
    taps = _window("stft", input, n_fft, win_length, window)
    out = Complex(*F.stft(input, n_fft, hop_length, None, taps, center, pad_mode, normalized, onesided))
    return out if return_complex else view_as_real(out)


@function("istft", of=COMPLEX)
def istft(
    input: Any, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Any = None,
    center: bool = True, normalized: bool = False, onesided: bool | None = None, length: Any = None,
    return_complex: bool = False,
) -> Any:  # fmt: skip
    if return_complex:
        raise NotStreamableError.here("istft: complex samples are not available")
    if input.ndim != 3 or not _rows(input) or input.dims[2] != "L":
        raise ShapeError.here(f"istft: expected a stream (B, bins, L), got {input.roles}")
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
    taps = same(torch.ones(width, device=current().device)) if window is None else window.torch
    if taps.is_complex():
        raise NotStreamableError.here(f"{name}: complex windows are not available")
    if taps.shape != (width,) or width > n:
        raise ShapeError(f"{name}: the window has {len(taps)} elements, win_length is {width}, n_fft {n}")
    left = (n - width) // 2
    taps = noted(torch.nn.functional.pad, taps, (left, n - width - left)) if width < n else taps
    return Constant(noted(torch.Tensor.to, taps, dtype_of(x.dtype.name)), current().arrays)
