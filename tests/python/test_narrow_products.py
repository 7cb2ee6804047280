"""Products of rows that are stored as weights are: their definition, and its bits however they are made."""

import copy
import functools
import json
import pickle
from typing import Any

import numpy as np
import pytest
from narrow import X, answer, compiled, exchanged, held
from same_bits import content

import dreamstream as ds
from dreamstream import _core, nn

NARROW = ("bf16", "int8")
TILES = "fp32-tiles"
BACKENDS = [b["name"] for b in _core.config()["backends"] if b["usable"]]
OWN = [b["name"] for b in _core.config()["backends"] if b["usable"] and b["bitwise"]]
TILED = [name for name in OWN if name in ("ref", "x86_amx")]  # the others have no tile units
ALL = [(how, name) for how in NARROW for name in BACKENDS] + [(TILES, name) for name in TILED]
F32 = np.float32


# ---------------------------------------------------------------- the definition, once more
def int8_weight(w: Any) -> tuple[Any, Any]:
    scale = (np.abs(w).max(1, keepdims=True) / F32(127)).astype(F32)
    scale = ((scale.view(np.uint32) + 0xFF) & np.uint32(0xFFFFFF00)).view(F32)
    return np.rint(w / scale).astype(np.int64), scale[:, 0]


def int8_rows(x: Any) -> tuple[Any, Any, Any]:
    high, low = (np.maximum(bound.max(1, keepdims=True), F32(0)) for bound in (x, -x))
    nothing = np.maximum(high, low) < 2.0**-100
    scale = np.where(nothing, F32(0), high * F32(1 / 254) + low * F32(1 / 254))
    factor = np.where(nothing, F32(0), F32(1) / np.where(nothing, F32(1), scale))
    zero = np.ceil(low * factor)
    return np.rint(fma(x, factor, zero)).astype(np.int64), zero.astype(np.int64), scale


def product(how: str, x: Any, w: Any, bias: Any) -> Any:
    if how != "int8":
        return bf16_product(x, w, bias, 3 if how == TILES else 1)
    (u, zero, sx), (p, sw) = int8_rows(x), int8_weight(w)
    return ((u - zero) @ p.T).astype(F32) * (sx * sw) + bias


def bf16(x: Any) -> Any:
    bits = x.view(np.uint32).astype(np.uint64)
    y = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(F32)
    return np.where(np.abs(y) < 2.0**-126, F32(0), y)


def fma(a: Any, b: Any, c: Any) -> Any:
    """a b + c, rounded once: of numbers so near each other that their sum is a double but for its last bits."""
    exact = a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)
    return flushed(exact.astype(F32))


def flushed(x: Any) -> Any:
    return np.where(np.abs(x) < 2.0**-126, F32(0), x)


def parts(x: Any, n: int) -> list[Any]:
    """x as numbers of bf16, each of what the ones before lack, in whole cells."""
    found = []
    for _ in range(n):
        found.append(bf16(x))
        x = flushed(x - found[-1])
    return [np.pad(p, ((0, 0), (0, -x.shape[1] % 32))) for p in found]


def bf16_product(x: Any, w: Any, bias: Any, n_parts: int = 1) -> Any:
    rows, columns = parts(flushed(x), n_parts), parts(flushed(w) if n_parts > 1 else w, n_parts)
    terms = [(0, 2), (0, 1), (1, 1), (1, 0), (2, 0), (0, 0)] if n_parts == 3 else [(0, 0)]
    total = np.zeros((len(x), len(w)), F32)
    for cell in range(0, rows[0].shape[1], 32):
        for i, j in terms:
            even, odd = np.zeros_like(total), np.zeros_like(total)
            for k in range(cell, cell + 32, 2):
                even = fma(rows[i][:, k, None], columns[j][None, :, k], even)
                odd = fma(rows[i][:, k + 1, None], columns[j][None, :, k + 1], odd)
            total = flushed(total + flushed(even + odd))
    return total + bias


def linear(w: Any, bias: Any) -> nn.Linear:
    layer = nn.Linear(w.shape[1], w.shape[0])
    layer.weight.detach().copy_(ds.tensor(w))
    layer.bias.detach().copy_(ds.tensor(bias))
    return layer


def problem(depth: int, columns: int, rows: int) -> tuple[Any, Any, Any]:
    draw = np.random.default_rng([depth, columns, rows])
    return tuple(draw.standard_normal(s).astype(F32) for s in ((rows, depth), (columns, depth), (columns,)))


def of_layer(layer: Any, x: Any, spec: Any, how: str, **options: Any) -> Any:
    engine = ds.compile(layer, spec, products=how, verify=False, **options)
    return engine.step({"a": x}, sos=["a"], eos=["a"])["a"]


@functools.cache
def defined(how: str, *sizes: int) -> bytes:
    """The product of a problem by its definition, which no backend changes."""
    return product(how, *problem(*sizes)).tobytes()


@pytest.mark.parametrize(("how", "backend"), ALL)
def test_linear_is_the_definition(how, backend):
    sizes = (1, 2, 3, 5, 6, 7, 13, 40, 130)  # each meets two of the depths
    for k, (depth, columns) in enumerate([(1, 1), (4, 3), (33, 70), (64, 32), (65, 31), (500, 97)]):
        for rows in sizes[k % 3 :: 3]:
            x, w, bias = problem(depth, columns, rows)
            y = of_layer(linear(w, bias), x, ("B", "L", depth), how, backend=backend)
            assert y.tobytes() == defined(how, depth, columns, rows), (depth, columns, rows)


@pytest.mark.parametrize(("how", "backend"), [pair for pair in ALL if pair[0] == "int8"])
def test_rows_of_one_sign_and_of_all_sizes(how, backend):
    x, w, bias = problem(130, 40, 13)
    most = np.finfo(F32).max / np.abs(x).max() * F32(0.999)
    shifted = (np.abs(x), -np.abs(x), np.maximum(x, 0), x + 3, x - F32(0.1), np.sign(x))
    for rows in (*shifted, most * x, most * np.abs(x)):
        rows = np.concatenate([rows, np.trunc(8 * x)], dtype=F32)
        y = of_layer(linear(w, bias), rows, ("B", "L", 130), how, backend=backend)
        with np.errstate(over="ignore"):
            assert y.tobytes() == product(how, rows, w, bias).tobytes()


@pytest.mark.parametrize("how", NARROW)
def test_the_greatest_depth(how):
    depth = {"int8": 66000, "bf16": 33000}[how]
    x, w, bias = problem(depth, 5, 3)
    x[0], w[0], w[1] = 1, 1, -1
    assert of_layer(linear(w, bias), x, ("B", "L", depth), how).tobytes() == product(how, x, w, bias).tobytes()


@pytest.mark.parametrize(("how", "backend"), [*((how, None) for how in NARROW), (TILES, TILED[-1])])
def test_convolutions_are_products_of_windows(how, backend):
    draw = np.random.default_rng(0)
    x = draw.standard_normal((10, 60)).astype(F32)
    for groups in (1, 5):
        layer = nn.Conv1d(10, 40, 3, groups=groups, dilation=2, stride=2)
        windows = np.stack([x[:, i : i + 5 : 2] for i in range(0, 56, 2)])
        w, bias = (np.split(p.numpy(), groups) for p in (layer.weight, layer.bias))
        w = [part.transpose(0, 2, 1).reshape(len(part), -1) for part in w]  # tap by tap
        rows = [part.transpose(0, 2, 1).reshape(len(part), -1) for part in np.split(windows, groups, 1)]
        wanted = np.concatenate([product(how, rows[g], w[g], bias[g]) for g in range(groups)], 1)
        y = of_layer(layer, x, ("B", 10, "L"), how, backend=backend)
        assert y.tobytes() == np.ascontiguousarray(wanted.T).tobytes()


@pytest.mark.parametrize(("how", "backend"), ALL)
def test_transposed_convolutions_are_products_of_windows(how, backend):
    draw = np.random.default_rng(0)
    x = draw.standard_normal((10, 12)).astype(F32)
    layer = nn.ConvTranspose1d(10, 40, 4, stride=2)
    padded = np.pad(x, ((0, 0), (1, 1))).T
    rows = np.concatenate([padded[:-1], padded[1:]], 1)  # the frame before, and this one
    w = layer.weight.numpy()
    phases = [np.concatenate([w[..., f + 2], w[..., f]]).T for f in (0, 1)]
    wanted = np.stack([product(how, rows, np.ascontiguousarray(f), layer.bias.numpy()) for f in phases], 1)
    y = of_layer(layer, x, ("B", 10, "L"), how, backend=backend)
    assert y.tobytes() == np.ascontiguousarray(wanted.reshape(-1, 40).T).tobytes()


@pytest.mark.parametrize(("how", "backend"), ALL)
def test_what_is_not_finite_stays_in_its_row(how, backend):
    x, w, bias = problem(70, 40, 9)
    wanted = product(how, x, w, bias)
    x[2, 3], x[5, 69], x[7, 0] = np.nan, np.inf, -np.inf
    y = of_layer(linear(w, bias), x, ("B", "L", 70), how, backend=backend)
    own = [0, 1, 3, 4, 6, 8]
    assert not np.isfinite(y[[2, 5, 7]]).any() and y[own].tobytes() == wanted[own].tobytes()
    assert np.isnan(y[[2] if how == "bf16" else [2, 5, 7]]).all()


@pytest.mark.parametrize(("how", "backend"), ALL)
def test_small_rows(how, backend):
    x, w, bias = problem(70, 40, 9)
    scales = [0, 2.0**-149, 2.0**-130, 2.0**-126, 2.0**-102, 2.0**-100, 2.0**-99, 2.0**-60, 2.0**100]
    x *= np.array(scales, F32)[:, None]
    x[0, 5], bias = -0.0, np.zeros_like(bias)
    for scale in (1, 2.0**-24, 2.0**-60, 2.0**-126):
        y = of_layer(linear(w * F32(scale), bias), x, ("B", "L", 70), how, backend=backend)
        wanted = product(how, x, w * F32(scale), bias) if how != "int8" or scale > 2.0**-100 else 0 * y
        assert y.tobytes() == (wanted + F32(0)).tobytes()


@pytest.mark.parametrize("backend", BACKENDS)
def test_sums_beside_the_least_normal_number(backend):
    """What rounds to 2^-126 in 24 bits is that; what only does so where numbers below are kept is zero."""
    least = 2.0**-126
    x = np.array([[2.0**-100, 2.0**-63, 0, 0], [-(2.0**-100), -(2.0**-63), 0, 0], [0, 0, 2.0**-63, 1]], F32)
    w = np.array(
        [[2.0**-26, 0, 0, 0], [2.0**-27, 0, 0, 0], [0, 0, 2.0**-63, -least], [0, 0, 2.0**-64, least]], F32
    )
    y = of_layer(linear(w, np.zeros(4, F32)), x, ("B", "L", 4), "bf16", backend=backend)
    np.testing.assert_array_equal(y, [[least, 0, 0, 0], [-least, 0, 0, 0], [0, 0, 0, least]])
    near = np.array([[1 + 2.0**-7] * 2 + [0.0, 0.0]], F32) * F32(2.0**-63)
    for factor in np.linspace(0.98, 1, 60):
        column = (np.array([[factor, 0, factor / 2, 0]], F32) * F32(2.0**-63)).astype(F32)
        wanted = bf16_product(near, column, np.zeros(1, F32))
        y = of_layer(linear(column, np.zeros(1, F32)), near, ("B", "L", 4), "bf16", backend=backend)
        assert y.tobytes() == (wanted + F32(0)).tobytes()


# ---------------------------------------------------------------- networks
@pytest.mark.parametrize(("how", "backend"), [pair for pair in ALL if pair[1] in OWN])
def test_bits_of_chunks_batches_and_threads(how, backend):
    wanted, plain = answer(compiled(products=how, backend="ref")), answer(compiled())
    near = 1e-5 if how == TILES else 0.05
    assert wanted.tobytes() != plain.tobytes() and np.abs(wanted - plain).max() < near * np.abs(plain).max()
    held(compiled(products=how, backend=backend), backend, wanted, products=how)


@pytest.mark.parametrize("how", NARROW)
def test_files(how):
    engine, wide = compiled(products=how), compiled()
    whole, only = content(engine), content(compiled(weights=how))
    again = ds.load(whole)
    assert content(again) == whole and answer(again).tobytes() == answer(engine).tobytes()
    assert content(ds.load(content(wide), products=how)) == whole == content(ds.load(only, products=how))
    assert content(ds.load(whole, products="fp32")) == content(ds.load(whole, weights=how, products="fp32"))
    assert content(ds.load(whole, products="fp32")) == content(ds.load(only)) or how != "int8"
    assert engine.fingerprint != ds.load(whole, products="fp32").fingerprint
    assert answer(ds.load(whole, weights="fp32")).tobytes() == answer(ds.load(only)).tobytes()
    for form in ("json", "xml"):
        assert content(ds.load(content(engine, form))) == whole


def test_files_know_nothing_of_tiles():
    """What is computed otherwise by tiles is stored as it is, and so are states."""
    tiled, plain = compiled(products=TILES, backend="ref"), compiled(backend="ref")
    assert tiled.summary().count(f"products in {TILES}") > 2
    for form in ("dsm", "json"):
        assert content(tiled, form) == content(plain, form)
    again = ds.load(content(plain), products=TILES, backend="ref")
    assert answer(again).tobytes() == answer(tiled).tobytes() != answer(plain).tobytes()
    for other in (copy.deepcopy(tiled), pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(tiled))))):
        assert answer(other).tobytes() == answer(tiled).tobytes()
    some = compiled(products={"lstm": TILES, "conv": "int8"}, backend="ref")
    found = ds.compare(plain, some, X)
    assert {row.path: (row.stored, row.products) for row in found.layers} == {
        "lstm": ("fp32", TILES),
        "conv": ("int8", "int8"),
    }
    (error,) = ds.compare(plain, tiled, X).outputs
    assert error.largest == np.abs(answer(tiled) - answer(plain)).max() > 0
    with pytest.raises(ValueError, match="model: expected weights and products in fp32"):
        ds.compare(tiled, some, X)
    exchanged([tiled, plain, compiled(products="bf16", backend="ref")])
    text = json.loads(content(plain, "json"))
    text["dreamstream"]["graph"]["nodes"][0]["products"] = TILES
    with pytest.raises(ds.FormatError, match="products"):
        ds.load(json.dumps(text).encode())


@pytest.mark.parametrize("backend", [name for name in OWN if name not in TILED])
def test_tiles_are_refused_where_there_are_none(backend):
    with pytest.raises(
        ds.ModeError, match=rf"^conv .*fp32-tiles need a processor's tile units.*{backend} have none"
    ):
        compiled(products=TILES, backend=backend)
    compiled(products={"*": TILES, "conv": "fp32", "l*": "fp32"}, backend="ref")


@pytest.mark.parametrize("how", NARROW)
def test_files_that_say_what_is_not_so(how):
    layer = nn.Linear(4, 3)
    for options, said in [
        ({"products": how}, "fp8"),
        ({"products": how}, 1),
        ({}, how),
        ({"weights": "fp16"}, how),
    ]:
        text = json.loads(content(ds.compile(layer, ("B", "L", 4), **options), "json"))
        text["dreamstream"]["graph"]["nodes"][0]["products"] = said
        with pytest.raises(ds.FormatError, match="products"):
            ds.load(json.dumps(text).encode())


@pytest.mark.parametrize("how", NARROW)
def test_snapshots_go_across_formats(how):
    narrow = compiled(products=how)
    exchanged([compiled(), narrow, ds.load(content(narrow), products="fp32")])


@pytest.mark.parametrize("how", NARROW)
def test_layers_by_patterns(how):
    engine = compiled(weights={"conv": "fp16"}, products={"l*": how, "linear": "fp32"})
    lines = {line.split()[1]: line for line in engine.summary().splitlines() if "kept" in line}
    assert f"products in {how}" in lines["lstm"] and "weights in fp16" in engine.summary()
    assert engine.summary().count(f" in {how}") == 1


@pytest.mark.parametrize(
    ("products", "text"),
    [
        ("fp16", "products: expected one of fp32, bf16, int8, fp32-tiles, got 'fp16'"),
        (8, "products: expected one of fp32, bf16, int8, fp32-tiles, got 8"),
        ({"nothing": "int8"}, "products: 'nothing' fits no layer with matrices; there are conv"),
        ({0: "int8"}, "products: expected patterns of modules' paths, got 0"),
    ],
)
def test_words_that_mean_nothing(products, text):
    with pytest.raises(ValueError, match=text):
        compiled(products=products)


def test_too_deep_for_int8():
    layer = nn.Linear(66001, 2)
    with pytest.raises(
        ds.StreamLimitError,
        match=r"^the forward \(linear\): products of int8 take 66000 elements at most, got 66001",
    ):
        ds.compile(layer, ("B", "L", 66001), products="int8", verify=False)
    with pytest.raises(ds.StreamLimitError, match=r"^0 \(linear\): products of bf16 take 33000"):
        ds.compile(nn.Sequential(layer), ("B", "L", 66001), products="bf16", verify=False)
    ds.compile(layer, ("B", "L", 66001), weights="int8", verify=False)


def test_command_line(tmp_path, capsys):
    from dreamstream.cli import main

    wide, narrow = tmp_path / "wide.dsm", tmp_path / "narrow.dsm"
    compiled().save(wide)
    assert main(["convert", str(wide), str(narrow), "--products", "int8"]) == 0
    assert narrow.read_bytes() == content(compiled(products="int8"))
    assert main(["info", str(narrow)]) == 0
    assert "products int8" in capsys.readouterr().out
    asked = ["--products", "l*=int8", "--weights", "fp16", "--products", "linear=bf16", "--weights", "conv=bf16"]
    assert main(["convert", str(wide), str(narrow), *asked]) == 0
    by_patterns = compiled(weights={"*": "fp16", "conv": "bf16"}, products={"l*": "int8", "linear": "bf16"})
    assert narrow.read_bytes() == content(by_patterns)


@pytest.mark.parametrize("how", NARROW)
def test_exports_refuse_them(how):
    torch = pytest.importorskip("torch")
    engine = ds.compile(torch.nn.Linear(4, 3), ("B", "L", 4), products=how)
    with pytest.raises(ds.NotStreamableError, match=f"the forward: its products are in {how}, which an exported"):
        ds.torch.functionalize(engine)


class First(nn.Module):
    """The output of a recurrent layer without its states."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("how", [{"weights": "int8"}, {"products": "int8"}, {"products": "bf16"}], ids=str)
@pytest.mark.parametrize(
    ("layer", "reached"),
    [
        (nn.ConvTranspose1d(16, 24, 4, 2, 1), range(9, 13)),
        (First(nn.LSTM(16, 24, batch_first=True)), range(5, 20)),
        (First(nn.GRU(16, 24, batch_first=True)), range(5, 20)),
        (nn.FMoETransformerMLP(4, 16, 32), range(5, 6)),
    ],
    ids=lambda it: getattr(it, "layer", it).__class__.__name__,
)
def test_what_is_not_finite_reaches_its_own_frames(layer, reached, how, bad):
    turned = isinstance(layer, nn.ConvTranspose1d)
    engine = ds.compile(layer.eval(), ("B", 16, "L") if turned else ("B", "L", 16), verify=False, **how)
    rng = np.random.default_rng(0)
    x = {i: rng.standard_normal((20, 16)).astype(F32) for i in "abc"}
    spoilt = {**x, "b": x["b"].copy()}
    spoilt["b"][5, 0] = bad
    outs = []
    for rows in (x, spoilt):
        y = engine.step({i: a.T if turned else a for i, a in rows.items()}, sos=list(x), eos=list(x))
        outs.append({i: a.T if turned else a for i, a in y.items()})
    clean, found = outs
    assert all(np.array_equal(clean[i], found[i]) for i in "ac")
    changed = np.flatnonzero([not np.array_equal(a, b) for a, b in zip(clean["b"], found["b"])])
    assert set(changed) <= set(reached) and (set(changed) == set(reached) or bad == np.inf)
    if np.isnan(bad):
        assert np.isnan(found["b"][list(reached)]).all()
