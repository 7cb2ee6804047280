"""Gradients that a forward defines or asks for itself: torch.autograd.Function, checkpoints, hooks, torch.func."""

import copy
import functools
import inspect
import re

import numpy as np
import pytest
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts
from torch_training import VARIANTS, assert_close, assert_same_gradients, calls, cuts, gathered, sequences, streams

import dreamstream as ds
from dreamstream.errors import NotStreamableError

nn, F = torch.nn, torch.nn.functional
LENGTHS = {"a": 23, "b": 9, "c": 16}


# ---------------------------------------------------------------------- Functions
class Swish(Function):
    """An activation whose backward is not that of its forward, so that a test sees which of them runs."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * grad * torch.sigmoid(x)


class Scaled(Swish):
    """Its class has an `apply` of its own."""

    @classmethod
    def apply(cls, x, scale):
        return super().apply(x * scale)


class Reversed(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.weight * grad, None


class Sliced(Reversed):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return x[:]


class Returned(Function):
    """It gives its argument itself."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return -2 * grad


class StraightThrough(Function):
    @staticmethod
    def forward(ctx, x):
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        return F.hardtanh(grad)


class SetUp(Function):
    """In the newer style, with an argument left to its default, and a result that is kept."""

    @staticmethod
    def forward(x, scale=3.0):
        return x.round() * scale, x.abs()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output[1])
        ctx.scale = inputs[1]

    @staticmethod
    def backward(ctx, first, second):
        x, size = ctx.saved_tensors
        return first * ctx.scale + second * size * x, None


class Two(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    @once_differentiable
    def backward(ctx, product, total):
        x, y = ctx.saved_tensors
        first = 2 * product * y + total if ctx.needs_input_grad[0] else None
        second = product * x + total if ctx.needs_input_grad[1] else None
        return first, second if second is None or y.dim() == second.dim() else second.sum((0, 1))


class Linear(Function):
    """Its backward sums the gradients of weights over all frames."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return x @ weight.t() + bias

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        rows = grad.reshape(-1, grad.shape[-1])
        return grad @ weight, 3 * rows.t() @ x.reshape(-1, x.shape[-1]), rows.sum(0)


class OfWeights(Function):
    @staticmethod
    def forward(ctx, weight):
        return weight.sign()

    @staticmethod
    def backward(ctx, grad):
        return 7 * grad


class WithIndex(Function):
    @staticmethod
    def forward(ctx, x):
        which = x > 0
        ctx.mark_non_differentiable(which)
        return 2 * x, which

    @staticmethod
    def backward(ctx, grad, _):
        return 5 * grad


class Shaped(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.reshape(x.size(0) * x.size(1), -1).tanh().view(x.shape)

    @staticmethod
    def backward(ctx, grad):
        return 4 * grad.reshape(ctx.shape)


class Unmaterialized(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return 2 * x, 3 * x

    @staticmethod
    def backward(ctx, first, second):
        return None if first is None else 2 * first


class Inner(Function):
    """It turns gradients off and on, works in place on what is its own, and calls another Function."""

    @staticmethod
    def forward(ctx, x):
        with torch.no_grad():
            y = x.clone()
        with torch.enable_grad():
            z = Swish.apply(x)
        return y.mul_(2).add_(z)

    @staticmethod
    def backward(ctx, grad):
        return 9 * grad


class Enabled(Function):
    """It records a graph of its own, which is not its gradient."""

    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            return x * 2

    @staticmethod
    def backward(ctx, grad):
        return -grad


SWISH = Swish.apply


def _without(module, x):
    with torch.no_grad():
        y = Swish.apply(x)
    return x * y


#: What a network does between its first and its last layer, on (B, L, 4).
RIGHT = {
    "kept input": lambda m, x: Swish.apply(x),
    "another argument": lambda m, x: Reversed.apply(x, 0.3),
    "its argument": lambda m, x: Returned.apply(x),
    "straight through": lambda m, x: StraightThrough.apply(x),
    "set up": lambda m, x: sum(SetUp.apply(x)),
    "set up by keyword": lambda m, x: SetUp.apply(x, scale=2.0)[0],
    "two streams": lambda m, x: Two.apply(x, m.block(x))[0] + Two.apply(x, x)[1],
    "one result": lambda m, x: Two.apply(x, m.block(x))[1],
    "a stream and a constant": lambda m, x: Two.apply(x, m.scale.detach())[0],
    "a stream and a weight": lambda m, x: Two.apply(x, m.scale)[0],
    "a detached stream": lambda m, x: Two.apply(x.detach(), x)[0],
    "weights": lambda m, x: Linear.apply(x, m.block[0].weight, m.block[0].bias),
    "weights alone": lambda m, x: F.linear(x, OfWeights.apply(m.block[0].weight)),
    "weights alone, then streams": lambda m, x: Two.apply(x, OfWeights.apply(m.scale))[0],
    "what has no gradient": lambda m, x: WithIndex.apply(x)[0] * WithIndex.apply(x)[1],
    "sizes": lambda m, x: Shaped.apply(x),
    "no gradient of one result": lambda m, x: Unmaterialized.apply(x)[1] + x,
    "one inside another": lambda m, x: Inner.apply(x),
    "in a row": lambda m, x: Swish.apply(Reversed.apply(Swish.apply(x), 2.0)),
    "in a row, the second of them a slice": lambda m, x: Sliced.apply(Swish.apply(x), 2.0),
    "no gradients wanted": _without,
    "transposed": lambda m, x: Swish.apply(x.transpose(1, 2)).transpose(1, 2),
    "B and L joined": lambda m, x: Swish.apply(x.reshape(-1, 4)).view(x.shape),
    "more dimensions": lambda m, x: Swish.apply(x.unflatten(2, (2, 2)).permute(2, 0, 3, 1)).permute(1, 3, 0, 2)
    .flatten(2),
    "behind a convolution": lambda m, x: Swish.apply(m.conv(x.transpose(1, 2))).transpose(1, 2),
    "gradients in it": lambda m, x: Enabled.apply(x),
    "an apply of its own": lambda m, x: Scaled.apply(x, 2.0),
    "by another name": lambda m, x: SWISH(x) + getattr(Returned, "apply")(x),  # noqa: B009
    "by a partial": lambda m, x: functools.partial(Reversed.apply, x)(2.0),
    "by map": lambda m, x: sum(map(Swish.apply, [x, 2 * x])),
    "by a structure": lambda m, x: tree_map(Swish.apply, {"x": x})["x"],
    "an activation of a layer": lambda m, x: m.layer(
        x, nn.Transformer.generate_square_subsequent_mask(x.size(1)).to(x)
    ),
    "before a recurrent layer": lambda m, x: Returned.apply(m.gru(Swish.apply(x))[0]),
}  # fmt: skip

#: Likewise, of checkpoints.
BLOCKS = {
    "layers": lambda m, x: m.block(x),
    "a convolution": lambda m, x: m.conv(x.transpose(1, 2)).transpose(1, 2),
    "a recurrent layer": lambda m, x: m.gru(x)[0],
    "the stream itself": lambda m, x: x,
    "no gradients in it": lambda m, x: _without(m, m.block(x)),
    "a Function": lambda m, x: m.block(Swish.apply(x)),
}
for _name, _block in BLOCKS.items():
    for _way in (True, False):

        def _in_checkpoint(m, x, block=_block, way=_way):
            return checkpoint(lambda y: block(m, y), x, use_reentrant=way)

        RIGHT[f"{_name}, checkpoint {_way}"] = _in_checkpoint
RIGHT |= {
    "checkpoint_sequential True": lambda m, x: checkpoint_sequential(m.block, 2, x, use_reentrant=True),
    "checkpoint_sequential False": lambda m, x: checkpoint_sequential(m.block, 2, x, use_reentrant=False),
    "behind a checkpoint": lambda m, x: Swish.apply(checkpoint(m.block, x, use_reentrant=True)),
    "nested checkpoints": lambda m, x: checkpoint(
        lambda y: checkpoint(m.block, y, use_reentrant=True), x, use_reentrant=False
    ),
}  # fmt: skip
if inspect.signature(checkpoint).parameters["function"].default is None:  # from torch 2.14 on
    for _way in (True, False):
        RIGHT[f"checkpoint {_way} as a decorator"] = lambda m, x, way=_way: checkpoint(use_reentrant=way)(
            lambda y: m.block(Swish.apply(y))
        )(x)


class Net(nn.Module):
    def __init__(self, middle):
        super().__init__()
        self.before, self.after = nn.Linear(3, 4), nn.Linear(4, 2)
        self.block, self.scale = nn.Sequential(nn.Linear(4, 4), nn.GELU()), nn.Parameter(torch.randn(4))
        self.conv, self.gru = nn.Conv1d(4, 4, 3, padding=1), nn.GRU(4, 4, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0, lambda x: Swish.apply(x), batch_first=True)
        self.middle = middle

    def forward(self, x):
        y = self.middle(self, self.before(x.transpose(1, 2)))
        return self.after(y).transpose(1, 2)


def pair(middle, variant="full-file-aligned"):
    """Return an untouched model, and one like it that trains online."""
    torch.manual_seed(0)
    plain = Net(middle).double()
    return plain, ds.patch_module(copy.deepcopy(plain), variant).online().train()


CASES = [(name, "full-file-aligned") for name in RIGHT]
CASES += [(name, v) for name in ("kept input", "weights") for v in VARIANTS if v != "full-file-aligned"]


@pytest.mark.parametrize("name, variant", CASES)
def test_values_and_gradients_are_torchs(name, variant):
    rng = np.random.default_rng(3)
    plain, model = pair(RIGHT[name], variant)
    xs = sequences(rng, LENGTHS)
    for x in xs.values():
        plain(x[None]).square().sum().backward()
    ys = [model(x) for x in calls(xs, {i: cuts(rng, n) for i, n in LENGTHS.items()}, late=("c",))]
    for i, y in gathered(ys).items():
        assert_close(y, plain(xs[i][None])[0], i)
    sum(y.square().sum() for y in ys).backward()
    assert_same_gradients(model, plain)


@pytest.mark.parametrize("name", ["kept input", "weights", "layers, checkpoint True", "layers, checkpoint False"])
def test_evaluation_and_engines_compute_what_the_forward_says(name):
    rng = np.random.default_rng(3)
    plain, model = pair(RIGHT[name])
    plain, model = plain.float().eval(), model.float().eval()
    x = torch.randn(1, 3, 20)
    with torch.no_grad():
        wanted = plain(x)[0]
        for taped in (False, True):
            with torch.set_grad_enabled(taped):
                ys = gathered(model(y) for y in calls({"a": x[0]}, {"a": cuts(rng, 20)}))
            assert torch.allclose(ys["a"], wanted, atol=1e-6)
    engine = ds.compile(plain, ("B", 3, "L"))
    got = engine.step({"a": x[0].numpy()}, sos="a", eos="a")["a"]
    assert np.allclose(got, wanted.numpy(), atol=1e-5)


def test_a_loss_of_no_frames_has_a_gradient():
    _, model = pair(RIGHT["kept input"])
    model(streams({"a": torch.zeros(3, 0, dtype=torch.float64)}, ["a"])).sum().backward(
        retain_graph=True
    ) if False else None
    y = model(streams({"a": torch.zeros(3, 0, dtype=torch.float64)}, ["a"], ["a"]))
    y.sum().backward()


# ---------------------------------------------------------------------- what is refused
def backward_of(fn):
    """Return a Function that is the identity, with this backward."""

    class Identity(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0

        @staticmethod
        def backward(ctx, grad):
            return fn(grad)

    return Identity


class Sums(Function):
    @staticmethod
    def forward(ctx, x):
        return x.cumsum(1)

    @staticmethod
    def backward(ctx, grad):
        return grad.flip(1).cumsum(1).flip(1)


class Next(Function):
    @staticmethod
    def forward(ctx, x):
        return F.pad(x[:, 1:], (0, 0, 0, 1))

    @staticmethod
    def backward(ctx, grad):
        return F.pad(grad[:, :-1], (0, 0, 1, 0))


class OfLayer(Function):
    @staticmethod
    def forward(ctx, x, layer):
        return layer(x.transpose(1, 2)).transpose(1, 2)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Again(Function):
    """It runs a layer once more in its backward, outside the forward."""

    @staticmethod
    def forward(ctx, x, layer):
        ctx.layer = layer
        ctx.save_for_backward(x)
        return layer(x)

    @staticmethod
    def backward(ctx, grad):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.layer(x)
        return torch.autograd.grad(y, x, grad)[0], None


class Dropped(Function):
    @staticmethod
    def forward(ctx, x):
        return F.dropout(x, 0.5)

    @staticmethod
    def backward(ctx, grad):
        return grad


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.relu_()

    @staticmethod
    def backward(ctx, grad):
        return grad


OTHER_FRAMES = "depend on other frames"
REFUSED = {
    "a mean of gradients": (lambda m, x: backward_of(lambda g: g - g.mean()).apply(x), OTHER_FRAMES),
    "a mean of small gradients": (
        lambda m, x: backward_of(lambda g: 1e-9 * (g - g.mean())).apply(x),
        OTHER_FRAMES,
    ),
    "a norm of gradients": (lambda m, x: backward_of(lambda g: g / g.norm()).apply(x), OTHER_FRAMES),
    "clipped by norm": (
        lambda m, x: backward_of(lambda g: g * min(1, 1 / float(g.norm()))).apply(x),
        OTHER_FRAMES,
    ),
    "the number of frames": (lambda m, x: backward_of(lambda g: g / g.shape[1]).apply(x), OTHER_FRAMES),
    "the number of streams": (lambda m, x: backward_of(lambda g: g / g.shape[0]).apply(x), OTHER_FRAMES),
    "a sum of frames": (lambda m, x: Sums.apply(x), OTHER_FRAMES),
    "the next frame": (lambda m, x: Next.apply(x), OTHER_FRAMES),
    "a convolution": (lambda m, x: OfLayer.apply(x, m.conv), OTHER_FRAMES),
    "a layer in its backward": (lambda m, x: Again.apply(x, m.block), "Sequential is online"),
    "random numbers": (lambda m, x: Dropped.apply(x), "draws random numbers"),
    "different delays": (lambda m, x: Two.apply(x, m.conv(x.transpose(1, 2)).transpose(1, 2))[0], "delays"),
    "a backward that fails": (lambda m, x: backward_of(lambda g: g.nothing).apply(x), "AttributeError"),
    "in place": (lambda m, x: InPlace.apply(x * 1), "mark_dirty"),
    "hook": (lambda m, x: x.register_hook(lambda g: 2 * g) and x, "register_hook at .* gradient"),
    "retain_grad": (lambda m, x: x.retain_grad() or x, "retain_grad at .* gradient"),
    "grad_fn": (lambda m, x: x * (x.grad_fn is None), "grad_fn at .* gradient"),
    "autograd.grad": (lambda m, x: torch.autograd.grad(x, x)[0], "grad at .* gradient"),
    "vjp": (lambda m, x: torch.autograd.functional.vjp(torch.square, x, x)[1], "grad at .* gradient"),
    "func.grad": (lambda m, x: torch.func.grad(lambda t: (t**2).sum())(x), "torch.func of a stream"),
    "func.vjp": (lambda m, x: torch.func.vjp(lambda t: t**2, x)[0], "torch.func of a stream"),
    "requires_grad_": (lambda m, x: x.requires_grad_(False), "detach"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_right_is_refused_by_line(name):
    middle, words = REFUSED[name]
    _, model = pair(middle)
    x = streams({"a": torch.randn(3, 8, dtype=torch.float64), "b": torch.randn(3, 5, dtype=torch.float64)}, "ab")
    with pytest.raises(NotStreamableError, match=r"test_own_gradients\.py:\d+") as raised:
        model(x)
    assert re.search(words, str(raised.value))
    assert model.live_ids == []


@pytest.mark.parametrize("call", [
    "Swish.apply(x)", "Returned.apply(x)", "Enabled.apply(x)", "checkpoint(torch.tanh, x, use_reentrant=True)",
])  # fmt: skip
def test_what_code_without_a_source_calls_has_values_but_no_gradient(call):
    plain, model = pair(eval(f"lambda m, x: {call}", globals()))
    x = torch.randn(3, 8, dtype=torch.float64)
    with pytest.raises(NotStreamableError, match="can't be followed"):
        model(streams({"a": x}, "a", "a"))
    with torch.no_grad():
        assert_close(gathered([model(streams({"a": x}, "a", "a"))])["a"], plain(x[None])[0])


def test_weights_may_come_from_a_function_that_is_not_followed():
    class Net(nn.Linear):
        @property
        def signs(self):
            return OfWeights.apply(self.weight)

        def forward(self, x):
            return F.linear(x.transpose(1, 2), self.signs).transpose(1, 2)

    plain = Net(3, 3, bias=False).double()
    model = ds.patch_module(copy.deepcopy(plain), "full-file-aligned").online().train()
    x = torch.randn(3, 8, dtype=torch.float64)
    plain(x[None]).square().sum().backward()
    sum(model(y).square().sum() for y in calls({"a": x}, {"a": [3, 5]})).backward()
    assert_same_gradients(model, plain)


@pytest.mark.parametrize("name", ["a sum of frames", "a convolution", "a mean of gradients"])
def test_in_evaluation_values_are_right_and_a_backward_is_refused(name):
    plain, model = pair(REFUSED[name][0])
    model.eval()
    x = torch.randn(3, 8, dtype=torch.float64)
    ys = [model(streams({"a": part}, "a" * (n == 0), "a" * n)) for n, part in enumerate(x.split(5, 1))]
    assert_close(gathered(ys)["a"], plain(x[None])[0])
    with pytest.raises(NotStreamableError, match=OTHER_FRAMES):
        ys[0].sum().backward()


def test_a_function_that_was_right_with_one_frame_is_asked_again_of_each_place():
    _, model = pair(lambda m, x: backward_of(lambda g: g - g.mean(1, keepdim=True)).apply(x))
    with pytest.raises(NotStreamableError, match=OTHER_FRAMES):
        model(streams({"a": torch.randn(3, 1, dtype=torch.float64)}, "a"))


def test_gradients_may_begin_inside_a_forward():
    """As where a checkpoint wants an argument with a gradient, though nothing before it learns."""

    def middle(m, x):
        y = x.detach().requires_grad_()
        assert y.requires_grad and y.is_leaf and not x.is_leaf
        return checkpoint(m.block, y, use_reentrant=True)

    plain, model = pair(middle)
    x = torch.randn(3, 9, dtype=torch.float64)
    plain(x[None]).square().sum().backward()
    model(streams({"a": x}, "a", "a")).square().sum().backward()
    assert_same_gradients(model, plain)


@pytest.mark.filterwarnings("error")
def test_a_checkpoint_that_keeps_some_results_finds_no_hooks_of_the_user():
    kept = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
    plain, model = pair(lambda m, x: checkpoint(m.block, x, use_reentrant=False, context_fn=kept))
    x = torch.randn(3, 9, dtype=torch.float64)
    plain(x[None]).square().sum().backward()
    model(streams({"a": x}, "a", "a")).square().sum().backward()
    assert_same_gradients(model, plain)


def test_a_checkpoint_without_a_gradient_to_its_argument_has_none_as_in_torch():
    plain, model = pair(lambda m, x: checkpoint(m.block, x.detach(), use_reentrant=True) + x)
    x = torch.randn(3, 9, dtype=torch.float64)
    plain(x[None]).square().sum().backward()
    model(streams({"a": x}, "a", "a")).square().sum().backward()
    assert plain.block[0].weight.grad is None and model.block[0].weight.grad is None
    assert_same_gradients(model, plain)
