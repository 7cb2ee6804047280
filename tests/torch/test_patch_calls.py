"""What runs around the forward of a patched module: a class's own call, another forward, hooks of every kind."""

import copy
import os
import sys

import pytest
import torch
from torch import nn
from torch.nn.modules import module as modules

import dreamstream as ds

NAMES = ("B", "L", "F")
CUTS = (0, 4, 8, 12)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.rnn = nn.Conv1d(3, 4, 3, padding=1), nn.GRU(4, 4, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.rnn(self.conv(x.transpose(1, 2)).relu().transpose(1, 2))[0])


def made(cls=Net, *args):
    torch.manual_seed(0)
    return cls(*args)


def frames(seed=1):
    return torch.randn(12, 3, generator=torch.Generator().manual_seed(seed))


def chunk(x, a, b, **options):
    return ds.stream_tensor([x[a:b]], ids=["a"], sos=a == 0, eos=b == len(x), names=NAMES, **options)


def streamed(model, x=None):
    x = frames() if x is None else x
    return torch.cat([model(chunk(x, a, b))["a"] for a, b in zip(CUTS, CUTS[1:])])


def compiled(model):
    engine = ds.compile(model, ("B", "L", 3))
    return torch.from_numpy(engine.step({"a": frames().numpy()}, sos="a", eos="a")["a"])


def assert_streams(model, patch=ds.patch_module):
    """Streams, an engine and the offline model are all what the model is."""
    model = model.eval()
    with torch.no_grad():
        want = model(frames()[None])
        torch.testing.assert_close(compiled(model), want[0], rtol=1e-5, atol=1e-5)
        patch(model)
        assert torch.equal(model(frames()[None]), want)
        torch.testing.assert_close(streamed(ds.online(model)), want[0], rtol=1e-5, atol=1e-5)
        assert torch.equal(ds.offline(model)(frames()[None]), want)


# ---------------------------------------------------------------------- a class's own call, and what a class is
class Doubled(Net):
    def __call__(self, x):
        return super().__call__(x) * 2


class Around(nn.Module):
    """A call of its own that does more than multiply: right within another module's forward."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def __call__(self, x):
        return super().__call__(x.cumsum(1))[:, 1:] - x[:, :-1]

    def forward(self, x):
        return self.layer(x)


class Callable(nn.Module):
    """All that it does is in its call."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 3, 3, padding=1)

    def __call__(self, x):
        return x + self.conv(x.transpose(1, 2)).transpose(1, 2).cumsum(1)


class ByClass(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)])

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x) if type(layer) is nn.Linear else layer(x)
        return x


def warned(model):
    with pytest.warns(ds.errors.StreamWarning, match="__call__ of its own.*Sequential"):
        return ds.patch_module(model)


def test_a_call_of_a_class():
    assert_streams(made(Doubled), warned)
    for kind in (Doubled, Around, Callable):
        assert_streams(nn.Sequential(made(kind)))
    assert_streams(made(ByClass))


def test_a_module_without_a_forward():
    model = made(Callable).eval()
    with pytest.raises(ds.NotStreamableError, match=r"Callable computes in a __call__.*no forward.*Sequential\("):
        ds.patch_module(model)
    assert "_patch" not in model.__dict__
    torch.testing.assert_close(compiled(model), model(frames()[None])[0], rtol=1e-5, atol=1e-5)


def test_nobody_sees_another_class():
    seen = []

    class Registered(nn.Linear):
        def __init_subclass__(cls, **options):
            super().__init_subclass__(**options)
            seen.append(cls)

    class Layer(Registered): ...

    model = ds.patch_module(nn.Sequential(Layer(3, 3), nn.Linear(3, 3))).online()
    assert seen == [Layer] and [type(m) for m in model] == [Layer, nn.Linear]

    def init(module):
        if type(module) is nn.Linear:
            nn.init.ones_(module.weight)

    model.apply(init)
    assert bool((model[1].weight == 1).all()) and not bool((model[0].weight == 1).all())


# ---------------------------------------------------------------------- a forward that a tool has set
def doubling(layer):
    old = layer.forward

    def forward(*args, **kwargs):
        out = old(*args, **kwargs)
        return (out[0] * 2, *out[1:]) if isinstance(out, tuple) else out * 2

    layer.forward = forward
    return layer


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(3, 3), lambda: nn.ReLU(), lambda: nn.LayerNorm(3), Doubled, ByClass,
        lambda: nn.Sequential(nn.Linear(3, 3)), lambda: nn.Embedding(5, 3), Net,
    ],
)  # fmt: skip
def test_another_forward(make):
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = doubling(made(make))

        def forward(self, x):
            return self.layer((x > 0).sum(-1)) if isinstance(self.layer, nn.Embedding) else self.layer(x)

    assert_streams(Outer())


def test_another_forward_of_a_convolution():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = doubling(nn.Conv1d(3, 3, 3, padding=1))

        def forward(self, x):
            return self.conv(x.transpose(1, 2)).transpose(1, 2)

    assert_streams(made(Outer))
    model = made(Outer)
    assert_streams(nn.Sequential(model))
    doubling(model.conv)  # after it was patched
    want = model(frames()[None])[0]
    torch.testing.assert_close(streamed(nn.Module.eval(ds.patch_module(nn.Sequential(model)).online())), want)


# ---------------------------------------------------------------------- forward hooks
def test_forward_hooks_run_once():
    model, seen = made().eval(), []
    for path in ("conv", "rnn", ""):
        layer = model.get_submodule(path)
        layer.register_forward_pre_hook(lambda m, args: seen.append(("pre", type(m).__name__)))
        layer.register_forward_hook(lambda m, args, out: seen.append(("post", type(m).__name__)))
    model.head.register_forward_pre_hook(lambda m, args, kwargs: ((args[0] * 3,), kwargs), with_kwargs=True)
    model.head.register_forward_hook(lambda m, args, kwargs, out: out + 1, with_kwargs=True)
    want = model(frames()[None])[0]
    once, seen[:] = list(seen), []
    ds.patch_module(model).online()
    torch.testing.assert_close(streamed(model), want, rtol=1e-5, atol=1e-5)
    assert seen == once * 3
    with pytest.raises(ValueError, match="stop"):
        model.conv.register_forward_hook(lambda *_: seen.append("always"), always_call=True)
        model.conv.register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(ValueError("stop")))
        model(chunk(frames(), 0, 4))
    assert seen[-1] == "always" and model.live_ids == []


@pytest.mark.parametrize("register", ["register_module_forward_hook", "register_module_forward_pre_hook"])
def test_global_forward_hooks(register):
    model, seen = made().eval(), []
    handle = getattr(modules, register)(lambda m, *_: seen.append(m))
    try:
        model(frames()[None])
        once, seen[:] = list(seen), []
        streamed(ds.patch_module(model).online())
    finally:
        handle.remove()
    assert seen == once * 3 and {type(m) for m in seen} == {Net, nn.Conv1d, nn.GRU, nn.Linear}


# ---------------------------------------------------------------------- backward hooks
def shapes(grads):
    return [None if g is None else tuple(g.shape) for g in grads]


def full(path, change=None):
    def hook(module, given, grads, seen):
        seen.append((type(module).__name__, shapes(given), shapes(grads)))
        return None if change is None else tuple(None if g is None else change(g) for g in given)

    return path, "register_full_backward_hook", hook


def pre(path, change=None):
    def hook(module, grads, seen):
        seen.append((type(module).__name__, shapes(grads)))
        return None if change is None else tuple(None if g is None else change(g) for g in grads)

    return path, "register_full_backward_pre_hook", hook


def twice(g):
    return g * 2


BACKWARD = {
    "pre, of a convolution": pre("conv", twice),
    "pre, of a recurrence": pre("rnn", twice),
    "pre, of the model": pre("", twice),
    "full, of a linear layer": full("head", twice),
    "full, of a recurrence": full("rnn", lambda g: g / (1 + g.abs())),
    "full, that looks": full("conv"),
    "full, of the model": full(""),
    "pre, that looks": pre("head"),
    "pre, of all": pre(None),
    "full, of all": full(None),
    "pre, of all linear layers": pre(None, lambda g: torch.where(g.abs() > 0.1, g * 2, g)),
}


def set_hook(model, path, register, hook, seen):
    if path is None:
        return getattr(modules, register.replace("register_", "register_module_"))(
            lambda module, *grads: hook(module, *grads, seen)
        )
    return getattr(model.get_submodule(path), register)(lambda module, *grads: hook(module, *grads, seen))


def learned(model, row, variant=None):
    """What a hook saw in a backward pass, and the gradients that it left."""
    seen = []
    handle = set_hook(model, *row, seen)
    try:
        if variant is None:
            y = model(frames()[None])[0]
        else:
            y = streamed(ds.patch_module(model, train_variant=variant).online())
        y.square().sum().backward()
    finally:
        handle.remove()
    return seen, {n: p.grad for n, p in model.named_parameters()}


@pytest.mark.parametrize("name", BACKWARD)
def test_backward_hooks_see_the_frames_of_each_call(name):
    plain = made()
    model = copy.deepcopy(plain)
    want, gradients = learned(plain, BACKWARD[name])
    seen, got = learned(model, BACKWARD[name], "full-file-aligned")
    torch.testing.assert_close(got, gradients, rtol=1e-4, atol=1e-5)
    assert len(seen) == 3 * len(want)  # once per call
    for kind, *grads in want:
        calls = [s for s in seen if s[0] == kind]
        for at, wanted in enumerate(grads):
            for k, shape in enumerate(wanted):
                each = [c[1 + at][k] for c in calls]
                if shape is None:
                    assert each == [None] * 3
                else:
                    whole = next(i for i, n in enumerate(shape) if n == 12)
                    assert sum(s[whole] for s in each) == 12
                    assert {s[:whole] + s[whole + 1 :] for s in each} == {shape[:whole] + shape[whole + 1 :]}


def test_backward_hooks_of_several_streams_see_one_row():
    model, seen = made().train(), []
    set_hook(model, *pre("conv"), seen)
    ds.patch_module(model).online()
    y = model(ds.stream_tensor([frames(), frames(2)[:7]], ids=["a", "b"], sos=True, eos=True, names=NAMES))
    y.sum().backward()
    assert seen == [("Conv1d", [(1, 4, 19)])]


def test_backward_hooks_do_nothing_without_gradients():
    model, seen = made().eval(), []
    set_hook(model, *full("conv"), seen)
    set_hook(model, *pre("rnn"), seen)
    want = model(frames()[None])[0]
    with torch.no_grad():
        torch.testing.assert_close(streamed(ds.patch_module(model).online()), want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(compiled(model), want, rtol=1e-5, atol=1e-5)
    assert seen == []


def test_backward_hooks_of_the_old_kind_are_refused():
    model = made().train()
    model.conv.register_backward_hook(lambda *_: None)
    with pytest.raises(ds.NotStreamableError, match=r"conv \(Conv1d\).*grad_fn at test_patch_calls"):
        ds.patch_module(model).online()(chunk(frames(), 0, 4))


class Part(nn.Module):
    """A model of one part in a place of its own, which is hooked."""

    def __init__(self, part, use):
        super().__init__()
        self.first, self.part, self.last, self.use = nn.Linear(3, 4), part(), nn.Linear(4, 2), use

    def forward(self, x):
        return self.last(self.use(self.part, self.first(x)))


class Of(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.layer, self.function = nn.Conv1d(4, 4, 3, padding=1), function

    def forward(self, x, *more, **named):
        return self.function(self.layer(x.transpose(1, 2)).transpose(1, 2), *more, **named)


def causal(x):
    return torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)


PARTS = {
    "two streams": (lambda: Of(torch.mul), lambda m, x: m(x, x.cumsum(1))),
    "lengths": (lambda: Of(lambda x, n: (x, n)), lambda m, x: m(x, torch.full((x.shape[0],), x.shape[1]))[0]),
    "a mask": (lambda: Of(lambda x, mask: x.masked_fill(mask, 0.0)), lambda m, x: m(x, mask=x > 0)),
    "a state": (lambda: nn.GRU(4, 4, batch_first=True), lambda m, x: m(x, torch.zeros(1, x.shape[0], 4))[0]),
    "attention": (
        lambda: nn.MultiheadAttention(4, 2, batch_first=True),
        lambda m, x: m(x, x, x, attn_mask=causal(x), need_weights=False)[0],
    ),
    "a dict": (lambda: Of(lambda x: {"y": x}), lambda m, x: m(x)["y"]),
    "the end": (lambda: Of(lambda x: x.mean(1)), lambda m, x: m(x).unsqueeze(1)),
    "joined": (lambda: nn.Flatten(0, 1), lambda m, x: m(x).unflatten(0, (x.shape[0], x.shape[1]))),
    "planes": (lambda: nn.Conv2d(1, 1, 3, padding=1), lambda m, x: m(x[:, None]).squeeze(1)),
    "weights that don't learn": (lambda: nn.Linear(4, 4).requires_grad_(False), lambda m, x: m(x)),
}


@pytest.mark.parametrize("kind", [full, pre])
@pytest.mark.parametrize("name", PARTS)
def test_backward_hooks_of_modules_that_take_and_give(name, kind):
    change = None if (name, kind) == ("a mask", full) else twice  # a mask's gradient can't be changed in torch
    plain = made(Part, *PARTS[name])
    model, row = copy.deepcopy(plain), kind("part", change)
    want, gradients = learned(plain, row)
    seen, got = learned(model, row, "full-file-aligned")
    torch.testing.assert_close(got, gradients, rtol=1e-4, atol=1e-5)
    assert len(seen) == 3 * len(want)


def test_backward_hooks_of_complex_streams_are_refused():
    def use(part, x):
        return torch.view_as_real(part(torch.view_as_complex(x.unflatten(-1, (2, 2)).contiguous()))).flatten(-2)

    model = made(Part, nn.Identity, use)
    set_hook(model, *full("part"), [])
    with pytest.raises(ds.NotStreamableError, match=r"part \(Identity\): a full backward hook.*test_patch_calls"):
        ds.patch_module(model).online()(chunk(frames(), 0, 4))


# ---------------------------------------------------------------------- nothing stands before an offline call
def test_offline_calls_are_torchs_own():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv1d(2, 2, 3, padding=1), nn.Linear(2, 2)

        def forward(self, x):
            return self.b(self.a(x).transpose(1, 2))

    model = ds.patch_module(Net().eval())
    sequence = torch.randn(1, 2, 9)

    def passed():
        """The files of functions that run in an offline call."""
        seen = set()
        sys.setprofile(lambda frame, *_: seen.add(frame.f_code.co_filename))
        try:
            model(sequence)
        finally:
            sys.setprofile(None)
        return [name for name in seen if f"{os.sep}dreamstream{os.sep}" in name]

    assert passed() == [] and "_compiled_call_impl" not in model.__dict__
    with torch.no_grad():
        want = model(sequence)
    chunk = ds.stream_tensor([sequence[0]], ids=["s"], sos=[True], eos=[True])
    assert torch.allclose(model.online()(chunk).tensor(), want, atol=1e-6)
    assert torch.equal(model.offline()(sequence), want) and passed() == []
    with pytest.raises(ds.ModeError, match=r"Net is offline and got a StreamTensor; call .online\(\) first"):
        model(chunk)


def test_a_part_that_is_offline_within_a_model_that_streams():
    model, sequence = ds.patch_module(made()), torch.randn(1, 12, 3)
    want = made()(sequence)
    model.online().rnn.offline()
    x = torch.randn(1, 5, 4)
    assert torch.equal(model.rnn(x)[0], made().rnn(x)[0])
    torch.testing.assert_close(streamed(model, sequence[0]), want[0])
    model.offline()
    assert torch.equal(model(sequence), want) and not any(
        "_compiled_call_impl" in m.__dict__ for m in model.modules()
    )
    model.rnn.online(), model.online(), model.rnn.offline()
    torch.testing.assert_close(streamed(copy.deepcopy(model), sequence[0]), want[0])


@pytest.mark.parametrize("layer", [nn, ds.nn])
def test_what_a_forward_raises_of_values_leaves_streams_as_they_were(layer):
    class Checks(layer.Module):
        def forward(self, x):
            if not (x == x).all() or (x > 99).any():
                raise ValueError("no such value")
            y = x.cumsum(1)
            assert not (y < 0).any(), "below"
            return y

    model, frames = ds.patch_module(Checks().eval()).online(), torch.ones(12, 3)

    def call(at, value=1.0, eos=False):
        x = frames[at : at + 4] * value
        x = x if layer is nn else x.numpy()
        return torch.as_tensor(
            model(ds.stream_tensor([x], ids=["s"], sos=at == 0, eos=eos, names=NAMES))["s"].tolist()
        )

    first = call(0)
    for value, kind, words in ((float("nan"), ValueError, "no such"), (-2.0, AssertionError, "below")):
        with pytest.raises(kind, match=words):
            call(4, value)
    assert torch.equal(torch.cat([first, call(4), call(8, eos=True)]), frames.cumsum(0))


def test_what_torch_asserts():
    """Of sizes, at a stream's end, and of values, in each call, as the statement does."""

    class Checks(nn.Module):
        def forward(self, x):
            torch._assert(x.dim() == 3 and x.shape[2] == 3, "features")
            torch._assert(x.shape[1] % 2 == 0, "an even length")
            torch._assert(condition=(x < 99).all(), message="too large")
            return x.cumsum(1)

    model = ds.patch_module(Checks().eval()).online()

    def call(frames, **flags):
        return model(ds.stream_tensor([frames], ids=["s"], names=NAMES, **flags))["s"]

    frames = torch.ones(4, 3)
    first = call(frames[:3], sos=True)
    with pytest.raises(AssertionError, match="too large"):
        call(frames[3:] * 100, eos=True)
    with pytest.raises(ds.ShapeError, match=r"torch\._assert"):
        call(frames[2:], eos=True)
    assert torch.equal(torch.cat([first, call(frames[3:], eos=True)]), frames.cumsum(0))
    engine = ds.compile(Checks(), ("B", "L", 3))
    assert engine.step({"s": frames.numpy()}, sos="s", eos="s")["s"].tolist() == frames.cumsum(0).tolist()
