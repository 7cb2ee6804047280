"""``dreamstream convert`` of torch models in Python, and running what it wrote without torch."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from dreamstream import cli

MODEL = """
import torch
from torch import nn


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(3, 4, 5, stride=2, padding=2), nn.ReLU()), ("B", 3, "L"), 100


def refused():
    return nn.Sequential(nn.ReLU(), nn.LSTM(3, 4, bidirectional=True)), ("B", 3, "L"), 100


def normed():
    return nn.Sequential(nn.ReLU(), nn.GroupNorm(1, 3)), ("B", 3, "L"), 100
"""

RUN = """
import sys
sys.modules["torch"] = None  # an import of it fails
import numpy as np, dreamstream as ds
engine = ds.load("net.dsm")
np.save("out.npy", engine.step({"a": np.load("in.npy")}, sos="a", eos="a")["a"])
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(MODEL)
    return tmp_path


def net(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Conv1d(3, 4, 5, stride=2, padding=2), torch.nn.ReLU())


@pytest.mark.parametrize("suffix", [None, "pt", "safetensors"])
def test_a_torch_model_is_converted_and_runs_without_torch(folder, suffix):
    model = net(5 if suffix else 0)
    if suffix == "pt":
        torch.save(model.state_dict(), "w.pt")
    elif suffix == "safetensors":
        pytest.importorskip("safetensors.torch").save_file(model.state_dict(), "w.safetensors")
    options = ["--weights", f"w.{suffix}"] if suffix else []
    assert cli.main(["convert", "net.py:model", "net.dsm", *options]) == 0
    x = np.random.default_rng(0).standard_normal((3, 17), dtype=np.float32)
    np.save("in.npy", x)
    subprocess.run([sys.executable, "-c", RUN], check=True)
    expected = model(torch.from_numpy(x)[None]).detach().numpy()[0]
    assert np.allclose(np.load("out.npy"), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("function", "says"), [("refused", "1 (LSTM) can't stream"), ("normed", "1 (GroupNorm): group_norm at ")]
)
def test_what_can_not_be_converted_is_named(folder, capsys, function, says):
    assert cli.main(["convert", f"net.py:{function}", "net.dsm"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"dreamstream: {says}"), error
    assert "overrides.py" not in error and error.count("\n") == 1


def test_weights_that_do_not_fit(folder, capsys):
    torch.save({"0.weight": torch.zeros(2)}, "w.pt")
    assert cli.main(["convert", "net.py:model", "net.dsm", "--weights", "w.pt"]) == 1
    error = capsys.readouterr().err
    assert "net.py" in error and "0.bias" in error
    assert not (folder / "net.dsm").exists()
