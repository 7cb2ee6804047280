"""Attention that forwards of this package write by hand: what does not stream, and what stands beside masks."""

import numpy as np
import pytest

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn


class ByHand(nn.Module):
    """``(B, L, 8)``: two heads, which attend as a function of the forward's says."""

    def __init__(self, attend):
        super().__init__()
        self.attend, self.qkv = attend, nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = (y.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        return self.attend(x, q / 2, k, v, ds.arange(x.shape[1])).transpose(1, 2).reshape(x.shape)


REFUSED = {
    "every query sees the whole stream": lambda x, q, k, v, i: (q @ k.mT).softmax(-1) @ v,
    "its mask depends on the frames' values": lambda x, q, k, v, i: F.scaled_dot_product_attention(
        q, k, v, attn_mask=q.sum(-1, keepdim=True) > 0
    ),
    "does not stream: its rows begin": lambda x, q, k, v, i: F.scaled_dot_product_attention(
        q, k, v, attn_mask=i + i[:, None] < x.size(1)
    ),
    "behind softmax": lambda x, q, k, v, i: ((q @ k.mT).softmax(-1) * ds.ones(x.size(1), x.size(1)).tril()) @ v,
    "give way to numbers where they are not hidden": lambda x, q, k, v, i: (
        (q @ k.mT).masked_fill(i[:, None] - i == 3, 0).masked_fill(i > i[:, None], -1e9).softmax(-1) @ v
    ),
    "positions are made numbers by tolist": lambda x, q, k, v, i: q * len((i[:, None] - i).tolist()),
    "meet a stream": lambda x, q, k, v, i: q * (i[:, None] - i).float(),
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_does_not_stream_is_refused_with_its_line(text):
    with pytest.raises(ds.NotStreamableError, match=text) as error:
        ds.compile(ByHand(REFUSED[text]).eval(), ("B", "L", 8))
    assert "test_attention_by_hand.py" in str(error.value)


@pytest.mark.parametrize("by_hint", [True, False])
def test_causality_that_is_said_in_other_words(by_hint):
    """A hint overrules a mask, as in torch; and of one frame alone it says nothing."""

    class Said(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            if by_hint:
                i = ds.arange(x.shape[1])
                far = (i[:, None] < i) | (i[:, None] > i + 2)
                return self.attention(x, x, x, need_weights=False, attn_mask=far, is_causal=True)[0]
            return F.scaled_dot_product_attention(x, x, x, is_causal=x.shape[1] > 1)

    model = Said().eval()
    x = np.random.default_rng(1).standard_normal((1, 9, 8)).astype(np.float32)
    hidden = ~np.tri(9, dtype=bool)
    want = (
        model.attention(*[ds.tensor(x)] * 3, attn_mask=ds.tensor(hidden))[0].numpy()
        if by_hint
        else F.scaled_dot_product_attention(*[ds.tensor(x)] * 3, attn_mask=ds.tensor(~hidden)).numpy()
    )
    engine = ds.compile(model, ("B", "L", 8), verify=True)
    parts = [engine.step({"a": x[0, :1]}, sos="a")["a"], engine.step({"a": x[0, 1:]}, eos="a")["a"]]
    np.testing.assert_allclose(np.concatenate(parts), want[0], atol=1e-5)
    np.testing.assert_allclose(model(ds.tensor(x)).numpy(), want, atol=1e-5)


def _chooses_by_scores(_, x):
    return x if x @ x.mT else -x


MULTIHEAD = {
    "scores of attention are asked for sum": lambda m, x: m(x, x, x, is_causal=True)[1].sum(-1),
    "scores of attention are returned.*need_weights=False": lambda m, x: m(x, x, x, is_causal=True),
    "its mask depends on the frames' values": lambda m, x: m(x, x, x, key_padding_mask=x[..., 0] > 0)[0],
    "a mask of a chunk's size": lambda m, x: m(x, x, x, key_padding_mask=ds.ones(1, 3) > 0)[0],
    "scores of attention are given to bool": _chooses_by_scores,
    "a stream can't serve as a weight": lambda m, x: F.linear(x, x @ x.mT),
}  # fmt: skip


@pytest.mark.parametrize("text", MULTIHEAD)
def test_what_multihead_attention_refuses(text):
    model = ByHand(None)
    model.attention = nn.MultiheadAttention(8, 2, batch_first=True)
    model.forward = lambda x: MULTIHEAD[text](model.attention, x)
    with pytest.raises(ds.NotStreamableError, match=text) as error:
        ds.compile(model.eval(), ("B", "L", 8))
    assert "test_attention_by_hand.py" in str(error.value)


def test_functions_of_the_names_of_methods():
    x = ds.tensor(np.float32([[1, -2, 3], [0, 5, -6]]))
    assert (ds.abs(x).numpy() == np.abs(x.numpy())).all() and (ds.add(1, x) == x + 1).all()
    assert ds.softmax(x, dim=-1).sum(-1).numpy() == pytest.approx(1) and ds.long is ds.int64
    assert (ds.eye(2, 3).numpy() == np.eye(2, 3)).all() and (ds.outer(x[0], x[1]).numpy() == np.outer(*x)).all()
    for how in ("ij", "xy"):
        for ours, numpys in zip(
            ds.meshgrid(x[0], x[:, 1], indexing=how), np.meshgrid(x[0], x[:, 1], indexing=how)
        ):
            assert (ours.numpy() == numpys).all()
    a = ds.tensor(np.arange(8.0).reshape(2, 2, 2))
    assert (ds.baddbmm(a, a, a, beta=0.5, alpha=2).numpy() == a.numpy() / 2 + 2 * (a.numpy() @ a.numpy())).all()
    assert "softmax" in dir(ds) and not hasattr(ds, "view")


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
        self.layer = nn.MultiheadAttention(8, 2, batch_first=True)
        self.own = nn.TransformerEncoderLayer(8, 2, 16, 0.0)
        self.decoder = nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True)

    def forward(self, x, text, shown):
        q, k = (self.qkv(y)[..., :8].unflatten(-1, (2, 4)).transpose(1, 2) for y in (x, text))
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


def test_a_table_that_is_exchanged_is_read_anew(rng):
    """Its memory is the same, so that nothing but its values tells."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", ds.tril(ds.ones(24, 24)))

        def forward(self, x):
            hidden = self.table[: x.shape[1], : x.shape[1]] == 0
            return (x @ x.mT).masked_fill(hidden, -np.inf).softmax(-1) @ x

    model, x = Model(), rng.standard_normal((20, 4)).astype(np.float32)
    ds.patch_module(model).online()
    near = np.tri(24, dtype=np.float32) - np.tri(24, k=-3, dtype=np.float32)
    for table in (model.table.numpy().copy(), near):
        model.load_state_dict({"table": ds.tensor(table)})
        parts = [
            model(ds.stream_tensor([x[a : a + 5]], names=("B", "L", None), ids=["a"], sos=a == 0, eos=a == 15))[
                "a"
            ]
            for a in range(0, 20, 5)
        ]
        weights = np.exp(x @ x.T) * table[:20, :20]
        assert np.abs(np.concatenate(parts) - weights / weights.sum(1, keepdims=True) @ x).max() < 1e-5


@pytest.mark.parametrize("keys", [4, 9])
def test_causal_attention_to_other_lengths_offline(rng, keys):
    """As torch has it: query i sees keys up to i, however many there are."""
    q, k = (ds.tensor(rng.standard_normal((1, 2, n, 3)).astype(np.float32)) for n in (6, keys))
    want = F.scaled_dot_product_attention(q, k, k, attn_mask=ds.ones(6, keys).tril() > 0)
    for said in ({"is_causal": True}, {"context": ds.Context()}):
        found = F.scaled_dot_product_attention(q, k, k, **said)
        np.testing.assert_allclose(found.numpy(), want.numpy(), atol=1e-6)


@pytest.mark.parametrize("kind", ["bool", "float64"])
def test_a_mask_for_each_row_and_head_offline(rng, kind):
    """As torch has it: ``(B * num_heads, L, L)``, a row's heads one after the other."""
    layer = nn.MultiheadAttention(4, 2, batch_first=True).to("float64")
    x, mask = rng.standard_normal((3, 5, 4)), rng.standard_normal((6, 5, 5))
    mask = mask > 1 if kind == "bool" else mask
    found = layer(*[ds.tensor(x)] * 3, attn_mask=ds.tensor(mask), need_weights=False)[0].numpy()
    for row, heads in enumerate(mask.reshape(3, 2, 5, 5)):
        want = layer(*[ds.tensor(x[row : row + 1])] * 3, attn_mask=ds.tensor(heads), need_weights=False)[0]
        np.testing.assert_allclose(found[row], want.numpy()[0], atol=1e-12)


def test_not_of_positions(rng):
    """Only the first position is none; it was every one."""

    class First(nn.Module):
        def forward(self, x):
            return x * ds.arange(x.size(1)).logical_not().float()[:, None]

    engine = ds.compile(First().eval(), ("B", "L", 4))
    x = rng.standard_normal((9, 4)).astype(np.float32)
    y = engine.step({"a": x}, sos="a", eos="a")["a"]
    assert np.array_equal(y[0], x[0]) and not y[1:].any()


def test_a_mask_that_streams_looks_for_no_line(monkeypatch):
    """What no formula says is no refusal: nothing walks the stack for a message that nobody reads."""
    model = ByHand(
        lambda x, q, k, v, i: (
            (q @ k.mT).masked_fill((i > i[:, None]) | (i + 3 < i[:, None]), -np.inf).softmax(-1) @ v
        )
    ).eval()
    ds.patch_module(model).online()
    monkeypatch.setattr("dreamstream.errors.user_line", lambda: pytest.fail("a line is looked for"))
    for sos in (True, False):
        x = np.random.default_rng(0).standard_normal((1, 5, 8)).astype(np.float32)
        assert len(model(ds.stream_tensor(x, names=["B", "L", None], ids=["a"], sos=sos)).ids) == 1
