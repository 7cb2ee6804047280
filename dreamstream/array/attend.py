"""The call of the operators of attention, of keys that a stream has or that are given once."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from ..stream.mask_recognition import Recognised
from . import hook
from .batch_constants import BatchTensor


def attend(
    q: Any,
    k: Any,
    v: Any,
    found: Recognised,
    scale: float,
    bias: Any = None,
    rows: Any = None,
    softcap: float = 0.0,
    sinks: Any = None,
) -> Any:
    """Return the attended values ``(B, H, L, E)`` or ``(B, L, E)``.

    Parameters
    ----------
    q, k, v : tensors
        ``(B, heads, L, features)`` or ``(B, L, features)``.
    found : Recognised
        What queries see, and what is added to scores.
    scale : float
    bias : tensor, optional
        What is added to scores.
    rows : tuple, optional
        Queries, a table by distance, and the distance of its first row.
    softcap : float
        What scores stay below, by tanh, before the bias; 0 where nothing is.
    sinks : tensor, optional
        A score per head beside those of keys, without a value.
    """
    alone = q.ndim == 3
    q, k, v = (x.unsqueeze(1) for x in (q, k, v)) if alone else (q, k, v)
    if across(q, k):
        fixed = q.is_stream and not k.is_stream
        both = [_as_weight(k), _as_weight(v)] if fixed else []
        given = [q] if fixed else [q, k, v]
        out = hook.one("cross_attention", {"scale": scale}, given, both, ("B", 0, "L", 1))
        return out.squeeze(1) if alone else out
    attributes: dict[str, Any] = {**found.context.attributes, "scale": scale}
    if bias is not None:
        attributes |= {"first": found.first, "beyond": "linear" if found.linear else "constant"}
    inputs, weights = [q, k, v], [] if bias is None else [bias]
    if rows is not None:
        inputs, weights = [*inputs, rows[0]], [bias, rows[1]]
        attributes["rows_first"] = rows[2]
    if softcap:
        attributes["softcap"] = softcap
    if sinks is not None:
        weights = [*[*weights, None, None][:2], sinks]
    out = hook.one("attention", attributes, inputs, weights, ("B", 0, "L", 1))
    return out.squeeze(1) if alone else out


def across(q: Any, k: Any) -> bool:
    """Whether keys are of another length than queries: a memory, which is given once, or a plain tensor."""
    if q.is_stream and k.is_stream:
        return bool(k.edge.line.static and not q.edge.line.static)
    return bool(q.is_stream or q.shape[-2] != k.shape[-2])


def of_all(x: Any) -> Any:
    """Return a constant with a dimension of B as a plain tensor, in a batch of 1."""
    return x.value if isinstance(x, BatchTensor) and not x.batch_axis else x


def _as_weight(x: Any) -> Any:
    """Return keys or values ``(1, heads, M, features)`` that are the same for all streams as a weight."""
    if x.shape[0] != 1:
        raise ShapeError.here(
            "attention: keys and values that are plain tensors are those of all streams, in a batch of 1; got "
            f"{tuple(x.shape)}. What each stream has for itself is given once, by ds.static"
        )
    return x.squeeze(0).transpose(0, 1)
