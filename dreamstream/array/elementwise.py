"""How elementwise operations reach their kernels, for plain and for stream tensors alike.

All goes through the door. Of real values the C kernel is the definition; integers and bools of plain
tensors have no kernels: NumPy is exact for them (see `plain`). Of integers of streams C adds, multiplies, divides
and compares two; functions of one are made of these (`_OF_ONE`).

Operands are tensors, NumPy arrays and Python numbers. A number adopts the tensors' element type;
bools become integers and integers become floats where they meet. Streams of integers and bools are
compared as float32 with numbers for which that is exact.
When one operand is a stream, plain tensors are constants ("weights" of the operator), and its attribute
`order` says which operand is which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DTypeError, ModeError, NotStreamableError, ShapeError
from ..operations import BINARY, RELATIONS, UNARY
from ..stream.rules import Length, Power, holds
from ..stream.rules.sizes import Token
from . import dtypes, hook
from .base import Number, is_number
from .batch_constants import is_constant
from .deferred import as_deferred, as_number, has_formula, is_filled, library_of
from .in_place import check
from .loop_body import FRAME
from .plain import INTEGERS
from .tensor import Tensor

#: Functions of one integer of a stream.
_OF_ONE: dict[str, Callable[[Any], Any]] = {
    "abs": lambda x: binary("maximum", x, binary("sub", 0, x)),
    "neg": lambda x: binary("sub", 0, x),
    "relu": lambda x: binary("maximum", x, 0),
    "sign": lambda x: binary("minimum", binary("maximum", x, -1), 1),
    "square": lambda x: binary("mul", x, x),
    **{row.name: lambda x: x for row in UNARY if row.integers is np.copy},
}
#: What functions of numbers are of bools.
_OF_BOOLS = {"add": "logical_or", "maximum": "logical_or", "mul": "logical_and", "minimum": "logical_and"}
DIVIDE = frozenset(("trunc_divide", *(row.name for row in BINARY if row.domain == "quarters")))
ROOTS = {0.5: "sqrt", -0.5: "rsqrt"}  # powers that are NaN of -inf, as torch's are
REAL = frozenset(row.name for row in BINARY if row.real)  # of integers too


def unary(name: str, x: Tensor, attributes: Mapping[str, Any] | None = None) -> Tensor:
    """Apply an operator with one operand; integers become float32 unless it keeps them."""
    if not isinstance(x, Tensor):  # a weight or a base, among others
        (x,) = _operands((x,)) or (x,)
    elif x._by_elements is not None:
        return x._by_elements.apply_function(lambda x: unary(name, x, attributes), (x,))
    if name.startswith("logical_"):
        x = as_flags(x)
        return hook.one(name, {}, (x,))
    if not dtypes.is_float(x.dtype) and name not in INTEGERS:
        x = x.to(dtypes.float32)
    if x.is_stream and x.dtype == dtypes.int64:
        return _OF_ONE[name](x) if name in _OF_ONE else unary(name, x.to(dtypes.float32), attributes)
    return hook.one(name, attributes or {}, (x,))


def binary(name: str, a: Any, b: Any) -> Tensor:
    """Apply an operator with two operands; those that it can't take are a DTypeError or a ShapeError."""
    out = binary_or_not(name, a, b)
    if out is NotImplemented:
        raise foreign(name, b if isinstance(a, Tensor) or is_number(a) else a)
    return out


def foreign(name: str, x: Any) -> Exception:
    """Return what to raise for an operand that is neither tensor nor number; sizes say it themselves."""
    if isinstance(x, Token):
        x._misuse(f"an operand of {name} beside a tensor")
    return DTypeError(f"{name}: expected a tensor or a number, got {type(x).__name__}")


def binary_or_not(name: str, a: Any, b: Any) -> Any:
    """As `binary`, but NotImplemented for foreign operands: what Python's operators want."""
    if (library := library_among((a, b))) is not None:
        return library.defer(getattr(Tensor, name), (a, b), {})
    for x in (a, b):
        if isinstance(x, Tensor) and x._by_elements is not None:
            return x._by_elements.apply_function(
                lambda a, b: binary_or_not(name, a, b), (a, b), getattr(Tensor, name, None)
            )
    if name == "pow" and type(b) is float and b in ROOTS and isinstance(a, Tensor):
        return unary(ROOTS[b], a)
    operands = _operands((a, b))
    if operands is None:
        return NotImplemented
    dtype = _common(name, operands)
    if dtype == dtypes.bool and _any_stream(operands):
        name = _OF_BOOLS.get(name, name)
    if name in REAL and not dtypes.is_float(dtype):
        dtype = dtypes.float32
    if name in RELATIONS and not dtypes.is_float(dtype) and _any_stream(operands):
        real = (dtype == dtypes.bool or _small(operands)) and not any(map(_of_loop, operands))
        dtype = dtypes.float32 if real else dtypes.int64
    if name.startswith("logical_"):
        operands, dtype = [as_flags(o) for o in operands], dtypes.bool
    try:
        out = _combine(name, operands, [dtype, dtype])
    except ShapeError:
        if (deferred := hook.lowered("broadcast", name, *operands)) is None:
            raise
        return deferred
    edge = getattr(out, "edge", None) if name in RELATIONS else None
    if edge is not None:
        given: Any = [getattr(o, "edge", None) if isinstance(o, Tensor) else o for o in operands]
        edge.line.facts["compared"] = (name, *(getattr(g, "line", g) for g in given))
    return out


def where(condition: Any, x: Any, y: Any) -> Tensor:
    """Return x where the condition, a bool tensor, holds and y elsewhere, elementwise."""
    if (library := library_among((condition, x, y))) is not None:
        return library.defer(where, (condition, x, y), {})
    for o in (condition, x, y):
        if isinstance(o, Tensor) and o._by_elements is not None:
            waits: Tensor = o._by_elements.apply_function(where, (condition, x, y), where)
            return waits
        if hasattr(type(o), "apply_function"):  # the first frame of a stream
            first: Tensor = o.apply_function("where", where, (condition, x, y), {})
            return first
    operands = _operands((condition, x, y))
    if operands is None or not isinstance(operands[0], Tensor) or operands[0].dtype != dtypes.bool:
        raise DTypeError("where: expected a bool tensor, then two tensors or numbers")
    dtype = _common("where", operands[1:])
    if dtype == dtypes.bool and _any_stream(operands):
        chosen, others = (binary("logical_and", m, o) for m, o in zip((operands[0], ~operands[0]), operands[1:]))
        return binary("logical_or", chosen, others)
    return _combine("where", operands, [dtypes.bool, dtype, dtype])


def rounded(name: str, a: Any, b: Any) -> Any:
    """Return a quotient rounded to an integer, or its remainder; NotImplemented for foreign operands.

    `name` is "floor_divide", "trunc_divide" or "remainder", as torch has them.
    """
    operands = _operands((a, b))
    if operands is None:
        return NotImplemented
    dtype = _common(name, operands)
    if not dtypes.is_float(dtype):
        if name == "trunc_divide" and _any_stream(operands):
            return rounded("floor_divide", binary("sub", a, Tensor.fmod(a, b)), b)
        return _combine(name, operands, [dtypes.int64, dtypes.int64])
    return unary("trunc", binary("div", a, b)) if name == "trunc_divide" else binary(name, a, b)


def quotient(name: str, a: Any, b: Any) -> Tensor:
    """Return a quotient rounded to an integer, or what remains, where a foreign operand is an error."""
    out = rounded(name, a, b)
    if out is NotImplemented:
        raise foreign(name, b)
    return out


def bits(name: str, a: Any, b: Any) -> Any:
    """Combine integers bit by bit ("and", "or", "xor"), bools as truth values.

    Refused are floats, and streams of integers beside others than a number below 2 ** 62.
    """
    operands = _operands((a, b))
    if operands is None:
        return NotImplemented
    dtype = _common(name, operands)
    stream = _any_stream(operands)
    if stream and (found := _bits_of_a_number(name, operands)) is not None:
        return found
    if dtypes.is_float(dtype) or (stream and dtype != dtypes.bool):
        raise DTypeError(f"{name}: expected bool operands (or plain int64 tensors), got {dtype}")
    if not stream:
        return _combine(name, operands, [dtype, dtype])
    return binary("ne" if name == "xor" else f"logical_{name}", a, b)


def _bits_of_a_number(name: str, operands: Sequence[Tensor | Number]) -> Any:
    """Return a stream of integers bit by bit with a number, by quotients and rests; None of all else."""
    x, *others = sorted(operands, key=lambda y: not (isinstance(y, Tensor) and y.is_stream))
    other: Any = others[0]
    if isinstance(other, Tensor) and not other.is_stream and other.numel() == 1 and other.dtype == dtypes.int64:
        other = other.item()
    if (
        not isinstance(x, Tensor)
        or x.dtype != dtypes.int64
        or type(other) is not int
        or not -(2**62) <= other < 2**62
    ):
        return None
    shared: Any = x * 0  # the bits of the number, or of what it lacks, that x has
    wanted, at = other if other >= 0 else ~other, 0
    while wanted >> at:
        many = (~(wanted >> at) & (wanted >> at) + 1).bit_length() - 1
        if many:
            shared = shared + x // 2**at % 2**many * 2**at
        at += max(many, 1)
    own = x - shared if other >= 0 else shared  # those that the number lacks
    shared = x - own
    return shared if name == "and" else own + other if name == "or" else own + (other - shared)


def shifted(name: str, a: Any, b: Any) -> Any:
    """Shift the bits of integers to the left or to the right ("lshift", "rshift"), as torch does.

    Refused are floats, and streams of integers by others than a number from 0 to 62.
    """
    operands = _operands((a, b))
    if operands is None:
        return NotImplemented
    dtype = _common(name, operands)
    if dtype != dtypes.int64:
        raise DTypeError(f"{name}: expected int64 operands, got {dtype}")
    if type(b) is int and 0 <= b < 63:
        return binary("mul", a, 2**b) if name == "lshift" else rounded("floor_divide", a, 2**b)
    if _any_stream(operands):
        raise DTypeError(f"{name}: streams of integers are shifted by a number from 0 to 62")
    return _combine(name, operands, [dtype, dtype])


def filling(x: Tensor, value: Any) -> Any:
    """Return what elements of x are replaced by: a number, or a tensor of one element that has a gradient."""
    if not isinstance(value, Tensor):
        return value
    return value.reshape(()).to(x.dtype) if value._learned else value.item()


def as_flags(x: Any) -> Any:
    """Return an operand as bools: whether each element is not zero."""
    if not isinstance(x, Tensor):
        return bool(x)
    return x if x.dtype == dtypes.bool else binary("ne", x, 0)


def with_frames(x: Any) -> Any:
    """Return a tensor as it is. torch refuses one without frames here, so nothing follows from such a stream."""
    return x._operate("unless_empty", {}) if getattr(x, "edge", None) is not None else x


def along(name: str, x: Tensor, dim: int | None, attributes: Mapping[str, Any] | None = None) -> Tensor:
    """Apply an operator that works along the last feature axis, along dimension `dim`."""
    if dim is None:
        raise ShapeError(f"{name}: give the dimension, as in dim=-1")
    dtypes.require_float(name, x.dtype)
    if x.ndim == 0:
        return along(name, x.unsqueeze(0), dim, attributes).squeeze(0)
    axis = x._axis(name, dim)
    if x.is_stream and isinstance(x.dims[axis], str):  # type: ignore[attr-defined]
        across: Tensor = x._across(name, axis)  # type: ignore[attr-defined]
        return across if across.is_stream else along(name, across, axis, attributes)
    if isinstance(x.shape[axis], int) and not x.shape[axis]:
        return x
    last = axis == x.ndim - 1
    out = hook.one(name, attributes or {}, (x if last else x.transpose(axis, -1),), (), (..., 0))
    return out if last else out.transpose(axis, -1)


# ---------------------------------------------------------------------- operands
def library_among(values: Sequence[Any]) -> Any:
    """Return the library of positions, or of what all streams have alike, among values without a stream."""
    if any(isinstance(v, Tensor) and v.is_stream for v in values):
        return None
    others = (v.library for v in values if is_constant(v) or is_filled(v))
    return library_of(map(as_deferred, values)) or next(others, None)


def _operands(values: Sequence[Any]) -> list[Tensor | Number] | None:
    """Return tensors and Python numbers; None where a value is neither nor an array."""
    out: list[Tensor | Number] = []
    for value in values:
        if isinstance(value, Tensor):
            out.append(value)
        elif is_number(value):
            out.append(value.item() if isinstance(value, np.generic) else value)
        elif has_formula(value) and (value.roles or not isinstance(value.value, Length)):
            out.append(value.as_stream() if stands_elsewhere(value, values) else value.beside_frames())
        elif is_constant(value):
            if not any(_has_streams_at(v, value) for v in values):
                return None
            out.append(value.value)
        elif hasattr(type(value), "as_stream") and not has_formula(value):
            out.append(value.as_stream())
        elif isinstance(value, np.ndarray):
            out.append(Tensor._plain(dtypes.adopt(value)))
        elif isinstance(value := as_number(value), Length) and value.in_most() is not None:
            out.append(value.__index__())
        elif isinstance(value, (Length, Power)):
            root = value if isinstance(value, Power) else None
            streams = [v for v in values if isinstance(v, Tensor) and v.is_stream]
            found = streams[0].of_length(value if root is None else root.over) if streams else None  # type: ignore[attr-defined]
            if found is None and root is not None and streams:
                root._misuse('an operand beside frames (unstreamable="buffer" waits for it)')
            if found is None:
                return None
            out.append(found if root is None else root.value(found.to(np.dtype(np.float32))))
        else:
            return None
    return out if any(isinstance(o, Tensor) for o in out) else None


def stands_elsewhere(x: Any, others: Sequence[Any]) -> bool:
    """Whether frames of one number for all stand where a stream that they meet has none: no constant says that."""
    places = [i - x.ndim for i, role in enumerate(x.roles) if role == "L" and not x.position]
    dims = [o.dims for o in others if places and isinstance(o, Tensor) and o.is_stream]  # type: ignore[attr-defined]
    return any(len(d) < -at or not (isinstance(d[at], str) and holds(d[at], "L")) for d in dims for at in places)


def _has_streams_at(x: Any, constant: Any) -> bool:
    """Whether x is a stream whose dimension of streams meets that of a constant of the batch."""
    if not (isinstance(x, Tensor) and x.is_stream and "B" in x.dims):  # type: ignore[attr-defined]
        return False
    dims = x.dims  # type: ignore[attr-defined]
    return bool(len(dims) - dims.index("B") == constant.value.ndim - constant.batch_axis)


def _any_stream(operands: Sequence[Tensor | Number]) -> bool:
    return any(isinstance(o, Tensor) and o.is_stream for o in operands)


def _common(name: str, operands: Sequence[Tensor | Number]) -> dtypes.DType:
    tensors = [o.dtype for o in operands if isinstance(o, Tensor)]
    return dtypes.common(name, tensors, [o for o in operands if not isinstance(o, Tensor)])


def _combine(name: str, operands: Sequence[Tensor | Number], dtype: Sequence[dtypes.DType]) -> Tensor:
    """Run an operator on operands, each converted to its element type."""
    stream = _any_stream(operands)
    if stream and name in DIVIDE and dtype[-1] == dtypes.int64:
        if isinstance(operands[1], Tensor) and operands[1].is_stream:
            raise DTypeError.here(f"{name}: integers of a stream can't divide", ": some may be 0")
        _check_integers(name, (operands[1], operands[1]))
    if not stream and not dtypes.is_float(dtype[-1]):
        _check_integers(name, operands)
    inputs: list[Tensor] = []
    weights: list[Tensor] = []
    order: list[int] = []
    for operand, wanted in zip(operands, dtype):
        tensor = _typed(operand, wanted, operands) if isinstance(operand, Tensor) else _constant(operand, wanted)
        constant = not isinstance(operand, Tensor) or (stream and not operand.is_stream)
        (weights if constant else inputs).append(tensor)
        order.append(int(constant))
    out = hook.one(name, {"order": order} if weights else {}, inputs, weights)
    choice = None if stream or name not in RELATIONS else hook.CHOICE.get()
    if choice is not None and dtypes.is_float(dtype[-1]):
        a, b = (o.numpy() if isinstance(o, Tensor) else o for o in operands)
        chosen = choice.compared(a, b, out.numpy())
        return out if chosen is None else Tensor._plain(chosen)
    return out


def _typed(x: Any, dtype: dtypes.DType, operands: Iterable[Any]) -> Tensor:
    """Return an operand in an operator's type; integers and bools in that of narrower numbers that they meet."""
    made: Tensor = x.to(dtype)
    other = next((o for o in operands if made is not x and isinstance(o, Tensor) and o.dtype == dtype), None)
    edge = None if other is None else getattr(x, "edge", None) or getattr(other, "edge", None)
    return made if edge is None else edge.entry.library.beside(made, other)


def _of_loop(x: Any) -> bool:
    """Whether it is a frame in the body of a loop, in which float32 and float64 don't meet."""
    edge = getattr(x, "edge", None)
    return edge is not None and edge.cid == FRAME


def _small(operands: Sequence[Tensor | Number]) -> bool:
    """Whether one is a number that any integer rounded to float32 compares with as it does itself."""
    return any(not isinstance(o, Tensor) and abs(o) < 1 << 24 for o in operands)


def _constant(number: Number, dtype: dtypes.DType) -> Tensor:
    """Return a Python number as a tensor without dimensions, around the same array each time."""
    with np.errstate(over="ignore"):
        return Tensor._plain(_number(np.array(number, dtype).tobytes(), dtype))


@lru_cache(maxsize=1024)
def _number(data: bytes, dtype: dtypes.DType) -> Any:
    return np.frombuffer(data, dtype).reshape(())


def _check_integers(name: str, operands: Sequence[Tensor | Number]) -> None:
    """Raise the errors that NumPy would word otherwise, of plain integers and bools."""
    arrays = [o.numpy() if isinstance(o, Tensor) else np.asarray(o) for o in operands]
    try:
        np.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        shapes = " and ".join(str(a.shape) for a in arrays)
        raise ShapeError(f"{name}: shapes {shapes} don't broadcast") from None
    if name in DIVIDE and not arrays[1].all():
        raise ZeroDivisionError(f"{name}: integers can't be divided by zero")


def refuse_in_place(x: Tensor, what: str) -> None:
    """Raise ModeError where a plain `x` can't be written into: a constant that is expanded, and what trains."""
    check(x, what)
    if not x.numpy().flags.writeable:
        raise ModeError(f"{what}: this tensor shares memory that can't be written; use .clone() first")


def plain_array(name: str, value: Any, dtype: dtypes.DType | None = None) -> NDArray[Any]:
    """Return the array of a plain tensor, an array or a list, for an operation that takes no streams."""
    if isinstance(value, Tensor):
        if value.is_stream:
            raise ModeError(f"{name}: expected a plain tensor, got a stream")
        array = value.numpy()
    else:
        array = dtypes.adopt(np.asarray(value))
    if dtype is not None and array.dtype != dtype:
        raise DTypeError(f"{name}: expected {dtype}, got {array.dtype}")
    return array


def refuse_streams(what: str, parts: Sequence[Any]) -> None:
    """Refuse to index a constant by a stream."""
    if any(isinstance(p, Tensor) and p.is_stream for p in parts):
        raise NotStreamableError.here(
            f"{what} by a stream,",
            ": rows of a table of floats are table[index], by integers; else there are F.one_hot(index, "
            "n).float() @ table, and for experts @ds.register and dreamstream.torch.functional.expert_linear",
        )


def rows_at(table: Tensor, parts: Sequence[Any]) -> Tensor | None:
    """Return ``table[parts]``, where the first part is a stream of integers, from the end where negative.

    None where no part is a stream.
    """
    if not any(isinstance(p, Tensor) and p.is_stream for p in parts):
        return None
    at, *rest = parts
    if (
        not isinstance(at, Tensor)
        or at.dtype != dtypes.int64
        or not dtypes.is_float(table.dtype)
        or not table.ndim
    ):
        refuse_streams("an index of a constant", parts)
    part = (slice(None), *rest)
    rows = table[part]
    n, *shape = rows.shape
    at = at - (at >> 62) * n  # a shift of a negative number is -1
    out: Tensor = hook.one("embedding", {}, (at,), (rows.reshape(n, math.prod(shape)),), (...,))
    return out.unflatten(-1, shape) if shape else out.squeeze(-1)


def ones_of(x: Any, dtype: Any = "float32") -> Any:
    """Return ones, as many as x has elements."""
    return (x.eq(x) | x.ne(x)).to(dtype)


def repeated(constant: Any, x: Any) -> Any:
    """Return a constant of all streams, ``(B, ...)``, for each frame of ``(B, ...)`` in the body of a loop."""
    one = x
    for axis in range(1, x.ndim):
        one = one.narrow(axis, 0, 1)
    return ones_of(one, constant.dtype) * constant.constant
