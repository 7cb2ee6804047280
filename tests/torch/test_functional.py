"""Functions that torch has no name for, on torch streams; and names that torch gives to several functions."""

import copy

import pytest
import torch
from torch import nn

import dreamstream as ds
from dreamstream.errors import ModeError, NotStreamableError
from dreamstream.nn.functional import padding
from dreamstream.torch import functional


class Framed(nn.Module):
    """Whole frames, their running means, and the frames laid over each other again."""

    def forward(self, x):
        frames = functional.pad_to_multiple(x, multiple=4).unfold(2, 4, 4)
        return functional.overlap_add(frames, 4) + 1, functional.cumulative_mean(frames)


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 3, 3, 2)

    def forward(self, x):
        return self.conv(functional.pad_to_multiple(x, 2, (1, 0), "reflect"))


def test_warm_calls_ask_nothing_again(monkeypatch):
    torch.manual_seed(0)
    plain = Conv().eval()
    model, x = ds.patch_module(copy.deepcopy(plain)).online(), torch.randn(1, 3, 24)
    asked, apply = [], padding.apply
    monkeypatch.setattr(padding, "apply", lambda *given: asked.append(given[0]) or apply(*given))
    for _ in range(2):
        asked.clear()  # the first calls look at what is drawn at random
        with torch.no_grad():
            ys = [
                model(ds.stream_tensor([x[0, :, a : a + 4]], ids=["a"], sos=a == 0, eos=a == 20))["a"]
                for a in range(0, 24, 4)
            ]
            want = plain.conv(nn.functional.pad(x, (1, 0), mode="reflect"))[0]
        assert torch.allclose(torch.cat(ys, 1), want, atol=1e-6)
    assert not asked


def test_inside_a_forward():
    x = torch.randn(2, 3, 10, generator=torch.Generator().manual_seed(0))
    model = ds.patch_module(Framed()).online()
    parts = []
    for begin, end in ((0, 3), (3, 9), (9, 10)):
        chunk = ds.stream_tensor(x[..., begin:end], ids=["a", "b"], sos=begin == 0, eos=end == 10)
        parts.append(model(chunk))
    padded = torch.nn.functional.pad(x, (0, 2))
    assert torch.equal(torch.cat([y.tensor() for y, _ in parts], 2), padded + 1)
    frames = padded.unfold(2, 4, 4)
    means = frames.cumsum(2) / torch.arange(1, 4).reshape(3, 1)
    torch.testing.assert_close(torch.cat([z.tensor() for _, z in parts], 2), means)


def test_gradients_flow():
    x = torch.randn(1, 2, 7, dtype=torch.float64)
    x = ds.stream_tensor(x, ids=["a"], sos=True, eos=True, requires_grad=True)

    class Padded(nn.Module):
        def forward(self, x):
            return functional.pad_to_multiple(x, 4, (3, 0), "reflect")

    y = ds.patch_module(Padded()).online()(x)
    y.tensor().square().sum().backward()
    times = torch.tensor([1.0, 2, 2, 2, 1, 2, 1])  # three frames in the mirror at the start, one at the end
    assert torch.allclose(x.grad, 2 * x.detach().tensor() * times, atol=1e-12)


def test_outside_a_forward():
    with pytest.raises(ModeError, match=r"streams inside an online forward only, at test_functional\.py"):
        functional.pad_to_multiple(torch.zeros(1, 1, 5), 4)


@pytest.mark.parametrize(
    ("at", "says"),
    [
        (lambda table, i: table[:, i], r"an index of a constant by a stream, at test_functional\.py.*one_hot"),
        (lambda table, i: table[i > 1], r"an index of a constant by a stream, at .*table\[index\]"),
        (lambda table, i: table.long()[i], "an index of a constant by a stream, at .*of floats"),
        (lambda table, i: table[torch.where(i == 1)], "torch.where of a condition alone .*@ds.register"),
    ],
)
def test_rows_that_a_stream_names(at, says):
    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.randn(4, 5))

        def forward(self, x):
            return at(self.table, x.argmax(-1))

    with pytest.raises(NotStreamableError, match=says):
        ds.compile(Rows(), ("B", "L", 4))


def test_rows_by_one_hot():
    """What the refusal advises."""

    class Rows(nn.Module):
        def forward(self, x):
            return nn.functional.one_hot(x.argmax(-1), 4).float() @ table

    table, x = torch.randn(4, 5), torch.randn(9, 4)
    out = ds.compile(Rows(), ("B", "L", 4)).step({"a": x.numpy()}, sos="a", eos="a")["a"]
    assert torch.equal(torch.from_numpy(out), table[x.argmax(-1)])


class Norms(nn.Module):
    """Of each frame, of vectors and then of matrices, with extremes; and those of the stream at its end."""

    def forward(self, x):
        norm, inf = torch.linalg.norm, float("inf")
        of_frames = [
            torch.linalg.vector_norm(x, ord=1, dim=(1, 2)),
            torch.norm(x, 2, dim=(1, 2), dtype=torch.float32),
            norm(x, None, 1),
            norm(x, 3, dim=[2]),
            *x.aminmax(dim=1),
            *(norm(x, p, dim=(2, 1), keepdim=p == inf) for p in (1, -1, inf, -inf)),
        ]
        extremes = torch.aminmax(x, dim=3, keepdim=True)
        at_the_end = [torch.linalg.vector_norm(x=x, dim=3), norm(x, 1, (2, 3)), norm(x, inf, (3, 1))]
        return of_frames, [*at_the_end, extremes.max - extremes.min]


def test_norms_are_of_vectors_or_of_matrices_as_torch_has_them():
    x = torch.randn(1, 4, 3, 9, generator=torch.Generator().manual_seed(0))
    model, engine = ds.patch_module(Norms()).online(), ds.compile(Norms(), ("B", 4, 3, "L"))
    eager, stepped = [], []
    for a, b in ((0, 2), (2, 3), (3, 9)):
        sos, eos, names = a == 0, b == 9, ("B", "C", "D", "L")
        out = model(ds.stream_tensor(x[..., a:b], ids=["a"], sos=sos, eos=eos, names=names))
        eager.append([[y["a"] for y in part] for part in out])
        out = engine.step({"a": x[0, ..., a:b].numpy()}, sos=["a"] * sos, eos=["a"] * eos)["a"]
        stepped.append([[torch.from_numpy(y) for y in part] for part in out])
    of_frames, at_the_end = Norms()(x)
    for outs in (eager, stepped):
        for i, want in enumerate(of_frames):
            torch.testing.assert_close(torch.cat([out[0][i] for out in outs], -1), want[0])
        for i, want in enumerate(at_the_end):
            torch.testing.assert_close(outs[-1][1][i].reshape(want[0].shape), want[0])


@pytest.mark.parametrize(
    ("forward", "error", "words"),
    [
        (
            lambda x: (x > 0).mean(2),
            ds.DTypeError,
            r"mean at test_functional\.py.*got bool; convert it with \.float",
        ),
        (
            lambda x: x.long().var(2),
            ds.DTypeError,
            r"var at test_functional\.py.*got int64; convert it with \.float",
        ),
        (lambda x: x[:, 3:], ds.ShapeError, r"\[3:3\] of 3 features at test_functional\.py.*keeps none"),
        (
            lambda x: x.split([3, 0], 1)[1],
            ds.ShapeError,
            r"\[3:3\] of 3 features at test_functional\.py.*keeps none",
        ),
    ],
)
def test_what_no_operator_takes_is_said_in_the_words_of_the_forward(forward, error, words):
    model = type("Model", (nn.Module,), {"forward": lambda self, x: forward(x)})()
    with pytest.raises(error, match=words):
        ds.compile(model, ("B", 3, "L"))
    with pytest.raises(error, match=words):
        ds.patch_module(model).online()(ds.stream_tensor([torch.ones(3, 5)], ids=["a"], sos=True))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum"])
def test_a_parameter_takes_a_stream_by_keyword(name):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4))

        def forward(self, x):
            return getattr(torch, name)(self.weight, other=x)

    model, x = Model(), torch.randn(9, 4)
    engine = ds.compile(model, ("B", "L", 4))
    got = [engine.step({"s": x[:4].numpy()}, sos="s")["s"], engine.step({"s": x[4:].numpy()}, eos="s")["s"]]
    assert torch.equal(torch.cat([torch.as_tensor(y) for y in got]), model(x).detach())
