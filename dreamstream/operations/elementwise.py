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
    """A function of one element of each operand."""

    reference: Callable[..., Any]  #: The same function on NumPy's arrays.
    doc: str = ""  #: What the method of tensors returns; without it there is none that does just this.
    operands: int = 1  #: How many operands it has.
    #: Which numbers show what it does: all; mostly above 0; mostly within [-1, 1]; mostly from 1 on; few, so that
    #: many are equal; multiples of 1/2 and what lies between; multiples of 1/4 but 0; above 0, then any.
    domain: str = "any"
    exact: bool = False  #: Whether nothing is rounded, so that results are the reference's bit by bit.
    #: The same function of integers, where integers come out; others become float32 first.
    integers: Callable[..., Any] | None = None
    real: bool = False  #: Whether two integers become float32.
    aliases: tuple[str, ...] = ()  #: torch's other names.
    python: str = ""  #: Python's operator, by its method's name without underscores.
    #: ONNX's operator, where torch's exporter lacks the function, or has other results at zeros, infinities or
    #: NaN; or how it is made: an operator, and of what: such tuples, the numbers of operands and parameters (int),
    #: constants (float).
    onnx: str | tuple[Any, ...] = ""
    #: Values of each of its attributes that show what it does; `reference` takes them by name.
    tries: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def _softplus(x: Any, beta: float, threshold: float) -> Any:
    return np.where(beta * x > threshold, x, np.log1p(np.exp(np.minimum(beta * x, 700))) / beta)


def _elu(x: Any, alpha: float, scale: float, input_scale: float) -> Any:
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0) * input_scale), scale * x)


def _numbers(x: Any, nan: float = 0.0, posinf: float = math.inf, neginf: float = -math.inf) -> Any:
    return np.where(np.isnan(x), nan, np.where(x == math.inf, posinf, np.where(x == -math.inf, neginf, x)))


#: Functions of one operand.
UNARY = (
    Elementwise(
        "gelu", _gelu, torch="nn.functional.gelu", takes=("approximate",), tries={"approximate": ("none", "tanh")}
    ),
    Elementwise(
        "clamp", lambda x, min=-math.inf, max=math.inf: np.minimum(np.maximum(x, min), max),
        domain="ties", exact=True, takes=("min", "max"),
        tries={"min": (-math.inf, -2.0, 0.0, 1.0), "max": (math.inf, -1.0, 0.0, 2.0)},
    ),
    Elementwise(
        "softplus", _softplus, torch="nn.functional.softplus", takes=("beta", "threshold"),
        tries={"beta": (1.0, 2.0, 0.5), "threshold": (20.0, 1.0, 5.0)},
        onnx=("Where", ("Greater", ("Mul", 0, 1), 2), 0, ("Div", ("Softplus", ("Mul", 0, 1)), 1)),
    ),
    Elementwise(
        "elu", _elu, takes=("alpha", "scale", "input_scale"),
        tries=dict.fromkeys(("alpha", "scale", "input_scale"), (1.0, 0.5, 1.75)),
    ),
    Elementwise(
        "relu", lambda x: np.where(x < 0, 0, x), "max(x, 0)",
        domain="ties", exact=True, integers=lambda a: np.maximum(a, 0),
    ),
    Elementwise("silu", lambda x: x * _sigmoid(x), torch="nn.functional.silu"),
    Elementwise("hardswish", lambda x: x * np.clip(x + 3, 0, 6) / 6, torch="nn.functional.hardswish"),
    Elementwise("sigmoid", _sigmoid, "1 / (1 + e ** -x)", aliases=("expit",)),
    Elementwise(
        "logsigmoid", lambda x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))), torch="nn.functional.logsigmoid",
        aliases=("log_sigmoid",), onnx=("Sub", 0.0, ("Softplus", ("Neg", 0))),
    ),
    Elementwise("tanh", np.tanh, "the hyperbolic tangent"),
    Elementwise("exp", np.exp, "e ** x"),
    Elementwise(
        "expm1", np.expm1, "e ** x - 1, exact near zero",
        onnx=(
            "Where", ("Less", 0, -1.0), ("Sub", ("Exp", 0), 1.0),
            ("Mul", ("Mul", ("Sinh", ("Mul", 0, 0.5)), 2.0), ("Exp", ("Mul", 0, 0.5))),  # loses nothing near zero
        ),
    ),
    Elementwise("log", np.log, "the natural logarithm", domain="positive"),
    Elementwise(
        "log1p", np.log1p, "log(1 + x), exact near zero", domain="positive",
        onnx=(
            "Where", ("Greater", ("Abs", 0), 1.0), ("Log", ("Add", 0, 1.0)),
            ("Mul", ("Atanh", ("Div", 0, ("Add", 0, 2.0))), 2.0),  # loses nothing near zero
        ),
    ),
    Elementwise("log2", np.log2, "the logarithm to base 2", domain="positive"),
    Elementwise("log10", np.log10, "the logarithm to base 10", domain="positive"),
    Elementwise("sqrt", np.sqrt, "the square root", domain="positive"),
    Elementwise("rsqrt", lambda x: 1 / np.sqrt(x), "1 / sqrt(x)", domain="positive"),
    Elementwise("reciprocal", np.reciprocal, "1 / x"),
    Elementwise("square", np.square, "x * x", integers=np.square),
    Elementwise(
        "abs", np.abs, "the absolute value", exact=True, integers=np.abs, aliases=("absolute",), python="abs"
    ),
    Elementwise("neg", np.negative, "-x", exact=True, integers=np.negative, aliases=("negative",), python="neg"),
    Elementwise(
        "sign", np.sign, "-1, 0 or 1; 0 for NaN", domain="ties", exact=True, integers=np.sign,
        onnx=("Where", ("IsNaN", 0), 0.0, ("Sign", 0)),
    ),
    Elementwise("sin", np.sin, "the sine"),
    Elementwise("cos", np.cos, "the cosine"),
    Elementwise("sinh", np.sinh, "the hyperbolic sine", onnx="Sinh"),
    Elementwise("cosh", np.cosh, "the hyperbolic cosine", onnx="Cosh"),
    Elementwise(
        "asin", np.arcsin, "the angle whose sine this is; NaN beyond [-1, 1]",
        domain="unit", aliases=("arcsin",),
    ),
    Elementwise(
        "acos", np.arccos, "the angle whose cosine this is; NaN beyond [-1, 1]",
        domain="unit", aliases=("arccos",),
    ),
    Elementwise("atan", np.arctan, "the angle whose tangent this is", aliases=("arctan",)),
    Elementwise("asinh", np.arcsinh, "what has this as its hyperbolic sine", onnx="Asinh", aliases=("arcsinh",)),
    Elementwise(
        "acosh", np.arccosh, "what has this as its hyperbolic cosine; NaN below 1",
        domain="above", onnx="Acosh", aliases=("arccosh",),
    ),
    Elementwise(
        "atanh", np.arctanh, "what has this as its hyperbolic tangent; NaN beyond [-1, 1]",
        domain="unit", onnx="Atanh", aliases=("arctanh",),
    ),
    Elementwise("exp2", np.exp2, "2 ** x", onnx=("Pow", 2.0, 0)),
    Elementwise(
        "frac", lambda x: x - np.trunc(x), "what trunc takes away", exact=True,
        onnx=("Where", ("Greater", 0, 0.0), ("Sub", 0, ("Floor", 0)), ("Sub", 0, ("Ceil", 0))),
    ),
    Elementwise(
        "nan_to_num", _numbers, domain="any", exact=True, takes=("nan", "posinf", "neginf"),
        tries={"nan": (0.0, 1.0, -2.0), "posinf": (math.inf, 3.0), "neginf": (-math.inf, -3.0)},
    ),
    Elementwise("erf", _erf, "the error function"),
    Elementwise("erfc", _erfc, "1 - erf(x), exact for small results", onnx=("Sub", 1.0, ("Erf", 0))),
    Elementwise(
        "floor", np.floor, "the largest integer that is not larger", domain="halves", exact=True, integers=np.copy
    ),
    Elementwise(
        "ceil", np.ceil, "the smallest integer that is not smaller", domain="halves", exact=True, integers=np.copy
    ),
    Elementwise(
        "round", np.round, "the nearest integer, the even one of two",
        domain="halves", exact=True, integers=np.copy,
    ),
    Elementwise(
        "trunc", np.trunc, "the nearest integer that is not larger in size",
        exact=True, integers=np.copy, aliases=("fix",),
        onnx=("Where", ("Greater", 0, 0.0), ("Floor", 0), ("Ceil", 0)),
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
    Elementwise("add", np.add, operands=2, integers=np.add, python="add"),
    Elementwise("sub", np.subtract, operands=2, integers=np.subtract, aliases=("subtract",), python="sub"),
    Elementwise("mul", np.multiply, "self * other", 2, integers=np.multiply, aliases=("multiply",), python="mul"),
    Elementwise("div", np.divide, operands=2, real=True, aliases=("divide", "true_divide"), python="truediv"),
    Elementwise("pow", np.power, operands=2, domain="base", integers=np.power, python="pow"),
    Elementwise(
        "minimum", np.minimum, "the smaller of each two elements; NaN where one is", 2,
        domain="ties", exact=True, integers=np.minimum,
    ),
    Elementwise(
        "maximum", np.maximum, "the larger of each two elements; NaN where one is", 2,
        domain="ties", exact=True, integers=np.maximum,
    ),
    *COMPARISONS,
    Elementwise(
        "atan2", np.arctan2, "the angle of the point (other, self), from -pi to pi", 2,
        real=True, aliases=("arctan2",),
        onnx=_signed(("Where", _negative(1), ("Sub", math.pi, _ANGLE), _ANGLE), 0),
    ),
    Elementwise(
        "hypot", np.hypot, "sqrt(self ** 2 + other ** 2), without overflow on the way", 2,
        real=True, onnx=("Where", ("Or", ("IsInf", 0), ("IsInf", 1)), math.inf, _HYPOT),
    ),
    Elementwise(
        "copysign", np.copysign, "the sizes of self with the signs of `other`", 2,
        exact=True, real=True, onnx=_signed(("Abs", 0), 1),
    ),
    Elementwise(
        "fmod", np.fmod, "what self / other leaves, exactly; the sign is that of self", 2,
        domain="quarters", exact=True, integers=np.fmod,
    ),
    Elementwise(
        "remainder", np.remainder, "self - other * (self / other rounded down): the sign is that of `other`", 2,
        domain="quarters", exact=True, integers=np.remainder, python="mod",
    ),
    Elementwise(
        "floor_divide", np.floor_divide, "self / other, rounded down", 2,
        domain="quarters", exact=True, integers=np.floor_divide, python="floordiv",
    ),
    Elementwise("prelu", lambda x, w: np.where(x > 0, x, w * x), operands=2, real=True),
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
