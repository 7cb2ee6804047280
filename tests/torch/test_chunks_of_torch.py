"""Torch's tensors as chunks: of every type, in engines and in patched modules; those that can't be read."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from turns import in_blocks

import dreamstream as ds
from dreamstream.errors import DTypeError, ShapeError

NUMBERS = [0, 3, 1, 2]
FLOATS = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def of(dtype):
    return torch.tensor(NUMBERS, dtype=torch.float32).to(getattr(torch, dtype))


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding.from_pretrained(torch.arange(9.0)[:, None])

    def forward(self, x):
        return self.table(x)[..., 0]


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 1, 3, bias=False)
        self.conv.weight.data = torch.tensor([[[1.0, 2.0, 4.0]]])

    def forward(self, x):
        return self.conv(x[:, None])[:, 0]


WANTED = Conv()(torch.tensor([NUMBERS], dtype=torch.float32))[0].detach().numpy()


def step(engine, chunk):
    got = engine.step({"a": chunk}, sos="a", eos="a")["a"]
    rows, _ = engine.step_batch(["a", "b"], [chunk, chunk], sos=True, eos=True)
    np.testing.assert_array_equal(rows, [got, got])
    return got


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool", "complex64"])
def test_engines_read_them_as_arrays(dtype):
    floats = ds.compile(Conv().eval(), ("B", "L"), verify=False)
    integers = ds.compile(Table().eval(), ("B", "L"), dtype="int64", verify=False)
    for engine, kinds, want in ((floats, FLOATS, WANTED), (integers, INTEGERS, np.float32(NUMBERS))):
        if dtype in kinds:
            np.testing.assert_array_equal(step(engine, of(dtype)), want)
        elif dtype == "int16":
            np.testing.assert_array_equal(step(engine, of(dtype)), want / 32768)
        else:
            with pytest.raises(DTypeError) as caught:
                engine.step({"ok": [], "a": of(dtype)}, sos=["ok", "a"])
            assert caught.value.ids == ("a",)


@pytest.mark.parametrize("dtype", [*FLOATS[:4], *INTEGERS, "bool", "complex64"])
def test_stream_tensors_of_floats_read_them_so_too(dtype):
    """A dtype of floats is an input of that type; without one the type is torch's."""
    make = lambda **options: ds.stream_tensor([of(dtype)], ids=["a"], sos=True, eos=True, **options)  # noqa: E731
    assert make().dtype == getattr(torch, dtype)
    if dtype in (*FLOATS, "int16"):
        want = WANTED / 32768 if dtype == "int16" else WANTED
        for wide in (torch.float32, torch.float64):
            model = ds.patch_module(Conv().to(wide).eval()).online()
            np.testing.assert_array_equal(model(make(dtype=wide))["a"].detach().numpy(), want)
    else:
        with pytest.raises(DTypeError) as caught:
            make(dtype=torch.float32)
        assert caught.value.ids == ("a",)
        with pytest.raises(DTypeError):
            ds.stream_tensor(of(dtype)[None], ids=["a"], dtype=torch.float32)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_indices_of_any_integers(dtype):
    model = ds.patch_module(Table().eval()).online()
    y = model(ds.stream_tensor([of(dtype)], ids=["a"], sos=True, eos=True))
    assert y["a"].tolist() == NUMBERS


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_floats_are_taken(dtype):
    """By a module of float32, alone, beside streams of float32, and in one batch with them; gradients flow."""
    model = ds.patch_module(Conv().eval()).online()
    narrow, wide = torch.tensor(NUMBERS).to(dtype), torch.tensor(NUMBERS, dtype=torch.float32)
    y = model(ds.stream_tensor([narrow], ids=["a"], sos=True))
    assert y.dtype == torch.float32
    np.testing.assert_array_equal(y["a"].detach().numpy(), WANTED)
    y = model(ds.stream_tensor([wide, narrow], ids=["b", "c"], sos=True))
    np.testing.assert_array_equal(y.detach().numpy(), [WANTED, WANTED])
    x = ds.stream_tensor([narrow], ids=["d"], sos=True, requires_grad=True)
    model(x).sum().backward()
    assert x.grad.dtype == dtype
    half = ds.patch_module(nn.Linear(1, 1).to(dtype).eval()).online()  # stays what it is
    x = ds.stream_tensor([narrow[:, None]], ids=["a"], sos=True, names=("B", "L", None))
    assert half(x).dtype == dtype


def quantized():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)


def nested():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


class Lost(torch.Tensor):
    """A subclass whose values can't be had."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError("device lost")


UNREADABLE = {
    "sparse": lambda: torch.ones(4).to_sparse(),
    "meta": lambda: torch.ones(4, device="meta"),
    "quantized": quantized,
    "nested": nested,
    "nested, jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "a subclass": lambda: torch.ones(4).as_subclass(Lost),
    "a list with one on another device": lambda: [torch.ones(()), torch.ones((), device="meta")],
    "requires grad": lambda: torch.ones(4, requires_grad=True),
    "complex": lambda: torch.ones(4, dtype=torch.complex64).conj(),
    "a stream tensor": lambda: ds.stream_tensor([torch.ones(4)], ids=["x"]),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_an_engine_cannot_read(name):
    engine = ds.compile(Conv().eval(), ("B", "L"), verify=False)
    twin = ds.compile(Conv().eval(), ("B", "L"), verify=False)
    for e in (engine, twin):
        e.step({"ok": of("float32")}, sos="ok")
    for call in (
        lambda: engine.step({"ok": of("float32"), "bad": UNREADABLE[name]()}, sos="bad"),
        lambda: engine.step_batch(["ok", "bad"], [of("float32"), UNREADABLE[name]()], sos=[False, True]),
        lambda: engine.stream("bad").step(UNREADABLE[name]()),
    ):
        with pytest.raises(DTypeError, match=r"^input x: ") as caught:
            call()
        assert caught.value.ids == ("bad",)
    assert engine.ids == ["ok"]
    np.testing.assert_array_equal(engine.step({"ok": [1.0]})["ok"], twin.step({"ok": [1.0]})["ok"])


@pytest.mark.parametrize("name", ["sparse", "meta", "quantized", "nested", "nested, jagged", "a subclass"])
def test_what_a_stream_tensor_cannot_read(name):
    for ids in (["ok", "bad"], ["bad", "ok"]):
        rows = [UNREADABLE[name]() if i == "bad" else of("float32") for i in ids]
        with pytest.raises(DTypeError) as caught:
            ds.stream_tensor(rows, ids=ids)
        assert caught.value.ids == ("bad",)


@pytest.mark.parametrize("name", ["sparse", "quantized", "nested", "complex", "text"])
def test_what_is_given_once_and_cannot_be_read(name):
    class Gain(nn.Module):
        def forward(self, x, gain):
            return x * gain

    model = ds.patch_module(Gain().eval()).online()
    bad = "loud" if name == "text" else UNREADABLE[name]()
    with pytest.raises(DTypeError) as caught:
        model(
            ds.stream_tensor([of("float32")] * 2, ids=["ok", "bad"], sos=True),
            ds.static({"ok": torch.ones(1), "bad": bad}),
        )
    assert caught.value.ids == ("bad",) and str(caught.value).startswith("input gain: ")
    for value in ([2.0], np.array([2], np.float16), np.float32([0, 2])[::-1][:1], torch.tensor([2.0])):
        y = model(ds.stream_tensor([of("float32")], ids=["a"], sos=True, eos=True), ds.static({"a": value}))
        np.testing.assert_array_equal(y["a"], np.float32(NUMBERS) * 2)


def test_views_are_read():
    """Conjugated and negated views, any strides, memory that is not aligned or shared."""
    z = torch.tensor([complex(n, -n) for n in NUMBERS])
    engine = ds.compile(Conv().eval(), ("B", "L"), verify=False)
    model = ds.patch_module(Conv().eval()).online()
    negated = z.conj().imag
    assert negated.is_neg()
    views = (
        negated,
        z.real,
        z.conj().real,
        of("float32").flip(0).flip(0),
        of("float32").expand(4),
        negated.clone(),
    )
    for view in views:
        np.testing.assert_array_equal(step(engine, view), WANTED)
        y = model(ds.stream_tensor([view], ids=["a"], sos=True, eos=True))
        np.testing.assert_array_equal(y["a"].detach().numpy(), WANTED)


def test_rows_that_differ():
    """Who is not as most are is named; of as many, those that start, integers among floats, and the later."""
    wide, whole = of("float32"), of("int64")
    for rows, sos, odd in (
        ([wide, wide, whole], True, "c"),
        ([whole, whole, wide], True, "c"),
        ([whole, wide], True, "a"),
        ([wide, whole], [True, False], "a"),
        ([wide, wide.double()], True, "b"),
    ):
        with pytest.raises(DTypeError, match="differ in dtype") as caught:
            ds.stream_tensor(rows, ids=list("abc"[: len(rows)]), sos=sos)
        assert caught.value.ids == (odd,)
    with pytest.raises(ShapeError, match="differ in number of dimensions") as caught:
        ds.stream_tensor([wide, wide, wide[None]], ids=list("abc"))
    assert caught.value.ids == ("c",)
    with pytest.raises(DTypeError, match="arrays and torch's tensors") as caught:
        ds.stream_tensor([wide, wide, wide.numpy()], ids=list("abc"))
    assert caught.value.ids == ("c",)


class Native(ds.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = ds.nn.Linear(2, 1)

    def forward(self, x):
        return self.linear(x)


@pytest.mark.parametrize("kind", ["torch", "native"])
@pytest.mark.parametrize("before", ["nothing", "others, which have ended"])
def test_first_calls_of_which_all_rows_are_wrong(kind, before):
    """Nothing is live that could say what is right, and yet the rows are named, so that a server can drop them."""
    model = ds.patch_module(nn.Linear(2, 1).eval() if kind == "torch" else Native()).online()
    ok, options = torch.ones(3, 2), {"names": ("B", "L", None), "sos": True}
    wrong = [
        ok.double(),
        ok.long(),
        ok > 0,
        torch.ones(3, 4),
        torch.ones(3),
        torch.ones(3, 2, dtype=torch.complex64),
    ]

    def given(x):
        return x if kind == "torch" else x.numpy()

    if before != "nothing":
        model(ds.stream_tensor([given(ok)], ids=["ok"], eos=True, **options))
    for bad in wrong:
        with pytest.raises((DTypeError, ShapeError)) as caught:
            model(ds.stream_tensor([given(bad)] * 2, ids=["b", "c"], **options))
        assert caught.value.ids == ("b", "c"), bad.dtype
    assert not model.live_ids
    assert model(ds.stream_tensor([given(ok)], ids=["ok"], **options))["ok"].shape == (3, 1)


def test_a_model_that_never_streams_blames_nobody():
    class Backwards(nn.Module):
        def forward(self, x):
            return x.flip(2)

    model = ds.patch_module(Backwards()).online()
    with pytest.raises(ds.NotStreamableError) as caught:
        model(ds.stream_tensor([torch.ones(2, 9)], ids=["a"], sos=True, names=("B", None, "L")))
    assert caught.value.ids == ()


#: Beside narrow frames a number, a tensor without dimensions, integers and bools take their type; others have
#: their own.
NARROW = {
    "times": lambda x: x * 2.3,
    "less": lambda x: 2.7 - x,
    "over": lambda x: 1 / (x.abs() + 3),
    "modulo": lambda x: x % 0.3,
    "where": lambda x: torch.where(x > 0, x, 0.3),
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.1),
    "maximum of a tensor without dimensions": lambda x: torch.maximum(x, torch.tensor(0.3)),
    "times a tensor without dimensions": lambda x: x * torch.tensor(2.3),
    "times a tensor": lambda x: x * torch.full((3,), 2.3),
    "cat": lambda x: torch.cat([x, x * 0.1], -1),
    "times bools": lambda x: x * (x > 0),
    "integers over": lambda x: (x * 9).long() / (x.abs() + 3),
    "less narrow integers": lambda x: x - (x * 9).to(torch.uint8),
    "maximum of integers": lambda x: torch.maximum(x, x.argmax(-1, keepdim=True)),
    "where integers": lambda x: torch.where(x > 0, x, (x * 9).int()),
    "times a table of integers": lambda x: x * torch.arange(3),
    "a power of integers": lambda x: x.abs() ** (x * 2).long(),
    "integers beside float32": lambda x: x.float() * (x > 0),
    "leaky": lambda x: nn.functional.leaky_relu(x, 0.13) + nn.LeakyReLU(0.3)(x),
    "sums of multiples": lambda x: torch.add(x, x * 0.7, alpha=0.3) - x.sub(x * 0.3, alpha=0.7),
    "positions": lambda x: x + (torch.arange(x.size(1), dtype=x.dtype) / 3)[:, None],
    "roots of positions": lambda x: x * (1 / (torch.arange(x.size(1)).to(x) + 3)).sqrt()[:, None],
    "powers of a tensor": lambda x: x * torch.pow(x.new_tensor(0.9), torch.arange(x.size(1)))[:, None],
    "one number for all frames": lambda x: x + torch.full((x.size(0), x.size(1), 1), 0.1, dtype=x.dtype).sin(),
    "sums of one number": lambda x: x * (torch.ones(x.size(1), dtype=x.dtype) * 0.1).sin()[:, None],
    "a table of numbers": lambda x: x.new_tensor([0.3, 0.1, 0.7]) * x,
    "filled": lambda x: x + torch.zeros_like(x).fill_(0.1) + x.clone().zero_(),
    "copied from float32": lambda x: x.clone().copy_(x.float() * 1.7),
    "float32 added in place": lambda x: x.clone().add_(torch.linspace(0, 1, 3).to(x.dtype)).mul_(x * 1.1),
    "written into": lambda x: written_into(x.clone(), x.float() * 1.7),
    "written into where a mask holds": lambda x: x.clone().masked_fill_(x > 0, 0.3).clamp_(-0.7, 0.7),
    "computed in float32": lambda x: x.softmax(-1, dtype=torch.float32) - x.sum(-1, True, dtype=torch.float32),
    "like it, in float32": lambda x: torch.empty_like(x, dtype=torch.float32).copy_(x) * 1.7,
    "between frames": lambda x: nn.functional.interpolate(x.mT, scale_factor=2, mode="linear").mT * 2,
    "a row for each stream": lambda x: x + torch.ones(x.size(0), 1, 3).to(x) / torch.full((3,), 3).type_as(x),
    "a step": lambda x: torch.heaviside(x, x.new_tensor(0.3)),
}


def written_into(y, z):
    y[..., 0] = z[..., 1]
    y[:, 1:] = z[:, :-1]
    y[..., :2] += torch.tensor([0.1, 0.3], dtype=y.dtype)
    y[y > 1] = 0.3
    return y


@in_blocks("dtype", [torch.float16, torch.bfloat16, torch.float64], 6)
@pytest.mark.parametrize("function", NARROW.values(), ids=NARROW)
def test_numbers_take_the_type_of_frames_in_a_forward(function, dtype):
    class Narrow(nn.Module):
        def forward(self, x):
            return function(x.to(dtype))

    x, net = torch.randn(1, 9, 3), Narrow()
    expected = net(x)[0]
    net = ds.patch_module(net).online()
    y = net(ds.stream_tensor(x, names=("B", "L", None), ids=["a"], sos=True, eos=True))["a"]
    torch.testing.assert_close(y, expected, rtol=0, atol=0)
