"""Loops over frames that are functions: `scan`, and the step of linear recurrences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import DTypeError, ShapeError
from ..stream.foreign import inner_of
from ..tracing import Site
from .for_loops import ForLoop
from .frame_numbers import refuse
from .loop_frames import EachFrame, Frames, Together
from .loop_lists import Gathered
from .stream_tensor import StreamTensor

_CARRY = Site(
    "for", __file__, 0, "scan", "xs", ("carry",), live=("carry", "ys"), later=("carry", "ys"), held=("ys",)
)


def _frames_of(xs: Any, dim: int, name: str) -> Any:
    """Return what a loop over frames, or over parts of plain tensors, goes over."""
    if type(dim) is not int:
        raise DTypeError.here(f"{name}: dim must be an integer, got {type(dim).__name__}")
    if isinstance(xs, (tuple, list)) and xs:
        parts = [_frames_of(x, dim, name) for x in xs]
        streams = [p for p in parts if isinstance(p, Frames)]
        if streams and len(streams) < len(parts):
            refuse(
                "frames and a plain tensor are gone through together; index that, or take its first x.size(L) rows"
            )
        counts: list[Any] = [p.length for p in streams] or [*map(len, parts)]
        if any(isinstance(more := n - counts[0], int) and more for n in counts):
            raise ShapeError.here(
                f"{name}: tensors of {', '.join(map(repr, counts))} frames are gone through together"
            )
        return Together(streams) if streams else [*zip(*parts)]
    inner = inner_of(xs)
    if type(inner) is StreamTensor and inner.edge is not None:
        axis = inner._axis(name, dim)
        if inner.dims[axis] != "L":
            refuse(f"{name} goes along L, which is not dimension {dim} of {inner.roles}")
        return EachFrame(inner, axis)
    if not hasattr(xs, "unbind"):
        raise DTypeError.here(f"{name}: expected tensors with frames, or tuples of these, got {type(xs).__name__}")
    return xs.unbind(dim)


def _stepped(f: Callable[[Any, Any], tuple[Any, Any]], carry: Any, x: Any) -> Any:
    """Return what is carried on, and what a frame gives."""
    made = f(carry, x)
    if not isinstance(made, (tuple, list)) or len(made) != 2:
        of = f" of {len(made)}" if isinstance(made, (tuple, list)) else ""
        raise DTypeError.here(f"scan: f must return a tuple (carry, y), got {type(made).__name__}{of}")
    if made[1] is not None and not hasattr(made[1], "shape"):
        raise DTypeError.here(
            f"scan: y, of which f returns (carry, y), must be a tensor or None, got {type(made[1]).__name__}"
        )
    return made


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    dim: int,
    stack: Callable[..., Any],
    name: str = "scan",
) -> tuple[Any, Any]:
    """Do what the public functions of this name say; `stack` is the front end's."""
    carry: Any = init
    ys: Any = []
    if not callable(f):
        raise DTypeError.here(f"scan: f must be a function (carry, x), got {type(f).__name__}")
    over = _frames_of(xs, dim, name)
    loop = ForLoop(_CARRY)
    if isinstance(over, Frames):
        over = loop.begin(over, {"carry": carry, "ys": ys, "scan": f})
    for x in over:
        if loop.scans:
            carry, ys = loop.carried("carry"), loop.carried("ys")
        carry, y = _stepped(f, carry, x)
        if y is not None:
            ys.append(y)
    if loop.scans:
        carry, ys = loop.after("carry"), loop.after("ys")
    if isinstance(ys, Gathered):
        return carry, ys.stacked(dim)
    return carry, stack(ys, dim) if ys else None


def recurrence_step(h: Any, ab: Any) -> tuple[Any, Any]:
    """Return h of a linear recurrence, and h."""
    a, b = ab
    h = b if h is None else a * h + b
    return h, h
