"""Attention along the stream, by blocks at absolute positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ....array.draws import factors
from ....online.draws import kept
from ....stream.within import within
from .checkpoint import checkpointed
from .positions import there
from .registry import Step, Window, windowed

#: In training weights are dropped, of which no operator's attributes speak.
_DROPPED: ContextVar[float] = ContextVar("dreamstream_attention_dropout", default=0.0)


def dropping(p: float) -> AbstractContextManager[Any]:
    """Let attention that runs meanwhile drop its weights with probability p."""
    return within(_DROPPED, p)


def drops() -> bool:
    """Whether attention that runs now drops weights."""
    return _DROPPED.get() > 0


def _dropped(step: Step, weight: Tensor, keys: Tensor) -> Tensor:
    """Return weights ``(B, groups, heads of each, n, keys)``, some of them dropped and the others larger.

    `keys` are their positions, ``(B or 1, keys)``. Where streams go on, what is dropped follows from positions.
    """
    p = _DROPPED.get()
    if not p or step.keys is None:
        return torch.nn.functional.dropout(weight, p) if p else weight
    heads = np.arange(weight.shape[1] * weight.shape[2]).reshape(1, *weight.shape[1:3], 1, 1)
    queries = np.reshape(step.first[0], (-1, 1, 1, 1, 1)) + np.arange(weight.shape[3])[:, None]
    places = heads, queries, keys.numpy(force=True)[:, None, None, None]
    scale, _ = factors(kept(step.keys.reshape(-1, 1, 1, 1, 1), places, p), p, False)
    return weight * torch.from_numpy(scale).to(weight)


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
    out = torch.einsum("bgrij,jge->bigre", _dropped(step, score.softmax(-1), torch.arange(len(k))[None]), v)
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
    if (made := _of_torch(step, a, windows, weights)) is not None:
        return (made,), state
    device = first.device
    position = first[:, None] + torch.arange(n, device=device)
    within = position % a["chunk"] if a["chunk"] > 1 else position if not a["chunk"] else 0
    begin = position - within
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
    weight = _dropped(step, weight, at + there(start[:, None], q))
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


def recomputed(kernel: Callable[..., Any], *given: Any) -> Any:
    """Return what a kernel makes, of which a graph keeps the arguments alone."""
    p = _DROPPED.get()

    def run(*given: Any) -> Any:
        with dropping(p):
            return kernel(*given)

    return checkpointed(run, p > 0, *given)


def _of_torch(step: Step, a: dict[str, Any], windows: Sequence[Window], weights: Sequence[Any]) -> Tensor | None:
    """Return what torch's own kernel makes of queries that see a run of keys; None where that would not do.

    It lets NaN of keys pass that are not seen, which is found in the result.
    """
    heads, n = step.frames[0][0], step.n[0]
    special = a["softcap"] or _n_kept(a) or len(windows) > 3 or any(w is not None for w in weights)
    if not step.live or special or not n or heads != step.frames[1][0] or _DROPPED.get():
        return None
    queries, keys, values = windows
    chunk, left, right = a["chunk"], a["left"], a["right"]
    first, last, known = step.first[0].numpy(), step.last[0].numpy(), keys.known.numpy()
    if left < 0 or not chunk or right < 0:
        base, start = np.zeros_like(first), 0
        span = int(known.max())
    else:
        base, start = first // chunk * chunk, -left
        span = min(((n - 1) // chunk + 2) * chunk + left + right, int((known - base).max()) + left)
    if n * span > _MOST_SEEN:
        return None
    integers = np.stack([first - base, known - base, np.maximum(-base, start), last - first])
    each_sees, mask = _seen(chunk, left, right, n, start, span, integers.tobytes())
    if not each_sees:
        return None
    q = queries.run(step.first[0], n, 1.0)
    if q.device.type != "cpu":
        return None
    begin = torch.from_numpy(base + start)
    q, k, v = (x.transpose(1, 2) for x in (q, keys.run(begin, span), values.run(begin, span)))
    seen = None if mask is None else torch.from_numpy(mask)
    # torch's fused kernel has no second derivative
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    with sdpa_kernel(SDPBackend.MATH) if wanted or step.training else nullcontext():
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, seen, scale=a["scale"] or None)
    return out.transpose(1, 2) if math.isfinite(float(out.detach().sum())) else None


#: The largest mask that is kept from call to call.
_MOST_SEEN = 2**18


@lru_cache(maxsize=64)
def _seen(chunk: int, left: int, right: int, n: int, start: int, span: int, integers: bytes) -> tuple[bool, Any]:
    """Return whether each query sees a key, and which ones, ``(B, 1, n, span)``; None where each sees all.

    The `span` keys begin at `start`. `integers` is int64 ``(4, B)``: where the queries begin, what is known of the
    keys, the first of these that there is, and how many queries there are. All positions count from any multiple
    of `chunk`.
    """
    first, known, least, new = np.frombuffer(integers, np.int64).reshape(4, -1, 1)
    position = first + np.arange(n)
    begin = position // chunk * chunk if chunk else np.zeros_like(position)
    low = np.maximum(begin - left if left >= 0 else np.zeros_like(begin), least)
    high = np.minimum(known, begin + chunk + right if chunk and right >= 0 else known)
    at, present = start + np.arange(span), np.arange(n) < new
    seen = (at >= low[..., None]) & (at < high[..., None])
    each_sees = not (present & ~seen.any(-1)).any()
    seen = seen | ~present[..., None]  # of one query where all see the same
    return each_sees, None if seen.all() else seen[:, None]


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
    return found + (at - near)[:, None] * slope
