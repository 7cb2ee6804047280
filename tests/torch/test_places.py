"""Warm calls of patched modules repeat what a call of torch did, and what the user's forward means stays."""

import copy
import gc
import weakref
from functools import wraps

import pytest
import torch
import torch.nn.functional as F
from torch import nn, overrides
from torch.overrides import TorchFunctionMode
from torch_batches import streamed

import dreamstream as ds
from dreamstream import _core
from dreamstream.online.session import Call
from dreamstream.torch.forward import places, replay
from dreamstream.torch.forward.mode import Forward

CHUNKS = (7, 3, 1, 5, 4)


class Of(nn.Module):
    """A function of layers and a tensor (B, 4, L) as a forward."""

    def __init__(self, function):
        super().__init__()
        self.conv, self.plane = nn.Conv1d(4, 4, 3, padding=1), nn.Conv2d(1, 2, 3, padding=1)
        self.gru, self.both = nn.GRU(4, 6, batch_first=True), nn.LSTM(4, 4, 2, batch_first=True)
        self.prelu, self.slopes, self.norm = nn.PReLU(), nn.PReLU(4), nn.BatchNorm1d(4)
        self.weighted = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 4, 1))
        self.linear, self.layer = nn.Linear(4, 4), nn.LayerNorm(4)
        self.register_buffer("scale", torch.rand(4, 1) + 0.5)
        self.table = torch.linspace(-9, 9, 6001 * 4).sin().reshape(1, -1, 4)
        self.norm.running_mean.uniform_(-1, 1)
        self.norm.running_var.uniform_(0.5, 2)
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def attending(m, x):
    y = x.transpose(1, 2)
    B, L, _ = y.shape
    q, k, v = (y.view(B, L, 2, 2).transpose(1, 2) for _ in range(3))
    at = torch.arange(L, device=x.device) // 2
    seen = (at[None] <= at[:, None]) & (at[None] >= at[:, None] - 2)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).reshape(B, L, 4)


def dual(m, x):
    y = x[:, None].permute(0, 3, 2, 1)
    z = y.reshape(y.shape[0] * y.shape[1], 4, 1).expand(-1, -1, 4)
    z = m.gru(z)[0].reshape(y.shape[0], -1, 4, 6)
    return z.permute(0, 2, 3, 1).mean(1)


def scored(m, x):
    y = x.transpose(1, 2)
    seen = torch.ones(y.shape[1], y.shape[1], dtype=torch.bool).tril().triu(-3)
    scores = (y @ m.linear(y).transpose(1, 2) * 0.5).masked_fill(~seen, -torch.inf)
    weights = (scores - scores.max(-1, keepdim=True).values).exp()
    return (weights / weights.sum(-1, keepdim=True)) @ y


def turned(m, x):
    angles = torch.cat([torch.arange(x.shape[2]).float()[:, None] * m.scale.flatten()[None]] * 2, 1)[:, 2:6]
    y = x.transpose(1, 2)
    return y * angles.cos()[None] + y.flip(-1) * angles.sin()[None] - 2 * (angles * y)


def written(m, x):
    y = x.transpose(1, 2)[:, None]
    at = torch.arange(x.shape[2])
    seen = at[None] <= at[:, None]
    view = seen[None]
    first = F.scaled_dot_product_attention(y, y, y, attn_mask=view & (at[None] >= at[:, None] - 3))
    view.logical_and_(at[None] >= at[:, None] - 1)
    return (first + F.scaled_dot_product_attention(y, y, y, attn_mask=seen))[:, 0]


def shifted(m, x):
    """Transformer-XL's attention to four frames; pads and views move the product with a table by distance."""
    y = x.transpose(1, 2)
    B, L, _ = y.shape
    q = y.view(B, L, 2, 2).transpose(1, 2)
    middle = m.table.size(1) // 2
    far = m.linear(m.table[:, middle - L + 1 : middle + L]).view(1, -1, 2, 2).permute(0, 2, 3, 1)
    far = F.pad(q @ far, (1, 0)).view(B, 2, 2 * L, L)[:, :, 1:].view(B, 2, L, 2 * L - 1)[..., :L]
    at = torch.arange(L)
    hidden = (at[None] > at[:, None]) | (at[None] < at[:, None] - 3)
    scores = ((q @ q.transpose(-2, -1) + far) * 0.5).masked_fill(hidden, -torch.inf)
    return (F.softmax(scores, -1) @ q).transpose(1, 2).reshape(B, L, 4)


def over_counts(m, x):
    """A cumulative norm, as those of separation networks are written."""
    L = x.shape[2]
    counts = torch.arange(4, 4 * (L + 1), 4, dtype=x.dtype).view(1, 1, -1).expand_as(x)
    x = m.conv(x)
    return (x.cumsum(2) / counts) * m.scale.expand_as(x).type(x.type())


#: Forwards, each with how many of its calls of torch may ask the native front end again.
FORWARDS = {
    "views": (lambda m, x: x.transpose(1, 2)[..., 1:].permute(0, 2, 1).unsqueeze(1).squeeze(1), 0),
    "reshape": (lambda m, x: x.transpose(1, 2).reshape(x.shape[0], x.shape[2], 2, 2).flatten(2), 0),
    "transposed attributes": (
        lambda m, x: (x.mT @ m.linear.weight.T + x.mT.unsqueeze(1).mT.squeeze(1).mT).real.mT,
        0,
    ),
    "lists": (lambda m, x: torch.cat([x, torch.stack([x, 2 * x], 1).sum(1)], 1), 0),
    "parts": (lambda m, x: torch.cat([b * a for a, b in zip(x.chunk(2, 1), x.split([2, 2], 1))], 1), 0),
    "indices": (lambda m, x: x[:, ::2] * x[:, 1:2] + x[:, None, -1] + x[:, [1, 0]], 1),
    "layers": (lambda m, x: m.slopes(m.norm(m.prelu(m.conv(x)))), 0),
    "a plane": (lambda m, x: m.plane(x[:, None]).flatten(1, 2), 0),
    "recurrent": (lambda m, x: m.gru(x.transpose(1, 2))[0], 0),
    "stacked": (lambda m, x: m.both(x.transpose(1, 2))[0], 0),
    "lanes": (dual, 0),
    "a buffer": (lambda m, x: x * m.scale + m.scale.exp(), 0),
    "weights made anew": (lambda m, x: m.weighted(x) + F.conv1d(x, m.conv.weight * 2, padding=1), 0),
    "numbers": (lambda m, x: torch.clamp(x, -0.5, 0.5) * 0.25 + 1 - x.abs() ** 2, 0),
    "padding": (lambda m, x: F.pad(x, (2, 0))[..., :-2] + F.pad(x, (0, 0, 1, 1))[:, 1:-1], 0),
    "features": (lambda m, x: F.softmax(m.layer(m.linear(x.transpose(1, 2))), -1).max(-1).values, 0),
    "in place": (lambda m, x: F.relu(2 * x, inplace=True).add_(x).mul_(0.5), 0),
    "attention": (attending, 0),
    "behind positions": (lambda m, x: m.norm(m.conv(x.cumsum(2) / (torch.arange(x.shape[2]) + 1)) * m.scale), 0),
    "scores": (scored, 5),
    "turned by positions": (turned, 2),
    "a written mask": (written, 1),
    "cumulative norms": (over_counts, 0),
    "distances to a table of the batch": (
        lambda m, x: torch.cdist(x.mT, (m.table[:, :3] * m.scale.T).expand(x.size(0), -1, -1)),
        0,
    ),
    "a table by distance": (shifted, 15),  # where no gradients are recorded 2
    "beside numbers that are drawn": (lambda m, x: (torch.rand(2), m.norm(m.conv(x)) * m.scale)[1], 0),
}


@pytest.mark.parametrize("training", [False, True], ids=["evaluated", "trained"])
@pytest.mark.parametrize("name", FORWARDS)
def test_warm_calls_ask_nothing_again(name, training, monkeypatch):
    function, most = FORWARDS[name]
    torch.manual_seed(0)
    model = Of(function).train(training)
    model.norm.eval()
    whole = torch.randn(2, 4, sum(CHUNKS))
    want = copy.deepcopy(model)(whole)
    ds.patch_module(model).online()
    asked = []
    anew = Forward._anew
    monkeypatch.setattr(Forward, "_anew", lambda self, f, *given: asked.append(f) or anew(self, f, *given))
    attribute = Forward._attribute

    def asks(self, f, *given):
        if f.__self__.__name__ != "device":
            asked.append(f)
        return attribute(self, f, *given)

    monkeypatch.setattr(Forward, "_attribute", asks)
    for turn in range(2):
        asked.clear()  # the first turn has begun and ended streams, too
        got = streamed(model, whole, CHUNKS)
        axis = 1 if want.shape[1] == whole.shape[2] else -1
        for row, i in enumerate("ab"):
            there = torch.cat(got[i], axis - 1 if axis > 0 else -1)
            assert torch.allclose(there, want[row], atol=1e-5), (turn, i)
    assert len(asked) <= most * len(CHUNKS), [f.__name__ for f in asked]


def chunks_of(model, xs, ids=("a",), ends=False):
    """Begin a stream, go on with it, and may end it; return what each call gives."""
    return [
        model(ds.stream_tensor([x], ids=list(ids), sos=n == 0, eos=ends and n == len(xs) - 1))["a"]
        for n, x in enumerate(xs)
    ]


def test_what_changes_between_calls_is_seen():
    model = Of(lambda m, x: m.weighted(m.norm(x)) * m.scale + m.factor * x)
    model.factor = 1.0
    ds.patch_module(model.eval()).online()
    x = torch.randn(4, 3)
    chunks_of(model, [x] * 3)
    with torch.no_grad():
        model.scale.mul_(3)
        model.norm.running_mean.data.add_(1)
        model.weighted.parametrizations.weight.original0.data.mul_(2)
    model.factor = -2.0
    got = model(ds.stream_tensor([x], ids=["a"]))["a"]
    assert torch.allclose(got, ds.unpatch_module(model.reset() or model)(x[None])[0], atol=1e-6)


def test_what_positions_hold_is_seen_when_it_changes():
    model = Of(lambda m, x: x * (torch.arange(x.shape[2]) * m.scale * m.factor).sin() + m.scale)
    model.factor = 1.0
    ds.patch_module(model.eval()).online()
    x = torch.randn(4, 3)
    chunks_of(model, [x] * 6)
    for change in (lambda: model.scale.data.mul_(3), lambda: setattr(model, "factor", 0.5)):
        change()
        at = torch.arange(18, 21)
        want = x * (at * model.scale * model.factor).sin() + model.scale
        assert torch.allclose(model(ds.stream_tensor([x], ids=["a"]))["a"], want, atol=1e-5)
        model.reset()
        chunks_of(model, [x] * 6)


@pytest.mark.parametrize(
    "warm, drawn",
    [(lambda m: m.scale * 1, lambda m: torch.rand(4, 1)), (lambda m: m.scale, lambda m: m.scale.uniform_())],
)
def test_what_is_drawn_is_refused_where_a_warm_call_meets_it(warm, drawn):
    model = Of(lambda m, x: (torch.rand(1), m.conv(x) * m.factor(m))[1])
    model.factor = warm
    ds.patch_module(model.eval()).online()
    x = torch.randn(4, 3)
    chunks_of(model, [x] * 4)
    model.factor = drawn
    with pytest.raises(ds.NotStreamableError, match="numbers drawn at"):
        model(ds.stream_tensor([x], ids=["a"]))


def test_a_table_by_distance_is_known_until_it_changes(monkeypatch):
    torch.manual_seed(0)
    model = Of(shifted).eval()
    plain, x = copy.deepcopy(model), torch.randn(1, 4, 24)
    ds.patch_module(model, train_variant="full-file-unaligned").online()
    asked, anew = [], Forward._anew
    monkeypatch.setattr(Forward, "_anew", lambda self, f, *given: asked.append(f) or anew(self, f, *given))

    def streams():
        asked.clear()
        return torch.cat(chunks_of(model, x[0].split(4, 1), ends=True))

    def grow(m):
        m.table = m.table * 1.5

    changes = [lambda m: m.linear.weight.mul_(2), lambda m: m.table.mul_(0.5), grow, lambda m: None]
    with torch.no_grad():
        for change in changes:
            change(model), change(plain)
            assert torch.allclose(streams(), plain(x)[0], atol=1e-5)
        assert len(asked) <= 2 * 6, [f.__name__ for f in asked]  # the table's part, and what is learned of it
    outs = [
        model.train()(ds.stream_tensor([x[0, :, a : a + 8]], ids=["a"], sos=a == 0, eos=a == 16))
        for a in (0, 8, 16)
    ]
    sum(y.tensor().square().sum() for y in outs).backward()
    plain(x).square().sum().backward()
    got, want = (m.linear.weight.grad for m in (model, plain))
    assert want.abs().sum() > 0 and torch.allclose(got, want, atol=1e-4, rtol=1e-4)


def learned(m, x):
    y = x.transpose(1, 2)
    at = torch.arange(x.shape[2])
    far = m.conv.weight[0, 0, 0] * (at[None] - at[:, None]).clamp(-3, 0)
    seen = (y @ y.transpose(1, 2) + far).masked_fill(at[None] > at[:, None], -torch.inf)
    return F.softmax(seen, -1) @ y * (at * m.slopes.weight[:1]).cos()[:, None]


def test_gradients_behind_calls_that_recorded_none():
    torch.manual_seed(0)
    model = Of(learned)
    plain, x = copy.deepcopy(model), torch.randn(1, 4, 12)
    ds.patch_module(model, train_variant="full-file-unaligned").online()

    def whole():
        outs = [
            model(ds.stream_tensor([x[0, :, a : a + 4]], ids=["a"], sos=a == 0, eos=a == 8)) for a in (0, 4, 8)
        ]
        return sum(y.tensor().square().sum() for y in outs)

    for _ in range(3):
        with torch.no_grad():
            whole()
        model.zero_grad()
        whole().backward()
    plain(x).square().sum().backward()
    for name in ("conv", "slopes"):
        got, want = (getattr(m, name).weight.grad for m in (model, plain))
        assert want.abs().sum() > 0 and torch.allclose(got, want, atol=1e-4, rtol=1e-4), name


@pytest.mark.parametrize(
    "name", ["scores", "turned by positions", "behind positions", "attention", "numbers", "a table by distance"]
)
def test_places_keep_nothing_of_a_call(name):
    model = ds.patch_module(Of(FORWARDS[name][0]).eval()).online()
    calls, init = [], Call.__init__

    def noting(self, *args, **kwargs):
        calls.append(weakref.ref(self))
        init(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(Call, "__init__", noting)
        chunks_of(model, [torch.randn(4, 3)] * 6)
    gc.collect()
    assert sum(call() is not None for call in calls) <= 1


OF_LAYERS = ["weights made anew", "layers", "a plane", "recurrent", "stacked", "lanes", "cumulative norms"]


@pytest.mark.parametrize("name", OF_LAYERS)
def test_gradients_of_warm_calls(name):
    torch.manual_seed(0)
    model = Of(FORWARDS[name][0])
    model.norm.eval()
    plain = copy.deepcopy(model)
    x = torch.randn(1, 4, 12)
    ds.patch_module(model, train_variant="full-file-unaligned").online()
    for _ in range(3):
        model.zero_grad()
        plain.zero_grad()
        outs = [
            model(ds.stream_tensor([x[0, :, a : a + 4]], ids=["a"], sos=a == 0, eos=a == 8)) for a in (0, 4, 8)
        ]
        sum(y.tensor().square().sum() for y in outs).backward()
        plain(x).square().sum().backward()
        for (key, p), q in zip(model.named_parameters(), plain.parameters()):
            assert (p.grad is None) == (q.grad is None), key
            assert p.grad is None or torch.allclose(p.grad, q.grad, atol=1e-4, rtol=1e-4), key


def test_another_course_is_refused_and_the_forward_runs_in_every_call():
    said = []

    def forward(m, x):
        said.append(len(said))
        return F.relu(m.conv(x)) if len(said) != 5 else m.conv(F.relu(m.conv(x)))

    model = Of(forward)
    seen = []
    model.conv.register_forward_hook(lambda *given: seen.append(1))
    ds.patch_module(model).online()
    x = torch.randn(4, 5)
    chunks_of(model, [x] * 4)
    assert len(said) == len(seen) == 4
    with pytest.raises(ds.ModeError, match="course must not depend"):
        model(ds.stream_tensor([x], ids=["a"]))
    assert model(ds.stream_tensor([x], ids=["a"]))["a"].shape == (4, 5)


def test_numbers_that_change_in_every_call_are_not_kept(monkeypatch):
    monkeypatch.setattr(places, "_MOST", 20)
    model = Of(lambda m, x: m.conv(x) * m.factor)
    model.factor = 0.0
    ds.patch_module(model).online()
    x = torch.randn(4, 1)
    chunks_of(model, [x])
    session = model.__dict__["_patch"].session
    for n in range(100):
        model.factor = float(n)
        y = model(ds.stream_tensor([x], ids=["a"]))["a"]
    assert len(session.places) < 50
    model.factor = 0.0
    assert not model(ds.stream_tensor([x], ids=["a"]))["a"].any() and y.any()


class KeepsLast(torch.nn.Module):
    """It keeps the last frames, as models with a cache do, and uses them nowhere."""

    def __init__(self, kept):
        super().__init__()
        self.kept, self.cache, self.last = kept, {}, None

    def forward(self, x):
        whole = torch.cat([torch.tensor([], dtype=x.dtype), x], dim=1)
        if self.kept == "the module":
            self.last = whole[:, -4:]
        else:
            self.cache["last"] = whole[:, -4:]
        return whole * 2


@pytest.mark.parametrize("kept", ["the module", "a dict"])
def test_last_frames_that_nobody_uses_ask_for_none(kept):
    """A stream may have fewer: what is computed where it is used is not looked at."""
    model = ds.patch_module(KeepsLast(kept).eval()).online()
    for n in (7, 1, 3):
        x = torch.randn(n, 2)
        y = model(ds.stream_tensor([x], ids=[f"s{n}"], sos=True, eos=True, names=("B", "L", "F")))
        assert torch.equal(y[f"s{n}"], x * 2)


class LessTheFirst(torch.nn.Module):
    """The first frame is taken off all frames, in place."""

    def forward(self, x):
        y, z = x * 1, x * 2
        seen = y.transpose(1, 2)
        y.sub_(x[:, :1])
        z -= x[:, :1] * 2
        return y * z + seen.transpose(1, 2)


def test_a_first_frame_in_place():
    model, x = ds.patch_module(LessTheFirst().eval()), torch.randn(9, 2)
    want = model(x[None])[0]
    model.online()
    chunks = [(x[at : at + 2], at == 0, at >= 8) for at in range(0, 9, 2)]
    given = [ds.stream_tensor([c], ids=["a"], sos=s, eos=e, names=("B", "L", "F")) for c, s, e in chunks]
    assert torch.equal(torch.cat([model(chunk)["a"] for chunk in given]), want)


class MeansSoFar(torch.nn.Module):
    """Positions meet frames twice."""

    def forward(self, x):
        sums, squares = x.sum(1, keepdim=True).cumsum(-1), x.pow(2).sum(1, keepdim=True).cumsum(-1)
        n = torch.arange(start=2, end=2 * (x.shape[2] + 1), step=2, dtype=x.dtype).view(1, 1, -1)
        mean = sums / n
        return squares / n - mean.pow(2)


def test_positions_that_meet_frames_twice():
    model, x = ds.patch_module(MeansSoFar().eval()), torch.randn(2, 9)
    want = model(x[None])[0]
    model.online()
    parts = []
    for at in range(0, 9, 2):
        chunk = ds.stream_tensor([x[:, at : at + 2]], ids=["a"], sos=at == 0, eos=at >= 8, names=("B", "C", "L"))
        parts.append(model(chunk)["a"])
    assert torch.allclose(torch.cat(parts, 1), want, atol=1e-6)


class Counting(TorchFunctionMode):
    """Counts the functions of torch.nn.functional that it is asked about."""

    asked = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.asked += function is F.relu
        return function(*args, **(kwargs or {}))


def test_functions_are_repeated_without_torchs_way_of_asking(monkeypatch):
    model = ds.patch_module(Of(lambda m, x: torch.split(F.relu(m.conv(x)), 2, 1)[0]).eval()).online()
    chunks_of(model, [torch.randn(4, 3)] * 5)  # the first are watched for random numbers
    asked, handle = [], overrides.handle_torch_function
    for room in (F, torch.functional):
        monkeypatch.setattr(
            room, "handle_torch_function", lambda *given, **named: asked.append(1) or handle(*given, **named)
        )
    model(ds.stream_tensor([torch.randn(4, 3)], ids=["a"]))
    assert not asked


def test_layers_are_repeated_without_their_forwards_until_something_of_theirs_changes(monkeypatch):
    """A number, a parameter, a forward or a hook of a layer that is other than before is seen in the same call."""
    ran = []

    def noting(forward):
        return lambda self, x: ran.append(type(self).__name__) or forward(self, x)

    model = nn.Sequential(
        nn.Conv1d(4, 4, 1), nn.LeakyReLU(), nn.BatchNorm1d(4), nn.PReLU(), nn.AvgPool1d(1)
    ).eval()
    for kind in (nn.LeakyReLU, nn.PReLU):
        monkeypatch.setattr(kind, "forward", noting(kind.forward))
    plain = copy.deepcopy(model)
    ds.patch_module(model).online()
    x = torch.randn(4, 5)
    changes = {
        "nothing": lambda m: None,
        "a number": lambda m: setattr(m[1], "negative_slope", 0.5),
        "another number": lambda m: setattr(m[2], "eps", 0.5),
        "a parameter": lambda m: setattr(m[3], "weight", nn.Parameter(torch.tensor([0.75]))),
        "none": lambda m: setattr(m[0], "bias", None),
        "a hook": lambda m: m[0].register_forward_hook(lambda m, given, out: 2 * out),
        "a forward of its own": lambda m: setattr(m[4], "forward", lambda x: -x),
        "a forward of its class": lambda m: monkeypatch.setattr(nn.LeakyReLU, "forward", lambda self, x: x.exp()),
    }
    whole = {"ids": ["a"], "sos": True, "eos": True}
    model(ds.stream_tensor([x], **whole))
    for name, change in changes.items():
        if name != "a forward of its class":
            change(plain)
        change(model)
        ran.clear()
        got = model(ds.stream_tensor([x], **whole))["a"]
        assert ran == [] or name != "nothing"
        assert torch.allclose(got, plain(x[None])[0], atol=1e-6), name


def test_a_function_of_torch_that_is_replaced_meanwhile_is_called_by_layers(monkeypatch):
    calls = []

    def counted(function):
        return wraps(function)(lambda *args, **kwargs: calls.append(1) or function(*args, **kwargs))

    online = ds.patch_module(Of(lambda m, x: m.layer(m.conv(x).transpose(1, 2)))).eval().online()
    x = torch.randn(1, 4, 40)
    with torch.no_grad():
        for t in range(0, 40, 5):
            if t == 20:
                monkeypatch.setattr(F, "conv1d", counted(F.conv1d))
                monkeypatch.setattr(F, "layer_norm", counted(F.layer_norm))
            if t == 35:
                monkeypatch.undo()
            online(ds.stream_tensor(x[:, :, t : t + 5], ids=["a"], names=("B", None, "L"), sos=t == 0))
    assert len(calls) == 6


def test_layers_that_count_their_calls_count_all():
    model = nn.Sequential(nn.Conv1d(4, 4, 1), nn.BatchNorm1d(4)).train()
    ds.patch_module(model).online()
    for n in range(4):
        model(ds.stream_tensor([torch.randn(4, 5)], ids=["a"], sos=True, eos=True))
        assert model[1].num_batches_tracked == n + 1


def test_a_mode_within_a_forward_is_asked_first():
    counting = Counting()

    def function(m, x):
        with counting:
            return F.relu(m.conv(x))

    chunks_of(ds.patch_module(Of(function).eval()).online(), [torch.randn(4, 3)] * 4)
    assert counting.asked == 4


def test_what_changed_between_calls_comes_back_when_one_fails():
    def function(m, x):
        m.kept["calls"] = m.kept["calls"] + 1
        m.order = [m.kept["calls"]]
        return m.conv(x) if m.right else x.frobnicate()

    model = Of(function).eval()
    model.kept, model.order, model.right = {"calls": 0}, [], True
    ds.patch_module(model).online()
    chunks_of(model, [torch.randn(4, 3)] * 3)
    model.kept["calls"], model.kept["more"], model.right = 10, "mine", False
    with pytest.raises(AttributeError):
        model(ds.stream_tensor([torch.randn(4, 3)], ids=["a"]))
    assert model.kept == {"calls": 10, "more": "mine"} and model.order == [3]


def test_replay_refuses_what_it_was_not_made_for():
    with pytest.raises(TypeError, match="Replay takes 26"):
        _core.Replay()
    forward = replay.Repeats()
    for given in [(), (forward, len, [], {}), (forward, len, (), None), (None, len, (), {})]:
        with pytest.raises(TypeError, match="a forward, a function, a tuple and a dict"):
            replay.REPLAY.call(*given)
    with pytest.raises(AttributeError, match="never set"):
        replay.REPLAY.ask(forward, len, (), {})
    slotless = type("Slotless", (), dict.fromkeys(("entry", "line", "counts", "handle", "made"), 1))
    with pytest.raises(TypeError, match="is no slot"):
        _core.Replay(*[slotless] * 7, frozenset(), frozenset(), *[len] * 10, set(), *[slotless] * 4, len, len)
    with pytest.raises(ValueError, match="equal length"):
        _core.differing([], [1])
