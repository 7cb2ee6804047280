"""Attention that forwards of this package write by hand: streams give what the plain model gives."""

import math

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn

pytestmark = pytest.mark.fast


class ByHand(nn.Module):
    """``(B, L, 8)``: two heads, which attend as a function of the forward's says."""

    def __init__(self, attend):
        super().__init__()
        self.attend, self.qkv, self.out = attend, nn.Linear(8, 24), nn.Linear(8, 8)
        self.near, self.distances = nn.Embedding(99, 8), nn.Embedding(5000, 4)
        self.register_buffer("table", ds.ones(99, 99).tril().view(1, 1, 99, 99))
        self.register_buffer("slopes", ds.tensor([0.5, 0.125]))

    def heads(self, x):
        return [y.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2) for y in self.qkv(x).chunk(3, -1)]

    def forward(self, x):
        q, k, v = self.heads(x)
        y = self.attend(self, x, q / 2, k, v, ds.arange(x.shape[1]))
        return self.out(y.transpose(1, 2).reshape(x.shape))


def _softmax(scores, hidden, v):
    weights = F.softmax(scores.masked_fill(hidden, -math.inf), dim=-1)
    return weights if v is None else weights @ v


def _buckets(i):
    d = (i[:, None] - i).clamp(min=0)
    far = 4 + ((d.float().clamp(min=1) / 4).log() / math.log(8) * 4).long()
    return ds.where(d < 4, d, ds.where(far < 7, far, ds.full_like(far, 7)))


def _rotated(x, cos, sin):
    return x * cos + ds.cat([-x[..., 2:], x[..., :2]], -1) * sin


def _rotary(m, x, q, k, v, i):
    angles = ds.einsum("i,j->ij", i.float(), ds.tensor([1.0, 0.1]))
    cos, sin = (ds.cat([t, t], -1) for t in (angles.cos(), angles.sin()))
    return F.scaled_dot_product_attention(_rotated(q, cos, sin), _rotated(k, cos, sin), v, is_causal=True, scale=1)


def _in_place(m, x, q, k, v, i):
    hidden = i > i[:, None]
    hidden |= i[:, None] - i > 5
    scores = q @ k.mT
    scores += ds.zeros(x.size(1), x.size(1)).masked_fill(hidden, -math.inf)
    return ds.matmul(scores.softmax(-1), v)


def _positions(m, x, q, k, v, i):
    waves = i.float()[:, None] * ds.tensor([1.0, 0.5, 0.2, 0.1])
    x = x + m.near(i.unsqueeze(0) + 2) + ds.cat([waves.sin(), waves.cos()], -1) * (i % 3 == 0).float()[:, None]
    q, k, v = m.heads(x)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=i[:, None] // 4 >= i // 4)


def _shifted(m, x, q, k, v, i):
    """Transformer-XL's scores of distances: those of a table, from far to near, moved by a pad and a view."""
    far = q @ m.distances(ds.arange(x.shape[1]).flip(0)).mT
    B, H, L, _ = far.shape
    far = F.pad(far, (1, 0)).view(B, H, L + 1, L)[:, :, 1:].view_as(far)
    return _softmax(q @ k.mT + far, i > i[:, None], v)


IDIOMS = {
    "left chunks": lambda m, x, q, k, v, i: _softmax(
        q @ k.mT, ~((i // 4 <= i[:, None] // 4) & (i // 4 >= i[:, None] // 4 - 2)), v
    ),
    "triu of -inf": lambda m, x, q, k, v, i: (
        (q @ k.mT + ds.triu(ds.full((x.size(1), x.size(1)), -math.inf), diagonal=1)).softmax(-1) @ v
    ),
    "a square mask": lambda m, x, q, k, v, i: (
        (q @ k.mT + nn.Transformer.generate_square_subsequent_mask(x.size(1))).softmax(-1) @ v
    ),
    "a buffer": lambda m, x, q, k, v, i: _softmax(q @ k.mT, m.table[:, :, : x.size(1), : x.size(1)] == 0, v),
    "one less tril": lambda m, x, q, k, v, i: (
        (q @ k.mT - (1 - ds.tril(ds.ones(x.size(1), x.size(1)))) * 1e9).softmax(-1) @ v
    ),
    "where": lambda m, x, q, k, v, i: ds.where((i[:, None] - i).abs() <= 3, q @ k.mT, -1e9).softmax(-1) @ v,
    "heads of a mask": lambda m, x, q, k, v, i: F.scaled_dot_product_attention(
        q, k[:, :1], v[:, :1], attn_mask=ds.stack([i[:, None] >= i] * 2), enable_gqa=True
    ),
    "by logarithms": lambda m, x, q, k, v, i: (
        ds.matmul(F.log_softmax((q @ k.mT).masked_fill(i > i[:, None], -math.inf), dim=-1).exp(), v)
    ),
    "slopes": lambda m, x, q, k, v, i: _softmax(
        q @ k.mT - m.slopes[:, None, None] * (i[:, None] - i), i > i[:, None], v
    ),
    "einsum": lambda m, x, q, k, v, i: ds.einsum(
        "bhij,bhjd->bhid",
        _softmax(ds.einsum("bhid,bhjd->bhij", q, k), (i > i[:, None]).logical_or(i[:, None] - i > 6), None),
        v,
    ),
    "buckets": lambda m, x, q, k, v, i: _softmax(
        q @ k.mT + m.near(_buckets(i))[..., :2].permute(2, 0, 1), i > i[:, None], v
    ),
    "rotary": _rotary,
    "in place": _in_place,
    "positions": _positions,
    "shifted": _shifted,
}  # fmt: skip


@pytest.mark.parametrize("name", IDIOMS)
def test_what_is_written_by_hand_streams(name, rng, tmp_path):
    ds.manual_seed(0)
    model = ByHand(IDIOMS[name]).eval()
    x = rng.standard_normal((1, 41, 8)).astype(np.float32)
    want = model(ds.tensor(x)).numpy()[0]
    ds.compile(model, ("B", "L", 8)).save(tmp_path / "model.dsm")
    engine = ds.load(tmp_path / "model.dsm")
    eager = ds.patch_module(model).online()
    other = [engine.step({"other": x[0, :13]}, sos="other")["other"]]
    found, at = [[], []], 0
    for n in (1, 5, 0, 9, 3, 23):
        ends = {"sos": at == 0, "eos": at + n == 41}
        chunk = ds.stream_tensor([x[0, at : at + n]], ids=["a"], names=("B", "L", None), **ends)
        found[0].append(eager(chunk).tensor().numpy()[0])
        flags = {flag: "a" for flag, given in ends.items() if given}
        out = engine.step({"a": x[0, at : at + n], "other": x[0, 13 + at : 13 + min(at + n, 28)]}, **flags)
        found[1].append(out["a"])
        other.append(out["other"])
        at += n
    found.append([*other, engine.step({"other": x[0, 41:]}, eos="other")["other"]])
    for parts in found:
        np.testing.assert_allclose(np.concatenate(parts), want, atol=1e-5)


REFUSED = {
    "every query sees the whole stream": lambda m, x, q, k, v, i: (q @ k.mT).softmax(-1) @ v,
    "its mask depends on the frames' values": lambda m, x, q, k, v, i: F.scaled_dot_product_attention(
        q, k, v, attn_mask=q.sum(-1, keepdim=True) > 0
    ),
    "does not stream: its rows begin": lambda m, x, q, k, v, i: F.scaled_dot_product_attention(
        q, k, v, attn_mask=i + i[:, None] < x.size(1)
    ),
    "behind softmax": lambda m, x, q, k, v, i: ((q @ k.mT).softmax(-1) * ds.ones(x.size(1), x.size(1)).tril()) @ v,
    "writes into positions": lambda m, x, q, k, v, i: (q @ k.mT + (i[:, None] - i).add_(1)).softmax(-1) @ v,
    "positions are made numbers by tolist": lambda m, x, q, k, v, i: q * len((i[:, None] - i).tolist()),
    "meet a stream": lambda m, x, q, k, v, i: q * (i[:, None] - i).float(),
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_does_not_stream_is_refused_with_its_line(text):
    with pytest.raises(ds.NotStreamableError, match=text) as error:
        ds.compile(ByHand(REFUSED[text]).eval(), ("B", "L", 8))
    assert "test_attention_by_hand.py" in str(error.value)


def test_a_transformer_attends_to_what_is_given_once(rng):
    """nn.Transformer: an encoder of a text, given once, and a decoder of frames."""

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.whole = nn.Transformer(8, 2, 1, 2, 16, 0.0, batch_first=True)

        def forward(self, x, text):
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            return self.whole(text, x, tgt_mask=mask, tgt_is_causal=True)

    model = Reader().eval()
    x, text = (rng.standard_normal((1, n, 8)).astype(np.float32) for n in (11, 5))
    want = model(ds.tensor(x), ds.tensor(text)).numpy()[0]
    engine = ds.compile(model, {"x": ("B", "L", 8), "text": ("B", "M", 8)})
    first = engine.step({"a": {"x": x[0, :4], "text": text[0]}}, sos="a")["a"]
    last = engine.step({"a": {"x": x[0, 4:]}}, eos="a")["a"]
    np.testing.assert_allclose(np.concatenate([first, last]), want, atol=1e-5)


class Hiding(ByHand):
    """Frames of a text, given once, that are hidden from queries, and terms by them."""

    def __init__(self, attend):
        super().__init__(attend)
        self.layer, self.own = (
            nn.MultiheadAttention(8, 2, batch_first=True),
            nn.TransformerEncoderLayer(8, 2, 16, 0.0),
        )
        self.decoder = nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True)

    def forward(self, x, text, shown):
        q, k = self.heads(x)[0], self.heads(text)[1]
        y = self.attend(self, x, text, q, k, shown)
        return y.transpose(1, 2).flatten(2) if y.ndim == 4 else y


def _hidden_in_layers(m, x, text, q, k, shown):
    hidden = shown < 0.5
    text = m.own(text.transpose(0, 1), src_key_padding_mask=hidden).transpose(0, 1)
    y = m.decoder(x, text, tgt_is_causal=True, memory_key_padding_mask=hidden)
    mask = ds.zeros(x.shape[1], text.shape[1])
    return m.layer(y, text, text, attn_mask=mask, key_padding_mask=shown.logical_not().float() * -1e9)[0]


def _hidden_behind_too(m, x, text, q, k, shown):
    hidden = (shown < 0.5)[:, None, None]
    return (q @ k.mT).masked_fill(hidden, -1e9).softmax(-1).masked_fill(hidden, 0.0) @ k


HIDING = {
    "layers": _hidden_in_layers,
    "behind softmax too": _hidden_behind_too,
    "sdpa": lambda m, x, t, q, k, s: F.scaled_dot_product_attention(q, k, k, attn_mask=(s > 0.5)[:, None, None]),
    "terms": lambda m, x, t, q, k, s: (
        (q @ k.mT + t[..., :2].mT[:, :, None] - ds.arange(t.shape[1])).softmax(-1) @ k
    ),
    "where": lambda m, x, t, q, k, s: ds.where((s > 0.5)[:, None, None], q @ k.mT, -1e9).softmax(-1) @ k,
}


@pytest.mark.parametrize("attend", HIDING.values(), ids=HIDING)
def test_frames_of_a_text_are_hidden(attend, rng):
    model = Hiding(attend).eval()
    x, text = (rng.standard_normal((1, n, 8)).astype(np.float32) for n in (11, 5))
    shown = np.float32([[1, 0, 1, 1, 0]])
    want = model(*map(ds.tensor, (x, text, shown))).numpy()[0]
    engine = ds.compile(model, {"x": ("B", "L", 8), "text": ("B", "M", 8), "shown": ("B", "M")})
    given = {"text": text[0], "shown": shown[0]}
    first = engine.step({"a": {"x": x[0, :4], **given}}, sos="a")["a"]
    last = engine.step({"a": {"x": x[0, 4:]}}, eos="a")["a"]
    np.testing.assert_allclose(np.concatenate([first, last]), want, atol=1e-5)


def test_a_mask_beside_a_context_is_an_error_offline_too():
    x, mask = ds.ones(1, 2, 4, 3), ds.ones(4, 4).tril() > 0
    for said in ({"is_causal": True}, {"context": ds.Context(left=2)}):
        with pytest.raises(ValueError, match="attn_mask and a context both say what a query sees"):
            F.scaled_dot_product_attention(x, x, x, attn_mask=mask, **said)
