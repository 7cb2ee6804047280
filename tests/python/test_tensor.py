"""Plain tensors: element types, memory, operands, refusals."""

import copy
import pickle
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

import dreamstream as ds
from dreamstream.array import Tensor, dtypes, hook, views
from dreamstream.array.batch_constants import is_constant
from dreamstream.array.library import NATIVE
from dreamstream.errors import DTypeError, ModeError, NotStreamableError, ShapeError, StreamIndexError
from dreamstream.stream.rules import BatchSize, Length


class Edge:
    """An edge as tokens want it."""

    cid = ("entry", 0)
    rate = Fraction(1)
    entry = SimpleNamespace(library=NATIVE)

    misuse = staticmethod(NotStreamableError.here)


B, L = BatchSize(Edge()), Length(Edge())


class FakeStream(Tensor):
    """A stream as far as operands are concerned."""

    is_stream = True


@pytest.fixture
def calls(monkeypatch):
    """What goes through the door; nothing is computed."""
    seen = []

    def record(name, attributes, inputs, weights, dims):
        seen.append((name, dict(attributes), tuple(inputs), tuple(weights), dims))
        return (inputs[0],)

    monkeypatch.setattr(hook, "apply", record)
    return seen


# ---------------------------------------------------------------------- element types


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        ([1, 2], np.float32),
        ([[1.5], [2]], np.float32),
        (3, np.float32),
        (2.5, np.float32),
        ([True, False], np.bool_),
        (True, np.bool_),
        ([], np.float32),
        (np.arange(3), np.int64),
        (np.arange(3, dtype=np.int16), np.int64),
        (np.arange(3, dtype=np.uint8), np.int64),
        (np.ones(2), np.float64),
        (np.ones(2, np.float32), np.float32),
        (np.ones(2, ">f4"), np.float32),
        (np.ones(2, bool), np.bool_),
        (np.float64(3), np.float32),
    ],
)
def test_element_type_of_data(data, dtype):
    t = ds.tensor(data)
    assert t.dtype == dtype
    assert t.dtype.isnative
    np.testing.assert_array_equal(t.numpy(), np.asarray(data))


@pytest.mark.parametrize("dtype", [np.float16, np.complex64, "U3", object, "M8[s]"])
def test_element_types_refused(dtype):
    with pytest.raises(DTypeError):
        ds.tensor(np.zeros(2, dtype))


def test_large_unsigned_refused():
    assert ds.tensor(np.array([2**63 - 1], np.uint64)).tolist() == [2**63 - 1]
    with pytest.raises(DTypeError):
        ds.tensor(np.array([2**63], np.uint64))


@pytest.mark.parametrize("name", ["float32", "float", "double", "long", "bool", "int64"])
def test_names_of_element_types(name):
    assert ds.tensor([1.0], dtype=name).dtype == dtypes.as_dtype(name)


@pytest.mark.parametrize("name", ["float16", "int32", "complex64", np.float16, "cuda", 3])
def test_unknown_element_types(name):
    with pytest.raises(DTypeError):
        ds.tensor([1.0], dtype=name)
    if isinstance(name, str) and name != "complex64" and name != "cuda":
        with pytest.raises(DTypeError):
            ds.tensor([1.0]).to(name)


def test_half_can_be_converted_explicitly():
    assert ds.tensor(np.ones(2, np.float16), dtype="float32").tolist() == [1, 1]
    with pytest.raises(DTypeError):
        ds.tensor([1.0]).half()


def test_floats_do_not_mix():
    a, b = ds.tensor([1.0]), ds.tensor(np.ones(1))
    for mix in (
        lambda: a + b,
        lambda: a.minimum(b),
        lambda: a == b,
        lambda: ds.where(a > 0, a, b),
        lambda: a + np.ones(1),
        lambda: ds.cat([a, b]),
        lambda: ds.stack([a, b]),
        lambda: a @ b,
        lambda: a.equal(b),
        lambda: a.clamp(min=b),
        lambda: a.clone().add_(b),
    ):
        with pytest.raises(DTypeError, match=r"float32.*float64"):
            mix()


def test_numbers_adopt_the_tensors_type():
    for dtype in (np.float32, np.float64):
        x = ds.tensor(np.ones(2, dtype))
        for y in (x + 1, 2.5 * x, x ** np.float64(2), x - np.float32(1), np.int64(3) / x, x + True):
            assert y.dtype == dtype
    ints = ds.tensor(np.arange(3))
    assert (ints + 1).dtype == ds.int64
    assert (ints + 0.5).dtype == ds.float32
    assert (ints / 2).dtype == ds.float32
    assert (ints > 0).dtype == ds.bool


def test_arrays_leave_operators_to_tensors():
    x, a = ds.tensor([1.0, 2.0]), np.array([3.0, 4.0], np.float32)
    for y in (a + x, a * x, a - x, a / x, a == x, a @ x, np.float32(2) * x):
        assert isinstance(y, Tensor)
    assert (a - x).tolist() == [2, 2]


@pytest.mark.parametrize("foreign", [None, "a", object(), [1, 2], 1j])
def test_foreign_operands(foreign):
    x = ds.tensor([1.0])
    with pytest.raises(TypeError):
        _ = x + foreign
    with pytest.raises(TypeError):
        _ = foreign * x
    with pytest.raises(DTypeError):
        x.add(foreign)
    assert (x == foreign) is False
    assert (x != foreign) is True


def test_shapes_that_do_not_broadcast():
    for kind in (np.float32, np.int64):
        with pytest.raises(ShapeError, match=r"\(2,\).*\(3,\)"):
            _ = ds.tensor(np.ones(2, kind)) + ds.tensor(np.ones(3, kind))


def test_integers_keep_all_bits():
    big = ds.tensor(np.array([2**62 + 1]))
    assert (big + 1).tolist() == [2**62 + 2]
    assert (big // 2).tolist() == [2**61]
    assert (big == 2**62).tolist() == [False]
    with pytest.raises(ZeroDivisionError):
        _ = big // 0
    with pytest.raises(DTypeError):
        _ = ds.tensor([True]) - ds.tensor([True])
    with pytest.raises(DTypeError):
        _ = ~ds.tensor([1.0])


# ---------------------------------------------------------------------- memory


def test_array_interface_shares_memory():
    a = np.arange(6, dtype=np.float32)
    t = ds.from_numpy(a)
    assert np.shares_memory(np.asarray(t), a)
    assert np.shares_memory(t.numpy(), a)
    assert np.asarray(t, np.float64).dtype == np.float64
    assert not np.shares_memory(np.array(t), a)
    assert np.shares_memory(t[2:].numpy(), a)
    assert np.shares_memory(t[2].numpy(), a)
    assert np.shares_memory(t.view(2, 3).T.numpy(), a)
    assert not np.shares_memory(ds.tensor(a).numpy(), a)
    with pytest.raises(ValueError, match="copy"):
        t.__array__(np.float64, copy=False)


def test_view_refuses_to_copy():
    t = ds.zeros(2, 3)
    with pytest.raises(ShapeError, match="reshape"):
        t.T.view(-1)
    assert t.T.reshape(-1).shape == (6,)


def test_writing():
    t = ds.zeros(2, 2)
    t[0, 1] = 3
    t[1] = ds.tensor([5, 6])
    assert t.tolist() == [[0, 3], [5, 6]]
    assert t.fill_(ds.tensor(2)).tolist() == [[2, 2], [2, 2]]
    with pytest.raises(ModeError):
        ds.zeros(1).expand(3).fill_(1)
    with pytest.raises(ModeError):
        ds.zeros(1).expand(3)[0] = 1
    with pytest.raises(ShapeError):
        ds.zeros(2).add_(ds.zeros(3, 2))
    with pytest.raises(DTypeError):
        ds.tensor(np.arange(2)).add_(0.5)
    before = t
    t += 1
    assert before is t
    t[0] -= 1
    assert t.tolist() == [[2, 2], [3, 3]]
    with pytest.raises(ModeError):
        ds.zeros(1).expand(3).__iadd__(1)
    with pytest.raises(DTypeError):
        ds.tensor(np.arange(2)).__iadd__(0.5)


def test_copies():
    t = ds.tensor([1.0, 2.0])
    for other in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert type(other) is Tensor
        assert other.tolist() == [1, 2]
        assert not np.shares_memory(other.numpy(), t.numpy())
    assert np.shares_memory(copy.copy(t).numpy(), t.numpy())
    pair = [t, t]
    again = copy.deepcopy(pair)
    assert again[0] is again[1]


# ---------------------------------------------------------------------- Python


def test_python_protocols():
    t = ds.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert len(t) == 2
    assert [row.tolist() for row in t] == [[1, 2], [3, 4]]
    assert 3 in t
    assert f"{t[0, 1]:.2f}" == "2.00"
    assert {t: 1}[t] == 1
    assert [10, 20, 30][ds.tensor(np.array(1))] == 20
    with pytest.raises(ShapeError, match="ambiguous"):
        bool(t)
    with pytest.raises(ShapeError):
        t.item()
    with pytest.raises(TypeError):
        len(t[0, 0])
    with pytest.raises(TypeError):
        iter(t[0, 0])
    with pytest.raises(DTypeError):
        [1, 2][t[0, 0]]


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (ds.tensor([1, 2]), "tensor([1., 2.])"),
        (ds.tensor(np.arange(2)), "tensor([0, 1])"),
        (ds.tensor(np.ones(1)), "tensor([1.], dtype=float64)"),
        (ds.zeros(2, 0), "tensor([], size=(2, 0))"),
    ],
)
def test_text(tensor, text):
    assert repr(tensor) == text


def test_gradient_flag():
    t = ds.tensor([1.0], requires_grad=False)
    t.requires_grad = False
    assert t.requires_grad is t.requires_grad_(False).detach().requires_grad is False
    assert t.grad is None and t.grad_fn is None
    with pytest.raises(DTypeError):
        ds.tensor(np.arange(2), requires_grad=True)


GRADIENTS = {
    "tensor": lambda: ds.tensor([1.0], requires_grad=True),
    "class": lambda: Tensor(np.ones(2), True),
    "method": lambda: ds.tensor([1.0]).requires_grad_(),
    "full": lambda: ds.full((2,), 1.0, requires_grad=True),
    "zeros": lambda: ds.zeros(2, requires_grad=True),
    "ones": lambda: ds.ones(2, requires_grad=True),
    "empty": lambda: ds.empty(2, requires_grad=True),
    "randn": lambda: ds.randn(2, requires_grad=True),
    "rand": lambda: ds.rand(2, requires_grad=True),
    "new_tensor": lambda: ds.tensor([1.0]).new_tensor([2.0], requires_grad=True),
    "new_zeros": lambda: ds.tensor([1.0]).new_zeros(2, requires_grad=True),
}


@pytest.mark.parametrize("how", GRADIENTS)
def test_a_gradient_may_be_asked_for(how):
    assert GRADIENTS[how]().requires_grad


def test_a_gradient_of_streams_may_be_asked_for():
    x = ds.stream_tensor([np.ones((2, 3))], ids="a", requires_grad=True)
    x.transpose(1, 2).square().sum().backward()
    assert x.grad.ids == x.ids and x.grad["a"].tolist() == [[2, 2, 2]] * 2
    with pytest.raises(DTypeError):
        ds.stream_tensor([np.ones((2, 3), np.int64)], ids="a", requires_grad=True)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda t: t.reshape(4),
        lambda t: t.reshape(-1, -1),
        lambda t: t.reshape(-2, 3),
        lambda t: t.permute(0, 0),
        lambda t: t.permute(0),
        lambda t: t.transpose(0, 2),
        lambda t: t.squeeze(5),
        lambda t: t.expand(3, 3),
        lambda t: t.repeat(2),
        lambda t: t.narrow(0, 1, 2),
        lambda t: t.narrow(0, -3, 1),
        lambda t: t.select(1, 3),
        lambda t: t.split([1, 1], 1),
        lambda t: t.split(0),
        lambda t: t.chunk(0),
        lambda t: t.unfold(0, 0, 1),
        lambda t: t.gather(1, ds.tensor(np.full((2, 1), 3))),
        lambda t: t.gather(1, ds.tensor(np.zeros((3, 1), int))),
        lambda t: t.index_select(0, ds.tensor(np.array([-1]))),
        lambda t: t[3],
        lambda t: t[0, 0, 0],
        lambda t: t[::-1],
        lambda t: t[ds.tensor([0.0])],
        lambda t: t[ds.tensor([[True]])],
        lambda t: t.sum(2),
        lambda t: t.sum((0, 0)),
        lambda t: t[:, :0].amax(1),
        lambda t: t[:, :0].max(1),
        lambda t: t.mm(t),
        lambda t: t @ ds.zeros(4),
        lambda t: t.bmm(t),
        lambda t: ds.cat([t, t[0]]),
        lambda t: ds.cat([t, t.T]),
        lambda t: ds.cat([]),
        lambda t: ds.stack([t, t.T]),
        lambda t: ds.zeros(-1),
        lambda t: ds.zeros("a"),
        lambda t: ds.randn(2.5),
        lambda t: ds.eye(-1),
        lambda t: ds.empty(1 << 62),
        lambda t: ds.arange(3, 0),
        lambda t: t.flatten(1, 0),
        lambda t: t.view(5),
    ],
)
def test_shape_errors(wrong):
    with pytest.raises(ShapeError):
        wrong(ds.zeros(2, 3))


def test_index_errors_are_index_errors():
    for wrong in (lambda t: t[5], lambda t: t.size(4), lambda t: t.select(0, 2)):
        with pytest.raises(IndexError):
            wrong(ds.zeros(2, 3))
        with pytest.raises(StreamIndexError):
            wrong(ds.zeros(2, 3))


def test_windows_of_short_tensors_are_none():
    assert ds.zeros(2, 3).unfold(1, 4, 1).shape == (2, 0, 4)


def test_devices():
    assert ds.zeros(1, device="cpu").device == "cpu"
    for wrong in (lambda: ds.zeros(1, device="cuda"), lambda: ds.zeros(1).to("cuda:0")):
        with pytest.raises(ModeError):
            wrong()


def test_seed():
    ds.manual_seed(3)
    a, b = ds.randn(2, 3), ds.rand(4, dtype="float64")
    ds.manual_seed(3)
    assert a.equal(ds.randn(2, 3))
    assert b.equal(ds.rand(4, dtype=ds.float64))
    assert (a.dtype, b.dtype) == (ds.float32, ds.float64)


# ---------------------------------------------------------------------- operands of the door


def test_order_of_operands(calls):
    stream, plain = FakeStream(np.ones(2, np.float32)), ds.tensor([1.0, 2.0])
    flags, mask = ds.tensor([True, False]), FakeStream(np.ones(2, bool))
    cases = [
        (lambda: plain + plain, "add", None, [plain, plain], []),
        (lambda: plain - 1, "sub", [0, 1], [plain], [1.0]),
        (lambda: 1 - plain, "sub", [1, 0], [plain], [1.0]),
        (lambda: stream + stream, "add", None, [stream, stream], []),
        (lambda: stream / plain, "div", [0, 1], [stream], [plain]),
        (lambda: plain / stream, "div", [1, 0], [stream], [plain]),
        (lambda: stream > 0, "gt", [0, 1], [stream], [0.0]),
        (lambda: ds.where(mask, 1, plain), "where", [0, 1, 1], [mask], [1.0, plain]),
        (lambda: ds.where(flags, stream, 2), "where", [1, 0, 1], [stream], [flags, 2.0]),
        (lambda: mask & flags, "logical_and", [0, 1], [mask], [flags]),
        (lambda: ~mask, "logical_not", None, [mask], []),
        (lambda: plain.maximum(stream), "maximum", [1, 0], [stream], [plain]),
    ]
    for call, name, order, inputs, weights in cases:
        calls.clear()
        call()
        got_name, attributes, got_inputs, got_weights, dims = calls[-1]
        assert (got_name, attributes.get("order"), dims) == (name, order, None)
        assert len(got_inputs) == len(inputs)
        assert all(a is b for a, b in zip(got_inputs, inputs))
        for got, wanted in zip(got_weights, weights):
            if isinstance(wanted, float):
                assert got.shape == ()
                assert got.dtype == np.float32
                assert got.item() == wanted
            else:
                assert got is wanted


def test_attributes_of_unary_operators(calls):
    x = ds.tensor([1.0])
    x.clamp(-1)
    x.clamp(max=2)
    x.clamp(0, 6)
    assert [c[1] for c in calls] == [{"min": -1.0}, {"max": 2.0}, {"min": 0.0, "max": 6.0}]


def test_a_length_indexes_a_table(monkeypatch):
    table = ds.zeros(10, 3)
    monkeypatch.setattr(views, "table", lambda tensor, index: (tensor, index))
    tensor, index = table[:L]
    assert tensor is table
    assert index[0].stop is L
    assert table.narrow(0, 0, L)[1][0].stop is L
    zeros = ds.zeros(L, 3)
    assert zeros.roles == ("L", 3) and zeros.beside_frames().shape == (1, 3)
    with pytest.raises(NotStreamableError):
        table + L


# ---------------------------------------------------------------------- constants of a batch


def test_zeros_for_every_stream():
    h = ds.zeros(2, B, 5)
    assert is_constant(h)
    assert (h.batch_axis, h.value.shape, h.constant.shape) == (1, (2, 1, 5), (2, 5))
    assert repr(h) == "<constant of the batch (2, B, 5), float32>"
    for other in (ds.full((2, B, 5), 0.0), ds.tensor([1.0]).new_zeros(2, B, 5), ds.ones([B, 3])):
        assert is_constant(other)
    assert h.transpose(0, 1).batch_axis == 0
    assert h.permute(2, 0, 1).batch_axis == 2
    assert h.to("float64").dtype == ds.float64
    assert h.contiguous() is h
    assert copy.deepcopy(h).batch_axis == 1
    assert copy.copy(h) is h and h.requires_grad_(False) is h


def test_expanded_for_every_stream():
    p = ds.tensor(np.arange(6, dtype=np.float32).reshape(2, 1, 3))
    for h in (p.expand(-1, B, -1), p.repeat(1, B, 1), p.expand(2, B, 3)):
        assert is_constant(h)
        assert h.batch_axis == 1
        assert h.constant.tolist() == p[:, 0].tolist()
    assert p[:, 0].expand(B, 2, 3).batch_axis == 0


OF_CONSTANTS = {
    "product": lambda h, w: h @ w,
    "product by a function": lambda h, w: ds.matmul(h, w),
    "linear": lambda h, w: ds.nn.functional.linear(h, w),
    "pad": lambda h, w: ds.nn.functional.pad(h * w[0], (1, 0))[..., :4],
    "bits": lambda h, w: (((h > 0) & (h < 2)) | ~(h > 5)).float() * w[0],
    "chosen": lambda h, w: ds.where(h > 0, h * w[1], w[0]),
    "beside plain": lambda h, w: w[:1, None] + h,
}


@pytest.mark.parametrize("name", OF_CONSTANTS)
def test_functions_of_what_every_stream_has_alike(name):
    class Adds(ds.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = ds.nn.Parameter(ds.tensor(np.arange(16, dtype=np.float32).reshape(4, 4)))

        def forward(self, x):
            return x + OF_CONSTANTS[name](ds.ones(x.size(0), 1, 4) * 2, self.weight)

    x = np.random.default_rng(3).normal(size=(3, 7, 4)).astype(np.float32)
    model = Adds()
    patched = ds.patch_module(model, "full-file-aligned").train()
    stream = ds.stream_tensor(list(x), ids=["a", "b", "c"], sos=True, eos=True, names=("B", "L", None))
    whole, online = patched.offline()(ds.tensor(x)), patched.online()(stream)
    assert np.array_equal(np.stack([online[i].numpy() for i in "abc"]), whole.numpy())
    whole.sum().backward()
    wanted, model.weight.grad = model.weight.grad.numpy(), None
    online.sum().backward()
    np.testing.assert_array_equal(model.weight.grad.numpy(), wanted)


def test_wrong_uses_of_the_number_of_streams():
    with pytest.raises(ShapeError):
        ds.zeros(2, 3).expand(2, B)
    with pytest.raises(ShapeError):
        ds.zeros(B, B)
    with pytest.raises(NotStreamableError):
        ds.randn(2, B)
    with pytest.raises(NotStreamableError):
        ds.zeros(2, B, 3).reshape(2, 3)
    with pytest.raises(TypeError):
        ds.zeros(2, 3) + ds.zeros(2, B)
