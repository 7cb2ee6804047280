"""StreamingTransformer: offline a plain definition in torch, online offline, for every way of feeding."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from many_streams import come_and_go
from one_stream import held, patched, stepped

import dreamstream as ds
from dreamstream.models import StreamingTransformer

F = torch.nn.functional
OPTIONS = {
    "rotary": {"num_kv_heads": 2},
    "one head of keys": {"num_kv_heads": 1, "max_period": 50.0, "context": ds.Context(left=6)},
    "alibi": {"positions": "alibi", "context": ds.Context(4, 8, 2)},
    "alibi of three heads": {"positions": "alibi", "d_model": 12, "num_heads": 3, "num_kv_heads": 3},
    "layer norms": {"norm": "layer_norm", "bias": True, "gated": False, "activation": "gelu"},
    "no positions": {"positions": "none", "context": ds.Context(5), "dim_feedforward": 7, "eps": 1e-3},
}
USUAL = {"d_model": 16, "num_heads": 4, "num_layers": 2}


def slopes(heads):
    """Of the paper on ALiBi: powers of two, then every second of the next finer ones."""
    if math.log2(heads).is_integer():
        return [2 ** (-8 * (h + 1) / heads) for h in range(heads)]
    fewer = 2 ** math.floor(math.log2(heads))
    return slopes(fewer) + slopes(2 * fewer)[0::2][: heads - fewer]


def definition(model, x):
    """What the model says of one whole sequence ``(L, features)``, in torch, in float64."""
    state = {k: torch.from_numpy(v.numpy()).double() for k, v in model.state_dict().items()}
    x, n = torch.from_numpy(x).double(), len(x)
    i = torch.arange(n)
    context = model.context
    begin = i // context.chunk * context.chunk
    last = begin + context.chunk + context.right
    seen = (i < last[:, None]) & (i >= (begin[:, None] - (n if context.left is None else context.left)))

    def norm(name, x):
        if model.norm_type == "layer_norm":
            return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"], model.eps)
        return x * (x.pow(2).mean(-1, keepdim=True) + model.eps).rsqrt() * state[f"{name}.weight"]

    def product(name, x):
        return F.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))

    def turned(x):
        half = x.shape[-1] // 2
        angles = i[:, None] * model.max_period ** (-torch.arange(half, dtype=torch.float64) / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)

    for k in range(len(model.layers)):
        at = f"layers.{k}.self_attn"
        y = norm(f"layers.{k}.input_layernorm", x)
        q, key, v = (product(f"{at}.{p}_proj", y).unflatten(-1, (h, -1)).transpose(0, 1) for p, h in
                     (("q", model.num_heads), ("k", model.num_kv_heads), ("v", model.num_kv_heads)))  # fmt: skip
        if model.positions == "rotary":
            q, key = turned(q), turned(key)
        key, v = (z.repeat_interleave(model.num_heads // model.num_kv_heads, 0) for z in (key, v))
        scores = q @ key.transpose(1, 2) / math.sqrt(q.shape[-1])
        if model.positions == "alibi":
            steep = torch.tensor(slopes(model.num_heads), dtype=torch.float64)
            scores = scores - steep[:, None, None] * (i[:, None] - i).abs()
        y = scores.masked_fill(~seen, -math.inf).softmax(-1) @ v
        x = x + product(f"{at}.o_proj", y.transpose(0, 1).flatten(1))
        y = norm(f"layers.{k}.post_attention_layernorm", x)
        up, act = product(f"layers.{k}.mlp.up_proj", y), getattr(F, model.activation)
        y = act(product(f"layers.{k}.mlp.gate_proj", y)) * up if model.gated else act(up)
        x = x + product(f"layers.{k}.mlp.down_proj", y)
    return norm("norm", x).numpy()


def frames(n, features=16, seed=0):
    return np.random.default_rng(seed).standard_normal((n, features), dtype=np.float32)


def made(name):
    model = StreamingTransformer(**{**USUAL, **OPTIONS[name]}).eval()
    rng = np.random.default_rng(1)
    for p in model.parameters():
        p.numpy()[...] += 0.1 * rng.standard_normal(p.shape)
    return model


@pytest.mark.parametrize("name", OPTIONS)
def test_it_is_the_definition(name):
    model = made(name)
    x = frames(60, model.d_model)
    want = definition(model, x)
    np.testing.assert_allclose(model(ds.tensor(x[None])).numpy()[0], want, rtol=0, atol=1e-5)
    engine = ds.compile(model, model.spec)
    online = ds.patch_module(pickle.loads(pickle.dumps(copy.deepcopy(model)))).online()
    held([patched(online), stepped(engine)], x, want)


@pytest.mark.parametrize("name", ["rotary", "alibi"])
def test_streams_that_come_and_go(name):
    model = made(name)
    arrays = [frames(int(n), 16, k) for k, n in enumerate(np.random.default_rng(2).integers(0, 80, 40))]
    come_and_go(ds.compile(model, model.spec), arrays, 16, 20, 3, lambda x: definition(model, x))


def test_keys_and_values_of_groups_are_kept_once():
    context = ds.Context(left=63)
    many, few = (
        ds.compile(m.eval(), m.spec)
        for m in (StreamingTransformer(32, 8, 2, num_kv_heads=n, context=context) for n in (8, 2))
    )
    keys = 2 * 2 * 63 * 32 * 4
    assert keys <= many.kept_bytes <= keys + 1024
    assert keys / 4 <= few.kept_bytes <= keys / 4 + 1024


def test_what_does_not_fit():
    for wrong, message in [
        ({"num_heads": 3}, "3 heads don't divide 16"),
        ({"num_kv_heads": 3}, "3 heads of keys don't divide 4"),
        ({"d_model": 12}, "rotary heads have pairs of features, not 3"),
        ({"positions": "sin"}, "positions is one of rotary, alibi, none"),
        ({"norm": "batch_norm"}, "norm is one of"),
        ({"activation": "cube"}, "activation is one of"),
    ]:
        with pytest.raises(ds.ShapeError, match=message):
            StreamingTransformer(**{**USUAL, **wrong})
    bare = StreamingTransformer(**USUAL, context=None).eval()
    with pytest.raises(ds.NotStreamableError, match="sees the whole stream"):
        ds.compile(bare, bare.spec)
    assert ds.compile(bare, bare.spec, context={"layers.*.self_attn": ds.Context(left=3)}).delay == 0
