"""Weights that several layers share: held once, whatever their uses are, with the bits of separate ones."""

import copy

import numpy as np
import pytest
from same_bits import content

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import _core, nn

N, TIMES = 64, 12
HEADS = 512  # bytes that a use takes besides, at most, for each of its matrices

LAYERS = {
    "linear": lambda: nn.Linear(N, N),
    "conv1d": lambda: nn.Conv1d(N, N, 3, padding=1),
    "grouped": lambda: nn.Conv1d(N, N, 3, padding=1, groups=2),
    "depthwise": lambda: nn.Conv1d(N, N, 9, padding=4, groups=N),
    "transposed": lambda: nn.ConvTranspose1d(N, N, 3, padding=1),
    "lstm": lambda: nn.LSTM(N, N, batch_first=True),
    "gru": lambda: nn.GRU(N, N, num_layers=2, batch_first=True),
}
OWN = [b["name"] for b in _core.config()["backends"] if b["usable"] and "+" not in b["name"]]


class Stack(nn.Module):
    """Layers in turn, between steps that are fused to their products."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            if isinstance(layer, (nn.LSTM, nn.GRU)):
                y = layer(x)[0]
            elif isinstance(layer, nn.Linear):
                y = layer(x)
            else:
                y = layer(x.transpose(1, 2)).transpose(1, 2)
            x = y.tanh() if i % 3 == 0 else x + y if i % 3 == 1 else y
        return x


def engines(make, **options):
    """Engines of one use, of many of one layer, and of as many layers that have its weights each."""
    ds.manual_seed(1)
    layer = make()
    many = [layer] * TIMES
    for model in (Stack([layer]), Stack(many), Stack([copy.deepcopy(x) for x in many])):
        yield ds.compile(model.eval(), ("B", "L", N), verify=False, **options)


def streamed(engine):
    x = np.random.default_rng(0).standard_normal((40, N)).astype(np.float32)
    parts = [engine.step({"a": x[:17]}, "a")["a"], engine.step({"a": x[17:]}, eos="a")["a"]]
    return np.concatenate(parts)


@pytest.mark.parametrize("backend", OWN)
@pytest.mark.parametrize("name", LAYERS)
def test_many_uses_take_what_one_does(name, backend):
    once, many, apart = engines(LAYERS[name], backend=backend)
    matrices = 2 * sum(p.numpy().ndim > 1 for p in LAYERS[name]().parameters())
    assert many.weights_size - once.weights_size <= TIMES * matrices * HEADS
    if backend != "ref":
        assert apart.weights_size > TIMES * once.weights_size * 0.9
    y = streamed(many)
    np.testing.assert_array_equal(y, streamed(apart))
    again = ds.load(content(many), backend=backend)
    assert again.weights_size - once.weights_size <= TIMES * matrices * HEADS
    np.testing.assert_array_equal(y, streamed(again))
    assert content(again) == content(many) and len(content(many)) < 2 * len(content(once)) + 20000


@pytest.mark.parametrize(
    "options",
    [{"weights": "fp16"}, {"weights": "bf16"}, {"weights": "int8"}, {"products": "bf16"}, {"products": "int8"}],
    ids=lambda o: "-".join((*o, *o.values())),
)
def test_narrow_ones_too(options):
    once, many, apart = engines(LAYERS["linear"], **options)
    assert many.weights_size - once.weights_size <= TIMES * HEADS
    np.testing.assert_array_equal(streamed(many), streamed(apart))


def test_layers_that_differ_around_a_weight():
    """Of one matrix several kernels read: what has the same layout is held once, whatever else is said of it."""

    class Several(nn.Module):
        def __init__(self, dilations):
            super().__init__()
            self.conv = nn.Conv1d(N, N, 3)
            self.biases = nn.ParameterList([nn.Parameter(np.full(N, i, np.float32)) for i in range(8)])
            self.dilations = dilations

        def forward(self, x):
            for bias, dilation in zip(self.biases, self.dilations, strict=False):
                pad = (2 * dilation, 0)
                x = F.conv1d(F.pad(x, pad), self.conv.weight, bias, dilation=dilation).tanh()
            return x

    few, many = (
        ds.compile(Several(d).eval(), ("B", N, "L"), verify=True) for d in ([1, 2], [1, 2, 3, 4, 5, 6, 7, 8])
    )
    assert many.weights_size - few.weights_size <= 6 * (HEADS + 4 * N)


def test_a_copy_and_a_closed_engine_leave_the_others_alone():
    _, many, apart = engines(LAYERS["linear"])
    y = streamed(apart)
    other = copy.copy(many)
    many.close()
    np.testing.assert_array_equal(streamed(other), y)


def test_one_node_may_have_a_weight_twice():
    """Both of its matrices are packed, so that the raw weight, which nobody else reads raw, is given back."""
    rng = np.random.default_rng(0)
    weight, bias = rng.standard_normal((4 * N, N)).astype(np.float32), np.zeros(4 * N, np.float32)

    def engine(*names):
        graph = _core.Graph()
        x = graph.input(("float32", (N,), 1, 1))
        own = {name: weight.copy() for name in names}
        (y,) = graph.node("linear", {}, [x], [own[names[0]]], "", names[:1])
        arrays = [*(own[name] for name in names[1:]), bias, bias]
        h, *_ = graph.node("lstm", {}, [x], arrays, "", (*names[1:], "b", "b"))
        graph.output(y)
        graph.output(h)
        return _core.Engine(graph)

    shared, apart = engine("w", "w", "w"), engine("u", "v", "w")
    assert apart.weights_size - shared.weights_size == 2 * weight.nbytes
    for node in shared.graph()["nodes"]:
        for named in node["weights"]:
            if named and named[0] == "w":
                np.testing.assert_array_equal(named[1], weight)
