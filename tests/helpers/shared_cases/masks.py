"""Attention whose masks, terms and softmax are written by hand, as they stand in the models of others."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from .tables import BLC, case, net


def _heads(self: Any, x: Any) -> Any:
    """Return queries, keys and values ``(B, 2, L, 4)``."""
    B, L, C = x.shape
    return [y.view(B, L, 2, C // 2).transpose(1, 2) for y in self.qkv(x).split(C, dim=2)]


def _entered(name: str, attend: Callable[..., Any], **more: Any) -> None:
    """Enter a forward of what it attends to: `attend` of (self, x, queries, keys, values, positions, F, ds)."""

    def make(nn: Any, F: Any, ds: Any) -> Any:
        def forward(self: Any, x: Any) -> Any:
            y = attend(self, x, *_heads(self, x), ds.arange(x.size(1), device=x.device), F, ds)
            B, H, L, D = y.shape
            return self.out(y.transpose(1, 2).contiguous().view(B, L, H * D))

        layers = {"qkv": nn.Linear(8, 24), "out": nn.Linear(8, 8), "drop": nn.Dropout(0.1)}
        tables = {"near": nn.Embedding(99, 8), "distances": nn.Embedding(5000, 4)}
        model = net(nn, forward, **layers, **tables)
        model.register_buffer("slopes", ds.tensor([0.5, 0.125]))
        model.register_buffer("table", ds.ones(99, 99).tril().view(1, 1, 99, 99).long())
        return model

    # What is kept until the end has no export.
    case(name, BLC(8), make, **{"exports": "reach" in more, "reach": 20, "delay": 0} | more)


def _softmax_weights(scores: Any, hidden: Any) -> Any:
    return scores.masked_fill(hidden, -math.inf).softmax(-1)


def _softmax(scores: Any, hidden: Any, v: Any) -> Any:
    return _softmax_weights(scores, hidden) @ v


def _buckets(i: Any, ds: Any) -> Any:
    """T5's: a number for each near distance, one for several far ones."""
    d = (i[:, None] - i).clamp(min=0)
    far = 4 + ((d.float().clamp(min=1) / 4).log() / math.log(8) * 4).long()
    return ds.where(d < 4, d, ds.where(far < 7, far, ds.full_like(far, 7)))


def _rotated(x: Any, cos: Any, sin: Any, ds: Any) -> Any:
    return x * cos + ds.cat([-x[..., 2:], x[..., :2]], -1) * sin


def _rotary(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    angles = ds.einsum("i,j->ij", i.float(), ds.tensor([1.0, 0.1]))
    turn = [ds.cat([t, t], -1) for t in (angles.cos(), angles.sin())]
    q, k = _rotated(q, *turn, ds), _rotated(k, *turn, ds)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1)


def _written_under_another_name(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    """Whoever holds the tensor sees what is written; what was computed of it before stays."""
    far = (i[:, None] - i).float()
    held, before, shown = far, far * 0.25, i[:, None] >= i
    far *= 0.5
    held.sub_(1).masked_fill_(i[:, None] - i > 6, -1e9)
    scores = same = q @ k.mT
    scores *= 0.7
    scores += ds.where(shown, far + before, ds.full((x.size(1), x.size(1)), -1e9))
    shown &= i[:, None] - i < 2
    steps = late = i.clone()
    late += 2
    late //= 3
    return same.softmax(-1) @ v * (steps % 3 + 1).unsqueeze(-1)


def _below(view: Any, seen: Any, near: Any, ds: Any) -> Any:
    view &= near
    return seen


def _part(seen: Any, near: Any, ds: Any) -> Any:
    """What Python does for a part is to read, change and write it, here in a view of a view."""
    seen[None].transpose(1, 2)[0] &= near.transpose(0, 1)
    return seen


def _both(seen: Any, near: Any, ds: Any) -> Any:
    """A part is written into after the whole, and read by a third name."""
    part, other = seen[None], seen.unsqueeze(-1)
    seen &= near
    part |= ds.eye(seen.size(0), dtype=ds.bool)
    return other.squeeze(-1)


def _numbers(seen: Any, near: Any, ds: Any) -> Any:
    """A tensor of the same type is itself, one of another type a copy."""
    terms = ds.where(seen, 0.0, -1e9)
    same, whole = terms.float(), terms.to(ds.float64)
    terms.masked_fill_(~near, -1e9)
    return ((same == 0) & (whole == 0)) if whole.dtype == same.dtype else same == 0


#: Masks some of whose memory is written into under one name and read under another.
_SHARED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a view of what is written": lambda seen, near, ds: (view := seen[None], _below(seen, view, near, ds))[1],
    "the whole of a view that is written": lambda seen, near, ds: _below(seen.transpose(0, 1), seen, near.mT, ds),
    "a reshaped one that is written": lambda seen, near, ds: _below(seen.reshape(1, *seen.shape), seen, near, ds),
    "a part of a view": _part,
    "written twice": _both,
    "of the same type": _numbers,
    "a copy": lambda seen, near, ds: (_below(seen.clone(), seen, seen & False, ds), seen & near)[1],
    "computed before": lambda seen, near, ds: (hidden := ~seen, _below(seen, hidden, near, ds), ~hidden & near)[2],
    "a copy by its layout": lambda seen, near, ds: _below(seen.mT.clone().mT.contiguous(), seen & near, near, ds),
}


def _positions(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    waves = i.float()[:, None] * ds.tensor([1.0, 0.5, 0.2, 0.1])
    x = x + m.near(i.unsqueeze(0) + 2) + ds.cat([waves.sin(), waves.cos()], -1) * (i % 3 == 0).float()[:, None]
    q, k, v = _heads(m, x)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=i[:, None] // 4 >= i // 4)


def _shifted(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    """Transformer-XL's scores of distances: those of a table, from far to near, moved by a pad and a view."""
    far = q @ m.distances(i.flip(0)).mT
    B, H, L, _ = far.shape
    far = F.pad(far, (1, 0)).view(B, H, L + 1, L)[:, :, 1:].view_as(far)
    return _softmax(q @ k.mT + far, i > i[:, None], v)


def _shifted_both_ways(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    """ESPnet's: projected sinusoids of distances on both sides; softmax sees one more score, which is zero."""
    B, H, L, _ = q.shape
    angles = ds.arange(L - 1, -L, -1)[:, None].float() * ds.tensor([1.0, 0.3, 0.1, 0.03])
    rows = m.out(ds.cat([angles.sin(), angles.cos()], -1).to(x.dtype)).view(1, 2 * L - 1, H, 4).transpose(1, 2)
    far = F.pad(q @ rows.mT, (1, 0)).view(B, H, 2 * L, L)[:, :, 1:].reshape(B, H, L, 2 * L - 1)[..., :L]
    scores = (q @ k.mT + far).masked_fill((i // 3 > i[:, None] // 3) | (i // 3 + 2 < i[:, None] // 3), -math.inf)
    return F.pad(scores, (0, 1)).softmax(-1)[..., :-1] @ v


def _softmax_in_float(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    scores = ds.matmul(q, k.transpose(2, 3)) / math.sqrt(4)
    scores += ds.full((x.size(1), x.size(1)), float("-inf")).triu(1)
    return ds.matmul(F.softmax(scores.float(), dim=-1).type_as(q), v)


def _clipped_positions(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    """A learned term for each distance up to four."""
    near = m.near((i[:, None] - i[None, :]).clamp(-4, 4) + 4)[..., :2].permute(2, 0, 1).unsqueeze(0)
    scores = q @ k.transpose(-2, -1) / math.sqrt(4) + near
    return ds.where(i[:, None] >= i[None, :], scores, ds.finfo(scores.dtype).min).softmax(-1) @ v


def _window_by_einsum(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    far = i[None, :] - i[:, None]
    scores = ds.einsum("bhid,bhjd->bhij", q, k) / 4**0.5
    weights = scores.masked_fill((far > 2).logical_or(far < -5), -1e9).softmax(-1)
    return ds.einsum("bhij,bhjd->bhid", weights, v)


def _masked_before_and_behind(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    future = ds.triu(ds.ones(x.size(1), x.size(1)), 1).bool()
    return (q @ k.transpose(-2, -1)).masked_fill(future, -1e4 * 2).softmax(-1).masked_fill(future, 0.0) @ v


def _times_a_mask(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    """As the first GPT has it: scores times a mask, less what its zeros hide."""
    scores = q @ k.transpose(-2, -1)
    seen = m.table[:, :, : scores.size(-2), : scores.size(-1)].float()
    return (scores * seen - 1e10 * (1 - seen)).softmax(-1) @ v


def _expanded_positions(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    """Positions repeated along the other axis, and masks of the scores' own shape."""
    keys = i.expand(x.size(1), x.size(1))
    far = keys - i.unsqueeze(1).expand_as(keys)
    scores = q @ k.transpose(-2, -1) * ds.ones(x.size(1), x.size(1))
    hidden = ds.ones_like(scores).triu(4) == 1
    scores = ds.where(far >= -5, scores.masked_fill(hidden, -1e9), ds.full_like(scores, -1e9))
    return scores.softmax(-1) @ v


def _vectors_by_matmul(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    """Shaw's vector of each pair, with queries before streams and heads; a term picked from a weight."""
    B, H, L, D = q.shape
    index = (i[None, :] - i[:, None]).clamp(-4, 4) + 4
    vectors = m.distances(index)
    scores = ds.matmul(q.permute(2, 0, 1, 3).contiguous().view(L, B * H, D), vectors.transpose(1, 2))
    scores = scores.transpose(0, 1).contiguous().view(B, H, L, L) + q @ k.transpose(-2, -1)
    return _softmax(scores + m.near.weight[:, :2][index].permute(2, 0, 1), i > i[:, None], v)


def _capped(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    """Gemma 2's: products stay below a number, by tanh, before the mask and the term."""
    scores = (q @ k.mT * 2 / 1.5).tanh() * 1.5
    return _softmax(scores - m.slopes[:, None, None] * (i[:, None] - i), i > i[:, None], v)


def _sinks(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    """gpt-oss': a column of a number per head, behind the scores, that softmax sees and values don't."""
    scores = (q @ k.mT).masked_fill(i > i[:, None], -math.inf)
    sinks = m.slopes.reshape(1, -1, 1, 1).expand(x.size(0), -1, x.size(1), -1)
    scores = ds.cat([scores, sinks], -1)
    return (scores - scores.max(-1, keepdim=True).values).softmax(-1)[..., :-1] @ v


def _capped_beside_a_sink(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    scores = (-0.5 * (q @ k.mT).tanh()).masked_fill((i > i[:, None]) | (i < i[:, None] - 5), -math.inf)
    sinks = m.slopes[:1].reshape(1, 1, 1, 1).expand(x.size(0), 2, x.size(1), 1)
    return F.softmax(ds.cat((sinks, scores), dim=3), dim=-1)[:, :, :, 1:] @ v


def _rotary_of_all_features(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    """Phi-3's: what is left of the features is joined again, also where nothing is left."""
    turn = i.float()[:, None] * ds.tensor([1.0, 0.1, 1.0, 0.1])
    rest = k.split([4, 0], -1)[1].transpose(1, 2).contiguous().transpose(1, 2)
    q = ds.cat([_rotated(q[..., :4], turn.cos(), turn.sin(), ds), q[..., 4:]], -1)
    k = ds.cat([_rotated(k[..., :4], turn.cos(), turn.sin(), ds), rest], -1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _rows_by_gather(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    """GPT-J's: the rows of a table at positions, which are repeated over features."""
    table = m.near.weight.unsqueeze(0).repeat(x.size(0), 1, 1)
    rows = ds.gather(table, 1, i[None, :, None].repeat(x.size(0), 1, 8))
    q, k, v = _heads(m, x + ds.cat(ds.split(rows, 4, dim=-1)[::-1], -1))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _by_functions(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    """Functions in the place of methods, B joined with heads."""
    rows, columns = ds.meshgrid(i, i, indexing="ij")
    near = ds.logical_and(ds.le(ds.abs(ds.sub(rows, columns)), 5), ds.logical_not(ds.gt(columns, rows)))
    mask = ds.logical_or(near, ds.eye(x.size(1), dtype=ds.bool))
    B, H, L, D = q.shape
    q, k, v = (y.reshape(B * H, L, D) for y in (q, k, v))
    term = ds.zeros(L, L, dtype=q.dtype).masked_fill(ds.bitwise_not(mask), -math.inf)
    weights = ds.softmax(ds.baddbmm(term, q, ds.transpose(k, 1, 2), alpha=0.5), dim=-1)
    return ds.bmm(weights, v).view(B, H, L, D)


def _not_a_number(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    """Guards against rows that see nothing, and against the logarithm of 0."""
    far = (ds.log((i[:, None] - i).clamp(min=0).float() / 4 + 1e-6) / math.log(4) * 4).long()
    near = m.near(ds.where(i[:, None] - i < 4, (i[:, None] - i).clamp(min=0), (far + 4).clamp(0, 7)))
    weights = _softmax_weights(q @ k.mT + near[..., :2].permute(2, 0, 1), (i > i[:, None]) | (i[:, None] - i > 9))
    return ds.where(ds.isnan(weights), ds.zeros_like(weights), weights) @ v


def _constants_of_the_batch(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    """What every stream has alike, with a row for each, multiplies, divides, masks and is added to scores."""
    rows = ds.ones(x.size(0), 1, 1, 1)
    scores = q @ k.mT * m.slopes.reshape(1, -1, 1, 1).expand(x.size(0), -1, -1, -1) / (rows * 2)
    scores = (rows * 3 + scores).masked_fill(rows < 0, -1e9)
    return _softmax(scores + rows * (i - i[:, None]) * 0.1, i > i[:, None], v)


for _attend in (
    _constants_of_the_batch,
    _rotary_of_all_features,
    _capped,
    _sinks,
    _capped_beside_a_sink,
    _rotary,
    _written_under_another_name,
    _shifted,
    _softmax_in_float,
    _clipped_positions,
    _masked_before_and_behind,
    _times_a_mask,
    _vectors_by_matmul,
):
    _entered(_attend.__name__.strip("_").replace("_", "-"), _attend)
for _attend in (_by_functions, _not_a_number):
    _entered(_attend.__name__.strip("_").replace("_", "-"), _attend, reach=14)


def _scores_by_another_name(m: Any, x: Any, q: Any, k: Any, v: Any, i: Any, F: Any, ds: Any) -> Any:
    """Scores and positions that are written into, and read in another layout."""
    scores = q @ k.mT
    other, part, copy = scores.mT, scores[:, :, None], scores.clone()
    scores *= 0.5
    part += ds.where(i[:, None] >= i, 0.0, -1e9)
    copy *= 3
    turn, late = i[:, None], i.clone()
    i *= 2
    late[None].add_(3)
    near = ((turn - 2 * late) < 5).float() - 1
    return (other + near.mT * 1e9).softmax(-2).mT @ v * (turn % 3 + 1)


_entered("scores-by-another-name", _scores_by_another_name, reach=14)
for _at, _read in enumerate(_SHARED.values()):
    _entered(
        f"shared-memory-{_at}",
        lambda m, x, q, k, v, i, F, ds, read=_read: _softmax(
            q @ k.mT, ~read(i[:, None] >= i, i[:, None] - i < 5, ds), v
        ),
        reach=14,
    )
_entered("shifted-both-ways", _shifted_both_ways, reach=14, delay=2)
_entered("expanded-positions", _expanded_positions, reach=14, delay=3)
_entered("positions", _positions, delay=3)
_entered("rows-by-gather", _rows_by_gather, native=False)
_entered("window-by-einsum", _window_by_einsum, reach=14, delay=2)
_entered(
    "left-chunks",
    lambda m, x, q, k, v, i, F, ds: _softmax(
        q @ k.mT, ~((i // 4 <= i[:, None] // 4) & (i // 4 >= i[:, None] // 4 - 2)), v
    ),
    delay=3,
    reach=14,
)
_entered(
    "triu-of-inf",
    lambda m, x, q, k, v, i, F, ds: (
        (q @ k.mT + ds.triu(ds.full((x.size(1), x.size(1)), -math.inf), diagonal=1)).softmax(-1) @ v
    ),
)
_entered(
    "one-less-tril",
    lambda m, x, q, k, v, i, F, ds: (
        (q @ k.mT - (1 - ds.tril(ds.ones(x.size(1), x.size(1)))) * 1e9).softmax(-1) @ v
    ),
)
_entered(
    "cut-from-a-buffer",
    lambda m, x, q, k, v, i, F, ds: (
        m.drop(F.softmax((q @ k.mT).masked_fill(m.table[:, :, : x.size(1), : x.size(1)] == 0, -math.inf), -1)) @ v
    ),
)
_entered(
    "distances-up-to-three",
    lambda m, x, q, k, v, i, F, ds: ds.where((i[:, None] - i).abs() <= 3, q @ k.mT, -1e9).softmax(-1) @ v,
    delay=3,
    reach=14,
)
_entered(
    "every-second-key",
    lambda m, x, q, k, v, i, F, ds: _softmax(
        q @ k.mT, ((i[:, None] - i) % 2 != 0) | ((i[:, None] - i).abs() > 4), v
    ),
    delay=4,
    reach=14,
)
_entered(
    "but-some",
    lambda m, x, q, k, v, i, F, ds: _softmax(
        q @ k.mT - m.slopes[:, None, None] * (i[:, None] - i).clamp(max=6),
        ((i[:, None] - i) // 2 == 1) | (i > i[:, None]),
        v,
    ),
)
_entered(
    "windows-of-heads",
    lambda m, x, q, k, v, i, F, ds: _softmax(
        q @ k.mT, (i[:, None] - i).abs() > ds.stack([2 + i[:1] * 0, 5 + i[:1] * 0])[:, :, None], v
    ),
    delay=5,
    reach=14,
)
_entered(
    "first-keys-beside-a-window",
    lambda m, x, q, k, v, i, F, ds: _softmax(
        q @ k.mT - m.slopes[:, None, None] * (i[:, None] - i),
        (i > i[:, None]) | ((i[:, None] - i > 5) & (i > 2)),
        v,
    ),
    reach=14,
)
_entered(
    "first-keys-beside-chunks",
    lambda m, x, q, k, v, i, F, ds: F.scaled_dot_product_attention(
        q, k, v, attn_mask=(i // 4 <= i[:, None] // 4) & ((i < 6) | (i[:, None] // 4 - i // 4 < 2))
    ),
    delay=3,
    reach=14,
)
_entered(
    "what-came-before",
    lambda m, x, q, k, v, i, F, ds: (
        F.scaled_dot_product_attention(q, k, v, attn_mask=i < i[:, None])
        + F.scaled_dot_product_attention(q, k, v, attn_mask=((i[:, None] - i) > 2) & ((i[:, None] - i) < 9))
    ),
)
_entered(
    "others-of-a-chunk",
    lambda m, x, q, k, v, i, F, ds: F.scaled_dot_product_attention(
        q, k, v, attn_mask=(i // 6 == i[:, None] // 6) & ((i[:, None] - i) % 3 != 1) & (i != i[:, None])
    ),
    delay=5,
    reach=14,
)
_entered(
    "masks-of-heads",
    lambda m, x, q, k, v, i, F, ds: F.scaled_dot_product_attention(
        q, k[:, :1], v[:, :1], attn_mask=ds.stack([i[:, None] >= i] * 2), enable_gqa=True
    ),
)
_entered(
    "by-logarithms",
    lambda m, x, q, k, v, i, F, ds: ds.matmul(
        F.log_softmax((q @ k.mT).masked_fill(i > i[:, None], -math.inf), dim=-1).exp(), v
    ),
)
_entered(
    "slopes",
    lambda m, x, q, k, v, i, F, ds: _softmax(
        q @ k.mT - m.slopes[:, None, None] * (i[:, None] - i), i > i[:, None], v
    ),
)
_entered(
    "slopes-as-a-mask",
    lambda m, x, q, k, v, i, F, ds: F.scaled_dot_product_attention(
        q, k, v, attn_mask=(-m.slopes[:, None, None] * (i[:, None] - i)).masked_fill(i > i[:, None], float("-inf"))
    ),
)
_entered(
    "buckets",
    lambda m, x, q, k, v, i, F, ds: _softmax(
        q @ k.mT + m.near(_buckets(i, ds))[..., :2].permute(2, 0, 1), i > i[:, None], v
    ),
)


# ---------------------------------------------------------------- torch's layers
def _layers(nn: Any, F: Any, torch: Any, hint: bool) -> Any:
    def forward(self: Any, x: Any) -> Any:
        mask = torch.nn.Transformer.generate_square_subsequent_mask(x.size(1))
        return self.encoder(x, mask=mask, is_causal=hint)

    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, norm_first=hint)
    return net(nn, forward, encoder=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))


def _multihead(nn: Any, F: Any, torch: Any, hidden: Callable[..., Any] = lambda x, torch: None) -> Any:
    def forward(self: Any, x: Any) -> Any:
        future = torch.triu(torch.ones(x.size(1), x.size(1), dtype=torch.bool), 1)
        return self.attention(x, x, x, key_padding_mask=hidden(x, torch), attn_mask=future)[0]

    return net(nn, forward, attention=nn.MultiheadAttention(8, 2, batch_first=True))


def _beyond(x: Any, torch: Any) -> Any:
    """Frames behind the longest of the lengths, which are none."""
    lengths = torch.full((x.size(0),), x.size(1))
    return torch.arange(lengths.amax())[None] >= lengths[:, None]


def _padded(nn: Any, F: Any, torch: Any) -> Any:
    def forward(self: Any, x: Any) -> Any:
        future = torch.triu(torch.ones(x.size(1), x.size(1), dtype=torch.bool), 1)
        hidden = _beyond(x, torch)
        return self.encoder(x, mask=future, src_key_padding_mask=hidden).masked_fill(hidden[..., None], 0.0)

    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
    return net(nn, forward, encoder=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))


def _positions(nn: Any, F: Any, torch: Any) -> Any:
    def forward(self: Any, x: Any) -> Any:
        return x + self.table(torch.arange(x.size(1), device=x.device))

    return net(nn, forward, table=nn.Embedding(90, 8))


_TORCH: dict[str, Any] = {"exports": False, "reach": 20, "delay": 0}
case("encoder-with-a-mask", BLC(8), lambda nn, F, torch: _layers(nn, F, torch, False), **_TORCH)
case("encoder-with-a-mask-and-a-hint", BLC(8), lambda nn, F, torch: _layers(nn, F, torch, True), **_TORCH)
case("multihead-with-a-mask", BLC(8), _multihead, **_TORCH)
case("encoder-with-lengths", BLC(8), _padded, **_TORCH)
for _name, _hidden in {
    "lengths": _beyond,
    "truths": lambda x, torch: torch.zeros(x.shape[:2], dtype=torch.bool),
    "zeros": lambda x, torch: torch.zeros_like(torch.ones(x.size(0), x.size(1))),
}.items():
    case(f"multihead-with-{_name}", BLC(8), partial(_multihead, hidden=_hidden), **_TORCH)
case("table-by-arange", BLC(8), _positions, **_TORCH)
