"""Outputs that a torch model casts last: callers of an engine are given the type of the model offline."""

import io
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import dreamstream as ds
from dreamstream.engine.load import bytes_of


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
    "double by name, moved": lambda y, x: (
        y.to(torch.float64).reshape(x.size(0), x.size(1), 2, 3)[..., 1:].transpose(2, 3)
    ),
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
    "complex and its parts": lambda y, x: [
        z := torch.view_as_complex(y.unflatten(2, (3, 2))),
        torch.view_as_real(z),
    ],
    "stft": lambda y, x: torch.stft(
        y[..., 0], 8, 4, window=torch.hann_window(8), return_complex=True, center=False
    ),
    "where its own type is asked for": lambda y, x: y.half() if y.int().dtype == torch.int32 else y,
}
X = torch.from_numpy(np.random.default_rng(3).standard_normal((1, 24, 6), np.float32))


def whole(tree):
    return [t[0].numpy() for t in ds.stream.tree.leaves(tree)]


def held(engine, got, expected):
    """Each output is the whole's, of its type; halves by a step of theirs."""
    assert len(got) == len(expected)
    for k, (a, b) in enumerate(zip(got, expected)):
        a = np.concatenate(a, engine.stream_axis(k))
        a = a[0] if engine.outputs[k].rate == 0 else a
        assert (a.dtype, a.shape) == (b.dtype, b.shape) and engine.outputs[k].dtype == b.dtype.name
        np.testing.assert_allclose(a, b, rtol=1e-3 if b.dtype == np.float16 else 1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", CASTS)
@torch.no_grad()
def test_an_engine_gives_the_type_of_the_model(kind):
    model = Model(CASTS[kind]).eval()
    expected, leaves = whole(model(X)), ds.stream.tree.leaves
    engine = ds.compile(model, ("B", "L", 6))
    text = io.BytesIO()
    engine.save(text, "json")
    for each in (engine, ds.load(bytes_of(engine)), ds.load(text.getvalue()), pickle.loads(pickle.dumps(engine))):
        chunks = [X[0, a:b].numpy() for a, b in ((0, 1), (1, 9), (9, 24))]
        out = [
            leaves(each.step({"a": c}, sos=["a"] * (i == 0), eos=["a"] * (i == 2))["a"])
            for i, c in enumerate(chunks)
        ]
        held(each, list(zip(*out)), expected)
    with engine.stream("b") as stream:
        out = [leaves(stream.step(chunks[0])), leaves(stream.step(chunks[1])), leaves(stream.finish(chunks[2]))]
    held(engine, list(zip(*out)), expected)
    rows, _ = engine.step_batch(["c", "d"], np.stack([X[0], X[0]]), sos=True, eos=True)
    for row, b in zip(leaves(rows), expected):
        assert row.dtype == b.dtype
        np.testing.assert_allclose(row[1], b, rtol=1e-3 if b.dtype == np.float16 else 1e-5, atol=1e-5)

    patched = ds.patch_module(Model(CASTS[kind]).eval()).online(backend="engine")
    y = patched(ds.stream_tensor([X[0]], ids=["a"], sos=True, eos=True, names=("B", "L", None)))
    for a, b in zip(leaves(y), leaves(model(X))):
        assert a.dtype == b.dtype
        torch.testing.assert_close(
            a["a"].reshape(b[0].shape), b[0], rtol=1e-3 if a.dtype == torch.half else 1e-5, atol=1e-5
        )


def test_what_is_computed_goes_to_servers_and_into_arrays_of_the_caller():
    engine = ds.compile(Model(CASTS["twice one stream"]).eval(), ("B", "L", 6))
    assert [o.computed for o in engine.outputs] == ["float32"] * 3 + ["int64"] * 2
    plain = engine.as_computed()
    assert [o.dtype for o in plain.outputs] == ["float32"] * 3 + [
        "int64"
    ] * 2 and plain.fingerprint == engine.fingerprint
    out = tuple(np.zeros((1, 24, 6), np.float32) for _ in range(3)) + tuple(
        np.zeros((1, 24), np.int64) for _ in range(2)
    )
    y, _ = engine.step_batch(["a"], X.numpy(), sos=True, eos=True, out=out)
    assert y is out and (out[0] == out[1]).all() and out[0].any()


def test_a_file_says_types_only_where_there_are_some():
    double, plain = (
        bytes_of(ds.compile(Model(f).eval(), ("B", "L", 6))) for f in (CASTS["double"], lambda y, x: y)
    )
    assert b'"dreamstream.types":"float64"' in double and b"dreamstream.types" not in plain
    for damage in (b"float65", b"float16,", b"complex64"):
        with pytest.raises(ds.errors.FormatError):
            ds.load(
                double.replace(b'"float64"}', b'"%s"}' % damage).replace(b"  ", b" " * (2 + 7 - len(damage)), 1)
            )
    with pytest.raises(ds.errors.FormatError, match=r"dreamstream\.types"):
        ds.load(double.replace(b"dreamstream.types", b"dreamstream.typez"))
