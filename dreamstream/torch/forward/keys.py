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
from ...array.facts import facts_of, key_of_stream
from ...array.first_frame import FirstFrame
from ...array.scores import Scores
from ...array.stream_tensor import StreamTensor as NativeStream
from ...array.symbolic import Symbolic
from ...stream.edge import Edge
from ...stream.rules import Token
from ...stream.rules.sums import Unknown
from ..private import without_functions
from .complex_pair import Complex, parts_of
from .sizes import TorchBatch, TorchBatchLength, TorchLength

NUMBERS = frozenset((int, bool))
ATOMS = frozenset((
    str, type(None), type(...), torch.dtype, torch.device, torch.memory_format, torch.layout, type, torch.Size,
))  # fmt: skip

SIZES = frozenset((TorchLength, TorchBatch, TorchBatchLength))
_POSITIONS = frozenset((Deferred, Symbolic))
_DEFERRED = _POSITIONS | {Scores}
_OF_LENGTHS = _DEFERRED | {Complex, FirstFrame, NativeStream}


class Asked(NamedTuple):
    """What a call of a torch function asks for, as `_core.Replay` reads it."""

    key: tuple[Any, ...]  #: Equal where the same is asked for.
    streams: list[Any]  #: The native tensors among the arguments.
    edges: list[Edge]  #: The edges whose frames sizes among the arguments count.
    by_identity: list[Any]  #: Parameters and buffers, which are compared by identity.
    made: list[Any]  #: All other tensors, which are compared by type and shape.
    tokens: list[Token]  #: The sizes among the arguments.

    @property
    def tensors(self) -> list[Any]:
        """All tensors that are no streams."""
        return [*self.made, *self.by_identity]


#: Bytes up to which what a tensor holds may be in a key.
_FEW = 1024


def is_small(x: torch.Tensor) -> bool:
    """Whether what a tensor holds may be in a key: it is small and near, and not learned."""
    learned = x.requires_grad and torch.is_grad_enabled()
    return x.device.type == "cpu" and x.layout == torch.strided and x.nbytes <= _FEW and not learned


def bytes_of(x: torch.Tensor) -> Any:
    """Return the bytes of what a tensor holds, an array."""
    with without_functions():
        return x.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()


def is_put_off(x: NativeStream) -> bool:
    """Whether a stream stands for another's last frames, which are computed where they are used."""
    last = None if "edge" in vars(x) else x._ends
    return last is not None and last.is_once and last.given is None


def key_of_size(
    x: Any, entry: Any, streams: list[Any], edges: list[Edge], tokens: list[Token]
) -> tuple[Any, ...] | None:
    """Return a key of what is computed of lengths, of complex numbers, or of first or last frames.

    None where there can be none.

    What was asked for, the edges whose frames it counts, and streams in it are appended to the lists.
    """
    own: list[Any] = []  # edges, and the queries of products with tables
    kind = type(x)
    if kind is complex:
        return kind, x.real.hex(), x.imag.hex()
    if kind not in _OF_LENGTHS or (kind is NativeStream and not is_put_off(x)):
        return None
    try:
        tokens.append(x)
        key: tuple[Any, ...]
        if kind in _DEFERRED:
            facts, edges_within = facts_of(x)
            key, own = (facts,), [*edges_within]
        elif kind is Complex:
            key = (kind, *key_of_stream(x.real, own), *key_of_stream(x.imag, own))
        elif kind is FirstFrame:
            key = (kind, *x.state(), *key_of_stream(x.stream, own))
        else:
            key = (kind, x._ends.count, *key_of_stream(x._ends.of, own))
        if kind in _POSITIONS and getattr(entry, "has_converted", False):
            for dtype, stream in _become_streams(x, entry):  # what it, or what is in it, has become is used
                key += (dtype, *(k for part in parts_of(stream._inner) for k in key_of_stream(part, own)))
    except Unknown:
        return None
    for each in own:
        of_stream = type(each) is NativeStream
        if (each.edge if of_stream else each).entry is not entry:
            return None
        (streams if of_stream else edges).append(each)
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
                left += (*part.args, *part.kwargs.values())
        elif type(part) is tuple or type(part) is list:
            left += part
    return found


def paths_to(x: Any, among: Any) -> Iterable[tuple[Any, ...]]:
    """Return where a deferred value stands in another, as getters that lead to it."""
    if getattr(among, "__dict__", None) is x.__dict__:
        yield ()
    elif isinstance(among, (Deferred, Symbolic)):
        for name in ("args", "kwargs"):
            for path in paths_to(x, vars(among).get(name)):
                yield attrgetter(name), *path
    elif isinstance(among, (list, tuple, dict)):
        for at, part in among.items() if isinstance(among, dict) else enumerate(among):
            for path in paths_to(x, part):
                yield itemgetter(at), *path
