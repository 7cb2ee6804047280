"""Operators: how one is made, and how it runs inside a forward, with what its inputs need before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy.typing as npt

from .. import _core
from ..errors import LocatedError, NotStreamableError, ShapeError, StreamMismatchError
from ..source_line import user_line
from ..stream.edge import Edge, Request
from ..stream.rules import joined, require_equal_rates, same_lineage
from .dtypes import nominal

Array = npt.NDArray[Any]

#: What makes operators that the C registry lacks, by name: functions of another front end's arithmetic.
MAKERS: dict[str, Callable[..., Any]] = {}


@lru_cache(maxsize=4096)
def _make(name: str, attributes: Any, inputs: Any, weights: Any) -> Any:
    return MAKERS.get(name, _core.Op)(name, dict(attributes), inputs, weights)


def operator(
    name: str, attributes: Mapping[str, Any], inputs: Sequence[_core.Signature], weights: Sequence[Array | None]
) -> Any:
    """Return the operator for these attributes, signatures and weights (made once)."""
    attrs = tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in attributes.items()))
    shapes = tuple(None if w is None else (nominal(w.dtype).name, tuple(w.shape)) for w in weights)
    try:
        return _make(name, attrs, tuple(inputs), shapes)
    except LocatedError as error:
        error.at(user_line())
        raise


def weight_of(tensor: Any) -> Any:
    """Return a constant tensor's values as the entry wants them."""
    if tensor is None:
        return None
    if tensor.is_stream:
        raise NotStreamableError.here("a stream can't serve as a weight")
    return tensor.constant()


def run(request: Request) -> list[tuple[Any, Edge]]:
    """Run an operation inside a forward: its operator, refusals, syncs, then the entry."""
    loop = getattr(request.edges[0].entry, "open_loop", None)
    return _run(request) if loop is None else loop.beside(request, _run)


def _run(request: Request) -> list[tuple[Any, Edge]]:
    name, edges = request.name, request.edges
    entry = edges[0].entry
    try:
        op = operator(name, request.attributes, [e.signature for e in edges], request.weights)
    except StreamMismatchError as error:
        require_equal_rates([e.rate for e in edges], where := f"{name} at {user_line()}")
        raise StreamMismatchError(str(error).replace(name, where, 1)) from None
    except ShapeError as error:
        _advise(error, edges[0], request.weights)
        raise
    request.op = op
    if op.whole:
        if not edges[0].may_wait:
            raise NotStreamableError.here(
                name,
                ' needs the whole stream before it can give a frame; patch or compile with unstreamable="buffer" '
                "to wait for the end",
            )
        _limit(request, entry.buffer_limit, "buffer")
    elif name == "attention" and request.attributes.get("left", -1) < 0:
        _limit(request, entry.context_limit, "context")
    if op.lockstep and len(request.edges) > 1:
        _sync(request)
    return entry.run(request)


def _limit(request: Request, frames: int | None, of: str) -> None:
    """Refuse streams that are longer than so many frames before an operation that keeps all."""
    if frames is None:
        return
    edges = request.edges
    limited: list[tuple[Any, Edge]] = []
    for edge, value in zip(edges, request.values):
        if edge.rate == 0 or edge.line.static:
            limited.append((value, edge))
            continue
        limit = Request("limit", {"frames": frames, "of": of}, [edge], [value])
        limit.op = operator(limit.name, limit.attributes, [edge.signature], ())
        limited += edge.entry.run(limit)
    request.edges = [*(edge for _, edge in limited), *edges[len(limited) :]]
    request.values = [value for value, _ in limited]


def _advise(error: ShapeError, edge: Edge, weights: Sequence[Any]) -> None:
    """Say what to do where streams don't fit a weight because there are none, or because they lie across."""
    if edge.counts is None or len(edge.features) != 1 or not weights or weights[0] is None:
        return
    lengths = {int(n) for n in edge.counts[:, 2] - edge.counts[:, 0]}
    if not lengths:
        error.add("there are no streams: leave out the call, or give zeros of shape (0, features, 0)")
    elif lengths <= {int(n) for n in weights[0].shape[:2]}:
        error.add("chunks are (features, L) here: transpose those that are (L, features)")


def _sync(request: Request) -> None:
    """Bring inputs that progress differently together: one sync per value, decided by lineage alone."""
    edges = request.edges
    if len({e.line.static for e in edges}) > 1:
        raise NotStreamableError.here(
            f"{request.name}: frames of an input that is given once meet those of a stream, whose length is "
            "another; attend to it, or take what is one for all, as x.mean(dim)"
        )
    if any(e.rate != edges[0].rate for e in edges):
        require_equal_rates([e.rate for e in edges], f"{request.name} at {user_line()}")
    if same_lineage(e.cid for e in edges):
        return
    cid = joined(e.cid for e in edges)
    synced: list[tuple[Any, Edge]] = []
    for edge, value in zip(edges, request.values):
        if edge.cid == cid:
            synced.append((value, edge))
            continue
        group = [edge, *{e.cid: e for e in edges if e.cid != edge.cid}.values()]
        sync = Request("sync", {}, group, [value], cid=cid)
        sync.op = operator("sync", {}, [e.signature for e in group], ())
        synced += edge.entry.run(sync)
    request.values, request.edges = [v for v, _ in synced], [e for _, e in synced]
