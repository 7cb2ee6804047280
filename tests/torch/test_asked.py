"""No function, method or operator gives an error of Python's or torch's own for a stream, or what stands for one.

Each gives a value, or is refused by an error that names the line. What is asked is drawn anew for every kind of
thing, in one way of running by turns; the slow tier asks everything in every way.
"""

import inspect
import re
import warnings

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
import torch.nn.functional as F
from asked import OPERATORS, answers, asking, few, functions, kinds
from torch import nn
from torch.overrides import get_testing_overrides, resolve_name
from turns import by_turns

import dreamstream as ds
from dreamstream.array.stream_tensor import StreamTensor as NativeStream

#: Asked of each kind.
FEW = 40
#: What concerns no tensor, or the process and its devices.
ELSEWHERE = re.compile(
    r"^torch\.(set_|get_|manual_seed|seed|init|use_det|compile|save|load|import|export|autocast|from_file|vmap|cond|"
    r"typename|prepare|unify|fork|wait|thread|is_grad|is_inf|are_det|clear_auto|frombuffer|is_autocast|increment|hub|_)|"
    r"Tensor\.(_|share_memory_|map_|map2_|apply_|register|cuda|xpu|mtia|ipu|hpu|backward|rename)|unsafe|boolean_dispatch|"
    r"assert_int_or_pair|handle_torch_function|has_torch_function"
)


def of_torch():
    """Give torch's functions and methods of tensors, with a function that has their arguments."""
    known = get_testing_overrides()
    found = {resolve_name(f) or f.__name__: (f, like) for f, like in known.items()}
    for home in (torch.Tensor, F, torch.special, torch.fft, torch.linalg):
        for name in dir(home):
            f = getattr(home, name)
            if name.startswith("_") or not callable(f) or inspect.isclass(f) or f in known:
                continue
            called = (lambda x, *a, _name=name: getattr(x, _name)(*a)) if home is torch.Tensor else f
            found[f"{home.__name__}.{name}"] = called, lambda input, *_: None
    for name, (f, like) in found.items():
        if not ELSEWHERE.search(name):
            yield name, f, like


FUNCTIONS = list(functions(of_torch()))
WAYS = ("evaluated", "trained", "compiled")


def all_kinds(x, lengths):
    return kinds(torch, x, lengths, {
        "complex": lambda: torch.complex(x, x + 1),
        "length as a tensor": lambda: torch.tensor(x.size(2)),
        "shape as a tensor": lambda: torch.tensor(x.shape),
        "truths of the batch": lambda: torch.ones(x.size(0), x.size(2), dtype=torch.bool),
        "parameter of the batch": lambda: torch.linspace(0, 1, 4)[None].expand(x.size(0), -1),
    })  # fmt: skip


KINDS = tuple(all_kinds(torch.zeros(2, 4, 3), torch.tensor([3, 3])))


def plain_things():
    return torch.linspace(-1, 1, 24).reshape(2, 4, 3), torch.tensor([3, 3]), torch.ones(4, 1)


Asks = asking(nn, all_kinds, plain_things)


def run(kind, way, cases):
    return answers(Asks(kind, cases), way, [torch.randn(4, 5), torch.randn(4, 7)])


@pytest.mark.parametrize(("kind", "way"), by_turns(KINDS, WAYS))
def test_a_value_or_the_line(kind, way):
    assert run(kind, way, few(OPERATORS, FEW, kind, way) + few(FUNCTIONS, FEW, kind, way)) == []


#: What gives other numbers each time, or memory as it was.
RANDOM = re.compile(
    r"dropout|rand|bernoulli|poisson|normal|multinomial|exponential|cauchy|geometric|uniform|rrelu|empty"
)
STREAMS = ("stream", "transposed", "one feature", "integers", "truths", "pooled", "joined", "complex")


class Gives(Asks):
    """Returns what the cases give that is a stream, by their labels."""

    def forward(self, x, lengths):
        make, plain, given = all_kinds(x, lengths)[self.kind], torch.ones(4, 1), {}
        for label, case in self.cases:
            try:
                found = self.inside(x, lambda case=case: case(make, x, plain))
                streams = found if isinstance(found, (list, tuple)) else [found]
                for i, y in enumerate(streams):
                    if type(getattr(y, "_inner", None)) is NativeStream and y._inner.as_output() is not None:
                        given[label, i] = y
            except Exception:
                continue
        return given


def values_that_differ(kind, cases):
    """Return what of the cases gives another value than torch's, of two streams of one length."""
    whole, out = torch.randn(2, 4, 7, generator=torch.Generator().manual_seed(3)), []
    make, asked = all_kinds(whole, torch.tensor([7, 7]))[kind], dict(cases)
    model = ds.patch_module(Gives(kind, cases)).online().eval()
    x = ds.stream_tensor(list(whole), ids=["a", "b"], sos=True, eos=True)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        given = model(x, ds.lengths_of(x))
        for (label, i), y in given.items():
            try:
                want = asked[label](make, whole, torch.ones(4, 1))
            except Exception:  # no model has it
                continue
            want, got = want[i] if isinstance(want, (list, tuple)) else want, y.tensor()
            same = got.shape == want.shape and torch.allclose(got.double(), want.double(), 1e-4, 1e-4, True)
            out += [] if same else [f"{label}: {tuple(got.shape)}, {tuple(want.shape)}"]
    assert given
    return out


@pytest.mark.parametrize("kind", STREAMS)
def test_values(kind):
    cases = [case for case in (*OPERATORS, *FUNCTIONS) if not RANDOM.search(case[0])]
    assert values_that_differ(kind, few(cases, 6 * FEW, kind, "values")) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", STREAMS)
def test_all_values(kind):
    assert values_that_differ(kind, [c for c in (*OPERATORS, *FUNCTIONS) if not RANDOM.search(c[0])]) == []


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_everything(kind, way):
    assert run(kind, way, (*OPERATORS, *FUNCTIONS)) == []


class Does(nn.Module):
    def __init__(self, does):
        super().__init__()
        self.does = does
        self.register_buffer("past", torch.zeros(8, 4, 3))

    def forward(self, x, lengths):
        return self.does(self, x, lengths)


def attended(x, hidden):
    q = x.transpose(1, 2)
    return (q @ x).masked_fill(hidden(q @ x), -1e9).softmax(-1) @ q


def shifted_lengths(m, x, lengths):
    x, lengths = x.unfold(2, 2, 2).mean(-1), lengths >> 1
    return x + torch.arange(0, max(0, lengths.max()))


@pytest.mark.parametrize(
    "does",
    [
        lambda m, x, lengths: (x * 1).unsqueeze_(1).squeeze_(1),
        lambda m, x, lengths: (x * 1).transpose_(1, 2) * 2,
        lambda m, x, lengths: (x * 1).swapaxes_(-1, 1) * 2,
        lambda m, x, lengths: (x * 1)[:, 0].t_().t(),
        lambda m, x, lengths: torch.diff(x, dim=2, prepend=torch.zeros(x.size(0), 4, 1)),
        lambda m, x, lengths: torch.diff(x, dim=2, append=torch.zeros(x.size(0), 4, 1)),
        lambda m, x, lengths: torch.diff(x, dim=1, prepend=x[:, :1], append=x[:, -1:]),
        lambda m, x, lengths: torch.hstack([x, torch.zeros(x.size(0), 1, x.size(2)), x * 2]),
        lambda m, x, lengths: torch.dstack([x[..., :1], x[..., 1:] * 2]),
        lambda m, x, lengths: torch.column_stack([x, x]),
        lambda m, x, lengths: torch.vstack([x.transpose(0, 1)] * 2).transpose(0, 1),
        lambda m, x, lengths: torch.cat(torch.tensor_split(x, 3, dim=1)[::-1], 1),
        lambda m, x, lengths: torch.dsplit(x, [1])[1] - x[..., :1],
        lambda m, x, lengths: x.hsplit([1])[1],
        lambda m, x, lengths: torch.clamp(input=torch.arange(x.size(2)), max=3) * x,
        lambda m, x, lengths: torch.remainder(input=torch.arange(x.size(2)), other=3) * x,
        lambda m, x, lengths: torch.sub(input=x, other=x[..., :1]),
        shifted_lengths,
    ],
)
def test_what_gives_values(does):
    whole = torch.randn(1, 4, 9)
    want = Does(does)(whole, torch.tensor([9]))
    engine = ds.compile(Does(does), {"x": ("B", 4, "L"), "lengths": ds.lengths_of("x")})
    online, out = ds.patch_module(Does(does)).online(), []
    for at, n in ((0, 4), (4, 0), (4, 5)):
        x = ds.stream_tensor([whole[0, :, at : at + n]], ids=["a"], sos=at == n - 4 == 0, eos=n == 5)
        out.append(online(x, ds.lengths_of(x)).tensor())
    stacked = torch.cat(out, next(i for i, n in enumerate(want.shape) if n != out[0].shape[i]))
    assert torch.allclose(stacked, want, atol=1e-6)
    got = engine.step({"a": {"x": whole[0].numpy()}}, sos=["a"], eos=["a"])["a"]
    assert np.abs(got - want[0].numpy()).max() <= 1e-6


@pytest.mark.parametrize(
    ("does", "says"),
    [
        (lambda m, x, lengths: attended(x, lambda s: s < 0), "lt of scores of .* the frames' values"),
        (lambda m, x, lengths: attended(x, lambda s: s <= 0), "le of scores of attention"),
        (lambda m, x, lengths: x.as_strided((2, 2), (1, 1)), "as_strided"),
        (lambda m, x, lengths: x.resize_(2, 3), "resize_"),
        (lambda m, x, lengths: x.set_(x), "set_"),
        (lambda m, x, lengths: torch.cat([m.past[: x.shape[0]], x], 2), "rows would be those of other streams"),
        (lambda m, x, lengths: m.past[: x.shape[0]].copy_(x), "rows would be those of other streams"),
    ],
)  # fmt: skip
def test_what_is_refused(does, says):
    x = ds.stream_tensor([torch.randn(4, 9)], ids=["a"], sos=True)
    raised = []
    for call in (
        lambda: ds.patch_module(Does(does)).online()(x, ds.lengths_of(x)),
        lambda: ds.compile(Does(does), {"x": ("B", 4, "L"), "lengths": ds.lengths_of("x")}),
    ):
        with pytest.raises(ds.NotStreamableError, match=says) as error, torch.no_grad():
            call()
        raised.append(error.value)
    assert type(raised[0]) is type(raised[1]) and str(raised[0]) == str(raised[1])
    assert "test_asked.py:" in str(raised[0])


def test_errors_are_what_they_were_too():
    def asks(m, x, lengths):
        for kind, ask in ((ds.NotStreamableError, lambda: x.resize_(2)), (ValueError, lambda: x.clamp())):
            with pytest.raises(kind, match=r"test_asked\.py:\d+"):
                ask()
        with pytest.raises(ValueError, match="a user's own") as own:
            raise ValueError("a user's own")
        assert type(own.value) is ValueError
        return x * 1

    x = ds.stream_tensor([torch.randn(4, 9)], ids=["a"], sos=True)
    ds.patch_module(Does(asks)).online()(x, ds.lengths_of(x))


def test_masks_of_nemo_hide_nothing():
    """A class of that name asks for lengths, to mask what pads a batch."""

    class MaskedConv1d(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.use_mask, self.max_len = torch.nn.Conv1d(3, 4, 5, padding=2), True, 0

        def forward(self, x, lens):
            if self.use_mask and x.size(2) > self.max_len:
                self.max_len = x.size(2)
                x = x * (torch.arange(self.max_len) < lens[:, None])[:, None]
            return self.conv(x), lens

    MaskedConv1d.__module__ = "nemo.collections.asr.parts.submodules.jasper"
    MaskedConv1d.__qualname__ = "MaskedConv1d"

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.masked = MaskedConv1d()

        def forward(self, x):
            return self.masked(x, torch.full((x.size(0),), x.size(2)))[0]

    model, x = Net().eval(), torch.randn(1, 3, 11)
    engine = ds.compile(model, ("B", 3, "L"))
    y = [
        engine.step({"a": x[0, :, n : n + 4].numpy()}, sos=["a"] * (n == 0), eos=["a"] * (n == 8))["a"]
        for n in (0, 4, 8)
    ]
    with torch.no_grad():
        want = model.masked.conv(x)[0]
    torch.testing.assert_close(torch.from_numpy(np.concatenate(y, 1)), want)
    assert model.masked.use_mask and model.masked.max_len == 0
