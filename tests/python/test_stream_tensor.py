"""Stream tensors outside a forward: how they are made, what they say, indices, cat, split, combination."""

import copy
import pickle
import warnings
from fractions import Fraction

import numpy as np
import pytest
from nets import net

import dreamstream as ds
from dreamstream import nn
from dreamstream.errors import (
    DTypeError,
    ModeError,
    NotStreamableError,
    ShapeError,
    StreamFallbackWarning,
    StreamIdError,
    StreamIndexError,
    StreamMismatchError,
)

LENGTHS = (7, 3, 0, 5)
IDS = ["a", "b", "c", "d"]


@pytest.fixture
def data(rng):
    return [rng.standard_normal((4, n)).astype(np.float32) for n in LENGTHS]


@pytest.fixture
def x(data):
    return ds.stream_tensor(data, ids=IDS, sos=[True, True, False, False], eos=[False, True, True, False])


def same(got, want):
    np.testing.assert_array_equal(np.asarray(got), want)


# ---------------------------------------------------------------------- making them


def test_from_a_list_of_arrays(data, x):
    assert x.ids == IDS and list(x.lengths) == list(LENGTHS) and x.names == ("B", "F", "L")
    assert x.shape == (4, 4, 7) and x.dtype == np.float32 and x.rate == 1 and x.starts is None
    for i, array in zip(IDS, data):
        same(x[i], array)
        assert isinstance(x[i], ds.Tensor) and not isinstance(x[i], ds.StreamTensor)
    assert [t.shape for t in x.unpad_sequence()] == [a.shape for a in data]


def test_from_a_padded_array(data, x):
    """What lies behind the lengths is padding: never seen again, zeros in `tensor()`."""
    padded = np.full((4, 4, 9), np.nan, np.float32)
    for row, array in zip(padded, data):
        row[:, : array.shape[1]] = array
    y = ds.stream_tensor(padded, ids=IDS, sos=x.sos, eos=x.eos, lengths=LENGTHS)
    assert y.equal(x) and y.meta == x.meta
    want = np.nan_to_num(padded[..., :7])
    same(y.tensor(), want)
    same(y.numpy(), want)
    same(np.asarray(y), want)
    full = ds.stream_tensor(padded, ids=IDS)
    assert list(full.lengths) == [9] * 4 and np.isnan(np.asarray(full["c"])).all()


def test_from_metadata(data, x):
    assert ds.stream_tensor(data, x.meta).equal(x)
    assert ds.stream_tensor(x.tensor(), meta=x.meta).equal(x)
    assert ds.stream_tensor(x).equal(x) and ds.stream_tensor(x, names=("B", "C", "L")).names == ("B", "C", "L")
    for options in ({"ids": IDS}, {"lengths": [1, 1, 1, 1]}):
        with pytest.raises(StreamMismatchError, match="meta"):
            ds.stream_tensor(x.tensor(), meta=x.meta, **options)
    with pytest.raises(StreamIdError, match="4 ids for 3 rows"):
        ds.stream_tensor(data[:3], x.meta)


@pytest.mark.parametrize(
    ("names", "shape", "row"),
    [
        (None, (2, 5), (5,)),
        (None, (2, 3, 5), (3, 5)),
        (("B", "L", "F"), (2, 5, 3), (5, 3)),
        (("L", "B", "F"), (5, 2, 3), (5, 3)),
        (("F", "L", "B"), (3, 5, 2), (3, 5)),
        (("B", "C", "F", "L"), (2, 4, 3, 5), (4, 3, 5)),
        (("B", None, "L", "F"), (2, 4, 5, 3), (4, 5, 3)),
        (("L", "B"), (5, 2), (5,)),
    ],
)
def test_names_say_what_dimensions_mean(rng, names, shape, row):
    array = rng.standard_normal(shape)
    x = ds.stream_tensor(array, ids=["p", "q"], names=names, lengths=[5, 2], eos=True)
    want = names or (("B", "L") if len(shape) == 2 else ("B", "F", "L"))
    assert x.names == want and x.shape == shape and x.dtype == np.float64
    b, axis = want.index("B"), [n for n in want if n != "B"].index("L")
    assert (
        x["p"].shape == row
        and x.stream_axis == axis
        and x.features == tuple(n for n, name in zip(shape, want) if name not in ("B", "L"))
    )
    same(x["p"], np.take(array, 0, b))
    same(x["q"], np.take(np.take(array, 1, b), range(2), axis))
    masked = x.numpy()
    same(np.take(masked, 0, b), np.take(array, 0, b))
    assert not np.take(np.take(masked, 1, b), range(2, 5), axis).any()
    listed = ds.stream_tensor([np.asarray(x[i]) for i in x.ids], ids=["p", "q"], names=names, eos=True)
    assert listed.equal(x)
    assert (x.size("L"), x.size("B"), x.ndim) == (5, 2, len(shape))


def test_element_types(data):
    for dtype in (np.float32, np.float64, np.int64, np.bool_):
        assert ds.stream_tensor([data[0].astype(dtype)], ids="a").dtype == dtype
    assert ds.stream_tensor([data[0].astype(np.int16)], ids="a").dtype == np.int64
    assert ds.stream_tensor([data[0]], ids="a", dtype="float64").dtype == np.float64
    assert ds.stream_tensor([[1, 2, 3]], ids="a").dtype == np.int64
    assert ds.stream_tensor([[1.0, 2, 3]], ids="a").dtype == np.float32
    same(ds.stream_tensor([[1, 2, 3]], ids="a")["a"], [1, 2, 3])
    for wrong in (np.complex64, object, "U3"):
        with pytest.raises(DTypeError):
            ds.stream_tensor([data[0].astype(wrong)], ids="a")
    with pytest.raises(DTypeError, match=r"float32.*float64"):
        ds.stream_tensor([data[0], data[1].astype(np.float64)], ids=["a", "b"])
    with pytest.raises(DTypeError):
        ds.stream_tensor([data[0].astype(np.int64)], ids="a", requires_grad=True)


def test_flags_and_rates(data):
    x = ds.stream_tensor(data, ids=IDS, sos=True, eos=np.array([True, False, False, True]), rate=12.5)
    assert x.sos.all() and list(x.eos) == [True, False, False, True] and x.rate == Fraction(25, 2)
    assert ds.stream_tensor(data, ids=iter(IDS), rate=Fraction(1, 3)).rate == Fraction(1, 3)
    assert ds.stream_tensor([data[0]], ids="anna").ids == ["anna"]
    assert not ds.stream_tensor(data, ids=IDS).restart and ds.stream_tensor(data, ids=IDS, restart=True).restart


def test_copies_and_sharing(data):
    """`stream_tensor` copies; `as_stream_tensor` shares a row's memory where frames lie in a row."""
    array = np.ascontiguousarray(data[0].T)
    copied = ds.stream_tensor([array], ids="a", names=("B", "L", "F"))
    shared = ds.as_stream_tensor([array], ids="a", names=("B", "L", "F"))
    assert np.shares_memory(shared.value, array) and not np.shares_memory(copied.value, array)
    assert ds.as_stream_tensor(shared) is shared
    renamed = ds.as_stream_tensor(shared, names=("B", "L", "C"))
    assert renamed.names == ("B", "L", "C") and np.shares_memory(renamed.value, array)
    array[...] = 5
    assert (shared["a"].numpy() == 5).all() and not (copied["a"].numpy() == 5).any()
    x = ds.stream_tensor(data, ids=IDS)
    data[0][...] = 7
    assert not (x["a"].numpy() == 7).any()


def test_empty_batches():
    for x in (ds.stream_tensor([], ids=[]), ds.stream_tensor(np.zeros((0, 5, 3), np.float32), ids=[])):
        assert x.ids == [] and len(x) == 0 and x.shape[0] == 0 and x.meta.max_length == 0
        assert x.sum().item() == 0 and x.tensor().shape == x.shape and x.unpad_sequence() == []
    assert ds.stream_tensor(np.zeros((0, 5, 3), np.float32), ids=[]).shape == (0, 5, 0)
    x = ds.stream_tensor([np.zeros((5, 0), np.float32)], ids="a", sos=True, eos=True)
    assert x.shape == (1, 5, 0) and x["a"].shape == (5, 0) and list(x.eos) == [True]


# ---------------------------------------------------------------------- what they are


def test_metadata_is_immutable(x):
    for field in ("lengths", "sos", "eos"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(x, field)[0] = 1
    with pytest.raises(AttributeError):
        x.meta.ids = []
    x.ids.append("z")
    assert x.ids == IDS


def test_text_pickles_and_copies(x):
    assert repr(x) == f"{x}" == "StreamTensor(B, 4, L; a: 7, b: 3, c: 0, d: 5)"
    for other in (pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x), x.clone()):
        assert other.equal(x) and other.names == x.names and other.rate == x.rate and other is not x
    assert np.shares_memory(copy.copy(x).value, x.value)
    assert not np.shares_memory(copy.deepcopy(x).value, x.value)
    assert not np.shares_memory(x.clone().value, x.value)
    y = copy.deepcopy(x.transpose(1, 2))
    assert y.shape == (4, 7, 4)
    same(y["b"], np.asarray(x["b"]).T)


def test_python_protocols(x):
    assert len(x) == 4 and x.dim() == 3 and x.numel() == 4 * 15 and x.is_contiguous()
    for use in (lambda: bool(x), lambda: float(x), x.item):
        with pytest.raises(ShapeError):
            use()
    with pytest.raises(TypeError, match="unpad_sequence"):
        iter(x)
    with pytest.raises(NotStreamableError):
        x[0] = 1
    for write in ("add_", "mul_", "zero_", "fill_"):
        with pytest.raises(ModeError):
            getattr(x, write)(*([] if write == "zero_" else [1]))
    with pytest.raises(TypeError):
        ds.StreamTensor(x.tensor(), x.meta)
    one = ds.stream_tensor([[[2.0]]], ids="a", names=("B", "F", "L"))
    assert float(one) == 2 and one.item() == 2 and bool(one)


def test_starts_say_where_outputs_lie(data):
    """Outputs of an online module know the position of each row's first frame; so do parts of them."""
    model = ds.patch_module(nn.Conv1d(4, 2, 3, stride=2, padding=1)).online()
    y = model(ds.stream_tensor(data[:2], ids=["a", "b"], sos=True))
    assert y.starts == (0, 0) and y.rate == Fraction(1, 2)
    y = model(ds.stream_tensor([data[3], data[1]], ids=["a", "b"], eos=True))
    assert y.starts == (3, 1) and list(y.lengths) == [3, 2]
    assert (y * 2).starts == (3, 1) and y[:, :, 1:].starts == (4, 2) and y[1:].starts == (1,)
    assert y[[1, 0]].starts == (1, 3) and y.transpose(1, 2).starts == (3, 1)
    assert [p.starts for p in y.split(2, 2)] == [(3, 1), (5, 3)]
    assert y[..., ::2].starts is None or y[..., ::2].starts == (None, None)


# ---------------------------------------------------------------------- indices


def test_rows_and_frames_by_index(data, x):
    y = x[1]
    assert y.ids == ["b"] and y.names == ("F", "L")
    same(y["b"], data[1])
    y = x[[3, 0]]
    assert y.ids == ["d", "a"] and y.shape == (2, 4, 7)
    same(y["d"], data[3])
    assert x[1:3].ids == ["b", "c"] and x[np.array([True, False, False, True])].ids == ["a", "d"]
    assert x[-1].ids == ["d"] and x[::2].ids == ["a", "c"] and x[2:1].ids == []
    y = x[..., 2:6]
    assert list(y.lengths) == [4, 1, 0, 3] and not y.sos.any() and list(y.eos) == [False, True, False, False]
    for i, array in zip(IDS, data):
        same(y[i], array[:, 2:6])
    y = x[:2, 1:3, ::2]
    assert y.ids == ["a", "b"] and y.shape == (2, 2, 4)
    same(y["b"], data[1][1:3, ::2])
    y = x[:, :, 2]
    assert y.names == ("B", "F") and list(y.lengths) == [1, 1, 0, 1]
    same(y["a"], data[0][None, :, 2])
    assert x[()].equal(x) and x[...].equal(x)
    assert x[:0][:, [3, 0, 0, 1, 2], 1:].shape == (0, 5, 0) and x[2:3, [0, 0], 1:].shape == (1, 2, 0)


def test_indices_out_of_range_or_of_wrong_kinds(x):
    for index in (4, -5, (0, 4), (slice(None), 0, 9, 0), [0, 7], np.zeros(3, bool), (0, "a")):
        with pytest.raises((StreamIndexError, IndexError, ShapeError, DTypeError)):
            x[index]
    with pytest.raises(StreamIdError) as caught:
        x["nobody"]
    assert caught.value.ids == ("nobody",)
    with pytest.raises(StreamIdError) as caught:
        x[[0, 0]]
    assert caught.value.ids == ("a",)
    with pytest.raises(StreamIndexError, match="backwards"):
        x[..., ::-1]


def test_masks_of_all_elements_fall_back(x):
    plain = x.numpy()
    with pytest.warns(StreamFallbackWarning):
        y = x[x > 0]
    same(y, plain[plain > 0])


# ---------------------------------------------------------------------- cat and split


def test_cat_along_streams(data, x):
    y = ds.stream_tensor([data[1]], ids="e", eos=True)
    for dim in (0, "B", -3):
        z = ds.cat([x, y], dim)
        assert z.ids == [*IDS, "e"] and list(z.eos) == [False, True, True, False, True] and z.shape == (5, 4, 7)
        same(z["e"], data[1])
        same(z["a"], data[0])
    with pytest.raises(StreamIdError) as caught:
        ds.cat([x, x[1:2]], 0)
    assert caught.value.ids == ("b",)
    with pytest.raises(ShapeError):
        ds.cat([x, y[:, :2]], 0)
    with pytest.raises(ShapeError):
        ds.cat([x, y.transpose(1, 2)], 0)


def test_cat_along_frames(data):
    """Ids in the same order; one beginning, one end."""
    first = ds.stream_tensor(data[:2], ids=["a", "b"], sos=True)
    last = ds.stream_tensor([data[3], data[2]], ids=["a", "b"], eos=True)
    for dim in (2, "L", -1):
        y = ds.cat([first, last], dim)
        assert list(y.lengths) == [12, 3] and y.sos.all() and y.eos.all()
        same(y["a"], np.hstack([data[0], data[3]]))
        same(y["b"], data[1])
    cases = [
        ([first, first], StreamMismatchError, ("a", "b")),
        ([last, last], StreamMismatchError, ("a", "b")),
        ([first, last[[1, 0]]], StreamIdError, None),
        ([first, last[:1]], StreamIdError, None),
    ]
    for tensors, error, ids in cases:
        with pytest.raises(error) as caught:
            ds.cat(tensors, 2)
        assert ids is None or caught.value.ids == ids


def test_starts_of_what_is_joined_are_those_that_are_known():
    model, data = ds.patch_module(nn.ReLU()).online(), [np.ones((2, 3))] * 2
    first, second, third = (model(ds.stream_tensor(data, ids=["a", "b"], sos=i == 0)) for i in range(3))
    assert ds.cat([second, third], 2).starts == (3, 3)
    assert ds.cat([first, third], 2).starts == (None, None)  # frames are missing
    assert ds.cat([second, ds.stream_tensor(data[:1], ids="c")], 0).starts == (3, 3, None)


@pytest.mark.parametrize(("dim", "ids"), [("B", "cd"), ("L", "ab")])
def test_cat_of_unlike_rates(data, dim, ids):
    first = ds.stream_tensor(data[:2], ids=["a", "b"], sos=True)
    other = ds.stream_tensor([data[3], data[2]], ids=list(ids), rate=2)
    with pytest.raises(StreamMismatchError, match="cat: operands of different rates, 1 and 2"):
        ds.cat([first, other], dim)


def test_cat_along_features(data, x):
    y = ds.cat([x, x * 2, x[:, :1]], 1)
    assert y.meta == x.meta and y.shape == (4, 9, 7)
    same(y["a"], np.concatenate([data[0], data[0] * 2, data[0][:1]]))
    with pytest.raises(StreamIdError):
        ds.cat([x, x[[1, 0, 2, 3]]], 1)


@pytest.mark.parametrize("sizes", [1, 3, 7, [1, 4, 2], [0, 7], [7, 0]])
def test_split_along_frames(data, x, sizes):
    """Each flag goes to one piece; the pieces laid end to end are the tensor."""
    parts = x.split(sizes, "L")
    for i, array in zip(IDS, data):
        same(np.concatenate([np.asarray(p[i]) for p in parts], 1), array)
    for flag in ("sos", "eos"):
        assert (np.sum([getattr(p, flag) for p in parts], axis=0) == getattr(x, flag)).all()
    joined = parts[0]
    if len(parts) > 1:
        joined = ds.cat(list(parts), 2)
    assert list(joined.lengths) == list(x.lengths)


def test_split_along_streams_and_features(x):
    assert [p.ids for p in x.split(3)] == [["a", "b", "c"], ["d"]]
    assert [p.ids for p in x.split([1, 3], "B")] == [["a"], ["b", "c", "d"]]
    assert [p.shape for p in x.chunk(2, "F")] == [(4, 2, 7)] * 2
    assert [p.shape for p in x[..., :0].chunk(2, "L")] == [(4, 4, 0)] * 2  # without frames, too
    assert [p.ids for p in x.unbind()] == [["a"], ["b"], ["c"], ["d"]]
    assert x.narrow("B", 1, 2).ids == ["b", "c"] and x.select("B", 1).ids == ["b"]
    for wrong in ([1, 2], [5], []):
        with pytest.raises(ShapeError):
            x.split(wrong, 0)


# ---------------------------------------------------------------------- combining


def test_only_like_tensors_combine(data, x):
    """ids, order, sos, eos, lengths, starts: what differs is named."""

    def other(**options):
        given = {"ids": IDS, "sos": x.sos, "eos": x.eos, **options}
        return ds.stream_tensor(given.pop("data", data), **given)

    shorter = [data[0], data[1][:, :2], *data[2:]]
    cases = [
        (other(ids=["a", "b", "c", "e"]), StreamIdError, "streams", ("d", "e")),
        (x[[0, 2, 1, 3]], StreamIdError, "order", ("b", "c")),
        (x[:3], StreamIdError, "streams", ("d",)),
        (other(sos=True), StreamMismatchError, "sos", ("c", "d")),
        (other(eos=False), StreamMismatchError, "eos", ("b", "c")),
        (other(data=shorter), StreamMismatchError, "lengths", ("b",)),
        (x.transpose(1, 2), ShapeError, "line up", ()),
        (x.double(), DTypeError, "float64", ()),
        (x.tensor(), NotStreamableError, "extent", ()),
        (ds.ones(7), NotStreamableError, "extent", ()),
        (ds.ones(4, 1, 1), NotStreamableError, "extent", ()),
        (ds.ones(3, 1), (ShapeError, DTypeError), "", ()),
    ]
    for y, error, text, ids in cases:
        for use in (lambda y=y: x + y, lambda y=y: y * x, lambda y=y: ds.where(x > 0, x, y)):
            with pytest.raises(error) as caught:
                use()
            assert text in str(caught.value) and set(caught.value.ids) == set(ids)
    y = other()
    same((x + y)["a"], data[0] * 2)
    assert (x + y).meta == x.meta


def test_starts_must_agree(data):
    model = ds.patch_module(nn.Linear(4, 4)).online()
    rows = [np.ascontiguousarray(d.T) for d in data]

    def call(row, **flags):
        return model(ds.stream_tensor([rows[row]], ids="a", names=("B", "L", "F"), **flags))

    call(1, sos=True)
    y, z = call(1), call(1)
    assert (y.starts, z.starts) == ((3,), (6,))
    with pytest.raises(StreamMismatchError, match="starts") as caught:
        _ = y + z
    assert caught.value.ids == ("a",)
    plain = ds.stream_tensor([rows[1]], ids="a", names=("B", "L", "F"))
    assert (y + plain).starts == (3,) or (plain + y).starts == (3,)  # what is not known agrees


def test_comparing_as_a_whole(x):
    assert x.equal(x.clone()) and not x.equal(x * 2) and not x.equal(x[:2])
    assert x.allclose(x + 1e-9) and not x.allclose(x + 1)
    with pytest.raises(StreamIdError):
        x.allclose(x[:2])
    with pytest.warns(StreamFallbackWarning):
        assert x.equal(x.tensor())
    with pytest.warns(StreamFallbackWarning):
        assert x.allclose(x.tensor()) and x.equal(x.tensor().numpy())


def test_layers_that_need_the_past_say_so(x):
    """Outside an online module only what works frame by frame runs."""
    layers = [nn.Conv1d(4, 2, 3), nn.ConvTranspose1d(4, 2, 3), nn.LSTM(4, 2, batch_first=True), nn.Delay(1)]
    for layer in layers:
        given = x.transpose(1, 2) if isinstance(layer, nn.LSTM) else x
        with pytest.raises(ModeError, match="online"):
            layer(given)
    with pytest.raises(ModeError):
        nn.functional.pad(x, (1, 1))
    y = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.LayerNorm(3))(x.transpose(1, 2))
    assert y.meta == x.meta and y.shape == (4, 7, 3)


# ---------------------------------------------------------------------- policy


def test_fallback_policy(x):
    with pytest.warns(StreamFallbackWarning, match="flip along L at test_stream_tensor.py"):
        assert not isinstance(x.flip(2), ds.StreamTensor)
    with ds.on_fallback("raise"):
        with pytest.raises(StreamMismatchError):
            x.flip(2)
        with ds.on_fallback("ignore"), warnings.catch_warnings():
            warnings.simplefilter("error")
            x.flip(2)
        with pytest.raises(StreamMismatchError):
            x.flip(2)
    with pytest.raises(ZeroDivisionError), ds.on_fallback("ignore"):
        raise ZeroDivisionError
    with pytest.warns(StreamFallbackWarning):
        x.flip(2)
    with pytest.raises(ValueError, match="on_fallback"), ds.on_fallback("panic"):
        pass


def test_streams_whose_frames_were_joined_with_b():
    model = ds.patch_module(net(nn, lambda self, x: x.transpose(1, 2).reshape(-1, 2))).online()
    a, b = np.arange(6.0).reshape(2, 3), np.arange(2.0).reshape(2, 1)
    y = model(ds.stream_tensor([a, b], ids=["a", "b"], sos=True))
    assert y.names == ("B_L", "F") and y.stream_axis == 0
    assert np.array_equal(y["a"], a.T) and np.array_equal(y["b"], b.T)
    collector = ds.OutputCollector()
    collector.update(y)
    assert np.array_equal(collector["a"], a.T)


# ---------------------------------------------------------------------- gradients of what frames are made of
FORMS = {
    "rows": lambda lib, z: {"data": [z, (z * 3)[:4]]},
    "rows of another type": lambda lib, z: {"data": [z, (z * 3)[:4]], "dtype": lib.float32},
    "padded": lambda lib, z: {"data": lib.stack([z, z * 3]), "lengths": [6, 4]},
    "no copy": lambda lib, z: {"data": lib.stack([z, z * 3]), "lengths": [6, 4]},
}


@pytest.mark.parametrize("front", ["native", "torch"])
@pytest.mark.parametrize("form", FORMS)
def test_frames_hand_gradients_on_to_what_they_were_made_of(front, form):
    lib = pytest.importorskip("torch") if front == "torch" else ds
    make = ds.as_stream_tensor if form == "no copy" else ds.stream_tensor
    weight = lib.ones(3, requires_grad=True, dtype=lib.float64)
    z = lib.arange(18.0, dtype=lib.float64).reshape(6, 3) * weight
    x = make(**FORMS[form](lib, z), ids=["anna", "otto"], names=("B", "L", None), sos=True, eos=True)
    x.square().sum().backward()
    at = np.arange(18.0).reshape(6, 3)
    np.testing.assert_array_equal(weight.grad.numpy(), 2 * ((at**2).sum(0) + (9 * at[:4] ** 2).sum(0)))


@pytest.mark.parametrize("front", ["native", "torch"])
def test_frames_that_want_a_gradient_are_a_leaf(front):
    lib = pytest.importorskip("torch") if front == "torch" else ds
    z = lib.ones(4, 3, requires_grad=True)
    x = ds.stream_tensor([z * 2], ids="anna", names=("B", "L", None), requires_grad=True)
    x.square().sum().backward()
    assert x.is_leaf and z.grad is None and (x.grad == 4).all()


@pytest.mark.parametrize("front", ["native", "torch"])
def test_targets_hand_gradients_on(front):
    lib = pytest.importorskip("torch") if front == "torch" else ds
    given = lib.ones(5, 2, requires_grad=True)
    y = ds.stream_tensor([lib.zeros(5, 2)], ids="anna", names=("B", "L", None), sos=True)
    y = ds.patch_module(lib.nn.Identity(), train_variant="full-file-aligned").online()(y)
    (ds.train.align(y, {"anna": given * 3}) - 1).square().sum().backward()
    assert (given.grad.numpy() == 12).all()


def test_gradients_of_numbers_in_lists_are_refused():
    z = ds.ones(3, requires_grad=True)
    with pytest.raises(ModeError, match="nested lists would lose their gradients"):
        ds.stream_tensor([[z * 2, z]], ids="anna", names=("B", "L", None))
    assert ds.stream_tensor([[z.detach()]], ids="anna", names=("B", "L", None)).lengths.tolist() == [1]
