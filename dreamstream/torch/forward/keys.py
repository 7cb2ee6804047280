"""What a call of a torch function asks for: the key by which the same is known again in the next call.

Streams are known by their lines, dimensions and names, sizes and what is computed of lengths by the lines whose
frames they count, scores of attention by their queries, keys and steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import torch

from ...array.deferred import Deferred
from ...array.known import key_of
from ...array.scores import Scores
from ...array.stream_tensor import StreamTensor as NativeStream
from ...array.symbolic import Symbolic
from ...stream.edge import Edge
from ...stream.rules import Shape, Token
from ...stream.rules.sums import Unknown
from .complex_pair import Complex
from .sizes import TorchBatch, TorchBatchLength, TorchLength

NUMBERS = frozenset((int, bool))
ATOMS = frozenset((
    str, type(None), type(...), torch.dtype, torch.device, torch.memory_format, torch.layout, type, torch.Size,
))  # fmt: skip

SIZES = frozenset((TorchLength, TorchBatch, TorchBatchLength))
_OF_LENGTHS = SIZES | {Symbolic, Deferred, Scores, Complex}


class Asked(NamedTuple):
    """What a call of a torch function asks for, as `_core.Replay` reads it.

    Attributes
    ----------
    key : tuple
        Equal where the same is asked for.
    streams : list
        The native tensors among the arguments.
    edges : list of Edge
        Whose frames the sizes among them count.
    held : list
        Parameters and buffers, which are compared by identity.
    made : list
        All other tensors, which are compared by type and shape.
    tokens : list
        The sizes.
    """

    key: tuple[Any, ...]
    streams: list[Any]
    edges: list[Edge]
    held: list[Any]
    made: list[Any]
    tokens: list[Token]


def key_of_size(
    x: Any, entry: Any, streams: list[Any], edges: list[Edge], tokens: list[Token]
) -> tuple[Any, ...] | None:
    """Return a key of a size, of what is computed of lengths, or of complex numbers; None where there can be none.

    The size, the edges whose frames it counts, and streams in it are appended to the lists.
    """
    own: list[Any] = []  # edges, and the queries of products with tables
    kind = type(x)
    if kind is complex:
        return kind, x.real.hex(), x.imag.hex()
    if kind is Shape:
        sizes = [p if type(p) is int else key_of_size(p, entry, streams, edges, tokens) for p in x]
        return None if None in sizes else (kind, *sizes)
    if kind not in _OF_LENGTHS:
        return None
    try:
        tokens.append(x)
        if kind in _POSITIONS:  # where it, or what is in it, has become a stream, that is used
            key = (key_of(x, own, entry.library),)
            for dtype, stream in _become_streams(x, entry) if getattr(entry, "has_converted", False) else ():
                key += (dtype, *_of_stream(stream._inner, entry, streams))
        elif kind is Complex:
            key = (kind, *_of_stream(x.real, entry, streams), *_of_stream(x.imag, entry, streams))
        else:
            key = _of_scores(x, entry, streams, own) if kind is Scores else (key_of(x, own, entry.library),)
    except Unknown:
        return None
    for each in own:
        if type(each) is NativeStream:
            streams.append(each)
        elif each.entry is entry:
            edges.append(each)
        else:
            return None
    return key


def _become_streams(x: Any, entry: Any) -> list[tuple[Any, Any]]:
    """Return the streams that positions, or those in them, have become in this call, with what type was wanted."""
    found: list[tuple[Any, Any]] = []
    left, seen = [x], set[int]()
    while left:
        part = left.pop()
        if id(part) in seen:
            continue
        if type(part) in _POSITIONS:
            seen.add(id(part))
            here = [(to, stream) for (at, to), stream in vars(part).get("_streams", {}).items() if at is entry]
            found += here
            if not here:
                left += (part.value,) if type(part) is Symbolic else (*part.args, *part.kwargs.values())
        elif type(part) is tuple or type(part) is list:
            left += part
    return found


def paths_to(x: Any, among: Any) -> Iterable[tuple[Any, ...]]:
    """Return where a deferred value stands in another, as getters that lead to it."""
    if getattr(among, "__dict__", None) is x.__dict__:
        yield ()
    elif isinstance(among, (Deferred, Symbolic)):
        for name in ("args", "kwargs", "value", "length"):
            for path in paths_to(x, vars(among).get(name)):
                yield attrgetter(name), *path
    elif isinstance(among, (list, tuple, dict)):
        for at, part in among.items() if isinstance(among, dict) else enumerate(among):
            for path in paths_to(x, part):
                yield itemgetter(at), *path


def _of_stream(x: Any, entry: Any, streams: list[Any]) -> tuple[Any, ...]:
    """Return a key of a stream of this call that has a value, which is appended to `streams`."""
    if type(x) is not NativeStream or "edge" not in vars(x) or x.alike[0] is not None:
        raise Unknown
    edge: Any = x.edge
    if edge is None or edge.entry is not entry:
        raise Unknown
    streams.append(x)
    return edge.line, x.dims, x._names


def _of_scores(x: Scores, entry: Any, streams: list[Any], edges: list[Any]) -> tuple[Any, ...]:
    """Return a key of scores of attention, whose queries and keys are appended to `streams`."""
    state = tuple([value for name, value in vars(x).items() if name not in _NOT_OF_SCORES])
    if not NUMBERS_OF_SCORES.issuperset(map(type, state)):
        raise Unknown
    key: list[Any] = [Scores, x.axes.key(), str(x.picked), state]
    for own in (x.q, x.k):
        key += _of_stream(own, entry, streams)
    for step in x.steps:
        key += (step.name, step.axes.key(), key_of((step.by, step.value), edges, entry.library))
    return tuple(key)


_POSITIONS = frozenset((Deferred, Symbolic))
#: What of scores has a key of its own, or none; and of what types all else has to be.
_NOT_OF_SCORES = frozenset(("q", "k", "axes", "steps", "picked", "_source", "_taken"))
NUMBERS_OF_SCORES = frozenset((int, float, bool, type(None)))
