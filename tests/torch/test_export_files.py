"""TorchScript files run where torch alone is; offline patched modules export as plain ones."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from exported import Exported, compare
from exported_models import made

import dreamstream as ds

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, about its own code

ELSEWHERE = """
import sys, torch
sys.modules["dreamstream"] = None                        # it can't be imported here
extra = {"manifest.json": ""}
model = torch.jit.load(sys.argv[1], _extra_files=extra)
assert extra["manifest.json"].decode() == model.manifest
args = torch.load(sys.argv[2], weights_only=True)
torch.save(model(*args), sys.argv[3])
"""


def test_torchscript_in_a_process_of_its_own(tmp_path):
    model, spec, _ = made("lstm")
    path, given, found = (str(tmp_path / n) for n in ("model.pt", "given.pt", "found.pt"))
    manifest = ds.export.torchscript(model, spec, path, rate=100)
    module = ds.torch.functionalize(model, spec, rate=100)
    assert manifest == module.manifest
    x, lengths, sos, eos, states = module.example(3, 11)
    args = (torch.randn_like(x), torch.tensor([11, 0, 7]), sos, torch.tensor([False, True, True]), states)
    torch.save(args, given)
    subprocess.run([sys.executable, "-c", ELSEWHERE, path, given, found], check=True, timeout=120)
    y, counts, after = torch.load(found, weights_only=True)
    wanted, n, states = module(*args)
    assert torch.equal(counts, n)
    assert torch.allclose(y, wanted, atol=1e-6)
    for a, b in zip(after, states):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("name", ["pooled", "images"])
def test_torchscript_streams(name, tmp_path):
    model, spec, dtype = made(name)
    ds.export.torchscript(model, spec, tmp_path / "model.pt", dtype=dtype)
    loaded, rng = torch.jit.load(tmp_path / "model.pt"), np.random.default_rng(0)
    exported = Exported(loaded, json.loads(loaded.manifest), rng)
    frames, worst = compare(exported, ds.compile(model, spec, dtype=dtype), rng)
    assert frames > 10
    assert worst <= 1e-5


def test_native_models_and_engines(tmp_path):
    """Models without torch, and engines read from files, export as torch's do."""

    class Running(ds.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.mean = ds.nn.Conv1d(2, 3, 5, padding=2), ds.nn.CumulativeMean()

        def forward(self, x):
            return self.mean(self.conv(x))

    spec, rng = ("B", 2, "L"), np.random.default_rng(0)
    model = Running().eval()
    engine = ds.compile(model, spec)
    engine.save(tmp_path / "model.dsm")
    for source in (model, ds.load(tmp_path / "model.dsm")):
        module = ds.torch.functionalize(source, spec if source is model else None)
        assert compare(Exported(module, module.manifest, rng), engine, rng)[1] <= 1e-5


def test_offline_patched_modules_export_as_plain_ones(tmp_path):
    model, _, _ = made("residual")
    x = torch.randn(2, 3, 40)
    whole = model(x)
    ds.patch_module(model)
    traced = torch.jit.trace(model, x)
    assert torch.equal(traced(x), whole)
    program = torch.export.export(model, (x,)).module()
    assert torch.allclose(program(x), whole, atol=1e-6)


def test_exporting_leaves_live_streams_alone():
    model, spec, _ = made("residual")
    ds.patch_module(model).online()
    model(ds.torch.stream_tensor([torch.randn(3, 8)], ids=["a"], sos=True))
    before = model.get_state(["a"])
    ds.torch.functionalize(model, spec)
    assert model.get_state(["a"]) == before
    assert model.is_online
