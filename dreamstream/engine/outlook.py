"""How far an operator looks ahead, and what would look less far, or would stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..operations import row_of
from ..stream.context import Context


class Node(NamedTuple):
    """An operation of a model, as it was captured.

    Attributes
    ----------
    path : str
        The module's that ran it.
    operator : str
    rate, rate_in : Fraction
        Frames of its first output and of its first input per unit of time.
    attributes : dict
        The operator's, defaults included.
    shapes : list of tuple of int
        Of its weights.
    once : bool
        Whether it follows from what is given once.
    frame_bytes : int
        Of a frame of its first output.
    """

    path: str
    operator: str
    rate: Any
    rate_in: Any
    attributes: dict[str, Any]
    shapes: Sequence[tuple[int, ...] | None]
    once: bool
    frame_bytes: int


class Outlook(NamedTuple):
    """What an operator sees of a stream.

    Attributes
    ----------
    context : Context or None
        Of attention.
    ahead : int
        Frames of its input that an output frame looks ahead; 0 where it needs the whole stream.
    substitute : str
        What would look less far, or would stream; empty where nothing needs to.
    last : int or None
        Of a table of positions: the last frame of its input that it reaches.
    """

    context: Context | None = None
    ahead: int = 0
    substitute: str = ""
    last: int | None = None


def outlook(node: Node, whole: bool) -> Outlook:
    """Return what an operator sees; `whole`: it needs the whole stream."""
    name, a = node.operator, node.attributes
    if name == "table" or (name == "limit" and a["of"] == "table"):
        rows = (node.shapes[0] or (0,))[0] if name == "table" else a["frames"]
        return Outlook(last=_longest(a.get("length", ()), rows) - 1)
    context = _context(a) if name == "attention" else None
    if whole:
        return Outlook(context, 0, row_of(name).instead)
    if context is not None and context.chunk is not None and context.right is not None:
        ahead = context.chunk - 1 + context.right
        left = None if context.left is None else context.left + context.chunk - 1
        kept = f", keep={context.keep}" if context.keep else ""
        return Outlook(context, ahead, f"ds.Context(left={left}{kept}) looks back alone" if ahead else "")
    spans = row_of(name).window
    if spans is None:
        return Outlook(context)
    span, left, right = spans(a, node.shapes)
    ahead = span - 1 - left
    if ahead <= 0:
        return Outlook(context)
    return Outlook(context, ahead, f"padding of {(span - 1, max(right - ahead, 0))} looks back alone")


def _longest(steps: Sequence[int], rows: int) -> int:
    """Return the most frames of which a function of the length, in steps, makes no more than these rows."""
    for code, k in reversed(list(zip(steps[::2], steps[1::2]))):
        rows = (rows - k, rows // k, rows * k + k - 1)[code]
    return rows


def _context(a: dict[str, Any]) -> Context:
    """Return what attention of these attributes sees."""
    left, right = (None if a[side] < 0 else a[side] for side in ("left", "right"))
    return Context(a["chunk"] or None, left, right, a["keep"])
