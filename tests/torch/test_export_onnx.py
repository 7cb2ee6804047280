"""ONNX files in onnxruntime: what leaves is what the engine gives; the runner of the docs needs nothing else."""

import io
import json
from fractions import Fraction

import numpy as np
import pytest
import torch

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from exported import Exported, compare, in_onnxruntime, scaled
from exported_models import MODELS, made
from turns import by_turns

import dreamstream as ds
from dreamstream.errors import CaptureError

TOLERANCE = 1e-5


@pytest.mark.parametrize(("name", "chunk"), by_turns(MODELS, ["fixed", "dynamic"]))
def test_models(name, chunk, tmp_path):
    model, spec, dtype = made(name)
    dynamic = chunk == "dynamic"
    path = str(tmp_path / "model.onnx")
    said = ds.export.onnx(model, spec, path, dynamic, dtype=dtype, rows=3)
    call, manifest = in_onnxruntime(path)
    assert manifest == said
    rng = np.random.default_rng(1)
    frames, worst = compare(Exported(call, manifest, rng), ds.compile(model, spec, dtype=dtype), rng)
    assert frames > 10
    assert worst <= TOLERANCE


def test_shapes_and_names(tmp_path):
    model, spec, _ = made("lstm")
    for dynamic in (False, True):
        path = tmp_path / "model.onnx"
        manifest = ds.export.onnx(model, spec, path, dynamic, rows=2, frames=20)
        graph = onnx.load(path).graph
        sizes = {
            i.name: [d.dim_value or d.dim_param for d in i.type.tensor_type.shape.dim]
            for i in (*graph.input, *graph.output)
        }
        assert sizes["x"] == (["B", 3, "x_L"] if dynamic else [2, 3, 20])
        for state in manifest["states"]:
            wanted = ["B" if dynamic else 2, *state["dims"][1:]]
            assert sizes[state["name"]] == sizes[state["next"]] == wanted
        fixed = {"rows": 2, "frames": {"x": 20}}
        assert manifest["chunk"] == ({"rows": None, "frames": None} if dynamic else fixed)
        assert {n.domain for n in graph.node} == {""}


class TwoSensors(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fast, self.slow = (torch.nn.Conv1d(2, 3, 4, stride=2, padding=1), torch.nn.Conv1d(1, 3, 3, padding=1))

    def forward(self, fast, slow):
        return {"sum": self.fast(fast) + self.slow(slow), "held": slow}


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "dynamic"])
def test_the_runner_of_the_docs(dynamic, tmp_path, capsys):
    """Chunks of any lengths, several inputs of different rates, more streams than rows; starts of all outputs."""
    torch.manual_seed(0)
    model, path = TwoSensors().eval(), tmp_path / "two.onnx"
    spec, rate = {"fast": ("B", 2, "L"), "slow": ("B", 1, "L")}, {"fast": 100, "slow": 50}
    manifest = ds.export.onnx(model, spec, path, dynamic, rate=rate, rows=2, skew=2)
    engine = ds.compile(model, spec, rate=rate, skew=2)
    assert [Fraction(*p["rate"]) for p in manifest["inputs"]] == [100, 50]
    run_onnx = pytest.importorskip("run_onnx")  # of docs/examples
    steps = run_onnx.Runner(str(path))
    rng, ids = np.random.default_rng(3), ["a", "b", "c"]
    so_far = {i: [0, 0] for i in ids}
    for k, n in enumerate([3, 40, 0, 17, 1]):
        sizes = {"fast": (2, 2 * n), "slow": (1, n)}
        chunks = {i: {k: rng.standard_normal(s, np.float32) for k, s in sizes.items()} for i in ids}
        last = ids if k == 4 else []
        wanted = engine.step(chunks, ids if k == 0 else [], last)
        found = steps.step(chunks, last)
        for i in ids:
            for o, name in enumerate(("sum", "held")):
                start, frames = found[i][name]
                assert start == so_far[i][o]
                assert scaled(frames, wanted[i][name]) <= TOLERANCE
                so_far[i][o] += frames.shape[1]
    assert not steps.states
    run_onnx.main(str(path), 60)
    assert "a: held from frame 12, shape (1, 12)" in capsys.readouterr().out


def test_file_objects_and_metadata():
    model, spec, _ = made("framed")
    file = io.BytesIO()
    manifest = ds.export.onnx(model, spec, file)
    loaded = onnx.load_model_from_string(file.getvalue())
    onnx.checker.check_model(loaded)
    assert json.loads({p.key: p.value for p in loaded.metadata_props}["dreamstream"]) == manifest


def test_bad_requests(tmp_path):
    model, spec, _ = made("framed")
    path = tmp_path / "model.onnx"
    with pytest.raises(ValueError, match="rows is a number from 1 on, got 0"):
        ds.export.onnx(model, spec, path, rows=0)
    with pytest.raises(ValueError, match="frames is a number from 1 on"):
        ds.export.onnx(model, spec, path, frames=0)

    class Projected(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = torch.nn.LSTM(3, 4, proj_size=2, batch_first=True)

        def forward(self, x):
            return self.rnn(x.transpose(1, 2))[0]

    with pytest.raises(CaptureError, match=r"rnn: lstm with a projection \(proj_size\) has no form in ONNX"):
        ds.export.onnx(Projected(), ("B", 3, "L"), path)
    assert not path.exists()
