"""ds.compare, weights="auto" and `convert --report`: what weights in fewer bits cost, and for which layers."""

import json
from typing import Any

import numpy as np
import pytest
from same_bits import content

import dreamstream as ds
from dreamstream import nn
from dreamstream.cli import main


class Net(nn.Module):
    """`spoilt` has outliers in its weights, which int8 answers badly."""

    def __init__(self) -> None:
        super().__init__()
        ds.manual_seed(0)
        self.conv = nn.Conv1d(6, 20, 3, stride=2, padding=1)
        self.spoilt = nn.Linear(20, 32)
        self.lstm = nn.LSTM(32, 8, 2, batch_first=True)
        values = self.spoilt.weight.numpy().copy()
        values[:, 3] *= 100
        self.spoilt.weight.detach().copy_(ds.tensor(values))

    def forward(self, x: Any) -> Any:
        y = self.spoilt(self.conv(x).transpose(1, 2)).tanh()
        return self.lstm(y)[0], y.sum(-1)


class Twice(nn.Module):
    """What nothing reads is captured, saved, and in no engine."""

    def __init__(self) -> None:
        super().__init__()
        ds.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16), nn.FMoETransformerMLP(4, 16, 24)])

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            layer(x)
            x = layer(x)
        return x


SPEC = ("B", 6, "L")


@pytest.fixture(scope="module")
def streams() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((6, n)).astype(np.float32) for name, n in (("a", 41), ("b", 7), ("c", 0))}


def by_hand(wide: ds.Engine, narrow: ds.Engine, streams: dict[str, Any]) -> list[float]:
    ids = list(streams)
    ys, zs = (e.step(streams, sos=ids, eos=ids) for e in (wide, narrow))
    out = []
    for k in range(2):
        y, z = (np.concatenate([o[i][k] for i in ids]).astype(np.float64) for o in (ys, zs))
        out.append(float(np.sqrt(((y - z) ** 2).sum() / (y**2).sum())))
    return out


def test_errors_are_those_of_outputs(streams):
    model = Net().eval()
    wide, narrow = ds.compile(model, SPEC), ds.compile(model, SPEC, weights="int8")
    narrow.step({"a": streams["a"]}, sos=["a"])  # a live stream of the same name is left alone
    found = ds.compare(model, narrow, streams)
    assert narrow.position("a") == 41
    assert [o.error for o in found.outputs] == pytest.approx(by_hand(wide, ds.load(content(narrow)), streams))
    assert found == ds.compare(wide, narrow, streams)
    assert sorted(row.path for row in found.layers) == ["conv", "lstm", "spoilt"]
    assert found.layers[0].path == "spoilt" and found.layers[0].kept_wide < 0.6 * found.error
    for row in found.layers:
        one = ds.compile(model, SPEC, weights={"*": "int8", row.path: "fp32"})
        assert row.kept_wide == pytest.approx(max(by_hand(wide, one, streams)))
    assert "spoilt" in str(found) and json.loads(json.dumps(found.as_dict()))["layers"][0]["path"] == "spoilt"


def test_chunks_as_callers_have_them(streams):
    model = Net().eval()
    narrow = ds.compile(model, SPEC, weights="bf16")
    a, b = streams["a"], streams["b"]
    wanted = ds.compare(model, narrow, {"a": a})
    pieces = np.split(a, [3, 4, 20], 1)
    tensors = [
        ds.stream_tensor([x], ids=["s"], sos=i == 0, eos=i == 3, names=("B", "F", "L"))
        for i, x in enumerate(pieces)
    ]
    for chunks in (a, pieces, iter(pieces), [{"x": x} for x in pieces], tensors, ds.tensor(a)):
        found = ds.compare(model, narrow, chunks)
        assert found.frames == wanted.frames and found.error == pytest.approx(wanted.error)
    both = [{"a": a[:, :9]}, {"a": a[:, 9:], "b": b}]
    assert ds.compare(model, narrow, both).error == pytest.approx(
        ds.compare(model, narrow, {"a": a, "b": b}).error
    )


def test_no_narrow_layer_no_error(streams):
    model = Net().eval()
    found = ds.compare(model, ds.compile(model, SPEC), streams)
    assert found.error == 0 and not found.layers


def test_refusals(streams):
    model = Net().eval()
    narrow = ds.compile(model, SPEC, weights="bf16")
    with pytest.raises(ValueError, match="expected weights and products in fp32"):
        ds.compare(narrow, narrow, streams)
    with pytest.raises(ValueError, match="was not made of Linear"):
        ds.compare(ds.compile(nn.Linear(3, 3), ("B", "L", 3)), narrow, streams)
    with pytest.raises(ds.ShapeError, match="nothing was compared"):
        ds.compare(model, narrow, {"c": streams["c"]})
    with pytest.raises(ds.ShapeError, match="nothing was compared"):
        ds.compare(model, narrow, [])
    for chunks in (None, 3, "abc"):
        with pytest.raises(TypeError, match="chunks: expected an array, a dict of arrays or chunks in turn, got"):
            ds.compare(model, narrow, chunks)
    with pytest.raises(TypeError, match="engine: expected an Engine, got Net"):
        ds.compare(model, model, streams)


def test_torch(streams):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Conv1d(6, 8, 3), torch.nn.ReLU(), torch.nn.Conv1d(8, 3, 1)).eval()
    engine = ds.compile(model, SPEC, weights="int8")
    found = ds.compare(model, engine, [torch.from_numpy(streams["a"])])
    assert [row.path for row in found.layers] in (["0", "2"], ["2", "0"]) and 0 < found.error < 0.05


def test_auto_keeps_wide_what_suffers(streams):
    model = Net().eval()
    auto = ds.compile(model, SPEC, weights="auto")
    assert content(auto) == content(ds.load(content(ds.compile(model, SPEC)), weights="auto"))
    assert content(auto) == content(ds.compile(model, SPEC, weights={"*": "int8", "spoilt": "bf16"}))
    assert "weights in bf16" in auto.summary() and "weights in int8" in auto.summary()
    every = ds.compile(model, SPEC, weights="auto", weights_bound=0)
    assert {n["stored"] for n in every._core.nodes} == {"fp32"}
    some = ds.compile(model, SPEC, weights={"*": "fp32", "spoilt": "auto"}, weights_bound=1)
    assert content(some) == content(ds.compile(model, SPEC, weights={"spoilt": "int8"}))
    for bound, shown in ((float("nan"), "nan"), ("x", "'x'")):
        with pytest.raises(ValueError, match=f"weights_bound: expected 0 or more, got {shown}"):
            ds.compile(model, SPEC, weights="auto", weights_bound=bound)


def test_auto_is_within_its_bound_and_no_wider():
    rng = np.random.default_rng(0)
    model = nn.Linear(64, 8, bias=False)
    weight = rng.standard_normal((8, 64)).astype(np.float32)
    weight[5, 7] = 60
    model.weight.detach().copy_(ds.tensor(weight))

    def stored(bound: float) -> str:
        engine = ds.compile(model, ("B", "L", 64), weights="auto", weights_bound=bound)
        return str(engine._core.nodes[0]["stored"])

    scale = np.abs(weight).max(1, keepdims=True) / 127
    error = np.linalg.norm(np.rint(weight / scale) * scale - weight, axis=1) / np.linalg.norm(weight, axis=1)
    assert int(error.argmax()) == 5
    assert [stored(error.max() * x) for x in (1.01, 0.99)] == ["int8", "bf16"]
    assert stored(2e-4) == "fp32"


@pytest.mark.parametrize("how", ["int8", "bf16"])
def test_auto_keeps_what_is_stored_without_loss(how):
    engine = ds.compile(nn.Linear(64, 8), ("B", "L", 64), weights=how)
    assert content(ds.load(content(engine), weights="auto", weights_bound=1e-9)) == content(engine)


@pytest.mark.parametrize("kind", ["group", "expert"])
def test_auto_looks_at_every_channel(kind):
    """A channel that int8 answers badly is seen among greater ones of other groups, or of its expert."""
    rng = np.random.default_rng(0)
    model = nn.ConvTranspose1d(64, 8, 4, groups=2) if kind == "group" else nn.FMoETransformerMLP(2, 64, 16)
    layer, at = (model, np.s_[:32, 1]) if kind == "group" else (model.experts.htoh4, np.s_[0, 5])
    weight = 100 * rng.standard_normal(layer.weight.shape).astype(np.float32)
    weight[at] *= 3e-4
    weight[at].flat[0] = 1
    spec = ("B", 64, "L") if kind == "group" else ("B", "L", 64)

    def stored() -> str:
        nodes = ds.compile(model, spec, weights="auto", verify=False)._core.nodes
        return next(n["stored"] for n in nodes if n["name"] in ("conv_transpose1d", "expert_linear"))

    layer.weight.detach().copy_(ds.tensor(weight))
    assert stored() == "bf16"
    weight[at] = weight[at].flat[1:2]
    layer.weight.detach().copy_(ds.tensor(weight))
    assert stored() == "int8"


def test_auto_where_an_engine_leaves_nodes_out():
    engine = ds.compile(Twice().eval(), ("B", "L", 16), weights="auto", verify=False)
    kept = {n["path"]: n["stored"] for n in engine._core.nodes if "linear" in n["name"]}
    assert set(kept.values()) == {"int8"} and len(kept) == 4


def test_layers_where_an_engine_leaves_nodes_out():
    model = Twice().eval()
    x = np.random.default_rng(0).standard_normal((50, 16)).astype(np.float32)
    found = ds.compare(model, ds.compile(model, ("B", "L", 16), weights="int8", verify=False), x)
    assert sorted(layer.path for layer in found.layers) == [
        "layers.0",
        "layers.1",
        "layers.2.experts.h4toh",
        "layers.2.experts.htoh4",
    ]
    narrow = ds.compile(model.layers[0], ("B", "L", 16), weights="int8", verify=False)
    right, got = model.layers[0](ds.tensor(x)).numpy(), narrow.step({"a": x}, sos="a", eos="a")["a"]
    (error,) = (layer.error for layer in found.layers if layer.path == "layers.0")
    assert error == pytest.approx(np.sqrt(((right - got) ** 2).sum() / (right**2).sum()), rel=1e-3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_auto_keeps_what_is_not_finite(bad):
    model = nn.Linear(4, 3)
    values = np.ones((3, 4), np.float32)
    values[1, 2] = bad
    model.weight.detach().copy_(ds.tensor(values))
    engine = ds.compile(model, ("B", "L", 4), weights="auto", verify=False)
    assert {n["stored"] for n in engine._core.nodes} == {"fp32"}


def test_command_line(tmp_path, capsys):
    wide, narrow = tmp_path / "wide.dsm", tmp_path / "narrow.dsm"
    engine = ds.compile(Net().eval(), SPEC)
    engine.save(wide)
    assert main(["convert", str(wide), str(narrow), "--weights", "auto", "--report"]) == 0
    out = capsys.readouterr().out
    assert "spoilt" in out and "output if kept wide" in out and "bf16" in out
    assert narrow.read_bytes() == content(ds.compile(Net().eval(), SPEC, weights="auto"))
    assert main(["convert", str(wide), str(narrow), "--weights", "int8", "--report", "--input", "no.wav"]) != 0
