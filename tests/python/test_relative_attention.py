"""Relative attention against plain formulas, the limit of a context without a bound, and rotary positions afar."""

import functools
import itertools
import math

import numpy as np
import pytest
from nets import net
from one_stream import held, patched, stepped
from snapshot_bytes import shift

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.stream.mask_recognition import expected, recognised

CONTEXTS = [
    ds.Context(),
    ds.Context(left=5),
    ds.Context(left=7, right=3),
    ds.Context(chunk=4),
    ds.Context(chunk=4, left=6, right=2),
    ds.Context(chunk=None),
]
FRAMES, FEATURES = 37, 16


def sees(context, i, n):
    if context.chunk is None:
        return range(n)
    begin = i // context.chunk * context.chunk
    low = 0 if context.left is None else max(0, begin - context.left)
    return range(low, n if context.right is None else min(n, begin + context.chunk + context.right))


def sinusoid(position, features):
    out = np.zeros(features)
    for k in range(0, features, 2):
        angle = position / 10000 ** (k / features)
        out[k], out[k + 1] = math.sin(angle), math.cos(angle)
    return out


def bucket(ahead, n, far, both):
    """T5's, in words of its paper: half of them exact, half logarithmic, by direction where both are seen."""
    if both:
        n //= 2
    start, size = (n, abs(ahead)) if both and ahead > 0 else (0, abs(ahead) if both else max(-ahead, 0))
    exact = n // 2
    if size < exact:
        return start + size
    return start + min(n - 1, exact + int(math.log(size / exact) / math.log(far / exact) * (n - exact) + 1e-7))


def by_definition(layer, x):
    """One query and one key at a time, in float64."""
    w = {k: np.asarray(v.numpy(), np.float64) for k, v in layer.state_dict().items()}
    heads, d, n = layer.num_heads, FEATURES // layer.num_heads, len(x)
    q, k, v = ((x @ w[f"linear_{p}.weight"].T + w[f"linear_{p}.bias"]).reshape(n, heads, d) for p in "qkv")
    out = np.zeros((n, heads, d))

    @functools.cache
    def at(place):
        return (w["linear_pos.weight"] @ sinusoid(place, FEATURES)).reshape(heads, d)

    for i in range(n):
        for h in range(heads):
            keys, scores = list(sees(layer.context, i, n)), []
            for j in keys:
                if layer.scheme == "t5":
                    both = not (layer.context.chunk == 1 and layer.context.right == 0)
                    found = bucket(j - i, layer.num_buckets, layer.max_distance, both)
                    scores.append(q[i, h] @ k[j, h] + w["relative_attention_bias.weight"][found, h])
                elif layer.scheme == "shaw":
                    near = int(np.clip(j - i, -layer.max_distance, layer.max_distance))
                    row = w["distance_embedding.weight"][near + layer.max_distance]
                    scores.append(q[i, h] @ (k[j, h] + row) / math.sqrt(d))
                else:
                    place = i - j if layer.scheme == "transformer-xl" else j
                    p, u, b = at(place)[h], w["pos_bias_u"][h], w["pos_bias_v"][h]
                    scores.append(((q[i, h] + u) @ k[j, h] + (q[i, h] + b) @ p) / math.sqrt(d))
            weights = np.exp(np.array(scores) - max(scores))
            out[i, h] = weights / weights.sum() @ v[keys, h]
    return out.reshape(n, -1) @ w["linear_out.weight"].T + w["linear_out.bias"]


@pytest.mark.parametrize("context", CONTEXTS, ids=str)
@pytest.mark.parametrize("scheme", ["transformer-xl", "wenet", "shaw", "t5"])
def test_relative_attention(scheme, context):
    options = {"max_distance": 6, "num_buckets": 8, "context": context}
    layer = nn.RelPositionMultiheadAttention(FEATURES, 4, scheme, **options).eval()
    x = np.random.default_rng(0).standard_normal((FRAMES, FEATURES), np.float32)
    wanted = by_definition(layer, x.astype(np.float64))
    engine = ds.compile(layer, ("B", "L", FEATURES), unstreamable="buffer")
    offline = layer(ds.tensor(x[None])).numpy()[0]
    online = ds.patch_module(layer, unstreamable="buffer").online()
    bound = 1e-5 * np.abs(wanted).max()
    np.testing.assert_allclose(offline, wanted, rtol=0, atol=bound)
    held([patched(online), stepped(engine)], x, wanted, bound)
    assert engine.delay == (math.inf if context.chunk is None else context.chunk - 1 + context.right)


class Falling(nn.Module):
    def __init__(self, heads, groups, context):
        super().__init__()
        self.heads, self.groups, self.attention = heads, groups, nn.ALiBi(heads, context)

    def forward(self, x):
        split = (self.heads * 3, self.groups * 3, self.groups * 2)
        q, k, v = (y.unflatten(-1, (-1, d)).transpose(1, 2) for y, d in zip(x.split(split, -1), (3, 3, 2)))
        return self.attention(q, k, v).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("context", CONTEXTS, ids=str)
@pytest.mark.parametrize(
    ("heads", "groups", "slopes"),
    [(4, 2, [1 / 4, 1 / 16, 1 / 64, 1 / 256]), (3, 1, [1 / 16, 1 / 256, 1 / 4]), (1, 1, [1 / 256])],
)
def test_alibi(heads, groups, slopes, context):
    model = Falling(heads, groups, context).eval()
    x = np.random.default_rng(1).standard_normal((FRAMES, heads * 3 + groups * 5), np.float32)
    q, k, v = (
        y.reshape(FRAMES, -1, d) for y, d in zip(np.split(x.astype(float), [heads * 3, -groups * 2], 1), (3, 3, 2))
    )
    wanted = np.zeros((FRAMES, heads, 2))
    for i in range(FRAMES):
        for h in range(heads):
            j, g = np.array(sees(context, i, FRAMES)), h * groups // heads
            weights = np.exp(k[j, g] @ q[i, h] / math.sqrt(3) - slopes[h] * abs(i - j))
            wanted[i, h] = weights / weights.sum() @ v[j, g]
    engine = ds.compile(model, ("B", "L", x.shape[1]), unstreamable="buffer")
    found = held(
        [patched(ds.patch_module(model, unstreamable="buffer").online()), stepped(engine)],
        x,
        wanted.reshape(FRAMES, -1),
    )
    assert len(found) == 1


def test_alibi_of_what_it_is_not_for():
    q, other = ds.ones(1, 4, 5, 2), ds.ones(1, 4, 6, 2)
    attention = nn.ALiBi(4, ds.Context())
    for given, message in [((q[:, :2], q, q), r"expected \(B, 4, L, E\)"), ((q, other, other), "no distances")]:
        with pytest.raises(ds.ShapeError, match=message):
            attention(*given)
    with pytest.raises(ValueError, match="at least one head"):
        nn.ALiBi(0)
    with pytest.raises(ds.NotStreamableError, match=r"ALiBi.*sees the whole stream"):
        ds.compile(Falling(2, 1, None).eval(), ("B", "L", 11))
    context = {"attention": ds.Context(chunk=2)}
    assert ds.compile(Falling(2, 1, None).eval(), ("B", "L", 11), context=context).delay == 1


TERMS = {
    "on both sides": lambda d: -0.5 * abs(d),
    "straight": lambda d: 0.25 * d,
    "clipped": lambda d: np.clip(d, -3, 3) * 0.5,
    "behind alone": lambda d: -0.5 * np.maximum(d, 0),
    "ahead alone": lambda d: -0.5 * np.maximum(-d, 0),
    "bent twice": lambda d: -0.5 * np.maximum(d - 2, 0) - 0.25 * np.maximum(abs(d) - 4, 0),
}


@pytest.mark.parametrize("term", TERMS)
def test_terms_are_recognised(term):
    """Whatever is seen: at all distances, far beyond those looked at, up to what is added to a whole row."""
    for chunk, left, right in itertools.product((1, 2, 3), (None, 0, 4), (0, 1, 3)):
        context = ds.Context(chunk, left, right)

        def values(n, context=context):
            i = np.arange(n)
            return np.where(expected(context, n), TERMS[term](i[:, None] - i), -np.inf)[None]

        found = recognised(values, 96)
        assert found.context == context
        low, high = 1 - chunk - right, 5000 if left is None else left + chunk - 1
        at = np.arange(low, high + 1)
        table = np.zeros((1, 1)) if found.bias is None else found.bias
        near = np.clip(at - found.first, 0, table.shape[1] - 1)
        got = table[0, near]
        if found.linear:
            slopes = np.where(at < found.first, table[0, 1] - table[0, 0], table[0, -1] - table[0, -2])
            got = got + slopes * (at - found.first - near)
        assert np.ptp(got - TERMS[term](at)) < 1e-6, context


def test_names_of_the_field():
    """Conformers' weights load as they are."""
    keys = set(nn.RelPositionMultiheadAttention(8, 2).state_dict())
    parts = {f"linear_{p}.{w}" for p in ("q", "k", "v", "out") for w in ("weight", "bias")}
    assert keys == {*parts, "linear_pos.weight", "pos_bias_u", "pos_bias_v"}
    assert nn.RelPositionMultiheadAttention(8, 2).pos_bias_u.shape == (2, 4)


@pytest.mark.parametrize("options", [{"num_heads": 3}, {"num_heads": 2, "scheme": "sines"}])
def test_bad_arguments(options):
    with pytest.raises(ValueError, match="RelPositionMultiheadAttention"):
        nn.RelPositionMultiheadAttention(8, **options)


@pytest.mark.parametrize("features", [8, 9])
def test_distances_have_no_end(features):
    """A query of a long stream sees its first frame as far away as it is; keys and values are all that is kept."""
    n, heads = 5200, features // 4 if features % 2 == 0 else 3
    layer = nn.RelPositionMultiheadAttention(features, heads, context=ds.Context()).eval()
    engine = ds.compile(layer, ("B", "L", features), verify=False)
    x = np.random.default_rng(3).standard_normal((n, features)).astype(np.float32)
    parts = [engine.step({"a": x[k : k + 1000]}, ["a"] * (k == 0), ["a"] * (k == 5000)) for k in range(0, n, 1000)]
    got = np.concatenate([y["a"] for y in parts])
    assert np.array_equal(got, engine.step({"b": x}, sos="b", eos="b")["b"])
    w = {k: np.asarray(v.numpy(), np.float64) for k, v in layer.state_dict().items()}
    q, k, v = (
        (x @ w[f"linear_{p}.weight"].T + w[f"linear_{p}.bias"]).reshape(n, heads, -1).swapaxes(0, 1) for p in "qkv"
    )
    angles = (n - 1 - np.arange(n))[:, None] * 10000.0 ** (-np.arange(0, features, 2) / features)
    r = np.stack([np.sin(angles), np.cos(angles)], 2).reshape(n, -1)[:, :features] @ w["linear_pos.weight"].T
    u, b = (w[f"pos_bias_{p}"][:, None] for p in "uv")
    r = r.reshape(n, heads, -1).swapaxes(0, 1)
    score = ((q[:, -1:] + u) @ k.swapaxes(1, 2) + (q[:, -1:] + b) @ r.swapaxes(1, 2)) / math.sqrt(
        features // heads
    )
    weight = np.exp(score - score.max())
    wanted = (weight / weight.sum(-1, keepdims=True) @ v)[:, 0].ravel() @ w["linear_out.weight"].T
    assert np.abs(got[-1] - wanted - w["linear_out.bias"]).max() <= 1e-5
    assert engine.state_bytes_per_frame == 2 * features * 4


class Attention(nn.Module):
    def __init__(self, context):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, context=context)

    def forward(self, x):
        return self.attention(x, x, x)[0]


X = np.random.default_rng(0).standard_normal((12, 8)).astype(np.float32)


def limited(model):
    """A step of one stream, of a patched model."""
    ds.patch_module(model, context_limit=10).online()
    return lambda a, b, **flags: model(ds.stream_tensor([X[a:b]], names=("B", "L", None), ids=["a"], **flags))["a"]


def compiled(model):
    engine = ds.compile(model, ("B", "L", 8), context_limit=10)
    return lambda a, b, **flags: engine.step({"a": X[a:b]}, **dict.fromkeys(flags, "a"))["a"]


@pytest.mark.parametrize("how", [limited, compiled])
def test_context_limit(how):
    """It ends what keeps all, with its id and nothing lost, and nothing that has a bound."""
    step = how(Attention(ds.Context()).eval())
    step(0, 9, sos=True)
    with pytest.raises(ds.StreamLimitError, match="context_limit allows") as caught:
        step(9, 12)
    assert caught.value.ids == ("a",)
    assert step(9, 10, eos=True).shape[0] == 1
    bounded = how(Attention(ds.Context(left=3)).eval())
    bounded(0, 9, sos=True)
    assert bounded(9, 12, eos=True).shape[0] == 3


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_products_depend_on_the_distance(interleaved):
    rng = np.random.default_rng(1)
    q, k = (np.repeat(rng.standard_normal((1, 1, 8)).astype(np.float32), 200, 1) for _ in range(2))
    q, k = (F.rotary_embedding(ds.tensor(x), interleaved=interleaved).numpy()[0] for x in (q, k))
    assert np.ptp([q[i] @ k[i - 3] for i in range(3, 200)]) < 1e-5


def test_rotary_positions_beyond_32_bits():
    """A stream that has run for 2^33 frames is turned as float64 says."""

    engine = ds.compile(net(nn, lambda self, x: F.rotary_embedding(x)), ("B", "L", 8))
    x = np.random.default_rng(2).standard_normal((4, 8)).astype(np.float32)
    engine.step({"a": x[:1]}, sos="a")
    at = 2**33 + 1
    engine.restore(shift(engine.snapshot("a"), engine, at - 1), id="far")
    got = engine.step({"far": x})["far"]
    angles = (at + np.arange(4))[:, None] * 10000.0 ** (-np.arange(4) / 4)
    p, q = x[:, :4].astype(np.float64), x[:, 4:].astype(np.float64)
    wanted = np.concatenate([p * np.cos(angles) - q * np.sin(angles), q * np.cos(angles) + p * np.sin(angles)], 1)
    assert np.abs(got - wanted).max() < 2e-6
