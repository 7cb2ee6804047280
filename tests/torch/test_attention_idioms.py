"""Attention as it is written in the models of others: each way of writing it is exact, or refused by its line."""

import math

import numpy as np
import pytest
import torch
from attention_idioms import GROUPS, HEAD, HEADS, WIDTH, F, Idioms, T, future, merge, split
from torch import nn

from dreamstream import Context

IDIOMS = Idioms(__file__.rpartition("/")[2])
idiom, refused = IDIOMS.idiom, IDIOMS.refused


# ---------------------------------------------------------------- masks
def looped(size, chunk, left):
    mask = torch.zeros(size, size, dtype=torch.bool)
    for i in range(size):
        mask[i, max((i // chunk - left) * chunk, 0) : min((i // chunk + 1) * chunk, size)] = True
    return mask


@idiom(Context(chunk=5, left=10))
def loops_that_nobody_registered(m, x):
    seen = looped(x.size(1), 5, 2).unsqueeze(0)
    assert seen.dtype == torch.bool
    if (seen.sum(dim=-1) == 0).sum().item() != 0:
        seen[seen.sum(dim=-1) == 0] = True
    return merge(m, F.scaled_dot_product_attention(*split(m, x), attn_mask=seen[:, None]))


@idiom(Context(left=6))
def written_by_its_diagonal(m, x):
    seen = ~future(x) & future(x, 1).logical_not().triu(-6)
    seen.diagonal(-1).fill_(False)
    return merge(m, F.scaled_dot_product_attention(*split(m, x), attn_mask=seen))


@idiom(Context(left=4))
def read_after_what_shares_its_memory_was_written(m, x):
    seen = ~future(x)
    other, before = seen[None].expand(x.size(0), -1, -1), seen.float()
    seen.unsqueeze_(0)
    seen[0] &= ~seen[0].tril(-5)
    assert other.dtype == seen.dtype
    return merge(m, F.scaled_dot_product_attention(*split(m, x), attn_mask=other[:, None] & before.bool()))


@idiom(Context(chunk=3))
def rows_that_see_nothing_zeroed(m, x):
    """As NeMo has it behind the function: there are none."""
    i = torch.div(torch.arange(x.size(1)), 3, rounding_mode="trunc")
    hidden = (i[:, None] < i)[None, None]
    y = F.scaled_dot_product_attention(*split(m, x), attn_mask=~hidden)
    rows = torch.all(hidden, dim=-1)
    rows.unsqueeze_(-1)
    return merge(m, y.masked_fill(rows.expand(-1, y.size(1), -1, y.size(-1)), 0.0))


@idiom(Context())
def buffer_by_where(m, x):
    """As GPT-2 does it: two lengths, and a number in a tensor."""
    q, k, v = split(m, x)
    att = torch.matmul(q, k.transpose(-1, -2))
    att = att / torch.full([], v.size(-1) ** 0.5, dtype=att.dtype, device=att.device)
    n, keys = q.size(-2), k.size(-2)
    seen = m.table.bool()[:, :, keys - n : keys, :keys]
    att = torch.where(seen, att, torch.full([], torch.finfo(att.dtype).min, dtype=att.dtype))
    return merge(m, torch.matmul(m.drop(nn.functional.softmax(att, dim=-1).type(v.dtype)), v))


@idiom(Context())
def many_dimensions(m, x):
    seen = (~future(x)).unsqueeze(0).unsqueeze(1).expand(x.size(0), HEADS, -1, -1)
    q, k, v = split(m, x)
    att = (q @ k.mT).masked_fill(seen.eq(False), -1e9)
    return merge(m, att.softmax(-1).masked_fill(seen.eq(False), 0.0) @ v)


@idiom(Context(), delay=2)
def strided_mask_of_starts(m, x):
    y = m.down(x.transpose(1, 2)).transpose(1, 2)
    seen = ~future(x)[None]
    return merge(m, F.scaled_dot_product_attention(*split(m, y), attn_mask=seen[:, 2::2, 2::2]))


@idiom(Context())
def mask_made_in_place(m, x):
    mask = x.new_ones(x.size(1), x.size(1)).triu_(1).bool()
    added = torch.zeros(x.size(1), x.size(1))
    added.masked_fill_(mask, -math.inf)
    q, k, v = split(m, x)
    att = torch.max(q @ k.mT + added, torch.tensor(torch.finfo(x.dtype).min))  # as OPT has it
    return merge(m, att.softmax(-1) @ v)


@idiom(Context(left=3, right=1))
def mask_written_into(m, x):
    i = torch.arange(x.size(1))
    seen = torch.zeros(x.size(1), x.size(1), dtype=torch.bool)
    seen |= i <= i[:, None] + 1
    seen[:, :] = seen & (i[:, None] - i < 9)
    seen[i[:, None] - i > 3] = False
    term = torch.empty(x.size(1), x.size(1))
    term.copy_(torch.eye(x.size(1)))
    term[~seen] = -math.inf
    return merge(m, F.scaled_dot_product_attention(*split(m, x), attn_mask=term[None]))


@idiom(Context(left=3))
def scores_written_into(m, x):
    q, k, v = split(m, x)
    i = torch.arange(x.size(1))
    added = torch.zeros(x.size(1), x.size(1))
    added += future(x) * -1e9
    added -= (i[:, None] - i) * 0.1
    att = q @ k.mT + added
    att[..., i[:, None] - i > 3] = -math.inf
    return merge(m, att.softmax(-1) @ v)


@idiom(Context(left=4))
def grid_of_positions(m, x):
    i, j = torch.meshgrid(torch.arange(x.size(1)), torch.arange(x.size(1)), indexing="ij")
    there = torch.ones(x.shape[:2], dtype=torch.bool)
    seen = (there[:, None, :] & there[:, :, None])[:, None] & (j <= i) & (i - j < 5)
    return merge(m, F.scaled_dot_product_attention(*split(m, x), attn_mask=seen))


@idiom(Context(chunk=3, left=30000))
def as_many_chunks_as_never_come(m, x):
    """As NeMo says that there is no limit."""
    i = torch.div(torch.arange(0, x.size(1), dtype=torch.int), 3, rounding_mode="trunc")
    d = i.unsqueeze(1) - i.unsqueeze(0)
    seen = torch.logical_and(torch.le(d, 10000), torch.ge(d, 0)).unsqueeze(0)
    return merge(m, F.scaled_dot_product_attention(*split(m, x), attn_mask=seen.unsqueeze(1)))


@idiom(Context(left=4096))
def slopes_in_a_window_of_thousands(m, x):
    i = torch.arange(x.size(1))
    d = i[:, None] - i
    q, k, v = split(m, x)
    att = (q @ k.mT - m.slopes[:, None, None] * d).masked_fill((d < 0) | (d > 4096), -math.inf)
    return merge(m, att.softmax(-1) @ v)


# ---------------------------------------------------------------- heads
@idiom(Context())
def joined_heads(m, x):
    """As fairseq had it: time first, batch and heads joined, the product by bmm."""
    y = x.transpose(0, 1)
    n, B, C = y.size()
    q, k, v = (
        z.contiguous().view(n, B * HEADS, HEAD).transpose(0, 1) for z in (m.q(y) * HEAD**-0.5, m.k(y), m.v(y))
    )
    att = torch.bmm(q, k.transpose(1, 2))
    assert list(att.size()) == [B * HEADS, n, n]
    att = att + torch.full((n, n), -math.inf).triu(1).unsqueeze(0)
    att = F.softmax(att, dim=-1, dtype=torch.float32).type_as(att)
    att = F.dropout(att, 0.1, m.training)
    out = torch.bmm(att, v)
    assert list(out.size()) == [B * HEADS, n, HEAD]
    out = out.transpose(0, 1).contiguous().view(n, B, C)
    return m.out(out).transpose(0, 1)


def with_memories(m, x):
    """Queries, keys and values, with three keys and values in front that are learned."""
    q, k, v = split(m, x)
    own = (w.weight[:HEADS, :9].view(1, HEADS, 3, HEAD).expand(x.size(0), -1, -1, -1) for w in (m.k, m.v))
    return q, *(torch.cat([memory, y], dim=2) for memory, y in zip(own, (k, v)))


@idiom(Context())
def memories_in_front_of_keys(m, x):
    """As x-transformers has them."""
    q, k, v = with_memories(m, x)
    i, j = q.shape[-2], k.shape[-2]
    att = torch.einsum("bhid,bhjd->bhij", q, k) * HEAD**-0.5
    att = att.masked_fill(torch.ones((i, j), dtype=torch.bool).triu(j - i + 1), -torch.finfo(att.dtype).max)
    return merge(m, torch.einsum("bhij,bhjd->bhid", att.softmax(-1), v))


@idiom(Context(left=4, right=2))
def memories_beside_a_window(m, x):
    seen = future(x, 1).triu(3).logical_or(future(x).mT.tril(-5)).logical_not()
    q, k, v = with_memories(m, x)
    return merge(m, F.scaled_dot_product_attention(q, k, v, attn_mask=F.pad(seen, (3, 0), value=True)))


@idiom(Context())
def talking_heads(m, x):
    """Heads are mixed before softmax, with a bias, and behind it."""
    q, k, v = split(m, x)
    att = F.linear((q @ k.mT * HEAD**-0.5).permute(0, 2, 3, 1), m.q.weight[:HEADS, :HEADS], m.slopes)
    att = att.permute(0, 3, 1, 2).masked_fill(future(x), -math.inf).softmax(-1)
    att = F.conv2d(m.drop(att), m.k.weight[:HEADS, :HEADS, None, None])
    return merge(m, torch.einsum("hg,bgij,bhjd->bhid", m.v.weight[:HEADS, :HEADS], att, v))


@idiom(Context())
def talking_heads_of_one_key(m, x):
    """Fewer heads of keys and values than of queries, and others behind softmax than before."""
    q, (k, v) = split(m, x)[0], (y[:, :1] for y in split(m, x)[1:])
    att = torch.einsum("bhij,hg->bgij", q @ k.mT, m.q.weight[:HEADS, :2])
    att = att.masked_fill(future(x), -math.inf).softmax(-1)
    return merge(m, torch.einsum("bgij,gh->bhij", att, m.k.weight[:2, :HEADS]) @ v)


@refused("talking_heads_behind_a_mask|mixed over heads behind masks")
def talking_heads_behind_a_mask(m, x):
    q, k, v = split(m, x)
    att = (q @ k.mT).masked_fill(future(x), -1e4)
    return merge(m, torch.einsum("bhij,hg->bgij", att, m.q.weight[:HEADS, :HEADS]).softmax(-1) @ v)


@refused("talking_heads_that_skip_queries|through a convolution over queries and keys")
def talking_heads_that_skip_queries(m, x):
    q, k, _ = split(m, x)
    att = (q @ k.mT).masked_fill(future(x), -math.inf).softmax(-1)
    return F.conv2d(att, m.k.weight[:HEADS, :HEADS, None, None], stride=(2, 1))


@refused("talking_heads_with_padding|through a convolution over queries and keys")
def talking_heads_with_padding(m, x):
    q, k, _ = split(m, x)
    att = (q @ k.mT).masked_fill(future(x), -math.inf).softmax(-1)
    return F.conv2d(att, m.k.weight[:HEADS, :HEADS, None, None], padding=1)


@idiom(Context())
def joined_heads_reshaped(m, x):
    B, L, C = x.shape
    q, k, v = (y.reshape(B * HEADS, L, HEAD) for y in split(m, x))
    att = torch.baddbmm(torch.zeros(1, 1, 1), q, k.transpose(-1, -2), beta=0, alpha=HEAD**-0.5)
    att = att.view(B, HEADS, L, L).masked_fill(future(x), -math.inf).softmax(-1)
    y = torch.bmm(att.view(B * HEADS, L, L), v).view(B, HEADS, L, HEAD)
    return merge(m, y)


@idiom(Context())
def bloom(m, x):
    """A term for each key and head, repeated for all of the batch."""
    B, L, C = x.shape
    q, k, v = (y.reshape(B * HEADS, L, HEAD) for y in split(m, x))
    alibi = (m.slopes[:, None, None] * torch.arange(L)[None, None]).repeat(B, 1, 1)
    att = alibi.baddbmm(batch1=q, batch2=k.transpose(-1, -2), beta=1.0, alpha=HEAD**-0.5)
    att = att.view(B, HEADS, L, -1) + torch.full((L, L), -math.inf).triu(1)
    att = F.softmax(att, dim=-1, dtype=torch.float32).to(q.dtype)
    y = torch.bmm(att.view(B * HEADS, L, -1), v)
    return merge(m, y.view(B, HEADS, L, HEAD))


@idiom(Context())
def keys_last_einsum(m, x):
    """As Transformer-XL had it: queries, keys, batch, heads; softmax over dimension 1."""
    y = x.transpose(0, 1)
    q, k, v = (z.view(z.size(0), z.size(1), HEADS, HEAD) for z in (m.q(y), m.k(y), m.v(y)))
    att = torch.einsum("ibnd,jbnd->ijbn", (q, k))
    att.mul_(HEAD**-0.5)
    att = att.float().masked_fill(future(y, 0)[:, :, None, None], -float("inf")).type_as(att)
    att = m.drop(F.softmax(att, dim=1))
    out = torch.einsum("ijbn,jbnd->ibnd", (att, v))
    out = out.contiguous().view(out.size(0), out.size(1), HEADS * HEAD)
    return m.out(out).transpose(0, 1)


@idiom(Context())
def keys_first(m, x):
    q, k, v = split(m, x)
    att = (k @ q.transpose(-2, -1)) * HEAD**-0.5
    att = att.masked_fill(future(x).T, -math.inf).softmax(-2)
    return merge(m, att.transpose(-2, -1) @ v)


@idiom(Context())
def values_first(m, x):
    """Channels first, keys before queries: v @ softmax(k.T @ q)."""
    z = x.transpose(1, 2)
    q, k, v = (F.conv1d(z, layer.weight[..., None], layer.bias) for layer in (m.q, m.k, m.v))
    att = torch.bmm(k.transpose(1, 2), q) / math.sqrt(WIDTH)
    att = att.masked_fill(future(x).t(), -math.inf)
    return torch.bmm(v, F.softmax(att, dim=1)).transpose(1, 2)


@idiom(Context())
def grouped_by_repeat_kv(m, x):
    B, L, _ = x.shape

    def repeat_kv(y, n):
        b, g, length, d = y.shape
        return y[:, :, None, :, :].expand(b, g, n, length, d).reshape(b, g * n, length, d)

    q = split(m, x)[0]
    k, v = (y.view(B, L, GROUPS, HEAD).transpose(1, 2) for y in (m.k2(x), m.v2(x)))
    k, v = repeat_kv(k, HEADS // GROUPS), repeat_kv(v, HEADS // GROUPS)
    att = torch.matmul(q, k.transpose(2, 3)) * HEAD**-0.5 + torch.full((L, L), -1e9).triu(1)
    att = F.softmax(att, dim=-1, dtype=torch.float32).to(q.dtype)
    return merge(m, torch.matmul(att, v))


# ---------------------------------------------------------------- softmax
@idiom(Context())
def softmax_module(m, x):
    q, k, v = split(m, x)
    att = nn.Softmax(dim=-1)((q @ k.mT / math.sqrt(HEAD)).float().masked_fill(future(x), -math.inf))
    return merge(m, att.to(dtype=v.dtype) @ v)


@idiom(Context())
def softmax_less_its_maximum(m, x):
    q, k, v = split(m, x)
    att = (q @ k.mT / math.sqrt(HEAD)).masked_fill(future(x), -math.inf)
    att = att - att.max(dim=-1, keepdim=True)[0]
    return merge(m, att.softmax(-1) @ v)


# ---------------------------------------------------------------- terms
@idiom(Context(chunk=3))
def alibi_of_chunks(m, x):
    """Distances on both sides of the query, without an end on one."""
    i = torch.arange(x.size(1))
    bias = -m.slopes[:, None, None] * (i[:, None] - i).abs()
    bias = bias.masked_fill(i // 3 > i[:, None] // 3, -math.inf)
    return merge(m, F.scaled_dot_product_attention(*split(m, x), attn_mask=bias))


@idiom(Context(chunk=2))
def terms_that_bend(m, x):
    """Flat for what is near, straight beyond it."""
    i = torch.arange(x.size(1))
    bias = -0.1 * (i[:, None] - i - 5).clamp(min=0) - m.slopes[:, None, None] * (i - i[:, None]).clamp(min=0)
    q, k, v = split(m, x)
    att = (q @ k.mT + bias).masked_fill(i // 2 > i[:, None] // 2, -math.inf)
    return merge(m, att.softmax(-1) @ v)


@idiom(Context(chunk=4))
def score_of_positions(m, x):
    """As WeNet and ESPnet have it: a second score, of absolute positions, not shifted."""
    B, L, _ = x.shape
    q, k, v = split(m, x)
    p = m.pos(m.sines[:, :L]).view(1, -1, HEADS, HEAD).transpose(1, 2)
    q = q.transpose(1, 2)
    ac = torch.matmul((q + m.u).transpose(1, 2), k.transpose(-2, -1))
    bd = torch.matmul((q + m.w).transpose(1, 2), p.transpose(-2, -1))
    i = torch.arange(L) // 4
    att = ((ac + bd) / math.sqrt(HEAD)).masked_fill(i[:, None] < i, -math.inf)
    return merge(m, torch.softmax(att, dim=-1) @ v)


@idiom(Context(chunk=4))
def mask_that_is_a_score(m, x):
    """As NeMo has it: the score of positions is the mask of the function."""
    B, L, _ = x.shape
    q, k, v = split(m, x)
    p = m.pos(m.sines[:, :L]).view(1, -1, HEADS, HEAD).transpose(1, 2)
    bd = (q + m.w[:, None]) @ p.transpose(-2, -1) * HEAD**-0.5
    i = torch.arange(L) // 4
    bd = bd.masked_fill((i[:, None] < i).unsqueeze(0), -math.inf)
    return merge(m, F.scaled_dot_product_attention(q + m.u[:, None], k, v, attn_mask=bd))


@idiom(Context())
def causal_where_there_are_more_frames_than_one(m, x):
    """As Whisper's decoder has it."""
    return merge(m, F.scaled_dot_product_attention(*split(m, x), None, 0.0, x.size(1) > 1))


@idiom(Context())
def a_window_that_a_hint_of_causality_overrules(m, x):
    """As OnlineSpatialNet has it: torch then attends to all of the past."""
    i, y = torch.arange(x.size(1)), x.transpose(0, 1)
    distance = i[:, None] - i
    mask = torch.where((distance >= 0) * (distance < 3), 0.0, -torch.inf)
    return m.heads(y, y, y, attn_mask=mask, is_causal=True, need_weights=False)[0].transpose(0, 1)


# ---------------------------------------------------------------- refused
@refused("compared where streams answer differently")
def causal_where_there_are_many_frames(m, x):
    return merge(m, F.scaled_dot_product_attention(*split(m, x), is_causal=x.size(1) > 5))


WHOLE = r"the whole stream.*(is_causal|context)"


@refused(WHOLE)
def full_attention(m, x):
    return merge(m, F.scaled_dot_product_attention(*split(m, x)))


@refused(WHOLE)
def full_attention_by_hand(m, x):
    q, k, v = split(m, x)
    return merge(m, (q @ k.mT).softmax(-1) @ v)


@refused("attention")
def mask_of_values(m, x):
    q, k, v = split(m, x)
    seen = x.abs().sum(-1) > 3
    return merge(m, (q @ k.mT).masked_fill(~seen[:, None, None], -math.inf).softmax(-1) @ v)


@refused("goes on to change with the distance")
def terms_that_never_end(m, x):
    i = torch.arange(x.size(1))
    bias = -torch.log1p((i[:, None] - i).clamp(min=0).float()).masked_fill(future(x), math.inf)
    return merge(m, F.scaled_dot_product_attention(*split(m, x), attn_mask=bias))


@refused("depends on the frames' values")
def mask_of_values_for_the_function(m, x):
    seen = x.abs().sum(-1) > 3
    return merge(m, F.scaled_dot_product_attention(*split(m, x), attn_mask=seen[:, None, None]))


@refused("the order of streams")
def mask_of_the_batch(m, x):
    first = torch.arange(x.size(0))[:, None, None, None] <= torch.arange(x.size(1))
    return merge(m, F.scaled_dot_product_attention(*split(m, x), attn_mask=first))


@refused("mask of a chunk's size")
def mask_of_a_chunk(m, x):
    return merge(m, F.scaled_dot_product_attention(*split(m, x), attn_mask=torch.ones(T, T).tril().bool()))


@refused("writes into a part of a mask")
def mask_written_in_a_part_of_a_table(m, x):
    seen = torch.ones(64, 64, dtype=torch.bool)[: x.size(1), : x.size(1)]
    seen &= ~future(x)
    return merge(m, F.scaled_dot_product_attention(*split(m, x), attn_mask=seen))


@refused("no number")
def scores_filled_with_positions(m, x):
    q, k, v = split(m, x)
    i = torch.arange(x.size(1))
    return merge(m, torch.where(future(x), (i[:, None] - i) * 1.0 - 1e9, q @ k.mT).softmax(-1) @ v)


@refused("length|__index__|total")
def mask_of_the_total(m, x):
    i = torch.arange(x.size(1))
    return merge(m, F.scaled_dot_product_attention(*split(m, x), attn_mask=i[:, None] >= i - x.size(1) // 2))


@refused("NumPy|array|length|size")
def mask_of_numpy(m, x):
    seen = torch.from_numpy(np.tril(np.ones((x.size(1), x.size(1)), dtype=bool)))
    return merge(m, F.scaled_dot_product_attention(*split(m, x), attn_mask=seen))


@refused("mask")
def mask_kept_at_one_length(m, x):
    if m.cached is None:
        m.cached = torch.tril(torch.ones(T, T)).bool()
    return merge(m, F.scaled_dot_product_attention(*split(m, x), attn_mask=m.cached))


@refused("behind softmax|multiplied")
def softmax_times_a_mask(m, x):
    q, k, v = split(m, x)
    return merge(m, ((q @ k.mT).softmax(-1) * ~future(x)) @ v)


@refused("Shaw's second table")
def values_by_position(m, x):
    q, k, v = split(m, x)
    i = torch.arange(x.size(1))
    weights = (q @ k.mT).masked_fill(future(x), -math.inf).softmax(-1)
    vectors = m.vectors((i - i[:, None]).clamp(-4, 4) + 4)
    return merge(m, weights @ v + torch.einsum("bhij,ijd->bhid", weights, vectors))


@refused("numbers where they are not hidden")
def scores_times_a_mask_alone(m, x):
    q, k, v = split(m, x)
    return merge(m, ((q @ k.mT) * ~future(x)).softmax(-1) @ v)


@refused("numbers where they are not hidden")
def scores_filled_with_zeros(m, x):
    q, k, v = split(m, x)
    i = torch.arange(x.size(1))
    att = (q @ k.mT).masked_fill(i[:, None] - i == 2, 0.0)
    return merge(m, att.masked_fill(future(x), -math.inf).softmax(-1) @ v)


@refused("limited")
def scores_within_limits(m, x):
    q, k, v = split(m, x)
    return merge(m, (q @ k.mT).masked_fill(future(x), -math.inf).clamp(min=0).softmax(-1) @ v)


@refused("split|divide|divisible|shape|size|heads|reshape|view")
def heads_that_do_not_divide(m, x):
    B, L, C = x.shape
    q, k, v = (y.view(B, L, 5, C // 5).transpose(1, 2) for y in (m.q(x), m.k(x), m.v(x)))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


@refused("weights|returned")
def weights_returned(m, x):
    y = x.transpose(0, 1)
    out, weights = m.heads(y, y, y, attn_mask=future(y, 0))
    return out.transpose(0, 1) + weights.sum()


@pytest.mark.parametrize("name", IDIOMS.cases)
def test_idiom(name):
    IDIOMS.hold(name)


@pytest.mark.parametrize("name", IDIOMS.refusals)
def test_refused(name):
    IDIOMS.hold_refused(name)
