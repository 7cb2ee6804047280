"""Outputs that a torch model casts last: callers of an engine are given the type of the model offline."""

import io
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dreamstream as ds
from dreamstream.engine.load import bytes_of
from dreamstream.stream.tree import leaves


class Model(nn.Module):
    def __init__(self, function):
        super().__init__()
        torch.manual_seed(1)
        self.line, self.function = nn.Linear(6, 6), function

    def forward(self, x):
        return self.function(self.line(x.cumsum(1)), x)


#: By what is cast: the forward, given a stream of floats and its input.
CASTS = {
    "double": lambda y, x: y.double(),
    "double by name, moved": lambda y, x: y.to(torch.float64).unflatten(2, (2, 3))[..., 1:].transpose(2, 3),
    "double of integers": lambda y, x: (y * 9).long().double(),
    "double of bools, at the end": lambda y, x: (y > 0).any(1).double(),
    "int": lambda y, x: (y * 9).int(),
    "int of int64": lambda y, x: y.argmax(-1).int(),
    "uint8": lambda y, x: (y.abs() * 40).to(torch.uint8),
    "byte, short and char": lambda y, x: ((y * 9).byte(), (y * 9999).short(), {"c": (y * 90).char()}),
    "type": lambda y, x: (y * 9).type(torch.int32).unsqueeze(1),
    "int, then long": lambda y, x: (y * 9).int().long(),
    "half": lambda y, x: y.half(),
    "half, moved": lambda y, x: y.type(torch.float16).transpose(1, 2)[:, 1:].flip(1),
    "half beyond its range": lambda y, x: (y * 60000).half(),
    "twice one stream": lambda y, x: (y, y.double(), y.half(), y.argmax(-1), y.argmax(-1).int()),
    "complex": lambda y, x: torch.fft.rfft(y),
    "complex of parts": lambda y, x: torch.complex(y, x).transpose(1, 2),
    "complex and parts": lambda y, x: [torch.view_as_complex(y.unflatten(2, (3, 2))), y.unflatten(2, (3, 2))],
    "stft": lambda y, x: torch.stft(y[..., 0], 8, 4, window=torch.ones(8), center=False, return_complex=True),
    "integers that are computed with": lambda y, x: ((y * 9).int() + 1, (y * 9).short() * 2, (y > 0).int() - 1),
    "integers that go around": lambda y, x: ((y * 99).byte() + 200, ((y * 99).char() * 100).float() / 2),
    "integers of several types": lambda y, x: (
        (y * 9).int() * (y * 9).short(),
        (y * 9).int() + torch.tensor([2]),
        torch.cat([(y * 9).char(), (y * 9).int()], 2),
    ),
    "sums of integers": lambda y, x: (
        (y * 99).byte().sum(-1),
        (y * 9).int().sum(1),
        ((y * 99).char() * 9).cumsum(1),
    ),
    "limits and order of integers": lambda y, x: ((y * 9).int().amax(-1), ((y * 99).char() * 9).sort(-1)[0]),
    "asked for by name": lambda y, x: (
        torch.zeros_like(y, dtype=torch.int16),
        (y * 9).int().sum(-1, dtype=torch.int32),
    ),
    "lengths": lambda y, x: (lengths(y).int() // 2, lengths(y) * 2.0, lengths(y).half(), lengths(y).bool()),
    "where its own type is asked for": lambda y, x: y.half() if y.int().dtype == torch.int32 else y,
}


def lengths(y):
    return torch.full((y.size(0),), y.size(1))


X = torch.from_numpy(np.random.default_rng(3).standard_normal((1, 24, 6), np.float32))


def same(got, expected):
    """Arrays of the model's types and shapes; halves by a step of theirs."""
    for a, b in zip(got, (t[0].numpy() for t in expected), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-3 if b.dtype == np.float16 else 1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", CASTS)
@torch.no_grad()
def test_an_engine_gives_the_type_of_the_model(kind):
    model, chunks, text = Model(CASTS[kind]).eval(), np.split(X[0].numpy(), (1, 9)), io.BytesIO()
    expected, engine = leaves(model(X)), ds.compile(model, ("B", "L", 6))
    engine.save(text, "json")
    assert [o.dtype for o in engine.outputs] == [str(t.dtype)[6:] for t in expected]

    def whole(parts):
        ends = [np.concatenate(p, engine.stream_axis(k)) for k, p in enumerate(zip(*map(leaves, parts)))]
        return [a if o.rate else a[0] for a, o in zip(ends, engine.outputs)]

    for each in (engine, ds.load(bytes_of(engine)), ds.load(text.getvalue()), pickle.loads(pickle.dumps(engine))):
        same(whole([each.step({"a": c}, ["a"][i:], ["a"][: i // 2])["a"] for i, c in enumerate(chunks)]), expected)
    with engine.stream("b") as stream:
        same(whole([stream.step(chunks[0]), stream.step(chunks[1]), stream.finish(chunks[2])]), expected)
    rows, _ = engine.step_batch(["c", "d"], np.stack([X[0], X[0]]), sos=True, eos=True)
    same([row[1] for row in leaves(rows)], expected)
    patched = ds.patch_module(Model(CASTS[kind]).eval()).online(backend="engine")
    y = patched(ds.stream_tensor([X[0]], ids=["a"], sos=True, eos=True, names=("B", "L", None)))
    same([a["a"].numpy().reshape(b[0].shape) for a, b in zip(leaves(y), expected)], expected)


def test_what_is_computed_goes_to_servers_and_into_arrays_of_the_caller():
    engine, kinds = (
        ds.compile(Model(CASTS["twice one stream"]).eval(), ("B", "L", 6)),
        ["float32"] * 3 + ["int64"] * 2,
    )
    plain = engine.as_computed()
    assert [o.computed for o in engine.outputs] == [o.dtype for o in plain.outputs] == kinds
    assert plain.fingerprint == engine.fingerprint
    out = tuple(np.zeros((1, 24, 6) if k == "float32" else (1, 24), k) for k in kinds)
    y, _ = engine.step_batch(["a"], X.numpy(), sos=True, eos=True, out=out)
    assert y is out and (out[0] == out[1]).all() and out[0].any()


def test_a_file_says_types_only_where_there_are_some():
    models = Model(CASTS["double"]).eval(), Model(lambda y, x: y).eval()
    double, plain = (bytes_of(ds.compile(model, ("B", "L", 6))) for model in models)
    assert b'"dreamstream.types":"float64"' in double and b"dreamstream.types" not in plain
    for damage in (b"float65", b"float16,", b"complex64"):
        with pytest.raises(ds.errors.FormatError):
            ds.load(
                double.replace(b'"float64"}', b'"%s"}' % damage).replace(b"  ", b" " * (2 + 7 - len(damage)), 1)
            )
    with pytest.raises(ds.errors.FormatError, match=r"dreamstream\.types"):
        ds.load(double.replace(b"dreamstream.types", b"dreamstream.typez"))


def test_the_native_front_end_casts_to_float64():
    class Native(ds.nn.Module):
        def forward(self, x):
            return x.double()[..., 1:], x

    engine = ds.load(bytes_of(ds.compile(Native().eval(), ("B", "L", 6))))
    y, x = engine(ds.stream_tensor([X[0].numpy()], ids=["a"], sos=True, eos=True, names=("B", "L", None)))
    assert (y["a"].dtype, x["a"].dtype) == (ds.float64, ds.float32) and (
        y["a"].numpy() == X[0, :, 1:].numpy()
    ).all()
    same([a[:, -5:] for a in engine.step({"b": X[0].numpy()}, "b", "b")["b"]], [X[..., 1:].double(), X[..., 1:]])


def test_what_is_computed_in_float64_is_refused_by_its_line():
    class Widened(torch.nn.Module):
        def forward(self, x):
            return x.double() * 2

    with pytest.raises(
        ds.errors.DTypeError, match=r"computes in float32.*`return x\.double\(\) \* 2`.*do it last"
    ):
        ds.compile(Widened(), ("B", 4, "L"))


def test_calls_give_the_types_of_torch():
    """Without frames in the first call, too."""
    x = X - 0.5
    for function in (lambda y, x: ((y * 9).short() * 2).sum(1), lambda y, x: ((y * 99).char() + 1, y > 0)):
        model = Model(function).eval()
        wanted, online = leaves(model(x)), ds.patch_module(model).online()
        for k, (a, b) in enumerate(((0, 0), (0, 7), (7, 24))):
            chunk = ds.stream_tensor([x[0, a:b]], ids=["a"], sos=not k, eos=k == 2, names=("B", "L", None))
            assert [y.dtype for y in leaves(online(chunk))] == [y.dtype for y in wanted]


@dataclass(frozen=True)
class Output:
    y: Any
    others: Any = None


@pytest.mark.parametrize("layer", [nn, ds.nn])
def test_dataclasses_are_given_back_with_frames(layer):
    class Returns(layer.Module):
        def forward(self, x):
            return {"of": Output(x.cumsum(1), [Output(x * 2), 3]), "plain": plain}

    plain = Output(1, [2])

    x = X[0].numpy()
    online = ds.patch_module(Returns().eval()).online()
    for k, (a, b) in enumerate(((0, 7), (7, 24))):
        chunk = torch.from_numpy(x[a:b]) if layer is nn else x[a:b]
        found = online(ds.stream_tensor([chunk], ids=["a"], sos=not k, eos=k == 1, names=("B", "L", None)))
        out = found["of"]
        assert (
            found["plain"] is plain and type(out) is Output and out.others[1] == 3 and out.others[0].others is None
        )
        np.testing.assert_allclose(np.asarray(out.y["a"]), x.cumsum(0)[a:b], atol=1e-5)
        np.testing.assert_array_equal(np.asarray(out.others[0].y["a"]), x[a:b] * 2)


@pytest.mark.parametrize("layer", [nn, ds.nn])
def test_an_engine_gives_dicts_of_dataclasses(layer):
    class Returns(layer.Module):
        def forward(self, x):
            return Output(x.cumsum(1), (Output(x * 2),))

    x = X[0].numpy()
    out = ds.compile(Returns().eval(), ("B", "L", x.shape[1])).step({"a": x}, sos=["a"], eos=["a"])["a"]
    np.testing.assert_allclose(out["y"], x.cumsum(0), atol=1e-5)
    np.testing.assert_array_equal(out["others"][0]["y"], x * 2)
