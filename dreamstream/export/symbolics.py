"""ONNX forms of torch's functions that its exporter lacks, or has with other results.

They are in force while a model is exported, and not after.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.onnx import symbolic_helper as helper

from ..operations import ELEMENTWISE, Elementwise
from ..torch.private import onnx_type

FORMS: dict[str, Callable[..., Any]] = {}


@contextmanager
def symbolics(opset: int) -> Iterator[None]:
    """Put the forms in force."""
    for name, form in FORMS.items():
        torch.onnx.register_custom_op_symbolic(name, form, opset)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for name in FORMS:
            torch.onnx.unregister_custom_op_symbolic(name, opset)  # type: ignore[attr-defined]


def _form(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def keep(form: Callable[..., Any]) -> Callable[..., Any]:
        FORMS[f"aten::{name}"] = form
        return form

    return keep


def _made(row: Elementwise) -> Callable[..., Any]:
    """Return the form that a row says (`Elementwise.onnx`)."""
    form = (row.onnx, 0) if isinstance(row.onnx, str) else row.onnx

    def make(g: Any, *given: Any) -> Any:
        given = (*given[: row.operands], *(_as(g, p, given[0]) for p in given[row.operands :]))

        def value(part: Any) -> Any:
            if isinstance(part, tuple):
                return g.op(part[0], *map(value, part[1:]))
            return _number(g, part, given[0]) if isinstance(part, float) else given[part]

        return value(form)

    return make


def _number(g: Any, value: float, like: Any) -> Any:
    """Return a constant of the type of `like`."""
    return _as(g, g.op("Constant", value_t=torch.tensor(value)), like)


def _as(g: Any, value: Any, like: Any) -> Any:
    """Return a value in the type of another."""
    kind = onnx_type(like)
    return g.op("CastLike", value, like) if kind is None else g.op("Cast", value, to_i=kind)


def _modulo(g: Any, a: Any, b: Any) -> Any:
    """What division leaves, with the divisor's sign; that of zeros is the dividend's, as torch has it."""
    if not (helper._is_fp(a) or helper._is_fp(b)):
        return g.op("Mod", a, b)
    left, across = _left(g, a, b)
    return g.op("Where", across, g.op("Add", left, b), left)


def _left(g: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Return what division towards zero leaves, and where its sign is not the divisor's."""
    left = g.op("Mod", a, b, fmod_i=1)
    zero = _number(g, 0, left)
    across = g.op("Xor", g.op("Less", left, zero), g.op("Less", b, zero))
    some = g.op("Greater", g.op("Abs", left), zero)
    return left, g.op("And", some, across)


@_form("floor_divide")
def _floor_divide(g: Any, a: Any, b: Any) -> Any:
    """Round down, as torch does: the quotient of what is left when the remainder is taken away."""
    if not (helper._is_fp(a) or helper._is_fp(b)):
        quotient = g.op("Div", a, b)
        # Div rounds towards zero: one less where the signs differ and something is left over
        left = g.op("Sub", a, g.op("Mul", quotient, b))
        zero = _number(g, 0, quotient)
        less = g.op("Less", g.op("Mul", g.op("Sign", left), g.op("Sign", b)), zero)
        return g.op("Sub", quotient, _as(g, less, quotient))
    left, across = _left(g, a, b)
    zero, one = _number(g, 0, left), _number(g, 1, left)
    fraction = g.op("Div", a, b)
    quotient = g.op("Div", g.op("Sub", a, left), b)
    quotient = g.op("Where", across, g.op("Sub", quotient, one), quotient)
    whole = g.op("Floor", quotient)
    short = g.op("Greater", g.op("Sub", quotient, whole), _number(g, 0.5, left))
    whole = g.op("Where", short, g.op("Add", whole, one), whole)
    some = g.op("Greater", g.op("Abs", quotient), zero)  # else a zero with the fraction's sign
    whole = g.op("Where", some, whole, g.op("Mul", fraction, zero))
    return g.op("Where", g.op("Equal", b, zero), fraction, whole)


def _choose(g: Any, condition: Any, a: Any, b: Any) -> Any:
    """Choose; of truth values by logic, for which runtimes have more operators."""
    if helper._is_bool(a) or helper._is_bool(b):
        first = g.op("And", condition, a)
        return g.op("Or", first, g.op("And", g.op("Not", condition), b))
    source = condition.node()
    if source.kind() == "onnx::Not":  # by which a runtime would exchange a and b, and lose the sign of b's zeros
        false = g.op("Constant", value_t=torch.tensor(False))
        condition = g.op("Equal", next(source.inputs()), false)
    return g.op("Where", condition, a, b)


@_form("sort")
def _sort(g: Any, x: Any, stable: Any, dim: Any, descending: Any) -> tuple[Any, Any]:
    """Sort, the first of equals first, as ONNX orders all elements by TopK."""
    axis = helper._get_const(dim, "i", "dim")
    at = g.op("Constant", value_t=torch.tensor([axis]))
    n = g.op("Gather", g.op("Shape", x), at)
    down = helper._get_const(descending, "b", "descending")
    values, places = g.op("TopK", x, n, axis_i=axis, largest_i=down, outputs=2)
    return values, places


@_form("rms_norm")
def _rms_norm(g: Any, x: Any, shape: Any, weight: Any, eps: Any) -> Any:
    n = len(helper._get_const(shape, "is", "normalized_shape"))
    axes = g.op("Constant", value_t=torch.arange(-n, 0))
    mean = g.op("ReduceMean", g.op("Mul", x, x), axes, keepdims_i=1)
    least = torch.finfo(torch.float32).eps if helper._is_none(eps) else helper._get_const(eps, "f", "eps")
    y = g.op("Div", x, g.op("Sqrt", g.op("Add", mean, _number(g, least, x))))
    return y if helper._is_none(weight) else g.op("Mul", y, weight)


@_form("avg_pool2d")
def _avg_pool2d(
    g: Any, x: Any, kernel: Any, stride: Any, padding: Any, ceil: Any, include: Any, divisor: Any
) -> Any:
    """Mean of windows, or their sum by a divisor of one's own, which torch's form leaves out."""
    sizes = helper._get_const(kernel, "is", "kernel_size")
    y = g.op(
        "AveragePool",
        x,
        kernel_shape_i=sizes,
        strides_i=helper._get_const(stride, "is", "stride") or sizes,
        pads_i=tuple(helper._get_const(padding, "is", "padding")) * 2,
        ceil_mode_i=helper._get_const(ceil, "i", "ceil_mode"),
        count_include_pad_i=helper._get_const(include, "i", "count_include_pad"),
    )
    if helper._is_none(divisor):
        return y
    scale = math.prod(sizes) / helper._get_const(divisor, "i", "divisor_override")
    return g.op("Mul", y, _number(g, scale, y))


@_form("permute")
def _permute(g: Any, x: Any, dims: Any) -> Any:
    """Axes counted from the end too, of which torch's form makes no sense where the rank is not known."""
    order = helper._get_const(dims, "is", "dims")
    return g.op("Transpose", x, perm_i=[d % len(order) for d in order])


def _extreme(onnx_name: str) -> Callable[..., Any]:
    """Return the form of an extreme over axes; of truth values by way of numbers, which is all that ONNX takes."""

    def form(g: Any, x: Any, dims: Any, keepdim: Any) -> Any:
        axes = g.op("Constant", value_t=torch.tensor(helper._get_const(dims, "is", "dim")))
        kept = helper._get_const(keepdim, "i", "keepdim")
        if not helper._is_bool(x):
            return g.op(onnx_name, x, axes, keepdims_i=kept)
        numbers = g.op("Cast", x, to_i=torch.onnx.TensorProtoDataType.INT32)
        extreme = g.op(onnx_name, numbers, axes, keepdims_i=kept)
        return g.op("Cast", extreme, to_i=torch.onnx.TensorProtoDataType.BOOL)

    return form


_ROWS: dict[str, Callable[..., Any]] = {
    **{
        aten: _made(row)
        for row in ELEMENTWISE.values()
        if row.onnx
        for aten in (row.name, f"special_{row.name}", *row.aliases)
    },
    "masked_fill": lambda g, x, mask, by: _choose(g, mask, _as(g, helper._maybe_get_scalar(by), x), x),
    "where": _choose,
    "amin": _extreme("ReduceMin"),
    "amax": _extreme("ReduceMax"),
}
FORMS["aten::remainder"] = _modulo
FORMS.update({f"aten::{name}": form for name, form in _ROWS.items()})
