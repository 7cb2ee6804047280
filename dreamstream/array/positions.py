"""Integers that are computed of a frame's position, as the operator of positions counts them.

It knows sums, products, quotients and rests. What a forward does to ``arange(x.size(L))`` is read off the deferred
value, and compared with what the functions themselves say of some lengths.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import NotStreamableError
from ..stream.rules import Length
from .deferred import SERVES_FRAMES, Deferred, is_deferred
from .stream_tensor import StreamTensor
from .symbolic import Symbolic

#: The operator's codes for sums, products, quotients and rests.
_CODES = dict.fromkeys(("add", "radd", "sub"), 0) | dict.fromkeys(("mul", "rmul"), 1)
_CODES |= dict.fromkeys(("floordiv", "floor_divide"), 2) | dict.fromkeys(("mod", "remainder"), 3)
_SHAPES = (
    "to", "long", "int", "type", "type_as", "unsqueeze", "squeeze", "view", "reshape", "expand", "expand_as",
    "repeat", "getitem", "contiguous", "clone", "detach",
)  # fmt: skip


def integers(x: Any) -> bool:
    """Whether a tensor of either library holds integers."""
    return "int" in str(getattr(x, "dtype", ""))


def streamed(x: Any, to: str) -> StreamTensor:
    """Return integers of positions as the stream that they are, of an element type.

    Raises
    ------
    NotStreamableError
        Where they are nothing that the operator counts.
    """
    leaf, steps = _counted(x)
    if not isinstance(x, Symbolic) and not all(_as_counted(x, leaf, steps, n) for n in (64, 65)):
        raise unknown(x)
    places = Symbolic(leaf.value, ["L" if isinstance(s, Length) else 1 for s in x.shape], leaf.length, True)
    out: StreamTensor = places.stream(to, steps).expand(*(s if isinstance(s, int) else -1 for s in x.shape))
    return out


def _counted(x: Any) -> tuple[Symbolic, list[int]]:
    """Return the positions, and the steps that make integers of them, in the operator's codes."""
    if isinstance(x, Symbolic) and x.position and isinstance(x.value, (int, float)):
        return x, []
    if isinstance(x, Deferred):
        name, first = x.func.__name__.strip("_"), x.args[0]
        by = x.args[1] if len(x.args) > 1 else x.kwargs.get("other")
        if integers(by) and not (is_deferred(by) or getattr(by, "is_stream", False)) and math.prod(by.shape) == 1:
            by = int(by)
        if name in _SHAPES:
            return _counted(first)
        if isinstance(by, int) and is_deferred(first):
            leaf, steps = _counted(first)
            floored = name == "div" and x.kwargs.get("rounding_mode") == "floor"
            code = 2 if floored else _CODES.get(name)
            if code is not None and (code < 2 or by >= 1) and "alpha" not in x.kwargs:
                return leaf, [*steps, code, -by if name == "sub" else by]
        if name in ("add", "radd", "mul", "rmul") and isinstance(first, int):
            leaf, steps = _counted(by)
            return leaf, [*steps, _CODES[name], first]
    raise unknown(x)


def _as_counted(x: Any, leaf: Symbolic, steps: list[int], n: int) -> bool:
    """Whether positions with these steps are what the functions say of n frames."""
    with x.library.evaluating():
        wanted = x.probe(n).numpy()
    at = np.arange(wanted.shape[next(i for i, s in enumerate(x.shape) if isinstance(s, Length))])
    at = at + int(leaf.value)
    for code, c in zip(steps[::2], steps[1::2]):
        at = (at + c, at * c, at // max(c, 1), at % max(c, 1))[code]
    shape = [-1 if isinstance(s, Length) else 1 for s in x.shape]
    return np.array_equal(np.broadcast_to(at.reshape(shape), wanted.shape), wanted)


def first_row(at: Any, repeated: bool = False) -> tuple[int, Length, int, int] | None:
    """Return the first of positions in turn, their length, how many axes there are and which theirs is.

    Where they may be `repeated`, axes beside theirs have any size.
    """
    shape = at.shape
    places = [i for i, s in enumerate(shape) if isinstance(s, Length)]
    if (
        len(places) != 1
        or not integers(at)
        or (not repeated and any(isinstance(s, int) and s != 1 for s in shape))
    ):
        return None
    start, length = at.value if isinstance(at, Symbolic) else 0, shape[places[0]]
    if not isinstance(at, Symbolic):
        for n in (64, at.frames + 1):
            with at.library.evaluating():
                probed = np.moveaxis(at.probe(n).numpy(), places[0], -1)
            rows = np.arange(probed.shape[-1]) + int(probed.flat[0])
            start = int(rows[0])
            if not (probed == rows).all():
                return None
    elif not at.position:
        return None
    return (start, length, len(shape), places[0]) if isinstance(start, int) and start >= 0 else None


def unknown(x: Any) -> NotStreamableError:
    """Return the error for integers that are not counted."""
    if isinstance(x, Symbolic) and not x.position and isinstance(x.value, Length):
        return NotStreamableError.here(
            f"a mask of {x!r} meets frames,",
            ": the counts don't show that these lengths cover all frames of every stream; derive them as the "
            "layers do, from lengths that the forward is given",
        )
    return NotStreamableError.here(
        f"{x!r} meet a stream,",
        f": integers that are no sum, product, quotient or rest of one position; {SERVES_FRAMES}",
    )
