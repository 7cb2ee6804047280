"""The operators of attention, of keys that a stream has or that are given once; what scores make of values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from ..errors import NotStreamableError, ShapeError
from ..operations.refusals import SEES_ALL
from ..source_line import user_line
from ..stream.context import EVERYTHING, is_declared, seen_by
from ..stream.mask_recognition import Recognised, Unrecognised
from . import hook, pair_sums, score_rates
from .batch_constants import is_constant
from .deferred import is_computed
from .mask_terms import deferred_in, hide_keys, product_within, recognise, rows_by_distance, seen_in
from .score_layout import KEYS, QUERIES, Axes, Before, Heads, atoms_of, laid, shown, streams_of, with_heads
from .score_steps import Step, Undivided, among, require_zeros, unrecognised_mask, with_terms


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
    """Return the attended values of q, k and v, all ``(B, heads, L, features)`` or ``(B, L, features)``.

    `found` is what was recognised of the mask, and `bias` what is added to scores. `rows` are queries, a table by
    distance and the distance of its first row. `softcap` is what scores stay below, by tanh, before the bias; 0
    where nothing is. `sinks` are a score per head beside those of keys, without a value.
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
    return x.value if is_constant(x) and not x.batch_axis else x


def _as_weight(x: Any) -> Any:
    """Return keys or values ``(1, heads, M, features)`` that are the same for all streams as a weight."""
    if x.shape[0] != 1:
        raise ShapeError.here(
            "attention: keys and values that are plain tensors are those of all streams, in a batch of 1; got "
            f"{tuple(x.shape)}. What each stream has for itself is given once, by ds.static"
        )
    return x.squeeze(0).transpose(0, 1)


# ---------------------------------------------------------------------- of scores
def valued(scores: Any, v: Any, t: str, s: str, out: str) -> Any:
    """Return the attended values.

    `t`, `s` and `out` have a letter for each dimension of the values `v`, the scores and the result.
    """
    if not getattr(v, "is_stream", True) and (mixed := _mixed(scores, v, t, s, out)) is not None:
        return mixed
    if scores.wider:
        scores._misuse("multiplied with a column beside them, which has no value: drop it before")
    if scores.is_exponential and not scores.logarithm:
        made = valued(scores._copy(is_exponential=False, soft=True), v, t, s, out)
        if out[:-1] != s[:-1] or scores.axes.dims[-1] != (KEYS,) or made.ndim != len(s):
            scores._misuse("multiplied before softmax")
        return Undivided(made, scores)
    linear = not (scores.soft or scores._bent() or scores.terms) and not across(scores.q, scores.k)
    if (
        not (scores.soft or linear)
        or scores.logarithm
        or not getattr(v, "is_stream", False)
        or hasattr(type(v), "valued")
    ):
        scores._misuse("multiplied before softmax")
    if is_computed(v):
        scores._misuse("combined with values by position (Shaw's second table), which no operator has")
    own = dict(zip(s, scores.axes.dims))
    features = [c for c in t if c not in own]
    v = streams_of(v)
    theirs = None if v is None or len(t) != v.ndim or len(s) != scores.ndim else atoms_of(v, t, KEYS)
    keys = next((c for c, dim in own.items() if dim == (KEYS,)), "")
    queries = next((c for c, dim in own.items() if dim == (QUERIES,)), "")
    fits = theirs is not None and theirs.get(keys) == (KEYS,) and keys not in out and queries in out
    if not fits or not features or {*out} != {*s, *t} - {keys}:
        scores._misuse(f"combined with what are no values, {s}, {t} -> {out}")
    assert theirs is not None
    for c in t:
        size = [math.prod(getattr(a, "size", 1) for a in d) for d in (own.get(c, ()), theirs[c])]
        if c in own and c != keys and size[1] not in (1, size[0]):
            raise ShapeError.here(f"attention: {size[0]} heads of scores and {size[1]} of values don't fit")
    mine = [a for c in t if c in own and theirs[c] for a in own[c] if isinstance(a, Heads)]
    if {*mine} != {*scores.axes.heads[: len(mine)]}:
        scores._misuse("combined with values that lack some of their heads")
    labels = [(c,) if c in features else own[c] if theirs[c] else () for c in t]
    sizes = [v.shape[t.index(c)] for c in features]
    v = laid(v, labels, scores.axes.heads, (KEYS, *features))
    if linear:
        scores._unshifted()
    y = pair_sums.summed(scores, v) if linear else attended(scores, v)
    y = y if len(features) == 1 else y.unflatten(-1, sizes)
    return shown(y, [own.get(c, (c,)) for c in out], scores.axes.heads, (QUERIES, *features))


def _mixed(scores: Any, by: Any, t: str, s: str, out: str) -> Any:
    """Return scores of heads that are sums of others', weighted by a constant; None where it does something else.

    Before softmax these are scores of the others' queries, weighted, and keys, all heads side by side. Behind it
    each head's weights meet the values of all new heads.
    """
    own = dict(zip(s, scores.axes.dims))
    new = [c for c in t if c not in own]
    old = [c for c in t if own.get(c) == scores.axes.heads != ()]
    if len(t) != 2 or len(new) != 1 or len(old) != 1 or {*out} != {*s, *new} - {*old}:
        return None
    by = by if t[0] == new[0] else by.transpose(0, 1)
    heads = Heads(by.shape[0])
    axes = Axes([(heads,) if c == new[0] else own[c] for c in out], [heads])
    if scores.wider or scores.logarithm or scores.head_part is not None:
        return None
    if scores.soft:
        return scores._copy(axes=axes, mix=by if scores.mix is None else by.matmul(scores.mix))
    if scores._bent() or scores.terms or any(step.name != "mul" for step in scores.steps):
        scores._misuse("mixed over heads behind masks or terms")
    n = by.shape[1]
    q = scores.q.unsqueeze(1) * by.reshape(-1, n, 1, 1)
    if scores.k.shape[1] == 1:
        return scores._copy(q=q.sum(2), axes=axes)
    return scores._copy(q=q.transpose(2, 3).flatten(3), k=_side_by_side(with_heads(scores.k, n)), axes=axes)


def _side_by_side(x: Any) -> Any:
    """Return all heads of a stream ``(B, heads, L, features)`` as one."""
    return x.transpose(1, 2).flatten(2).unsqueeze(1)


def _of_mixture(scores: Any, v: Any) -> Any:
    """Return the attended values of weights that are sums of those of heads."""
    n, heads = scores.mix.shape
    v = v if v.shape[1] == 1 else with_heads(v, n)
    y = attended(scores._copy(mix=None), _side_by_side(v)).unflatten(3, (v.shape[1], -1))
    return (y * scores.mix.transpose(0, 1).reshape(heads, 1, n, 1)).sum(1).transpose(1, 2)


def attended(scores: Any, v: Any) -> Any:
    """Return the attended values of values, both ``(B, heads, L, features)``."""
    if scores.mix is not None:
        return _of_mixture(scores, v)
    if not across(scores.q, scores.k) and score_rates.ratio(scores.q, scores.k) != 1:
        scores, v, of_queries = score_rates.at_one_rate(scores, v)
        return of_queries(attended(scores, v))
    more = 0 if across(scores.q, scores.k) else scores.k.shape[2] - scores.q.shape[2]
    if isinstance(more, int) and more > 0:
        q = scores.q._operate("pad", {"left": more})
        return attended(scores._copy(q=q, steps=among(scores.steps, Before(more))), v)[:, :, more:]
    found, deferred = seen_by_queries(scores), deferred_in(scores.steps)
    q, k, scale = scores.q, scores.k, scores.scale
    softcap = abs(scale) if scores.within else 0.0
    if scores.within:
        scale *= scores.within
    if (scores.within or scores.sinks is not None) and (scores.terms is not None or across(q, k)):
        scores._misuse("brought through tanh, or given a column, where keys are given once")
    if scores.terms is not None:
        if scores.terms.along != KEYS:
            scores._misuse("given terms by queries that are given once")
        (q, k), scale = with_terms(q * scale, k, scores.terms), 1.0
    if found.blank is not None:
        require_zeros(scores, found.blank)
    if found.context.waits and not k.edge.may_wait:
        raise NotStreamableError.here(
            f'attention: {SEES_ALL.text}, or unstreamable="buffer" to wait for the end of each stream'
        )
    groups = max(k.shape[1], v.shape[1])
    k, v = with_heads(k, groups), with_heads(v, groups)
    bias = None if found.bias is None else k.edge.entry.library.bias(found, scores.steps, k)
    rows, limits = _rows(scores, deferred, found), [x.ends for x in deferred]
    if rows is not None:
        which, queries, table = rows
        limits.append(which.ends)
        rows = queries, table, which.first
    ends = min((n for n in limits if n is not None), default=None)
    if ends is not None:
        q = hook.one("limit", {"frames": ends, "of": "table"}, (q,), (), q.dims)
    with q.edge.entry.library.dropped(scores.p) if scores.p else nullcontext():
        return attend(q, k, v, found, scale, bias, rows, softcap, scores.sinks)


def _rows(scores: Any, deferred: Sequence[Any], found: Recognised) -> Any:
    """Return the term by position that is a product of its own: what is known of it, queries and table."""
    products = [p for p in map(product_within, deferred) if p is not None]
    if len(products) > 1:
        scores._misuse("given several scores by position")
    if not products:
        return None
    if scores.within:
        scores._misuse("given scores by position behind tanh")
    term = products[0]
    try:
        which, table = rows_by_distance(term, scores.steps, scores.k, found, scores.scale)
    except Unrecognised as error:
        raise unrecognised_mask(error) from None
    queries, heads = term.queries, scores.head_part
    queries = queries if heads is None or queries.shape[1] == 1 else queries[:, heads]
    table = table if heads is None or table.shape[0] == 1 else table[heads]
    return which, queries if which.factor == 1 else queries * which.factor, table


def seen_by_queries(scores: Any) -> Recognised:
    """Return what queries see by the steps, and what these add."""
    if across(scores.q, scores.k):
        if not all(step.hides_nothing() for step in scores.steps):
            raise NotStreamableError.here(
                "attention: a mask of keys that are given once is not supported where queries differ; each "
                "sees all that its stream was given, or those that a mask (B, M) shows"
            )
        return Recognised(EVERYTHING)
    context = seen_by("attention", False)
    if not deferred_in(scores.steps):
        return Recognised(context)
    steps = scores.steps
    if is_declared():
        if hide_keys(steps, scores.k):
            raise ValueError(
                f"attention at {user_line()}: {context} and a mask both say what a query sees; give one of them"
            )
        steps = [*steps, Step("keep", seen_in(context, scores.k), -math.inf, Axes([(QUERIES,), (KEYS,)], []))]
    try:
        return recognise(steps, scores.k)
    except Unrecognised as error:
        raise unrecognised_mask(error) from None
