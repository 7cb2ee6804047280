"""Attention in torch modules: what masks and contexts say, what is refused, gradients, and tables that end."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import dreamstream as ds
from dreamstream import NotStreamableError
from dreamstream.array import deferred, mask_terms
from dreamstream.stream.mask_recognition import recognised

F = nn.functional


class Attention(nn.Module):
    def __init__(self, attend, **buffers):
        super().__init__()
        self.attend = attend
        self.qkv = nn.Linear(8, 24)
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (2, 4)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        return self.attend(self, q, k, v).transpose(1, 2).flatten(2)


def chunks(model, x, sizes):
    """What a patched model says of one stream, chunk by chunk."""
    out, at = [], 0
    for k, n in enumerate(sizes):
        last = k == len(sizes) - 1
        chunk = ds.stream_tensor([x[0, at : at + n]], ids=["s"], sos=k == 0, eos=last, names=("B", "L", None))
        out.append(model(chunk)["s"])
        at += n
    return torch.cat(out)


def masked(mask):
    return lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask(m, torch.arange(q.size(2))))


#: What a mask is written as, and what it says.
SAYS = {
    "causal": (lambda i: i[:, None] >= i, ds.Context()),
    "window": (lambda i: (i[:, None] - i < 100) & (i[:, None] >= i), ds.Context(left=99)),
    "look-ahead": (lambda i: i <= i[:, None] + 3, ds.Context(right=3)),
    "chunks": (lambda i: i[:, None] // 16 >= i // 16, ds.Context(chunk=16)),
    "chunks by clamp": (lambda i: i < ((i[:, None] // 16 + 1) * 16), ds.Context(chunk=16)),
    "left chunks": (
        lambda i: (i[:, None] // 16 >= i // 16) & (i[:, None] // 16 - i // 16 <= 4),
        ds.Context(chunk=16, left=64),
    ),
    "a tensor's number": (
        lambda i: (i[:, None] - i < torch.tensor(300)) & (i[:, None] >= i),
        ds.Context(left=299),
    ),
    "a float": (lambda i: ((i[:, None] - i).float() < 250.5) & (i[:, None] >= i), ds.Context(left=250)),
    "a float tensor's number": (
        lambda i: ((i[:, None] - i).float() < torch.tensor(1500.0)) & (i[:, None] >= i),
        ds.Context(left=1499),
    ),
    "a part of a number": (lambda i: (i[:, None] * 0.0625).long() >= (i * 0.0625).long(), ds.Context(chunk=16)),
    "first keys": (
        lambda i: (i[:, None] >= i) & ((i < 4) | (i[:, None] - i < 1024)),
        ds.Context(left=1023, keep=4),
    ),
    "first keys beside chunks": (
        lambda i: (i[:, None] // 8 >= i // 8) & ((i < 20) | (i >= i[:, None] // 8 * 8 - 4)),
        ds.Context(8, 4, keep=20),
    ),
    "whole": (lambda i: i[:, None] >= i - i, None),
}


@pytest.mark.parametrize("name", SAYS)
def test_what_a_mask_says(name):
    """Delay and kept frames are those of the same context, declared."""
    mask, context = SAYS[name]
    model = Attention(masked(lambda m, i: mask(i))).eval()
    if context is None:
        with pytest.raises(NotStreamableError, match="whole stream"):
            ds.compile(model, ("B", "L", 8))
        return
    engine = ds.compile(model, ("B", "L", 8))
    plain = Attention(lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v)).eval()
    other = ds.compile(plain, ("B", "L", 8), context={"": context})
    assert (engine.delay, engine.kept_bytes) == (other.delay, other.kept_bytes)
    assert engine.state_bytes_per_frame == other.state_bytes_per_frame


REFUSED = {
    "no blocks": (lambda m, i: i[:, None] % 3 == i % 3, "its rows begin as x..x"),
    "of the total": (lambda m, i: i[:, None] >= i - (len(i) > 3), "made numbers by __index__|__len__"),
    "too far": (lambda m, i: (i[:, None] - i) * 5000 < 100_000, "more than can be tried"),
    "too far, a float": (lambda m, i: (i[:, None] - i).float() * 5000 < 20_000.5, "more than can be tried"),
    "too far, a part": (lambda m, i: (i[:, None] * 1e-4).long() >= (i * 1e-4).long(), "more than can be tried"),
    "of the total's last": (lambda m, i: i[:, None] >= i.flip(0), "it says something else|no blocks"),
    "growing with the distance": (
        lambda m, i: torch.where(i[:, None] >= i, -(i[:, None] - i).abs().float().log1p(), -torch.inf),
        "goes on to change with the distance",
    ),
    "of queries and keys": (lambda m, i: (i[:, None] * i).float(), "no function of the distance"),
    "of what came before, by numbers": (
        lambda m, i: (i >= i[:, None]) * -1e9,
        "query 0 of .* a number hides all alike",
    ),
    "of first keys and holes": (
        lambda m, i: (i <= i[:, None]) & ((i < 3) | ((i[:, None] - i) % 2 == 0)),
        "no blocks of one size",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_masks_that_say_nothing(name):
    mask, message = REFUSED[name]
    model = ds.patch_module(Attention(masked(mask)).eval(), unstreamable="buffer").online()
    with pytest.raises(NotStreamableError, match=message):
        chunks(model, torch.randn(1, 9, 8), [9])


@pytest.mark.parametrize(
    "hidden", [lambda i: i >= i[:, None], lambda i: (i // 4 != i[:, None] // 4) | (i == i[:, None])]
)
@torch.no_grad()
def test_queries_that_see_no_key(hidden):
    """Softmax makes NaN of them, at the start or at the end, and is refused, unless zeros are put there."""

    def weights(q, k):
        return (q @ k.mT).masked_fill(hidden(torch.arange(q.size(2))), -torch.inf).softmax(-1)

    with pytest.raises(NotStreamableError, match=r"query \d+ sees no key, of which softmax makes NaN"):
        ds.compile(Attention(lambda m, q, k, v: weights(q, k) @ v).eval(), ("B", "L", 8))
    x = torch.randn(1, 9, 8)
    for zeroed in (
        lambda w: w.nan_to_num(0.0),
        lambda w: torch.where(w.isnan(), 0.0, w),
        lambda w: w.masked_fill(hidden(torch.arange(w.size(2))), 0.0),
    ):
        model = Attention(lambda m, q, k, v, zeroed=zeroed: zeroed(weights(q, k)) @ v).eval()
        want = model(x)[0]
        assert torch.isfinite(want).all()
        assert torch.allclose(chunks(ds.patch_module(model).online(), x, [2, 6, 1]), want, atol=1e-6)


@pytest.mark.parametrize(
    "attend",
    [
        lambda m, q, k, v: (q @ k.transpose(-2, -1)) @ v,
        lambda m, q, k, v: (q @ k.transpose(-2, -1)).softmax(-2) @ v,
        lambda m, q, k, v: (q @ k.transpose(-2, -1)).relu() @ v,
        lambda m, q, k, v: ((q @ k.transpose(-2, -1)).softmax(-1) * 2) @ v,
        lambda m, q, k, v: (q @ k.transpose(-2, -1) + m.learned) @ v,
        lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(9, 9)),
    ],
)
def test_other_uses_of_scores(attend):
    model = ds.patch_module(Attention(attend, learned=torch.randn(9, 9)).eval()).online()
    with pytest.raises(NotStreamableError, match=r"test_attention\.py|attention"):
        chunks(model, torch.randn(1, 9, 8), [9])


@pytest.mark.parametrize(
    ("forward", "what"),
    [
        (lambda x: x @ x.transpose(1, 2), "scores of attention are returned"),
        (lambda x: (x, {"w": (x @ x.transpose(1, 2)).softmax(-1)}), "scores of attention are returned"),
        (lambda x: torch.arange(x.size(1))[:, None] >= torch.arange(x.size(1)), "positions> are returned"),
        (lambda x: x * (torch.arange(x.size(1))[:, None] - torch.arange(x.size(1))), "of positions and a stream"),
    ],
)
def test_nothing_noted_leaves_a_forward(forward, what):
    class Model(nn.Module):
        def forward(self, x):
            return forward(x)

    with pytest.raises(NotStreamableError, match=what):
        chunks(ds.patch_module(Model()).online(), torch.randn(1, 9, 8), [9])
    with pytest.raises(NotStreamableError, match=what):
        ds.compile(Model(), ("B", "L", 8))


def test_a_table_that_ends():
    """A mask that is cut from a buffer: the call that passes its end raises, and the stream goes no further."""

    def attend(m, q, k, v):
        n = q.size(2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(4)
        return scores.masked_fill(m.table[:, :, :n, :n] == 0, -torch.inf).softmax(-1) @ v

    model = Attention(attend, table=torch.tril(torch.ones(70, 70))[None, None]).eval()
    x = torch.randn(1, 71, 8)
    want = model(x[:, :70])
    assert [r.last for r in ds.audit(model, ("B", "L", 8)).rows if r.last is not None] == [69]
    engine = ds.compile(model, ("B", "L", 8))
    out = [engine.step({"s": x[0, :69].numpy()}, sos="s")["s"], engine.step({"s": x[0, 69:70].numpy()})["s"]]
    assert np.abs(np.concatenate(out) - want[0].detach().numpy()).max() < 1e-5
    with pytest.raises(ds.StreamLimitError, match="table that a mask is cut from ends at 70") as error:
        engine.step({"s": x[0, 70:].numpy()}, eos="s")
    assert error.value.ids == ("s",)
    ds.patch_module(model).online()
    with pytest.raises(ds.StreamLimitError, match="ends at 70"):
        chunks(model, x, [40, 31])


def test_gradients_of_learned_terms():
    """A term for each distance is learned, and a factor: gradients are those of the bare module."""

    class Near(Attention):
        def __init__(self):
            super().__init__(None)
            self.near, self.factor = nn.Embedding(9, 2), nn.Parameter(torch.tensor(0.5))

        def attend(self, q, k, v):
            i = torch.arange(q.size(2))
            term = self.near((i[:, None] - i).clamp(-4, 4) + 4).permute(2, 0, 1)
            scores = q @ k.transpose(-2, -1) * self.factor + term
            return scores.masked_fill(i > i[:, None], -torch.inf).softmax(-1) @ v

        def forward(self, x):
            q, k, v = (y.unflatten(-1, (2, 4)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
            return self.attend(q, k, v).transpose(1, 2).flatten(2)

    torch.manual_seed(0)
    model = Near().double()
    del model.attend
    x, w = torch.randn(1, 30, 8, dtype=torch.float64), torch.randn(30, 8, dtype=torch.float64)
    (model(x)[0] * w).sum().backward()
    want = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    ds.patch_module(model, train_variant="full-file-aligned").online().train()
    (chunks(model, x, [30]) * w).sum().backward()
    for p, g in zip(model.parameters(), want):
        assert torch.allclose(p.grad, g, atol=1e-10)
        assert p.grad.abs().sum() > 0 or g.abs().sum() == 0


def test_dropout_drops_weights():
    torch.manual_seed(0)
    model = Attention(lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.5))
    x = torch.randn(1, 30, 8)
    ds.patch_module(model).online()
    with torch.no_grad():
        runs = [chunks(model, x, [20, 10]) for _ in range(2)]
    assert not torch.equal(*runs)
    assert torch.isfinite(runs[0]).all()


# ---------------------------------------------------------------- declared contexts
def encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


@pytest.mark.parametrize(
    "context",
    [ds.Context(left=5), ds.Context(4, 8), ds.Context(3, 2, 2), ds.Context(), ds.Context(2, 4, 1, keep=3)],
    ids=str,
)
@torch.no_grad()
def test_a_declared_context(context):
    """Offline is torch with the mask, online is offline, and so is the engine."""
    torch.manual_seed(1)
    model, x = encoder(), torch.randn(1, 40, 8)
    i = torch.arange(40)
    begin = i[:, None] // context.chunk * context.chunk
    seen = i < begin + context.chunk + context.right
    seen &= (i >= begin - (99 if context.left is None else context.left)) | (i < context.keep)
    want = model(x, mask=~seen)[0]
    ds.patch_module(model, context={"layers.*.self_attn": context})
    assert torch.allclose(model(x)[0], want, atol=1e-5)
    engine = ds.compile(model, ("B", "L", 8))
    assert engine.delay == 2 * (context.chunk - 1 + context.right) or context.chunk > 1
    audit = ds.audit(model, ("B", "L", 8), rate=50)
    rows = {r.path: r for r in audit.rows if r.context}
    assert {p: r.context for p, r in rows.items()} == {f"layers.{k}.self_attn": context for k in range(2)}
    assert rows["layers.0.self_attn"].latency == 20 * (context.chunk - 1 + context.right)
    assert audit.latency == 20 * engine.delay and audit.state_size == engine.state_size
    model.online()
    for sizes in ([40], [1] * 40, [7, 0, 13, 20]):
        assert torch.allclose(chunks(model, x, sizes), want, atol=1e-5)
    out = [
        engine.step({"s": x[0, :11].numpy()}, sos="s")["s"],
        engine.step({"s": x[0, 11:].numpy()}, eos="s")["s"],
    ]
    assert np.abs(np.concatenate(out) - want.numpy()).max() < 1e-5


def test_contexts_for_what_does_not_attend():
    """A failed compile leaves the model as it was; a first call tells, too, and leaves no stream."""
    model, context = encoder().eval(), ds.Context(4, 8)
    text = r"context: in 'layers\.0\.linear1' \(Linear\), for which Context.* nothing attends to a stream"
    with pytest.raises(ValueError, match=text):
        ds.compile(model, ("B", "L", 8), context={"layers.*.linear1": context, "layers.*.self_attn": context})
    assert not any("_patch" in part.__dict__ for part in model.modules())
    ds.compile(model, ("B", "L", 8), context={"layers.*.self_attn": context})
    online = ds.patch_module(model, context={"layers.0.linear1": context}).online()
    x = ds.stream_tensor([torch.zeros(3, 8)], ids=["a"], sos=True, names=("B", "L", None))
    for _ in range(2):
        with pytest.raises(ValueError, match=text):
            online(x)
    assert not online.live_ids


def test_contexts_that_are_none():
    context = ds.Context(4, 8)
    with pytest.raises(ValueError, match=r"no module's path fits 'layer\.0'"):
        ds.patch_module(encoder(), context={"layer.0": context})
    with pytest.raises(ValueError, match=r"lies within 'layers\.0'"):
        ds.patch_module(encoder(), context={"layers.0": context, "layers.0.self_attn": context})
    with pytest.raises(ValueError, match="two patterns fit"):
        ds.patch_module(encoder(), context={"layers.*": context, "layers.1": context})
    with pytest.raises(TypeError, match=r"expected a ds\.Context"):
        ds.patch_module(encoder(), context={"layers.*": (4, 8)})
    for wrong in ({"chunk": 0}, {"left": -1}, {"right": 1.5}, {"chunk": True}):
        with pytest.raises(ValueError, match="a number of frames from"):
            ds.Context(**wrong)


def test_a_context_beside_a_mask():
    model = Attention(lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)).eval()
    ds.patch_module(model, context={"": ds.Context(left=3)})
    x = torch.randn(1, 9, 8)
    with pytest.raises(ValueError, match=r"at test_attention\.py:\d+ .*both say what a query sees"):
        model(x)
    with pytest.raises(ValueError, match=r"at test_attention\.py:\d+ .*both say what a query sees"):
        chunks(model.online(), x, [9])


def padding(n):
    """As ESPnet makes it: the row of a triangle that is a stream's length."""
    return torch.ones(n + 1, n + 1).triu().bool()[1:, :-1][torch.full((1,), n) - 1]


def of_function(m, q, k, v):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=~padding(q.size(2))[:, None, None])


def by_hand(m, q, k, v):
    i = torch.arange(q.size(2))
    hidden = padding(q.size(2))[:, None, None]
    scores = (q @ k.mT) * 0.5 - (i[:, None] - i).abs() * 0.1
    return scores.masked_fill(hidden, -math.inf).softmax(-1).masked_fill(hidden, 0) @ v


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_great_numbers_say_what_smaller_ones_do(seed, monkeypatch):
    """Of masks with numbers that are looked at as they are, and by smaller ones in their place."""
    rng = np.random.default_rng(seed)
    c, few = int(rng.integers(90, 130)), int(rng.integers(2, 5))

    def attend(m, q, k, v):
        i = torch.arange(q.size(2))
        d = i[:, None] - i
        mask = [
            (d >= 0) & (d < c),
            (d >= -few) & (d <= c),
            (i[:, None] // c >= i // c) & (i[:, None] // c - i // c <= few),
            (d >= 0) & (d * d < c),
            m.slopes[:, None, None] * d.abs().clamp(max=c) + torch.where((d < c) & (d >= 0), 0.0, -math.inf),
        ][m.at]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    model, x = Attention(attend, slopes=torch.rand(2)).eval(), torch.randn(1, 300, 8)
    for model.at in range(5):
        seen = []
        for far in (1000, 60):
            monkeypatch.setattr(mask_terms, "FAR", far)
            monkeypatch.setattr(deferred, "_ANSWERS", {})
            seen.append(ds.compile(model, ("B", "L", 8), verify=False))
        a, b = (y.step({"s": x[0].numpy()}, "s", "s")["s"] for y in seen)
        assert np.array_equal(a, b) and seen[0].receptive_field == seen[1].receptive_field
        assert np.abs(a - model(x)[0].detach().numpy()).max() < 1e-5


def test_a_great_number_that_smaller_ones_say_nothing_of():
    """It was taken for a window of few frames."""
    model = Attention(masked(lambda m, i: (i <= i[:, None]) & ((i[:, None] - i) ** 2 < 90_000))).eval()
    with pytest.raises(NotStreamableError, match="90000 frames, more than can be tried"):
        ds.compile(model, ("B", "L", 8), verify=False)


@pytest.mark.parametrize("size", [2, 5000])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_what_masks_say_is_asked_once(size, mode, monkeypatch):
    """Though tensors in them are cut or made anew in each call; and again where they changed."""
    asked = []
    monkeypatch.setattr(mask_terms, "recognised", lambda *args: asked.append(args) or recognised(*args))

    def attend(m, q, k, v):
        i = torch.arange(q.size(2))
        slopes = m.slopes[:2, None, None] * torch.tensor([1.0, 1.0])[:, None, None]
        bias = (slopes if size == 2 else m.slopes[:2, None, None]) * (i - i[:, None])
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.masked_fill(i > i[:, None], -math.inf))

    model = Attention(attend, slopes=torch.rand(size)).eval()
    x = torch.randn(1, 12, 8)
    ds.patch_module(model).online()
    with mode():
        for _ in range(2):
            got, calls = chunks(model, x, (3, 4, 5)), len(asked)
            assert torch.allclose(got, chunks(model, x, (5, 1, 6)), atol=1e-6) and len(asked) == calls
            assert torch.allclose(got, model.offline()(x)[0], atol=1e-5)
            model.online()
            model.slopes.mul_(3)
    assert len(asked) == 2


@pytest.mark.parametrize("attend", [of_function, by_hand])
@torch.no_grad()
def test_a_context_beside_what_hides_nothing(attend):
    """Of a mask of paddings nothing is left to say, and terms by position stay."""
    torch.manual_seed(1)
    model, x, context = Attention(attend).eval(), torch.randn(1, 25, 8), ds.Context(4, 8)
    full = model(x)
    ds.patch_module(model, context={"": context})
    want = model(x)[0]
    assert (full - want).abs().max() > 1e-3
    engine = ds.compile(model, ("B", "L", 8))
    assert (engine.delay, engine.state_bytes_per_frame) == (3, 0)
    assert torch.allclose(chunks(model.online(), x, [7, 0, 18]), want, atol=1e-5)


def test_a_context_stays_with_the_model():
    """Patching anew, copies and pickles keep it."""
    import copy
    import pickle

    torch.manual_seed(2)
    model, x = encoder(), torch.randn(1, 20, 8)
    ds.patch_module(model, context={"layers.*": ds.Context(left=2)})
    with torch.no_grad():
        want = model(x)
        ds.patch_module(model, unstreamable="buffer")
        for other in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert torch.equal(other(x), want)


# ---------------------------------------------------------------- functions that make masks
def chunk_mask(size, chunk, left=-1):
    """A mask made by a loop, as WeNet makes it."""
    mask = torch.zeros(size, size, dtype=torch.bool)
    for i in range(size):
        first = 0 if left < 0 else max((i // chunk - left) * chunk, 0)
        mask[i, first : min((i // chunk + 1) * chunk, size)] = True
    return mask


def optional_mask(x, seen, chunk):
    """A mask of a stream's shape, and of another mask."""
    return seen & chunk_mask(x.size(1), chunk, 2)[None]


def values_mask(x):
    return x[0] @ x[0].T > 0


def test_functions_that_make_masks():
    for function in (chunk_mask, optional_mask, values_mask):
        assert ds.register(function) is function
        assert ds.register(function) is function
    assert chunk_mask(5, chunk=2).sum() == 2 * 2 + 2 * 4 + 5

    def by_length(m, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=chunk_mask(q.size(2), chunk=4, left=2))

    def by_shape(m, q, k, v):
        seen = torch.ones(q.size(0), 1, q.size(2), dtype=torch.bool)
        mask = optional_mask(q[:, 0], seen, 4)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None])

    x = torch.randn(1, 30, 8)
    for attend in (by_length, by_shape):
        model = Attention(attend).eval()
        with torch.no_grad():
            want = model(x)[0]
            engine = ds.compile(model, ("B", "L", 8))
            assert (engine.delay, engine.state_bytes_per_frame) == (3, 0)
            for sizes in ([30], [1] * 30, [7, 0, 23]):
                ds.patch_module(model).online()
                assert torch.allclose(chunks(model, x, sizes), want, atol=1e-5)
    model = Attention(lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=values_mask(q[:, 0])))
    with pytest.raises(NotStreamableError, match="mask of values does not stream"):
        ds.compile(model.eval(), ("B", "L", 8))
    with pytest.raises(TypeError, match="a function of Python that makes masks"):
        ds.register(len)
