"""Attention along the stream, and rotary positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...array import Tensor
from ...array.attend import across, attend, attended, of_all
from ...array.deferred import has_formula, is_computed
from ...array.dimension_arguments import numbered
from ...array.draws import dropping
from ...array.protocol import Unread
from ...array.scores import Scores
from ...dispatch import apply
from ...errors import DTypeError, NotStreamableError, ShapeError
from ...operations.refusals import MASKED, OF_VALUES, SEES_ALL, Refusal
from ...source_line import user_line
from ...stream.context import EVERYTHING, Context, is_declared, seen_by
from ...stream.mask_recognition import Recognised, expected
from ...stream.rules.compare import Comparison
from .arguments import checked
from .dropout import dropout
from .texts import described, torch_lacks

__all__ = ["rotary_embedding", "scaled_dot_product_attention"]


def refused(name: str, refusal: Refusal) -> NotStreamableError:
    """Return the error for what a row of the refusals names."""
    waits = ', or unstreamable="buffer" to wait for the end of each stream' if refusal.waits else ""
    return NotStreamableError.here(f"{name}: {refusal.text}{waits}")


def streamed(name: str, x: Any, is_causal: bool, context: Context | None) -> Context:
    """Return what queries of a call see; an error where that is the whole of a stream, and nothing may wait."""
    seen = seen_by(name, is_causal, context)
    if seen.waits and x.is_stream and not x.edge.may_wait:
        raise refused(name, SEES_ALL)
    return seen


def causal_of(is_causal: Any, queries: Any) -> bool:
    """Return whether a query sees the past alone, also asked as L > 1: one frame sees itself anyway."""
    return (isinstance(is_causal, Comparison) and is_causal.holds_from(2, queries.shape[-2])) or bool(is_causal)


def beside_hint(mask: Any, is_causal: bool, padding: Any, need_weights: bool) -> Any:
    """Return the mask that counts: where weights aren't needed, `is_causal` overrules it, as in torch."""
    return None if is_causal and padding is None and not need_weights else mask


def identity(mask: Any) -> bool:
    """Whether a mask is one element that masks nothing, as those of lengths are."""
    if has_formula(mask) and mask.everywhere() is not None:
        mask = mask.beside_frames()
    if getattr(mask, "is_stream", False) or not hasattr(mask, "numpy") or math.prod(mask.shape) != 1:
        return False
    value = mask.numpy().reshape(())
    return bool(value) if value.dtype == bool else value == 0


def hides_nothing(mask: Any) -> bool:
    """Whether a mask of keys, true or -inf where one is hidden, hides none of them."""
    if hasattr(type(mask), "everywhere"):
        return mask.everywhere() in (False, 0)
    return identity(~mask if "bool" in str(mask.dtype) else mask)


def unrecognised_mask(name: str, mask: Any) -> NotStreamableError:
    """Return the refusal of a mask that says nothing of a stream."""
    return refused(name, OF_VALUES if getattr(mask, "is_stream", False) else MASKED)


def _windows_at(*tensors: Any) -> int | None:
    """Return the dimension of L where frames are windows ``(B, ..., L, ..., n, E)``, each attending to itself."""
    places = {x.dims.index("L") for x in tensors if x.is_stream and x.ndim > 4 and "L" in x.dims[1:-2]}
    return places.pop() if len(places) == 1 and all(x.is_stream for x in tensors) else None


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    context: Context | None = None,
) -> Tensor:
    """Return softmax(query @ key.T * scale) @ value, each query over the keys that it sees.

    Parameters
    ----------
    query : Tensor
        ``(B, H, L, E)`` or ``(B, L, E)``. Of a stream also with features in the place of L, and B and L joined in
        that of B: each frame attends to itself.
    key, value : Tensor
        ``(B, G, L, E)`` and ``(B, G, L, Ev)``, or without the heads.
    attn_mask : optional
        What a forward builds of positions, or a score of its own; else a mask is said by `context`.
    dropout_p : float
        Probability with which a weight is dropped.
    is_causal : bool
        Whether a query sees what came before it, and its own frame, alone.
    scale : float, optional
        1 / sqrt(E), where it is not given.
    enable_gqa : bool
        Whether G may be a divisor of H: each head of keys and values then serves H / G heads of queries.
    context : Context, optional
        What a query sees; without it, without `is_causal` and without one that is declared the whole stream.

    Returns
    -------
    Tensor
        ``(B, H, L, Ev)`` or ``(B, L, Ev)``. Zeros for a query that sees no key.

    Raises
    ------
    ShapeError
        For shapes that don't fit.
    NotStreamableError
        Where the whole stream is seen and nothing may wait for its end; for masks.

    Notes
    -----
    **Streaming.** Delay and state are the context's: keys and values of the frames that are seen again. Source:
    torch.nn.functional.scaled_dot_product_attention.
    """
    name = "scaled_dot_product_attention"
    q, k, v = (checked(name, of_all(x)) for x in (query, key, value))
    is_causal = causal_of(is_causal, q)
    deferred = isinstance(attn_mask, Scores) or is_computed(attn_mask) or of_memory(attn_mask)
    if attn_mask is not None and identity(attn_mask):
        attn_mask = None
    inside = [isinstance(getattr(x, "dims", "LL")[-2], int) for x in (q, k)]
    within = q.is_stream and (all(inside) or (any(inside) and attn_mask is None and not is_causal))
    if attn_mask is not None and not deferred and not within and any(x.is_stream for x in (attn_mask, q, k, v)):
        raise unrecognised_mask(name, attn_mask)
    if not 0 <= dropout_p <= 1:
        raise ShapeError(f"{name}: a probability lies in [0, 1], got {dropout_p}")
    if (at := _windows_at(q, k, v)) and attn_mask is None:
        rows = [x.movedim(at, 1).flatten(0, 1).flatten(1, -3) for x in (q, k, v)]
        found = scaled_dot_product_attention(rows[0], rows[1], rows[2], None, dropout_p, is_causal, scale)
        return found.reshape(*q.movedim(at, 1).shape[:-1], found.shape[-1]).movedim(1, at)
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    if within or (q.ndim > 4 and not q.is_stream):
        return _within(q * factor, k, v, attn_mask, dropout_p, is_causal)
    if {x.ndim for x in (q, k, v)} not in ({3}, {4}):
        raise ShapeError.here(
            f"{name}: expected three tensors (B, H, L, E) or (B, L, E), got {q.ndim}, {k.ndim} and {v.ndim} "
            "dimensions"
        )
    if len({x.dtype for x in (q, k, v)}) > 1 or q.dtype.kind != "f":
        raise DTypeError.here(f"{name}: expected one type of floats, got {q.dtype}, {k.dtype} and {v.dtype}")
    heads, groups = (1, 1) if q.ndim == 3 else (q.shape[1], k.shape[1])
    if groups not in (1, heads) and not enable_gqa:
        raise ShapeError.here(f"{name}: {heads} heads of queries and {groups} of keys need enable_gqa=True")
    if of_memory(k) and not q.is_stream and q.shape[0] == 1:
        k, v = (x if groups == heads else x.repeat_interleave(heads // groups, 1) for x in (k, v))
        return _by_constants(q * factor, k, v, [] if attn_mask is None else [attn_mask], dropout_p)
    if attn_mask is not None:
        if is_causal or context is not None or (is_declared() and not deferred):  # scores find what is declared
            raise ValueError(
                f"{name} at {user_line()}: attn_mask and a context both say what a query sees; give one of them"
            )
        return under_masks(q, k, v, [attn_mask], factor, p=dropout_p)
    if across(q, k) and q.is_stream:
        if is_causal:
            raise NotStreamableError.here(
                f"{name}: is_causal, of keys that are given once; every query sees all of them"
            )
        with dropping(dropout_p):
            crossed: Tensor = attend(q, k, v, Recognised(EVERYTHING), factor)
        return crossed
    seen = streamed(name, q, is_causal, context)
    if across(q, k) and (is_causal or context is not None):  # offline: fewer keys than queries, or more
        shown = expected(seen, max(q.shape[-2], k.shape[-2]))[: q.shape[-2], : k.shape[-2]]
        return under_masks(q, k, v, [Tensor(shown)], factor, p=dropout_p)
    with dropping(dropout_p):
        out: Tensor = attend(q, k, v, Recognised(seen), factor)
    return out


def _within(q: Any, k: Any, v: Any, mask: Any, p: float, is_causal: bool) -> Tensor:
    """Return attention among what lies within a frame, as of blocks ``(B, L, C, E)``; queries are scaled."""
    heads = [x.shape[-3] for x in (q, k)]
    if all(isinstance(n, int) for n in heads) and heads[0] != heads[1]:
        k, v = (x.repeat_interleave(heads[0] // heads[1], -3) for x in (k, v))
    scores = q @ k.transpose(-2, -1)
    if is_causal:
        mask = Tensor(np.tril(np.ones(scores.shape[-2:], bool)))
    if mask is not None and "bool" in str(mask.dtype):
        scores = scores.masked_fill(mask.logical_not(), -math.inf)
    elif mask is not None:
        scores = scores + mask
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights.masked_fill((scores == -math.inf).all(-1, keepdim=True), 0.0)
    return dropout(weights, p) @ v


def of_memory(mask: Any) -> bool:
    """Whether a mask follows from what is given once."""
    edge = getattr(mask, "edge", None)
    return edge is not None and bool(edge.line.static)


def _by_constants(q: Any, k: Any, v: Any, masks: Sequence[Any], p: float) -> Tensor:
    """Return what queries that all streams have alike see of what each is given once."""
    scores = (k.unsqueeze(-2) * q.squeeze(0).unsqueeze(-3)).sum(-1)  # keys before queries
    for mask in masks:
        mask = mask.transpose(-2, -1)
        scores = scores.masked_fill(~mask, -math.inf) if "bool" in str(mask.dtype) else scores + mask
    return (dropout(scores.softmax(-2), p).unsqueeze(-1) * v.unsqueeze(-2)).sum(-3)


def weights_of(q: Any, k: Any) -> Scores | Unread | None:
    """Return the weights of streams' attention, which refuse to be used; None of others."""
    if all("L" in getattr(x, "dims", ()) for x in (q, k)):
        return Scores.of(q, k).softmax(-1)
    if not q.is_stream or "L" not in q.dims:
        return None
    what = "the weights of attention over what is given once, or constants"
    why = "no operator gives them; pass need_weights=False, or take (q @ k.transpose(-2, -1)).softmax(-1)"
    return Unread(NotStreamableError.here(f"{what}: {why}"))


def under_masks(
    q: Any, k: Any, v: Any, masks: Sequence[Any], factor: float, zeros: bool = True, p: float = 0.0
) -> Tensor:
    """Return attention under masks that show keys, or terms; zeros where a query sees no key, or its refusal.

    Masks are deferred values, or of keys that are given once.
    """
    if of_memory(k) and not q.is_stream:
        return _by_constants(q * factor, k, v, masks, p)
    streams = (q.is_stream or k.is_stream) and "L" in getattr(k, "dims", ("L",))
    groups = 1 if streams or q.ndim == 3 else q.shape[1] // k.shape[1]
    k, v = (x if groups == 1 else x.repeat_interleave(groups, 1) for x in (k, v))
    scores: Any = Scores.of(q, k) * factor if streams else (q * factor) @ k.transpose(-2, -1)
    for mask in masks:
        if "bool" not in str(getattr(mask, "dtype", "")):
            scores = scores + mask
        else:
            scores = scores.filled_where(mask, -math.inf) if streams else scores.masked_fill(~mask, -math.inf)
    out: Tensor
    if streams:
        weights = scores.softmax(-1).dropout(p)
        weights.zeros = zeros
        out = weights.matmul(v) if q.ndim == 3 or q.shape[1] == k.shape[1] else attended(weights, v)
    else:
        unseen = (scores == -math.inf).all(-1, keepdim=True)
        out = dropout(scores.masked_fill(unseen, 0.0).softmax(-1).masked_fill(unseen, 0.0), p) @ v
    return out


#: Of the layer, too.
TURNS = {
    "dim": "Features that are turned, from the first on, an even number; all without it.",
    "base": "Pair i of n turns by ``base ** (-i / n)`` from frame to frame.",
    "interleaved": "Whether pairs are neighbours, ``x[..., ::2]`` and ``x[..., 1::2]``, not the two halves.",
    "scaling_factor": "What positions are divided by.",
}


@torch_lacks
@described(
    "As `input`.",
    {"ShapeError": "Where the last dimension is the stream's, odd, or smaller than `dim`."},
    input="``(B, H, L, D)`` or ``(B, L, D)``, float32 or float64; streams in any order that ends with features.",
    **TURNS,
    inv_freq="``(n,)`` of the input's type: the angles of a step in place of those that `base` gives.",
)
def rotary_embedding(
    input: Tensor,
    dim: int | None = None,
    base: float = 10000.0,
    interleaved: bool = False,
    scaling_factor: float = 1.0,
    inv_freq: Tensor | None = None,
) -> Tensor:
    """Return pairs of features turned by angles that grow with the frame's absolute position.

    Notes
    -----
    Angles are float64. **Streaming.** Delay 0, no state; positions never run out. Source: Su et al., "RoFormer"
    (2021).
    """
    x = checked("rotary_embedding", input)
    dims: tuple[Any, ...] = ("B", 0, "L", 1) if x.ndim == 4 else ("B", "L", 0)
    if x.is_stream:
        dims = numbered(x.dims)  # type: ignore[attr-defined]
    if len(dims) != x.ndim or isinstance(dims[-1], str):
        raise ShapeError(
            f"rotary_embedding: expected (B, H, L, D) or (B, L, D), got {getattr(x, 'roles', tuple(x.shape))}"
        )
    attributes = {
        "features": dim or 0,
        "base": float(base),
        "scale": 1 / float(scaling_factor),
        "form": "pairs" if interleaved else "halves",
    }
    return apply("rotary", attributes, (x,), (inv_freq,), dims)[0]
