"""Attention along the stream, by blocks at absolute positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from .positions import there
from .registry import Step, Window, windowed

#: In training weights are dropped, of which no operator's attributes speak.
_DROPPED: ContextVar[float] = ContextVar("dreamstream_attention_dropout", default=0.0)


@contextmanager
def dropping(p: float) -> Iterator[None]:
    """Let attention that runs meanwhile drop its weights with probability p."""
    token = _DROPPED.set(p)
    try:
        yield
    finally:
        _DROPPED.reset(token)


def _dropped(weight: Tensor) -> Tensor:
    """Return weights of attention, some of them dropped and the others larger."""
    p = _DROPPED.get()
    return torch.nn.functional.dropout(weight, p) if p else weight


#: What a query sees of keys that are given once.
_ALL = {"chunk": 0, "left": -1, "right": -1, "softcap": 0.0, "keep": 0}


@windowed("cross_attention")
def cross_attention(step: Step, queries: Window, *given: Any) -> Tensor:
    """Return the values of keys that are given once, or are weights."""
    if not isinstance(given[0], Tensor):
        outputs: tuple[Tensor] = attention(step, (queries, *given), (), None)[0]
        return outputs[0]
    q, (k, v) = queries.run(step.first[0], step.n[0]), given
    grouped = q.unflatten(2, (k.shape[1], -1))
    score = torch.einsum("bigrd,jgd->bgrij", grouped, k) * (step.attributes["scale"] or q.shape[-1] ** -0.5)
    out = torch.einsum("bgrij,jge->bigre", _dropped(score.softmax(-1)), v)
    return out.reshape(*q.shape[:3], -1)


def _n_kept(a: dict[str, Any]) -> int:
    """Return the keys that stay where a window moves on."""
    return a["keep"] if a["chunk"] and a["left"] >= 0 else 0


def _none_kept(step: Step, weights: Sequence[Any], like: Tensor) -> tuple[Tensor, ...]:
    """Return what is carried before the first frame: the first keys and values."""
    n = _n_kept(step.attributes)
    return tuple(like.new_zeros(1, n, *features) for features in step.frames[1:3]) if n else ()


@windowed("attention", carries=_none_kept)
def attention(step: Step, windows: Sequence[Window], weights: Sequence[Any], state: Any) -> Any:
    """Return the values of the keys that each query sees, by softmax of their scores."""
    a = {**_ALL, **step.attributes}
    queries, keys, values = windows[:3]
    first, n = step.first[0], step.n[0]
    device = first.device
    position = first[:, None] + torch.arange(n, device=device)
    begin = position // a["chunk"] * a["chunk"] if a["chunk"] else torch.zeros_like(position)
    n_kept = _n_kept(a)
    if n_kept:
        state = tuple(_kept(window, old, n_kept) for window, old in zip((keys, values), state))
    q = queries.run(first, n, 1.0)  # where there is no frame: 0 times -inf, a hidden key's term, were NaN
    if isinstance(n, int) and not n:
        return (q.new_zeros(len(q), 0, *step.features[0]),), state
    if a["left"] < 0 or not a["chunk"] or a["right"] < 0:
        start, span = torch.zeros_like(first), int(keys.known.max())
    else:
        start = begin[:, 0] - a["left"]
        span = ((n - 1) // a["chunk"] + 2) * a["chunk"] + a["left"] + a["right"]
    k, v = keys.run(start, span), values.run(start, span)
    low = begin - a["left"] if a["left"] >= 0 else torch.zeros_like(begin)
    high = keys.known[:, None].expand_as(begin)
    if a["chunk"] and a["right"] >= 0:
        high = high.minimum(begin + a["chunk"] + a["right"])
    ahead = there(low.clamp(0, n_kept), q)
    low, high = (there((x - start[:, None]).clamp(0, span), q) for x in (low.clamp(min=0), high))
    at = torch.arange(span, device=q.device)[None]
    seen = (at >= low[..., None]) & (at < high[..., None])
    if n_kept:
        near = torch.arange(n_kept, device=q.device)
        seen = torch.cat([near < ahead[..., None], seen], 2)
        near, at = near - there(start[:, None], q), at.expand(k.shape[0], -1)
        k, v, at = (torch.cat(pair, 1) for pair in ((state[0], k), (state[1], v), (near, at)))
    rows, _, heads, d = q.shape
    q = q.reshape(rows, n, k.shape[2], -1, d)
    score = torch.einsum("bigrd,bjgd->bgrij", q, k)
    bias, table, sinks = (*weights, None, None, None)[:3]
    distance = there(position - start[:, None], q)[..., None] - at[:, None]
    if len(windows) > 3:
        u, rows_first = windows[3].run(first, n), a["rows_first"]
        if a["sinusoids"]:
            table, rows_first = _sinusoids(a["sinusoids"], span, u), span - 1
        by_row = torch.einsum("bihf,htf->bhit", u, table.expand(heads, -1, -1))
        row = (rows_first - distance).clamp(0, table.shape[1] - 1)
        found = by_row.gather(3, row[:, None].expand(-1, heads, -1, -1))
        score = score + found.unflatten(1, (-1, score.shape[2]))
    score = score * (a["scale"] or d**-0.5)
    if a["softcap"]:
        score = a["softcap"] * torch.tanh(score / a["softcap"])
    if bias is not None:
        bias = _bias(a, bias, distance)
        score = score + bias.unflatten(1, (-1, score.shape[2]) if bias.shape[1] > 1 else (1, 1))
    score = score.masked_fill(~seen[:, None, None], -torch.inf)
    top = score.amax(-1, keepdim=True).detach()
    sink = None if sinks is None else sinks.reshape(1, score.shape[1], -1, 1, 1)
    top = top if sink is None else top.maximum(sink.detach())
    top = top.masked_fill(top == -torch.inf, 0)
    weight = torch.exp(score - top)
    total = weight.sum(-1, keepdim=True)
    total = total if sink is None else total + torch.exp(sink - top)
    weight = weight / torch.where(total == 0, 1, total)
    weight = _dropped(weight)
    # Nothing times 0 may be NaN: what is not finite is counted along the keys, and spoils those who see it.
    bad = ~torch.isfinite(v)
    count = torch.nn.functional.pad(bad.long().cumsum(1), (0, 0, 0, 0, 1, 0))
    row = torch.arange(rows, device=q.device)[:, None]
    spoilt = count[row, high.maximum(low) + n_kept] > count[row, low + n_kept]
    if n_kept:
        spoilt = spoilt | (count[row, ahead] > 0)
    out = torch.einsum("bgrij,bjge->bigre", weight, v.masked_fill(bad, 0))
    out = out.masked_fill(spoilt[:, :, :, None], torch.nan)
    return (out.reshape(rows, n, heads, -1),), state


def _kept(window: Window, old: Tensor, n: int) -> Tensor:
    """Return the first n frames, those of a call among them."""
    at = torch.arange(n, device=window.known.device)
    came = there(at >= window.before[:, None], old).reshape(-1, n, *(1,) * (old.dim() - 2))
    return torch.where(came, window.run(torch.zeros_like(window.known), n), old)


def _sinusoids(base: float, span: int, like: Tensor) -> Tensor:
    """Return ``(1, 2 * span - 1, F)``: sines and cosines in turn, by distance, farthest first."""
    f = like.shape[-1]
    powers = torch.arange(0, f, 2, dtype=torch.float64, device=like.device) / f
    distances = span - 1 - torch.arange(2 * span - 1, device=like.device)
    angles = distances[:, None] * base**-powers
    return torch.stack([angles.sin(), angles.cos()], 2).reshape(1, -1, f).to(like.dtype)


def _bias(a: dict[str, Any], table: Tensor, distance: Tensor) -> Tensor:
    """Return entries ``(B, heads, n, keys)`` for distances ``(B, n, keys)``; a table goes on beyond its ends."""
    at, last = distance - a["first"], table.shape[1] - 1
    near = at.clamp(0, last)
    found: Tensor = table[:, near].movedim(0, 1)
    if a["beyond"] == "constant" or not last:
        return found
    low, high = table[:, 1] - table[:, 0], table[:, -1] - table[:, -2]
    slope = torch.where((at < 0)[:, None], low[:, None, None], high[:, None, None])
    beyond: Tensor = found + (at - near)[:, None] * slope
    return beyond
