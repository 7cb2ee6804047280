"""The functions of single elements, each said once.

A row is an operator of the C registry (`csrc/kernels/pointwise.def`) under its name everywhere else: the method of
tensors, torch's function, what computes it in a torch forward, the form that an export gives it, the numbers that
show it in tests, and the function that tests hold it against. What has arguments names those that show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .operator import Operator

_erf = np.vectorize(math.erf, otypes=[float])
_erfc = np.vectorize(math.erfc, otypes=[float])


# ---------------------------------------------------------------- forms of ONNX
# Of Where, what stands for true is never -0, of which ONNX Runtime makes 0 there.
def _negative(x: int) -> tuple[Any, ...]:
    """Return whether an operand is negative, -0 included."""
    return ("Or", ("Less", x, 0.0), ("Less", ("Reciprocal", x), 0.0))


def _signed(size: tuple[Any, ...], by: int) -> tuple[Any, ...]:
    """Return a size with the sign of an operand."""
    return ("Mul", size, ("Where", _negative(by), -1.0, 1.0))


_EQUAL_SIZES = ("Equal", ("Abs", 0), ("Abs", 1))
_LARGE, _SMALL = (("Max", ("Abs", 0), ("Abs", 1)), ("Min", ("Abs", 0), ("Abs", 1)))

#: The angle of the point (|operand 1|, |operand 0|), which may be zero, or infinitely far.
_ANGLE = (
    "Where", _EQUAL_SIZES, ("Where", ("Equal", 0, 0.0), 0.0, math.pi / 4),
    ("Atan", ("Div", ("Abs", 0), ("Abs", 1))),
)  # fmt: skip
#: Its distance; that of points at infinity is NaN.
_RATIO = ("Where", ("Equal", _LARGE, 0.0), 0.0, ("Div", _SMALL, _LARGE))
_HYPOT = ("Mul", _LARGE, ("Sqrt", ("Add", ("Mul", _RATIO, _RATIO), 1.0)))


# ---------------------------------------------------------------- references


def _sigmoid(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small / (1 + small), 1 / (1 + small))


@dataclass(frozen=True)
class Elementwise(Operator):
    """A function of one element of each operand.

    Attributes
    ----------
    reference : callable
        The same on NumPy's arrays.
    doc : str
        What the method of tensors returns; without it there is none that does just this.
    operands : int
        How many.
    domain : {"any", "positive", "unit", "above", "ties", "halves", "quarters", "base"}
        Which numbers show what it does: all; mostly above 0; mostly within [-1, 1]; mostly from 1 on; few, so that
        many are equal; multiples of 1/2 and what lies between; multiples of 1/4 but 0; above 0, then any.
    exact : bool
        Whether nothing is rounded, so that results are the reference's bit by bit.
    integers : callable or None
        The same of integers, where integers come out; others become float32 first.
    real : bool
        Whether two integers become float32.
    aliases : tuple of str
        torch's other names.
    python : str
        Python's operator, by its method's name without underscores.
    onnx : str or tuple
        ONNX's operator, where torch's exporter lacks the function, or has other results at zeros, infinities or
        NaN; or how it is made: an operator, and of what: such tuples, the numbers of operands and parameters
        (int), constants (float).
    tries : mapping
        Values of each of its attributes that show what it does; `reference` takes them by name.
    """

    reference: Callable[..., Any]
    doc: str = ""
    operands: int = 1
    domain: str = "any"
    exact: bool = False
    integers: Callable[..., Any] | None = None
    real: bool = False
    aliases: tuple[str, ...] = ()
    python: str = ""
    onnx: str | tuple[Any, ...] = ""
    tries: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def _softplus(x: Any, beta: float, threshold: float) -> Any:
    return np.where(beta * x > threshold, x, np.log1p(np.exp(np.minimum(beta * x, 700))) / beta)


def _elu(x: Any, alpha: float, scale: float, input_scale: float) -> Any:
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0) * input_scale), scale * x)


def _nothing(g: Any) -> Any:
    return np.zeros_like(g)


def _gelu_slope(g: Any, a: Any, approximate: str = "none") -> Any:
    if approximate == "none":
        return g * (0.5 * (1 + _erf(a / math.sqrt(2))) + a * np.exp(-0.5 * a * a) / math.sqrt(2 * math.pi))
    inner = math.sqrt(2 / math.pi)
    t = np.tanh(inner * (a + 0.044715 * a**3))
    return g * (0.5 * (1 + t) + 0.5 * a * (1 - t * t) * inner * (1 + 3 * 0.044715 * a * a))


def _elu_slope(g: Any, a: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Any:
    return np.where(a <= 0, g * (alpha * input_scale) * np.exp(a * input_scale), g * scale)


def _softplus_slope(g: Any, a: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    z = np.exp(a * beta)
    return np.where(a * beta > threshold, g, g * z / (z + 1))


def _silu_slope(g: Any, a: Any) -> Any:
    s = _sigmoid(a)
    return g * s * (1 + a * (1 - s))


def _small(x: Any) -> Any:
    """Return the sigmoid of -|x|."""
    small = np.exp(-np.abs(x))
    return small / (1 + small)


def _over_square(a: Any, b: Any) -> Any:
    return np.where((a == 0) & (b == 0), 0, 1 / (a * a + b * b))


def _base_slope(g: Any, a: Any, b: Any) -> Any:
    return np.where(b == 0, 0, g * (b * a ** (b - 1)))


def _exponent_slope(g: Any, y: Any, a: Any, b: Any) -> Any:
    return np.where((a == 0) & (b >= 0), 0, g * (y * np.log(a)))


def _of_extremes(lost: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the derivatives of the smaller or the larger of two: equals have half of it each."""
    return (
        lambda g, a, b: np.where(a == b, g / 2, np.where(lost(a, b), 0, g)),
        lambda g, a, b: np.where(a == b, g / 2, np.where(lost(b, a), 0, g)),
    )


#: Functions of one operand.
UNARY = (
    Elementwise(
        "gelu", _gelu, torch="nn.functional.gelu", takes=("approximate",), tries={"approximate": ("none", "tanh")},
        derivatives=(_gelu_slope,),
    ),
    Elementwise(
        "clamp", lambda x, min=-math.inf, max=math.inf: np.minimum(np.maximum(x, min), max),
        domain="ties", exact=True, takes=("min", "max"),
        tries={"min": (-math.inf, -2.0, 0.0, 1.0), "max": (math.inf, -1.0, 0.0, 2.0)},
        derivatives=(lambda g, a, min=-math.inf, max=math.inf: np.where((a >= min) & (a <= max), g, 0),),
    ),
    Elementwise(
        "softplus", _softplus, torch="nn.functional.softplus", takes=("beta", "threshold"),
        tries={"beta": (1.0, 2.0, 0.5), "threshold": (20.0, 1.0, 5.0)},
        onnx=("Where", ("Greater", ("Mul", 0, 1), 2), 0, ("Div", ("Softplus", ("Mul", 0, 1)), 1)),
        derivatives=(_softplus_slope,),
    ),
    Elementwise(
        "elu", _elu, takes=("alpha", "scale", "input_scale"),
        tries=dict.fromkeys(("alpha", "scale", "input_scale"), (1.0, 0.5, 1.75)),
        derivatives=(_elu_slope,),
    ),
    Elementwise(
        "relu", lambda x: np.where(x < 0, 0, x), "max(x, 0)",
        domain="ties", exact=True, integers=lambda a: np.maximum(a, 0),
        derivatives=(lambda g, y: np.where(y <= 0, 0, g),),
    ),
    Elementwise(
        "silu", lambda x: x * _sigmoid(x), torch="nn.functional.silu",
        derivatives=(_silu_slope,),
    ),
    Elementwise(
        "sigmoid", _sigmoid, "1 / (1 + e ** -x)", aliases=("expit",),
        derivatives=(lambda g, y: g * ((1 - y) * y),),
    ),
    Elementwise(
        "logsigmoid", lambda x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))), torch="nn.functional.logsigmoid",
        aliases=("log_sigmoid",), onnx=("Sub", 0.0, ("Softplus", ("Neg", 0))),
        derivatives=(lambda g, a: g * np.where(a < 0, 1 - _small(a), _small(a)),),
    ),
    Elementwise(
        "tanh", np.tanh, "the hyperbolic tangent",
        derivatives=(lambda g, y: g * (1 - y * y),),
    ),
    Elementwise(
        "exp", np.exp, "e ** x",
        derivatives=(lambda g, y: g * y,),
    ),
    Elementwise(
        "expm1", np.expm1, "e ** x - 1, exact near zero",
        onnx=(
            "Where", ("Less", 0, -1.0), ("Sub", ("Exp", 0), 1.0),
            ("Mul", ("Mul", ("Sinh", ("Mul", 0, 0.5)), 2.0), ("Exp", ("Mul", 0, 0.5))),  # loses nothing near zero
        ),
        derivatives=(lambda g, y: g * (y + 1),),
    ),
    Elementwise(
        "log", np.log, "the natural logarithm", domain="positive",
        derivatives=(lambda g, a: g / a,),
    ),
    Elementwise(
        "log1p", np.log1p, "log(1 + x), exact near zero", domain="positive",
        onnx=(
            "Where", ("Greater", ("Abs", 0), 1.0), ("Log", ("Add", 0, 1.0)),
            ("Mul", ("Atanh", ("Div", 0, ("Add", 0, 2.0))), 2.0),  # loses nothing near zero
        ),
        derivatives=(lambda g, a: g / (a + 1),),
    ),
    Elementwise(
        "log2", np.log2, "the logarithm to base 2", domain="positive",
        derivatives=(lambda g, a: g / (a * math.log(2)),),
    ),
    Elementwise(
        "log10", np.log10, "the logarithm to base 10", domain="positive",
        derivatives=(lambda g, a: g / (a * math.log(10)),),
    ),
    Elementwise(
        "sqrt", np.sqrt, "the square root", domain="positive",
        derivatives=(lambda g, y: g / (2 * y),),
    ),
    Elementwise(
        "rsqrt", lambda x: 1 / np.sqrt(x), "1 / sqrt(x)", domain="positive",
        derivatives=(lambda g, y: -0.5 * g * y**3,),
    ),
    Elementwise(
        "reciprocal", np.reciprocal, "1 / x",
        derivatives=(lambda g, y: -g * (y * y),),
    ),
    Elementwise(
        "square", np.square, "x * x", integers=np.square,
        derivatives=(lambda g, a: g * (2 * a),),
    ),
    Elementwise(
        "abs", np.abs, "the absolute value", exact=True, integers=np.abs, aliases=("absolute",), python="abs",
        derivatives=(lambda g, a: g * ((a > 0).astype(a.dtype) - (a < 0)),),  # 0 for NaN
    ),
    Elementwise(
        "neg", np.negative, "-x", exact=True, integers=np.negative, aliases=("negative",), python="neg",
        derivatives=(lambda g: -g,),
    ),
    Elementwise(
        "sign", np.sign, "-1, 0 or 1; 0 for NaN", domain="ties", exact=True, integers=np.sign,
        onnx=("Where", ("IsNaN", 0), 0.0, ("Sign", 0)),
        derivatives=(_nothing,),
    ),
    Elementwise(
        "sin", np.sin, "the sine",
        derivatives=(lambda g, a: g * np.cos(a),),
    ),
    Elementwise(
        "cos", np.cos, "the cosine",
        derivatives=(lambda g, a: g * -np.sin(a),),
    ),
    Elementwise(
        "sinh", np.sinh, "the hyperbolic sine", onnx="Sinh",
        derivatives=(lambda g, a: g * np.cosh(a),),
    ),
    Elementwise(
        "cosh", np.cosh, "the hyperbolic cosine", onnx="Cosh",
        derivatives=(lambda g, a: g * np.sinh(a),),
    ),
    Elementwise(
        "asin", np.arcsin, "the angle whose sine this is; NaN beyond [-1, 1]",
        domain="unit", aliases=("arcsin",),
        derivatives=(lambda g, a: g / np.sqrt(1 - a * a),),
    ),
    Elementwise(
        "acos", np.arccos, "the angle whose cosine this is; NaN beyond [-1, 1]",
        domain="unit", aliases=("arccos",),
        derivatives=(lambda g, a: -g / np.sqrt(1 - a * a),),
    ),
    Elementwise(
        "atan", np.arctan, "the angle whose tangent this is", aliases=("arctan",),
        derivatives=(lambda g, a: g / (a * a + 1),),
    ),
    Elementwise(
        "asinh", np.arcsinh, "what has this as its hyperbolic sine", onnx="Asinh", aliases=("arcsinh",),
        derivatives=(lambda g, a: g / np.sqrt(a * a + 1),),
    ),
    Elementwise(
        "acosh", np.arccosh, "what has this as its hyperbolic cosine; NaN below 1",
        domain="above", onnx="Acosh", aliases=("arccosh",),
        derivatives=(lambda g, a: g / np.sqrt(a * a - 1),),
    ),
    Elementwise(
        "atanh", np.arctanh, "what has this as its hyperbolic tangent; NaN beyond [-1, 1]",
        domain="unit", onnx="Atanh", aliases=("arctanh",),
        derivatives=(lambda g, a: g / (1 - a * a),),
    ),
    Elementwise(
        "erf", _erf, "the error function",
        derivatives=(lambda g, a: g * (2 / math.sqrt(math.pi) * np.exp(-a * a)),),
    ),
    Elementwise(
        "erfc", _erfc, "1 - erf(x), exact for small results", onnx=("Sub", 1.0, ("Erf", 0)),
        derivatives=(lambda g, a: g * (-2 / math.sqrt(math.pi) * np.exp(-a * a)),),
    ),
    Elementwise(
        "floor", np.floor, "the largest integer that is not larger", domain="halves", exact=True, integers=np.copy,
        derivatives=(_nothing,),
    ),
    Elementwise(
        "ceil", np.ceil, "the smallest integer that is not smaller", domain="halves", exact=True, integers=np.copy,
        derivatives=(_nothing,),
    ),
    Elementwise(
        "round", np.round, "the nearest integer, the even one of two",
        domain="halves", exact=True, integers=np.copy,
        derivatives=(_nothing,),
    ),
    Elementwise(
        "trunc", np.trunc, "the nearest integer that is not larger in size",
        exact=True, integers=np.copy, aliases=("fix",),
        onnx=("Where", ("Greater", 0, 0.0), ("Floor", 0), ("Ceil", 0)),
        derivatives=(_nothing,),
    ),
)  # fmt: skip


def _comparison(name: str, reference: Callable[..., Any], doc: str, *aliases: str) -> Elementwise:
    return Elementwise(
        name, reference, doc, 2, domain="ties", exact=True, integers=reference, aliases=aliases, python=name
    )


#: Comparisons: what they give is true or false.
COMPARISONS = (
    _comparison("eq", np.equal, "whether elements are equal"),
    _comparison("ne", np.not_equal, "whether elements differ", "not_equal"),
    _comparison("lt", np.less, "self < other", "less"),
    _comparison("le", np.less_equal, "self <= other", "less_equal"),
    _comparison("gt", np.greater, "self > other", "greater"),
    _comparison("ge", np.greater_equal, "self >= other", "greater_equal"),
)

#: Functions of two operands.
BINARY = (
    Elementwise(
        "add", np.add, operands=2, integers=np.add, python="add",
        derivatives=(lambda g: g, lambda g: g,),
    ),
    Elementwise(
        "sub", np.subtract, operands=2, integers=np.subtract, aliases=("subtract",), python="sub",
        derivatives=(lambda g: g, lambda g: -g,),
    ),
    Elementwise(
        "mul", np.multiply, "self * other", 2, integers=np.multiply, aliases=("multiply",), python="mul",
        derivatives=(lambda g, b: g * b, lambda g, a: g * a,),
    ),
    Elementwise(
        "div", np.divide, operands=2, real=True, aliases=("divide", "true_divide"), python="truediv",
        derivatives=(lambda g, b: g / b, lambda g, a, b: -g * (a / b / b),),
    ),
    Elementwise(
        "pow", np.power, operands=2, domain="base", integers=np.power, python="pow",
        derivatives=(_base_slope, _exponent_slope,),
    ),
    Elementwise(
        "minimum", np.minimum, "the smaller of each two elements; NaN where one is", 2,
        domain="ties", exact=True, integers=np.minimum,
        derivatives=_of_extremes(np.greater),
    ),
    Elementwise(
        "maximum", np.maximum, "the larger of each two elements; NaN where one is", 2,
        domain="ties", exact=True, integers=np.maximum,
        derivatives=_of_extremes(np.less),
    ),
    *COMPARISONS,
    Elementwise(
        "atan2", np.arctan2, "the angle of the point (other, self), from -pi to pi", 2,
        real=True, aliases=("arctan2",),
        onnx=_signed(("Where", _negative(1), ("Sub", math.pi, _ANGLE), _ANGLE), 0),
        derivatives=(lambda g, a, b: g * b * _over_square(a, b), lambda g, a, b: g * -a * _over_square(a, b)),
    ),
    Elementwise(
        "hypot", np.hypot, "sqrt(self ** 2 + other ** 2), without overflow on the way", 2,
        real=True, onnx=("Where", ("Or", ("IsInf", 0), ("IsInf", 1)), math.inf, _HYPOT),
        derivatives=(lambda g, y, a: g * (a / y), lambda g, y, b: g * (b / y),),
    ),
    Elementwise(
        "copysign", np.copysign, "the sizes of self with the signs of `other`", 2,
        exact=True, real=True, onnx=_signed(("Abs", 0), 1),
        derivatives=(lambda g, y, a: np.where(a == 0, 0, g * (y / a)), _nothing,),
    ),
    Elementwise(
        "fmod", np.fmod, "what self / other leaves, exactly; the sign is that of self", 2,
        domain="quarters", exact=True, integers=np.fmod,
        derivatives=(lambda g: g, lambda g, a, b: -g * np.trunc(a / b),),
    ),
    Elementwise(
        "remainder", np.remainder, "self - other * (self / other rounded down): the sign is that of `other`", 2,
        domain="quarters", exact=True, integers=np.remainder, python="mod",
        derivatives=(lambda g: g, lambda g, a, b: -g * np.floor_divide(a, b),),
    ),
    Elementwise(
        "floor_divide", np.floor_divide, "self / other, rounded down", 2, derivatives=(_nothing, _nothing),
        domain="quarters", exact=True, integers=np.floor_divide, python="floordiv",
    ),
    Elementwise(
        "prelu", lambda x, w: np.where(x > 0, x, w * x), operands=2, real=True,
        derivatives=(lambda g, a, b: np.where(a > 0, g, b * g), lambda g, a: np.where(a > 0, 0, a * g),),
    ),
)  # fmt: skip

#: Functions of truths; others become such, by whether they are zero.
LOGICAL = (
    Elementwise("logical_not", np.logical_not, "whether elements are zero", exact=True, lanes="as they come"),
    Elementwise("logical_and", np.logical_and, "whether both elements are not zero", 2, exact=True),
    Elementwise("logical_or", np.logical_or, "whether one of the elements is not zero", 2, exact=True),
)

#: All of them, by name.
ELEMENTWISE = {row.name: row for row in (*UNARY, *BINARY, *LOGICAL)}

#: Python's operators of two operands, by their methods' names, and which functions they are.
ARITHMETIC = {row.python: row.name for row in BINARY if row.python and row not in COMPARISONS}

#: Those of integers' bits and of truths, which are made of others.
BITWISE = ("and", "or", "xor", "lshift", "rshift")

#: Those that compare: names of methods and of functions are the same.
RELATIONS = tuple(row.python for row in COMPARISONS)
