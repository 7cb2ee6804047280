"""The benchmarks run, and what they time agrees; figures are not looked at."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(script, *arguments):
    """The objects that a benchmark prints with --json."""
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_kernels():
    pytest.importorskip("scipy_openblas32")
    config = pytest.importorskip("dreamstream").config.config()
    if not config["kernels"].startswith("x86"):
        pytest.skip("no packed kernels here")
    few = ("--isa", "x86_v3", "--rounds", "2", "--microseconds", "50", "--ring-mb", "4")
    rows = run("kernels.py", *few, "--shapes", "40x33", "--rows", "1", "7")
    assert [(r["shape"], r["rows"], r["state"]) for r in rows if "mean" not in r] == [
        ("40x33", 1, "cold"), ("40x33", 7, "cold"), ("40x33", 1, "hot"), ("40x33", 7, "hot"),
    ]
    assert all(r["ratio"][1] > 0 for r in rows if "mean" not in r)
    assert [(r["mean"]["state"], r["mean"]["rows"]) for r in rows if "mean" in r] == [
        ("cold", 1), ("cold", 7), ("hot", 1), ("hot", 7),
    ]


def test_models():
    """Outputs are compared with PyTorch's, and with those of the other engines that are installed."""
    pytest.importorskip("torch")
    (row,) = run("models.py", "--networks", "conv", "--streams", "2", "--seconds", "0")
    assert (row["network"], row["streams"]) == ("conv", 2)
    assert {"dreamstream", "torch"} <= row["engines"].keys()
    assert all(engine["ms"][1] > 0 for engine in row["engines"].values())


def test_capi():
    """C's outputs are compared with Python's."""
    pytest.importorskip("dreamstream")
    rows = run("capi.py", "--networks", "bare", "silero", "--streams", "2", "--seconds", "0")
    assert [(r["network"], r["streams"]) for r in rows] == [("bare", 2), ("silero", 2)]
    assert all(r["us"][way][1] > 0 for r in rows for way in ("C", "Python"))
