"""Modules of torch run as copies: values, gradients, hooks and state are those of the modules."""

import copy
import functools
import sys
import traceback

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import dreamstream.torch  # noqa: F401  (it says which functions of torch call those of users)
from dreamstream.tracing import Hooks
from dreamstream.tracing.copies import is_copy

RAN = []


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, scale=None):
        RAN.append(is_copy(sys._getframe().f_code))
        frames = x.size(1)
        if frames % 2:
            x = F.pad(x, (0, 0, 0, 1))
        y = self.linear(x) * (scale if scale is not None else 1)
        return y[:, :frames] if frames > 2 and not frames < 0 else y


class WithCall(Inner):
    def __call__(self, x):
        return super().__call__(x) * (2 if x.size(0) else 1)


class WithSuper(Inner):
    def forward(self, x):
        return super().forward(x) if x.size(1) else x


class Compiled(Inner):
    def forward(self, x):
        return super().forward(x, scale=0.5)


@torch.no_grad()
def without_gradients(x):
    return x * 2 if x.sum() > 0 else x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.sequence = nn.Sequential(Inner(), nn.ReLU(), Inner())
        self.call, self.several, self.super = WithCall(), nn.ModuleList([Inner(), Inner()]), WithSuper()
        self.replaced = Inner()
        forward = self.replaced.forward
        self.replaced.forward = lambda x: forward(x, scale=3)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
        self.act = functools.partial(F.leaky_relu, negative_slope=0.2)

    def helper(self, x):
        return x if x.dim() == 3 else x[None]

    def forward(self, x):
        x = self.helper(x)
        for m in self.several:
            x = m(x, scale=2.0)
        x = checkpoint(self.call, x, use_reentrant=False)
        with torch.no_grad():
            z = without_gradients(x)
        return self.act(self.normed(self.replaced(self.sequence(self.super(x))))) + z


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model().double()


def run(call, model, frames):
    """The value of a call, the input's gradient, and how often each hook ran."""
    counts, handles = {}, []

    def hook(kind):
        def count(module, *_):
            assert any(module is m for m in model.modules())
            counts[kind, id(module)] = counts.get((kind, id(module)), 0) + 1

        return count

    for module in model.modules():
        handles += [module.register_forward_hook(hook("forward")), module.register_forward_pre_hook(hook("pre"))]
        handles.append(module.register_full_backward_hook(hook("backward")))
    torch.manual_seed(1)
    x = torch.randn(2, frames, 4, dtype=torch.double, requires_grad=True)
    RAN.clear()
    y = call(x)
    y.sum().backward()
    for handle in handles:
        handle.remove()
    return y, x.grad, counts, list(RAN)


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize("frames", [1, 2, 3, 6])
def test_values_gradients_and_hooks(model, frames):
    y, gradient, counts, ran = run(model, model, frames)
    y2, gradient2, counts2, ran2 = run(Hooks().of(model), model, frames)
    assert torch.equal(y, y2)
    assert torch.equal(gradient, gradient2)
    assert counts == counts2
    assert len(ran) == len(ran2)
    assert not any(ran)
    # the backward runs a checkpoint's forward again, outside the copy
    assert ran2.count(True) >= len(ran2) - 1


def state_of(model):
    modules = {n: (type(m), type(m).forward.__code__, sorted(vars(m))) for n, m in model.named_modules()}
    return modules, {n: v.clone() for n, v in model.state_dict().items()}


def test_nothing_of_the_modules_changes(model):
    modules, tensors = state_of(model)
    call = nn.Module.__call__, nn.Module._call_impl, nn.Module._call_impl.__code__
    Hooks().of(model)(torch.randn(2, 3, 4, dtype=torch.double))
    after, tensors_after = state_of(model)
    assert after == modules
    assert all(torch.equal(tensors[n], tensors_after[n]) for n in tensors)
    assert call == (nn.Module.__call__, nn.Module._call_impl, nn.Module._call_impl.__code__)
    copy.deepcopy(model.sequence)


def compiled(f, **options):
    return torch.compile(f, backend="eager", **options)


def test_what_torch_compiled_runs_as_its_original(model):
    x = torch.randn(2, 3, 4, dtype=torch.double)
    hooks, want = Hooks(), model(x)
    for call in (compiled(model), compiled(model.forward), compiled(lambda x: model(x))):
        RAN.clear()
        assert torch.equal(hooks.of(call)(x), want)
        assert all(RAN)
        assert RAN
    inside = nn.Sequential(compiled(Inner()), Compiled()).double()
    inside[1].compile(backend="eager")
    RAN.clear()
    hooks.of(inside)(x)
    assert RAN == [True, True]


def test_functional_call(model):
    inner = Inner().double()
    weights = {n: p * 2 for n, p in inner.named_parameters()}
    x = torch.randn(2, 3, 4, dtype=torch.double)
    want = torch.func.functional_call(inner, weights, (x,))
    RAN.clear()
    assert torch.equal(Hooks().of(torch.func.functional_call)(inner, weights, (x,)), want)
    assert RAN == [True]


def test_a_stand_in_for_a_layers_forward():
    hooks, layer = Hooks(), nn.Conv1d(1, 1, 1)
    hooks.stand_in(nn.Conv1d.forward, lambda self, x: ("stand-in", self, x))
    assert hooks.of(layer)(3) == ("stand-in", layer, 3)
    before = layer.forward
    layer.forward = lambda x: ("own", before(x))
    assert hooks.of(layer)(3) == ("own", ("stand-in", layer, 3))
    hooks.stand_in(torch.relu, lambda x: "relu")
    assert hooks.of(torch.relu)(1) == "relu"


class Bad(nn.Module):
    def forward(self, x):
        if x is not None:
            return x + torch.zeros(
                99)  # fmt: skip


def test_the_place_of_an_error():
    def places(call):
        with pytest.raises(RuntimeError, match="must match") as caught:
            call(torch.zeros(3))
        entries = traceback.extract_tb(caught.tb)
        return [(e.filename, e.name, e.lineno) for e in entries][1:]

    model = nn.Sequential(nn.Identity(), Bad())
    assert places(Hooks().of(model)) == places(model)
