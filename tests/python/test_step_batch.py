"""`Engine.step_batch`: padded arrays in, padded arrays out, with the values of `step`."""

import collections

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import nn
from dreamstream.errors import DTypeError, ShapeError, StreamIdError, StreamIndexError, StreamMismatchError

SPEC = ("B", 3, "L")


def rng_of(*seed):
    return np.random.default_rng(seed)


def compiled(model, spec=SPEC, **options):
    return ds.compile(model, spec, verify=False, **options)


class Strided(nn.Module):
    """Rows of the same length give different numbers of frames, as they stand."""

    def __init__(self):
        super().__init__()
        ds.manual_seed(1)
        self.conv, self.rnn = nn.Conv1d(3, 8, 5, stride=2, padding=2), nn.LSTM(8, 4, batch_first=True)

    def forward(self, x):
        return self.rnn(self.conv(x).transpose(1, 2))[0]


@pytest.mark.parametrize("spec", [("B", 3, "L"), (3, "B", "L"), ("L", "B", 3), (3, "L", "B")])
@pytest.mark.parametrize("transposed", [False, True])
def test_as_step(spec, transposed):
    """Any lengths, starts and ends; B, features and L anywhere, in and out, and in any strides."""
    order = [spec.index(d) for d in SPEC]

    class Arranged(Strided):
        def forward(self, x):
            y = super().forward(x.permute(*order))
            return y.permute(2, 0, 1) if transposed else y

    engine, twin = compiled(Arranged(), spec), compiled(Arranged(), spec)
    b_out, l_out = (1, 2) if transposed else (0, 1)
    rng, live = rng_of(2), []
    for n in range(40):
        new = [f"s{n}-{k}" for k in range(2)] if len(live) < 5 else []
        ids = [*rng.permutation([i for i in live if rng.random() < 0.8]).tolist(), *new]
        lengths = rng.integers(0, 9, len(ids))
        width = int(lengths.max(initial=0)) + int(rng.integers(0, 3))
        x = rng.standard_normal((len(ids), 3, width), dtype=np.float32)
        given = np.moveaxis(x, [0, 1, 2], [spec.index(d) for d in ("B", 3, "L")])
        given = given[..., ::-1].copy()[..., ::-1] if n % 2 else np.ascontiguousarray(given)
        eos = rng.random(len(ids)) < 0.2
        y, got = engine.step_batch(tuple(ids), given, lengths=lengths, sos=[i in new for i in ids], eos=eos)
        rows = {
            i: np.moveaxis(
                x[r, :, : lengths[r]],
                [0, 1],
                [d - (d > spec.index("B")) for d in (spec.index(3), spec.index("L"))],
            )
            for r, i in enumerate(ids)
        }
        want = twin.step(rows, sos=new, eos=[i for i, end in zip(ids, eos) if end])
        assert y.dtype == np.float32 and got.dtype == np.int64 and y.flags.owndata
        assert y.shape[l_out] == got.max(initial=0) and y.shape[b_out] == len(ids)
        for r, i in enumerate(ids):
            row = np.take(y, r, b_out)
            kept, rest = np.split(row, [got[r]], l_out - 1 if l_out > b_out else l_out)
            np.testing.assert_array_equal(kept, want[i])
            assert (rest == 0).all()
        live = [i for i in dict.fromkeys([*live, *new]) if i not in {i for i, end in zip(ids, eos) if end}]
        assert set(engine.ids) == set(twin.ids) == set(live)


@pytest.mark.parametrize(
    ("dtype", "spec"), [("float64", SPEC), (">f4", SPEC), ("int16", ("B", "L")), ("float64", ("B", "L"))]
)
def test_other_types(dtype, spec):
    """As in `step`: converted, of any byte order."""
    model = nn.Conv1d(3, 2, 3) if spec is SPEC else nn.ReLU()
    engine, twin = compiled(model, spec), compiled(model, spec)
    x = (rng_of(3).standard_normal((2, *spec[1:-1], 40)) * 100).astype(dtype)
    y, lengths = engine.step_batch(["a", "b"], x, sos=True)
    want = twin.step({"a": x[0], "b": x[1]}, sos=["a", "b"])
    for r, i in enumerate("ab"):
        np.testing.assert_array_equal(y[r, ..., : lengths[r]], want[i])
    y, _ = engine.step_batch(
        ["l"], x[:1].tolist() if dtype == "float64" else ds.tensor(np.float32(x[:1])), sos=True
    )
    assert y.shape[0] == 1


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        ds.manual_seed(2)
        self.table = nn.Embedding(7, 2)

    def forward(self, sound, codes):
        return {"sum": sound + self.table(codes), "pooled": (sound.mean(1), codes), "last": [sound.sum(1)]}


def test_several_inputs_and_outputs():
    """Arrays in the order of the inputs; outputs and lengths as forward returns them."""
    specs = {"sound": ("B", "L", 2), "codes": ("B", "L")}
    options = {"dtype": {"codes": "int64"}, "skew": 3}
    engine, twin = compiled(Two(), specs, **options), compiled(Two(), specs, **options)
    rng = rng_of(4)
    sound = rng.standard_normal((2, 6, 2), dtype=np.float32)
    codes = rng.integers(0, 7, (2, 6)).astype(np.int32)
    steps = [
        ({"sos": True, "lengths": ([4, 2], [5, 4])}, [{"sound": 4, "codes": 5}, {"sound": 2, "codes": 4}]),
        ({"lengths": {"codes": [0, 1], "sound": [1, 0]}}, [{"sound": 1, "codes": 0}, {"sound": 0, "codes": 1}]),
        ({"lengths": [None, (6, 3)]}, [{"sound": 6, "codes": 6}, {"sound": 6, "codes": 3}]),
    ]
    for n, (given, counts) in enumerate(steps):
        y, lengths = engine.step_batch(["a", "b"], sound, codes, eos="b" if n == 2 else None, **given)
        rows = {
            i: {"sound": sound[r, : counts[r]["sound"]], "codes": codes[r, : counts[r]["codes"]]}
            for r, i in enumerate("ab")
        }
        want = twin.step(rows, sos=["a", "b"] if n == 0 else (), eos=["b"] if n == 2 else ())
        assert type(y["pooled"]) is type(lengths["pooled"]) is tuple and type(y["last"]) is list
        for r, i in enumerate("ab"):
            np.testing.assert_array_equal(y["sum"][r, : lengths["sum"][r]], want[i]["sum"])
            np.testing.assert_array_equal(y["pooled"][1][r, : lengths["pooled"][1][r]], want[i]["pooled"][1])
            for got, m, w in [
                (y["pooled"][0], lengths["pooled"][0], want[i]["pooled"][0]),
                (y["last"][0], lengths["last"][0], want[i]["last"][0]),
            ]:
                assert got.shape == (2, 2) and m[r] == len(w)
                np.testing.assert_array_equal(got[r], w[0] if len(w) else [0, 0])
    assert engine.position("a") == {"sound": 11, "codes": 11} and engine.ids == ["a"]
    y, lengths = engine.step_batch(["a"], None, codes[:1, :2])
    assert lengths["sum"].tolist() == [0] and engine.position("a") == {"sound": 11, "codes": 13}
    for arrays, error in [
        ((), ShapeError), ((sound,), ShapeError), ((sound, codes, codes), ShapeError),
        ((codes, sound), DTypeError), ((sound, codes[:, :, None]), ShapeError),
    ]:  # fmt: skip
        with pytest.raises(error):
            engine.step_batch(["a", "b"], *arrays, sos="b")
    with pytest.raises(StreamIndexError) as caught:
        engine.step_batch(["a", "b"], sound, codes + np.array([[0], [7]]), sos="b")
    assert caught.value.ids == ("b",)
    with pytest.raises(StreamMismatchError) as caught:
        engine.step_batch(["a", "b"], sound, codes, sos="b", lengths=([6, 6], [6, 0]))
    assert caught.value.ids == ("b",)
    for lengths in ([[1, 1]], 3, {"codes": [1]}, [[1, 1], [1.5, 1]], [[1, 1], ["x", "y"]]):
        with pytest.raises((TypeError, ShapeError)):
            engine.step_batch(["a", "b"], sound, codes, sos="b", lengths=lengths)
    assert engine.ids == ["a"]


# ---------------------------------------------------------------------- the caller's memory


def test_into_out():
    """Rows go to where they are wanted, in any strides; what lies behind them is left alone."""
    engine, twin = compiled(Strided()), compiled(Strided())
    x, ids = rng_of(5).standard_normal((3, 3, 11), dtype=np.float32), ["a", "b", "c"]
    for n, out in enumerate(
        [
            np.full((3, 9, 4), 7, np.float32),
            np.full((4, 9, 3), 7, np.float32).T,
            np.full((6, 18, 4), 7, np.float32)[::2, ::-2],
        ]
    ):
        y, lengths = engine.step_batch(ids, x, lengths=[11, 4, 0], sos=n == 0, out=out)
        want, counts = twin.step_batch(ids, x, lengths=[11, 4, 0], sos=n == 0)
        assert y is out
        np.testing.assert_array_equal(lengths, counts)
        for r in range(3):
            np.testing.assert_array_equal(out[r, : lengths[r]], want[r, : lengths[r]])
            assert (out[r, lengths[r] :] == 7).all()
    state = engine.snapshot("a")
    read_only = np.zeros((3, 9, 4), np.float32)
    read_only.flags.writeable = False
    for bad, error in [
        (np.zeros((3, 4, 4), np.float32), ShapeError),  # 5 or 6 frames come
        (np.zeros((2, 9, 4), np.float32), ShapeError),
        (np.zeros((3, 9, 5), np.float32), ShapeError),
        (np.zeros((9, 4), np.float32), ShapeError),
        (np.zeros((3, 9, 4)), DTypeError),
        (np.zeros((3, 9, 4), ">f4"), DTypeError),
        ([[0.0]], DTypeError),
        (read_only, ValueError),
    ]:
        with pytest.raises(error):
            engine.step_batch(ids, x, out=bad)
        assert engine.snapshot("a") == state
    assert (read_only == 0).all()


def test_out_of_several_outputs():
    Pair = collections.namedtuple("Pair", "y h")

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            ds.manual_seed(3)
            self.rnn = nn.LSTM(3, 4, batch_first=True)

        def forward(self, x):
            y, (h, c) = self.rnn(x)
            return Pair(y, {"h": h, "c": c})

    engine, twin = (compiled(Named(), ("B", "L", 3)) for _ in range(2))
    x = rng_of(6).standard_normal((2, 5, 3), dtype=np.float32)
    out = Pair(np.zeros((2, 5, 4), np.float32), {k: np.zeros((1, 2, 4), np.float32) for k in "hc"})
    y, lengths = engine.step_batch(["a", "b"], x, sos=True, eos="b", out=out)
    want = twin.step({"a": x[0], "b": x[1]}, sos=["a", "b"], eos="b")
    assert y is out and type(lengths) is Pair and type(want["a"]) is Pair
    assert lengths.y.tolist() == [5, 5] and lengths.h["c"].tolist() == [0, 1]
    for r, i in enumerate("ab"):
        np.testing.assert_array_equal(y.y[r], want[i].y)
    np.testing.assert_array_equal(y.h["h"][:, 1], want["b"].h["h"][0])
    assert (y.h["h"][:, 0] == 0).all()
    for bad in (
        out.y,
        (out.y,),
        (out.y, {"h": out.h["h"]}),
        Pair(out.y, {"h": out.h["h"], "x": out.h["c"]}),
        Pair(out.y, None),
        Pair(out.y, out.h["h"]),
    ):
        with pytest.raises(ShapeError, match="in the form of what forward returns"):
            engine.step_batch(["a"], x[:1], out=bad)
    assert engine.position("a") == 5


# ---------------------------------------------------------------------- ids and flags


def test_ids_that_are_remembered():
    """Streams that end, restart, are put away or come back between two calls are never mixed up."""
    model = nn.CumulativeMean()
    engine, twin = compiled(model, ("B", "L")), compiled(model, ("B", "L"))
    ids, rng = [f"s{n}" for n in range(6)], rng_of(7)
    for e in (engine, twin):
        e.step({}, sos=ids)
    for n in range(60):
        x = rng.standard_normal((len(ids), 4), dtype=np.float32)
        i = ids[int(rng.integers(len(ids)))]
        for e in (engine, twin):
            kept = e.snapshot(i)
            if n % 5 == 1:
                e.step({}, eos=i)
                e.step({}, sos=i)
            elif n % 5 == 2:
                e.step({i: x[0]}, sos=i, restart=True)
            elif n % 5 == 3:
                e.reset(i)
                e.restore(kept, i)
        given = list(ids) if n % 2 else tuple("".join(i) for i in ids)
        y, _ = engine.step_batch(given, x)
        want = twin.step(dict(zip(ids, x)))
        np.testing.assert_array_equal(y, np.stack(list(want.values())))
    engine.reset(ids[3])
    for _ in range(2):
        with pytest.raises(StreamIdError) as caught:
            engine.step_batch(ids, x)
        assert caught.value.ids == (ids[3],) and engine.position(ids[0]) == twin.position(ids[0])
    engine.step_batch(ids, x, sos=ids[3])
    copied = engine.__copy__()
    with pytest.raises(StreamIdError):
        copied.step_batch(ids, x)
    engine.close()
    with pytest.raises(ds.ClosedError):
        engine.step_batch(ids, x)


def test_flags():
    """A bool for all rows, one per row, or ids."""
    x = np.zeros((2, 4), np.float32)
    for sos in (
        True,
        [True, True],
        (np.True_, True),
        np.ones(2, bool),
        np.ones(4, bool)[::2],
        ["b", "a"],
        {"a", "b"},
    ):
        engine = compiled(nn.ReLU(), ("B", "L"))
        engine.step_batch(["a", "b"], x, sos=sos)
        for none in (None, False, [], (), [False, False], np.zeros(2, bool)):
            engine.step_batch(["a", "b"], x, sos=none, eos=none)
        assert engine.ids == ["a", "b"]
        engine.step_batch("a", x[:1], eos="a")
        engine.step_batch(["b"], x[:1], eos=[True])
        assert engine.ids == []
    for wrong, error in [
        ([True], ShapeError), ([True, "a"], DTypeError), (["z"], StreamIdError), ([1, 0], StreamIdError),
        (1, TypeError), ([None, None], StreamIdError), (np.ones((2, 2), bool), (TypeError, ValueError)),
    ]:  # fmt: skip
        for name in ("sos", "eos"):
            with pytest.raises(error):
                engine.step_batch(["a", "b"], x, **{"sos": True, name: wrong})
    assert engine.ids == []


def test_wrong_batches():
    engine = compiled(nn.ReLU(), ("B", "L"))
    x = np.zeros((2, 4), np.float32)
    engine.step_batch(["a", "b"], x, sos=True)
    for args, options, error, ids in [
        ((["a", "a"], x), {}, StreamIdError, ("a",)),
        ((["a", "z"], x), {}, StreamIdError, ("z",)),
        ((["a", "b"], x), {"sos": "b"}, StreamIdError, ("b",)),
        ((["a", 3], x), {}, StreamIdError, ()),
        ((["a"], x), {}, ShapeError, ()),
        ((["a", "b"], x[0]), {}, ShapeError, ()),
        ((["a", "b"], x.astype(np.int32)), {}, DTypeError, ()),
        ((["a", "b"], x), {"lengths": [5, -1]}, ShapeError, ("a", "b")),
        ((["a", "b"], x), {"lengths": [4, 5]}, ShapeError, ("b",)),
        ((["a", "b"], x), {"lengths": [4]}, ShapeError, ()),
        ((["a", "b"], x), {"lengths": [4.0, 4.0]}, DTypeError, ()),
        ((["a", "b"], x), {"lengths": [True, True]}, DTypeError, ()),
        ((["a", "b"],), {}, ShapeError, ()),
        ((), {}, TypeError, None),
        ((None, x), {}, TypeError, None),
        ((["a", "b"], x), {"length": [4, 4]}, TypeError, None),
    ]:
        with pytest.raises(error) as caught:
            engine.step_batch(*args, **options)
        assert ids is None or (type(caught.value) is error and caught.value.ids == ids)
        assert engine.ids == ["a", "b"] and engine.position("a") == engine.position("b") == 4
    y, lengths = engine.step_batch([], x[:0])
    assert y.shape == (0, 0) and lengths.shape == (0,)
