"""The example that trains without torch, on made sounds."""

import importlib.util
from pathlib import Path

import pytest

import dreamstream as ds

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "train_digits.py"

pytestmark = pytest.mark.skipif(not EXAMPLE.is_file(), reason="the tests are away from the sources")


@pytest.fixture
def example(monkeypatch):
    monkeypatch.delenv("DREAMSTREAM_TEST_DATA", raising=False)
    spec = importlib.util.spec_from_file_location("train_digits", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_learns_and_its_file_recognises(example, tmp_path, capsys):
    output, checkpoint = tmp_path / "digits.dsm", tmp_path / "digits.ckpt"
    given = ["--lanes", "8", "--output", str(output), "--checkpoint", str(checkpoint)]
    assert example.main([*given, "--epochs", "5"]) > 0.9
    told = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in told[1:-1]] == [f"epoch {n}" for n in range(1, 6)]
    with ds.load(output) as engine:
        assert engine.outputs[0].dimensions == ("B", "L", 10)
    assert example.main([*given, "--epochs", "5"]) > 0.9  # from the checkpoint: nothing is left to be learnt
    assert "epoch" not in capsys.readouterr().out


def test_frames_are_as_many_as_targets(example):
    model = example.Recogniser().eval()
    for name, x, _ in example.made(1, seed=5):
        (n,) = {model(ds.tensor(x[None])).shape[1]}
        assert n == len(example.targets_of([(name, x, 0)])[name])
