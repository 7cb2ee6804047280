"""Scores by relative position that models shift, and of unequal rates: exact, or refused by line."""

import math

import pytest
import torch
from attention_idioms import HEAD, HEADS, WIDTH, F, Idioms, future, merge, split

from dreamstream import Context

IDIOMS = Idioms(__file__.rpartition("/")[2])
idiom, refused = IDIOMS.idiom, IDIOMS.refused


# ---------------------------------------------------------------- every second key, or query
@idiom(Context(), delay=0)
def every_third_key(m, x):
    q, k, v = split(m, x)
    i, j = torch.arange(x.size(1))[:, None], torch.arange(0, x.size(1), 3)
    att = q @ k[:, :, ::3].mT - m.slopes[:, None, None] * (i - j)
    return merge(m, att.masked_fill(j > i, -torch.inf).softmax(-1) @ v[:, :, ::3])


@idiom(Context(left=6), delay=1)
def odd_keys_of_a_table(m, x):
    """Some queries see no key."""
    q, k, v = split(m, x)
    seen = m.table[0, 0].triu(-6)[: x.size(1), : x.size(1)][:, 1::2] > 0
    return merge(m, F.scaled_dot_product_attention(q, k[:, :, 1::2], v[:, :, 1::2], attn_mask=seen))


@idiom(Context(left=8), delay=3)
def queries_that_are_pooled(m, x):
    q, k, v = split(m, x)
    q = q[:, :, : x.size(1) // 4 * 4].unflatten(2, (x.size(1) // 4, 4)).mean(3)
    i, j = torch.arange(q.size(2))[:, None], torch.arange(x.size(1))
    return merge(m, F.scaled_dot_product_attention(q, k, v, attn_mask=(j <= 4 * i + 3) & (j >= 4 * i - 5)))


@refused("query 0 sees no key")
def odd_keys(m, x):
    q, k, v = split(m, x)
    i, j = torch.arange(x.size(1))[:, None], torch.arange(1, x.size(1), 2)
    return merge(m, (q @ k[:, :, 1::2].mT).masked_fill(j > i, -torch.inf).softmax(-1) @ v[:, :, 1::2])


# ---------------------------------------------------------------- shifted scores
def shifted(x):
    """Move row i by i, as NeMo and speechbrain do."""
    B, H, n, m = x.size()
    x = F.pad(x, pad=(1, 0)).view(B, H, -1, n)
    return x[:, :, 1:].view(B, H, n, m)


def cut_around(m, x):
    """Return the table's rows of all distances in a stream."""
    n, middle = x.size(1), m.distances.size(1) // 2
    return m.distances[:, middle - n + 1 : middle + n]


def by_positions(m, x, p):
    """Return queries with either bias, keys, values and positions ``(B or 1, H, T, D)``."""
    B, n, _ = x.shape
    q = m.q(x).view(B, -1, HEADS, HEAD)
    k, v = (y.view(B, -1, HEADS, HEAD).transpose(1, 2) for y in (m.k(x), m.v(x)))
    p = m.pos(p).view(p.size(0), -1, HEADS, HEAD).transpose(1, 2)
    return (q + m.u).transpose(1, 2), (q + m.w).transpose(1, 2), k, v, p


@idiom(Context(chunk=4, left=8))
def shifted_by_zeros(m, x):
    """As ESPnet and wav2vec2-conformer have it."""
    qu, qv, k, v, p = by_positions(m, x, m.drop(cut_around(m, x)))
    bd = torch.matmul(qv, p.transpose(-2, -1))
    zeros = torch.zeros((*bd.size()[:3], 1), device=bd.device, dtype=bd.dtype)
    padded = torch.cat([zeros, bd], dim=-1).view(*bd.size()[:2], bd.size(3) + 1, bd.size(2))
    bd = padded[:, :, 1:].view_as(bd)[:, :, :, : bd.size(-1) // 2 + 1]
    att = (torch.matmul(qu, k.transpose(-2, -1)) + bd) / math.sqrt(HEAD)
    d = torch.arange(x.size(1)) // 4
    hidden = (d[:, None] < d) | (d[:, None] - d > 2)
    att = torch.softmax(att.masked_fill(hidden, torch.finfo(att.dtype).min), dim=-1).masked_fill(hidden, 0.0)
    return merge(m, torch.matmul(m.drop(att), v))


@idiom(Context(chunk=4, left=8))
def shifted_by_strides(m, x):
    """As icefall has it, whose Zipformer uses the weights of its first heads once more."""
    n, d = x.size(1), torch.arange(x.size(1)) // 4
    qu, qv, k, v, p = by_positions(m, x, cut_around(m, x))
    bd = torch.matmul(qv, p.transpose(-2, -1))
    apart = [bd.stride(i) for i in range(4)]
    steps = (apart[0], apart[1], apart[2] - apart[3], apart[3])
    bd = bd.as_strided((x.size(0), HEADS, n, n), steps, storage_offset=apart[3] * (n - 1))
    att = (qu @ k.mT + bd) * HEAD**-0.5
    att = att.masked_fill((d[:, None] < d) | (d[:, None] - d > 2), -1000).softmax(-1)
    return merge(
        m, torch.cat([att[:, :2] @ v[:, 2:], att[:, :1] @ v[:, :1], (att[:, 0] @ v[:, 1]).unsqueeze(1)], 1)
    )


@idiom(Context())
def shifted_by_a_table_that_grows(m, x):
    qu, qv, k, v, p = by_positions(m, x, m.encoding(x))
    ac, bd = qu @ k.mT, qv @ p.mT
    assert ac.shape[:3] == bd.shape[:3]
    return merge(m, (ac + shifted(bd)[..., : k.size(-2)]).masked_fill(future(x), -math.inf).softmax(-1) @ v)


@idiom(Context())
def shifted_and_future_zeroed(m, x):
    """As speechbrain has it."""
    qu, qv, k, v, p = by_positions(m, x, cut_around(m, x))
    scale = HEAD**-0.5
    bd = shifted(torch.matmul(qv * scale, p.transpose(-2, -1)))
    ones = torch.ones((bd.size(2), bd.size(3)), device=bd.device)
    bd = (bd * torch.tril(ones, bd.size(3) - bd.size(2))[None, None])[..., : bd.size(3) // 2 + 1]
    att = torch.matmul(qu * scale, k.transpose(-2, -1)) + bd
    return merge(m, F.softmax(att.masked_fill(future(x), -math.inf), -1, dtype=torch.float32) @ v)


@idiom(Context())
def transformer_xl(m, x):
    """Time first, positions falling, the shift by a view that turns rows and columns."""
    y = x.transpose(0, 1)
    n, B, _ = y.shape
    q, k, v = (layer(y).view(n, B, HEADS, HEAD) for layer in (m.q, m.k, m.v))
    angles = torch.ger(torch.arange(n - 1, -1, -1.0), 1 / (10000 ** (torch.arange(0.0, WIDTH, 2.0) / WIDTH)))
    p = m.pos(torch.cat([angles.sin(), angles.cos()], dim=-1)[:, None, :]).view(n, HEADS, HEAD)
    ac = torch.einsum("ibnd,jbnd->ijbn", (q + m.u, k))
    bd = torch.einsum("ibnd,jnd->ijbn", (q + m.w, p))
    padded = torch.cat([torch.zeros((bd.size(0), 1, *bd.size()[2:])), bd], dim=1)
    bd = padded.view(bd.size(1) + 1, bd.size(0), *bd.size()[2:])[1:].view_as(bd)
    att = ac + bd
    att.mul_(HEAD**-0.5)
    att = att.float().masked_fill(future(y, 0)[:, :, None, None], -math.inf).type_as(att)
    out = torch.einsum("ijbn,jbnd->ibnd", (m.drop(F.softmax(att, dim=1)), v))
    return m.out(out.contiguous().view(n, B, WIDTH)).transpose(0, 1)


@idiom(Context(left=7, right=2))
def vectors_of_pairs(m, x):
    """Shaw's: a vector for each pair, of distances within limits."""
    q, k, v = split(m, x)
    i = torch.arange(x.size(1))
    vectors = m.vectors((i - i[:, None]).clamp(-4, 4) + 4).to(q.dtype)
    att = (q @ k.mT + torch.einsum("bhld,lrd->bhlr", q, vectors)) * HEAD**-0.5
    return merge(m, att.masked_fill((i > i[:, None] + 2) | (i < i[:, None] - 7), -math.inf).softmax(-1) @ v)


@idiom(Context())
def vectors_of_pairs_by_index(m, x):
    q, k, v = split(m, x)
    i = torch.arange(x.size(1))
    near = m.vectors.weight[torch.clip(i[None] - i[:, None], min=-3, max=3) + 3]
    att = torch.einsum("bhid,bhjd->bhij", q, k) + torch.einsum("bhid,ijd->bhij", q * 0.5, near)
    return merge(m, att.masked_fill(future(x), -math.inf).softmax(-1) @ v)


# ---------------------------------------------------------------- refused
@refused("go on to change with the distance|no function of the distance")
def vectors_of_places(m, x):
    """A vector for each key, whatever the distance."""
    q, k, v = split(m, x)
    i = torch.arange(x.size(1))
    vectors = m.vectors((i.expand(x.size(1), -1) % 7).clamp(max=8))
    att = q @ k.mT + torch.einsum("bhld,lrd->bhlr", q, vectors)
    return merge(m, att.masked_fill(future(x), -math.inf).softmax(-1) @ v)


@refused("no function of the distance")
def positions_that_are_not_shifted(m, x):
    qu, qv, k, v, p = by_positions(m, x, cut_around(m, x))
    att = qu @ k.mT + (qv @ p.mT)[..., : k.size(-2)]
    return merge(m, att.masked_fill(future(x), -math.inf).softmax(-1) @ v)


@refused("no function of the distance|other lengths")
def positions_counted_from_the_end(m, x):
    """What stands for a distance changes with the length."""
    n = x.size(1)
    angles = torch.arange(n - 1, -n, -1.0)[:, None] / n * torch.arange(WIDTH)
    qu, qv, k, v, p = by_positions(m, x, angles.sin()[None])
    att = qu @ k.mT + shifted(qv @ p.mT)[..., :n]
    return merge(m, att.masked_fill(future(x), -math.inf).softmax(-1) @ v)


@refused("lack some that are seen")
def shifted_beyond_what_is_there(m, x):
    """Transformer-XL's table has no distance of what comes."""
    n = x.size(1)
    qu, qv, k, v, p = by_positions(m, x, m.distances[:, 90 - n : 90])
    att = qu @ k.mT + shifted(qv @ p.mT)
    i = torch.arange(n)
    return merge(m, att.masked_fill(i > i[:, None] + 1, -math.inf).softmax(-1) @ v)


@pytest.mark.parametrize("name", IDIOMS.cases)
def test_idiom(name):
    IDIOMS.hold(name)


@pytest.mark.parametrize("name", IDIOMS.refusals)
def test_refused(name):
    IDIOMS.hold_refused(name)
