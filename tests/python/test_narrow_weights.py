"""Weights in 16 and 8 bits: the bits of a model whose weights were rounded so, in memory and in files."""

import copy
import itertools
import json
import math
import sys
from typing import Any

import faults
import numpy as np
import pytest
from dsm_files import pack
from narrow import SPEC, Net, answer, compiled, exchanged, held
from same_bits import content

import dreamstream as ds
from dreamstream import _core, nn
from dreamstream.container import read
from dreamstream.engine.weights import FORMATS

NARROW = FORMATS[1:]
DTYPES = {"fp16": "F16", "bf16": "BF16", "int8": "I8"}
BACKENDS = [b["name"] for b in _core.config()["backends"] if b["usable"] and b["bitwise"]]


def rounded(x: Any, how: str, channels: int) -> Any:
    """What numbers of that format are next to these, ties to even."""
    x = np.asarray(x, np.float32)
    if how == "fp16":
        return x.astype(np.float16).astype(np.float32)
    if how == "bf16":
        bits = x.view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    rows = x.reshape(channels, -1)
    scale = (np.abs(rows).max(1, keepdims=True) / np.float32(127)).astype(np.float32)
    scale = ((scale.view(np.uint32) + 0xFF) & 0xFFFFFF00).view(np.float32)
    return (np.rint(rows / scale) * scale + np.float32(0)).reshape(x.shape)  # one zero only


def round_layer(layer: Any, how: str) -> None:
    """A transposed convolution's columns are an output channel's taps of one phase, in each group."""
    for name, weight in list(layer.named_parameters(recurse=False)):
        if not name.startswith("weight") or weight.ndim == 1:
            continue
        w = weight.numpy()
        if isinstance(layer, (nn.ConvTranspose1d, nn.ConvTranspose2d)):
            steps = [s // math.gcd(s, d) for s, d in zip(layer.stride, layer.dilation)]
            for phase in itertools.product(*map(range, steps)):
                at = (..., *(slice(f, None, step) for f, step in zip(phase, steps)))
                for group in np.split(w, layer.groups):
                    turned = group.swapaxes(0, 1)[at]
                    turned[...] = rounded(turned, how, len(turned)) if turned.size else turned
        else:
            w = rounded(w, how, len(w))
        weight.detach().copy_(ds.tensor(w))


SPEC_TIED = ("B", "L", 64)


class Tied(nn.Module):
    """Two layers that share a weight, one of its own, and one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        ds.manual_seed(0)
        self.first, self.second, self.own = (nn.Linear(64, 64) for _ in range(3))
        self.second.weight = self.first.weight

    def forward(self, x: Any) -> Any:
        return self.first(self.second(self.first(x)) + self.own(x))


def wide_twin(how: str) -> Net:
    """The same network with weights that were rounded by hand."""
    model = Net()
    for layer in model.modules():
        round_layer(layer, how)
    return model


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("how", NARROW)
def test_bits_are_those_of_a_model_that_was_rounded(how, backend):
    wanted = ds.compile(wide_twin(how), SPEC, backend="ref")
    engine = compiled(weights=how, backend=backend)
    held(engine, backend, answer(wanted))
    assert engine.fingerprint == wanted.fingerprint


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("kind", "kernel", "options"),
    [
        (nn.ConvTranspose1d, 2, {"stride": 3}),
        (nn.ConvTranspose1d, 5, {"stride": 4, "dilation": 2}),
        (nn.ConvTranspose1d, 4, {"stride": 2, "groups": 6}),
        (nn.ConvTranspose2d, (3, 4), {"stride": (2, 3), "padding": 1}),
        (nn.ConvTranspose2d, (4, 3), {"stride": (1, 2), "groups": 2, "dilation": (2, 1)}),
    ],
)
def test_transposed_convolutions_have_scales_by_phase(kind, kernel, options, backend):
    ds.manual_seed(0)
    layer, spec = kind(6, 6, kernel, **options), ("B", 6, *([7] if kind is nn.ConvTranspose2d else []), "L")
    x = np.random.default_rng(0).standard_normal((*spec[1:-1], 20)).astype(np.float32)
    narrow = ds.compile(layer, spec, weights="int8", backend=backend)
    round_layer(layer, "int8")
    wide = ds.compile(layer, spec, backend=backend)
    assert narrow.fingerprint == wide.fingerprint
    for engine in (narrow, ds.load(content(narrow), backend=backend)):
        y = engine.step({"a": x}, sos=["a"], eos=["a"])["a"]
        assert y.tobytes() == wide.step({"a": x}, sos=["a"], eos=["a"])["a"].tobytes()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("how", [{"weights": f} for f in NARROW] + [{"products": "bf16"}, {"products": "int8"}])
def test_files_that_are_mapped(how, backend, tmp_path):
    """Narrow weights are read where the file has them: the same bits and files as of those that are copied."""
    saved = compiled(**how, verify=False)
    saved.save(tmp_path / "m.dsm")
    engine = ds.load(tmp_path / "m.dsm", backend=backend)
    held(engine, backend, answer(compiled(**how, backend=backend, verify=False)))
    assert engine.fingerprint == saved.fingerprint and content(engine) == content(saved)
    for other in (*FORMATS, "auto", {"lstm": "fp16", "gru": "int8"}):
        of_path = ds.load(tmp_path / "m.dsm", weights=other, backend=backend)
        of_bytes = ds.load(content(saved), weights=other, backend=backend)
        assert content(of_path) == content(of_bytes)
        np.testing.assert_array_equal(answer(of_path), answer(of_bytes))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("how", FORMATS)
def test_the_model_may_change_behind_an_engine(how, backend):
    """What is packed is lent until it is, and what is not is copied."""
    model = Net()
    engine = ds.compile(model, SPEC, weights=how, backend=backend, verify=False)
    file, y = content(engine), answer(engine)
    for p in model.parameters():
        p.numpy()[...] = np.nan
    assert content(engine) == file and answer(engine).tobytes() == y.tobytes()


class Views(nn.Module):
    """Weights that lie in one another's memory: all of it, rows at its start, and rows within."""

    def __init__(self) -> None:
        super().__init__()
        ds.manual_seed(0)
        self.all, self.table = nn.Linear(32, 96), nn.Embedding(96, 32)
        self.table.weight = self.all.weight

    def forward(self, x: Any) -> Any:
        rows = self.all.weight.numpy()
        y = self.all(x) + self.table(x.sum(-1).long() * 0 + 3).sum(-1, keepdim=True)
        return ds.cat([y, *(nn.functional.linear(x, ds.tensor(rows)[a:b]) for a, b in ((0, 32), (32, 64)))], -1)


@pytest.mark.parametrize("how", [*FORMATS, {"all": "int8"}], ids=str)
def test_weights_that_lie_in_one_another(how):
    model, x = Views(), {"a": np.random.default_rng(0).standard_normal((3, 32)).astype(np.float32)}
    spec, options = ("B", "L", 32), {"weights": how, "verify": False}
    engines = [ds.compile(model, spec, backend=b, **options) for b in BACKENDS]
    apart = copy.deepcopy(model)
    apart.table.weight = nn.Parameter(model.table.weight.numpy().copy())
    engines.append(ds.compile(apart, spec, backend="ref", **options))
    del apart
    model.all.weight.numpy()[...] = np.nan
    first, *others = (e.step(x, sos=["a"], eos=["a"])["a"] for e in engines)
    assert np.isfinite(first).all() and all(y.tobytes() == first.tobytes() for y in others)


@pytest.mark.parametrize("form", [*FORMATS, "auto"])
def test_memory_while_an_engine_is_made(form, tmp_path):
    """What it has in the end, of which less than a layer's weights more; two more when a mapped file is loaded."""
    model = nn.Sequential(*(nn.Linear(1500, 1500) for _ in range(4)))
    layer = 4 * 1500 * 1500
    faults.install()
    try:
        engine = ds.compile(model, ("B", "L", 1500), weights=form, verify=False)
        compiling, made = faults.stats()["peak_bytes"], engine.weights_size
        engine.save(tmp_path / "m.dsm")
        del engine
        faults.install()
        engine = ds.load(tmp_path / "m.dsm")
        loading = faults.stats()["peak_bytes"]
        del engine
        faults.install()
        engine = ds.load((tmp_path / "m.dsm").read_bytes())
        left = faults.stats()["live_bytes"]
        del engine
    finally:
        faults.uninstall()
    assert made >= layer and compiling < made + 0.5 * layer and loading < made + 2.5 * layer
    assert left < made + 0.5 * layer, "of the bytes of a file nothing stays"


@pytest.mark.parametrize("how", NARROW)
def test_files_hold_what_is_stored(how):
    engine = compiled(weights=how)
    whole = content(engine)
    tensors = {t.name: t.dtype for t in read(whole)[0] if not t.name.startswith(".pad.")}
    for name in ("conv", "linear", "up", "up_in_groups"):
        assert (
            tensors[f"{name}.weight"] == tensors["lstm.weight_hh_l1"] == tensors["cell.weight_hh"] == DTYPES[how]
        )
        assert (f"{name}.weight.scales" in tensors) is (how == "int8")
    assert tensors["conv.bias"] == "F32"
    again = ds.load(whole)
    assert content(again) == whole and answer(again).tobytes() == answer(engine).tobytes()
    assert content(ds.load(content(compiled()), weights=how)) == whole
    for form in ("json", "xml"):
        assert content(ds.load(content(engine, form))) == whole
    wide = ds.load(whole, weights="fp32")
    assert answer(wide).tobytes() == answer(engine).tobytes() and wide.fingerprint == engine.fingerprint


def test_snapshots_go_across_formats():
    """What streams have kept is theirs whatever the weights are stored in; a state of another model is not."""
    engines = [compiled(), *(ds.load(content(compiled(weights=w))) for w in NARROW)]
    exchanged([*engines, ds.load(content(engines[1]), weights="int8")])
    with pytest.raises(ds.FormatError, match="another model"):
        ds.compile(wide_twin("bf16"), SPEC).restore(engines[0].snapshot("a"), "c")


@pytest.mark.parametrize("how", [{kind: f} for kind, f in itertools.product(("weights", "products"), NARROW)
                                 if (kind, f) != ("products", "fp16")])  # fmt: skip
@pytest.mark.parametrize("verify", [False, True])
def test_compile_stores_at_once_what_a_file_would(how, verify, monkeypatch):
    """No file is written and read for it."""
    model = Tied()
    want = ds.load(content(ds.compile(model, SPEC_TIED, verify=False)), **how)
    monkeypatch.setattr(sys.modules["dreamstream.engine.load"], "bytes_of", None)
    engine = ds.compile(model, SPEC_TIED, verify=verify, **how)
    assert engine.weights_size == want.weights_size < 4 * 2 * 64 * 64
    assert content(engine) == content(want)


class Looped(nn.Linear):
    def forward(self, x: Any) -> Any:
        h, ys = ds.zeros(x.size(0), 512), []
        for t in range(x.size(1)):
            h = super().forward(x[:, t] + h).tanh() if t > 0 else super().forward(x[:, t])
            ys.append(h)
        return ds.stack(ys, 1)


@pytest.mark.parametrize("kind", [nn.Linear, Looped])
def test_memory(kind):
    model = kind(512, 512)
    wide, *narrow = (ds.compile(model, ("B", "L", 512), weights=w, verify=False).weights_size for w in FORMATS)
    assert wide < 1.1 * 4 * 512 * 512 and [round(wide / n) for n in narrow] == [2, 2, 4]
    two = ds.compile(
        nn.Sequential(model, nn.Linear(512, 512)), ("B", "L", 512), weights={"1": "bf16"}, verify=False
    )
    assert round(2 * two.weights_size / wide) == 3, "what stays wide is held once, too"


def test_layers_by_patterns():
    engine = compiled(weights={"*": "int8", "lstm": "bf16", "linear": "fp32"})
    stored = {t.name: t.dtype for t in read(content(engine))[0]}
    assert (stored["conv.weight"], stored["lstm.weight_ih_l0"], stored["linear.weight"]) == ("I8", "BF16", "F32")
    assert "weights in bf16" in engine.summary()


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ("fp8", "expected one of fp32, fp16, bf16, int8, auto, got 'fp8'"),
        ({"nothing.*": "bf16"}, r"'nothing\.\*' fits no layer with matrices; there are conv"),
    ],
)
def test_words_that_mean_nothing(weights, text):
    with pytest.raises(ValueError, match=text):
        compiled(weights=weights)


def test_beyond_the_range():
    model = nn.Linear(4, 3)
    model.weight.detach().copy_(ds.tensor(np.full((3, 4), 7e4, np.float32)))
    with pytest.raises(ds.DTypeError, match=r"weight 'weight': element 0 is 70000, beyond the range of fp16"):
        ds.compile(model, ("B", "L", 4), weights="fp16")
    ds.compile(model, ("B", "L", 4), weights="bf16")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_channel(bad):
    model = nn.Linear(4, 3)
    values = np.ones((3, 4), np.float32)
    values[1, 2] = bad
    model.weight.detach().copy_(ds.tensor(values))
    for how in NARROW:
        engine = ds.compile(model, ("B", "L", 4), weights=how, verify=False)
        y = engine.step({"a": np.ones((1, 4), np.float32)}, sos=["a"], eos=["a"])["a"][0]
        assert np.isfinite(y[[0, 2]]).all() and not np.isfinite(y[1])
        again = ds.load(content(engine)).step({"a": np.ones((1, 4), np.float32)}, sos=["a"], eos=["a"])["a"][0]
        np.testing.assert_array_equal(again, y)


def test_scales_that_are_missing():
    whole = content(compiled(weights="int8"))
    broken = whole.replace(b"conv.weight.scales", b"conv.weight.skales")
    with pytest.raises(
        ds.FormatError, match=r'expected the scales of an I8 tensor, a tensor "conv.weight.scales"'
    ):
        ds.load(broken)


@pytest.mark.parametrize("change", [lambda s: s * np.float32(1.0001), lambda s: 0 * s + np.inf])
def test_scales_of_others(change):
    """Numbers that rounding to int8 would change are no weights in int8: nobody gets others than the file has."""
    whole = content(compiled(weights="int8"))
    n = int.from_bytes(whole[:8], "little")
    header, data = json.loads(whole[8 : 8 + n]), bytearray(whole[8 + n :])
    del header["__metadata__"]["dreamstream.fingerprint"]
    begin, end = header["conv.weight.scales"]["data_offsets"]
    data[begin:end] = change(np.frombuffer(data[begin:end], np.float32)).tobytes()
    broken = pack(json.dumps(header), bytes(data))
    with pytest.raises(ds.FormatError, match=r"conv.*weight 'conv.weight': rounded to int8"):
        ds.load(broken)


def test_the_forward_runs_as_often_as_in_fp32(capsys: Any) -> None:
    """The graph that is compared and the one that is stored narrow are of one capture."""

    class Said(nn.Linear):
        def forward(self, x: Any) -> Any:
            print("run")  # what else a forward changes is undone
            return super().forward(x)

    said = []
    for how in ({}, {"weights": "bf16"}, {"products": "int8"}):
        ds.compile(Said(8, 8).eval(), ("B", "L", 8), **how)
        said.append(capsys.readouterr().out)
    assert said == ["run\n" * 4] * 3


class Writes(nn.Module):
    """A forward that writes into a parameter between two uses of it, and back; and into a table that it makes."""

    def __init__(self, parameter: bool) -> None:
        super().__init__()
        ds.manual_seed(0)
        self.layer, self.parameter = nn.Linear(6, 6), parameter

    def forward(self, x: Any) -> Any:
        weight = self.layer.weight if self.parameter else ds.tensor(self.layer.weight.numpy().copy())
        y = nn.functional.linear(x, weight)
        weight.numpy()[...] *= 2
        y = y + nn.functional.linear(x, weight)
        weight.numpy()[...] /= 2
        return y


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("how", ["fp32", "bf16"])
@pytest.mark.parametrize("parameter", [True, False])
def test_a_forward_that_writes_into_weights(parameter, how, verify):
    """Each use has the numbers of its time, though a graph has the model's own until it is planned."""
    model, x = Writes(parameter), np.random.default_rng(0).standard_normal((50, 6)).astype(np.float32)
    engine = ds.compile(model, ("B", "L", 6), weights=how, verify=verify)
    y = engine.step({"a": x}, sos=["a"], eos=["a"])["a"]
    if how != "fp32":
        round_layer(model.layer, how)
    want = model(ds.tensor(x[None])).numpy()[0]
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)
