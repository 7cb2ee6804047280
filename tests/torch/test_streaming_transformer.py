"""StreamingTransformer: offline a plain definition in torch, online offline, for every way of feeding."""

import copy
import pickle

import numpy as np
import pytest
from one_stream import held, patched, stepped
from torch_references.transformer import definition

import dreamstream as ds
from dreamstream.models import StreamingTransformer

OPTIONS = {
    "groups of heads": {"num_kv_heads": 2},
    "one head of keys": {"num_kv_heads": 1, "max_period": 50.0, "context": ds.Context(left=6)},
    "alibi": {"positions": "alibi", "context": ds.Context(4, 8, 2)},
    "alibi of three heads": {"positions": "alibi", "d_model": 12, "num_heads": 3, "num_kv_heads": 3},
    "layer norms": {"norm": "layer_norm", "bias": True, "gated": False, "activation": "gelu"},
    "no positions": {"positions": "none", "context": ds.Context(5), "dim_feedforward": 7, "eps": 1e-3},
}
USUAL = {"d_model": 16, "num_heads": 4, "num_layers": 2}


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
        ({"d_model": 12}, "heads have pairs of features, not 3"),
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
