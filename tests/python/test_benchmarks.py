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


@pytest.mark.slow
def test_kernels():
    pytest.importorskip("scipy_openblas32")
    config = pytest.importorskip("dreamstream").config.config()
    if not config["kernels"].startswith("x86"):
        pytest.skip("no packed kernels here")
    few = ("--isa", "x86_v3", "--rounds", "2", "--microseconds", "50", "--ring-mb", "4")
    rows = run("kernels.py", *few, "--shapes", "40x33", "--rows", "1", "7")
    assert [(r["shape"], r["rows"], r["state"]) for r in rows if "mean" not in r] == [
        ("40x33", 1, "cold"),
        ("40x33", 7, "cold"),
        ("40x33", 1, "hot"),
        ("40x33", 7, "hot"),
    ]
    assert all(r["ratio"][1] > 0 for r in rows if "mean" not in r)
    assert [(r["mean"]["state"], r["mean"]["rows"]) for r in rows if "mean" in r] == [
        ("cold", 1),
        ("cold", 7),
        ("hot", 1),
        ("hot", 7),
    ]


@pytest.mark.slow
def test_models():
    """Outputs are compared with PyTorch's, and with those of the other engines that are installed."""
    pytest.importorskip("torch")
    few = ("--streams", "2", "--seconds", "0", "--engines", "torch", "onnxruntime", "openvino")
    formats = ["fp32", "bf16", "int8", "fp16 weights", "bf16 weights", "int8 weights"]
    (row,) = run("models.py", "--networks", "small", *few, "--formats", *formats)
    assert (row["network"], row["streams"], list(row["engines"]["dreamstream"])) == ("small", 2, formats)
    assert list(row["engines"]["torch"]) == formats[:3]
    assert all(r["ms"][1] > 0 and r["error"] < 0.1 for of in row["engines"].values() for r in of.values())
    size = row["weights_size"]
    assert size["fp32"] > size["fp16 weights"] == size["bf16 weights"] > size["int8 weights"]


@pytest.mark.slow
def test_exports():
    for package in ("torch", "onnx", "onnxruntime"):
        pytest.importorskip(package)
    (row,) = run("exports.py", "--networks", "dualpath", "--frames", "2", "--seconds", "0")
    assert (row["network"], row["frames"], row["phases"]) == ("dualpath", 2, 1)
    assert row["nodes"]["static"] < row["nodes"]["before"]
    assert all(ms > 0 for ms in row["ms"].values())


@pytest.mark.slow
def test_capi():
    """C's outputs are compared with Python's."""
    pytest.importorskip("dreamstream")
    rows = run("capi.py", "--networks", "bare", "silero", "--streams", "2", "--seconds", "0")
    assert [(r["network"], r["streams"]) for r in rows] == [("bare", 2), ("silero", 2)]
    assert all(way[1] > 0 for r in rows for way in r["us"].values())


@pytest.mark.slow
def test_training():
    """Losses are compared with those of plain torch."""
    pytest.importorskip("torch")
    rows = run("training.py", "--steps", "2", "--rounds", "1")
    assert [r["recipe"] for r in rows] == ["gru", "conformer", "ctc", "moe"]
    assert all(
        r["difference"] < 1e-3 and r["drift"] < 1e-3 and all(ms[1] > 0 for ms in r["ms"].values()) for r in rows
    )


@pytest.mark.slow
def test_before_after(tmp_path):
    """This tree beside itself: all variants give the same bits, and both tables have their figures."""
    figures = tmp_path / "figures.json"
    few = ("--networks", "small", "--streams", "3", "--frames", "1", "--seconds", "0")
    script = ROOT / "benchmarks" / "before_after.py"
    command = [sys.executable, str(script), "--old", str(ROOT), *few, "--json", str(figures)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    said = json.loads(figures.read_text())
    (row,), (constant,) = said["steps"], said["once"]
    assert row["same_bits"] and list(row["threads"]) == ["1", "2"]
    for tree in ("before", "after"):
        assert all(threads[tree]["wall"][1] > 0 for threads in row["threads"].values())
        assert all(threads["again"]["steps"] > 0 for threads in row["threads"].values())
        assert constant[tree]["state_size"] > 0 and constant[tree]["compile_seconds"] > 0
        overhead = constant[tree]["overhead"]
        assert overhead["operators"] >= 5 and overhead["rest"][1] > 0
        assert overhead["chunk_bytes"] == overhead["output_bytes"] == 64 * 4
    assert constant["before"]["overhead"]["operators"] == constant["after"]["overhead"]["operators"]


def test_bytes_moved_are_counted():
    """A depthwise convolution keeps 30 frames of 1 KB, which move at most once in and once out."""
    (row,) = run("overhead.py", "--networks", "memory-31", "--streams", "2", "--seconds", "0")
    given_and_made = row["chunk_bytes"] + row["output_bytes"]
    assert row["operators"] == 1 and given_and_made == 2048
    assert 0 < row["moved_bytes_per_stream"] + given_and_made <= 2 * 30 * 1024 + 2 * given_and_made


@pytest.mark.slow
def test_threads():
    """Outputs have the same bits with more threads, else the script ends."""
    rows = run(
        "threads.py",
        "--networks",
        "small",
        "bare",
        "--formats",
        "fp32",
        "int8",
        "--streams",
        "3",
        "--frames",
        "1",
        "--seconds",
        "0",
    )
    assert [(r["network"], r["format"]) for r in rows] == [
        (n, f) for n in ("small", "bare") for f in ("fp32", "int8")
    ]
    assert all(r["one"][1] > 0 and r["more"][1] > 0 for r in rows)


@pytest.mark.slow
def test_planning():
    rows = run("planning.py", "--sizes", "2", "3")
    assert [(r["model"], r["size"]) for r in rows] == [(m, n) for m in ("stack-raw", "relu") for n in (2, 3)]
    assert all(r["compile"] > 0 and r["load"] > 0 for r in rows)


@pytest.mark.slow
def test_labels(data_folder):
    """A network that has learnt nothing, and one that has: answers hardly change, and digits are counted."""
    pytest.importorskip("torch")
    few = ("--steps", "1", "--formats", "int8", "bf16 weights")
    heard = (str(data_folder / "silero_vad_16k.safetensors"), str(data_folder / "librispeech-1995-1837-0001.wav"))
    rows = run("labels.py", "--digits", str(data_folder / "fsdd"), *few, "--voice", *heard)
    assert [(r["network"], r["format"]) for r in rows] == [
        (n, f) for n in ("digits", "voice") for f in ("fp32", *few[3:])
    ]
    assert all(r["frames"] > 250 and r["same"] > 0.95 and r["error"] < 0.1 for r in rows)
    assert all(r["error"] == 0 for r in rows[::3]) and all(r["wrong"] > 0.5 for r in rows[:3])


@pytest.mark.slow
def test_operators():
    """Every operator has a row, or a reason why not; outputs are compared with torch's."""
    pytest.importorskip("torch")
    rows = run("operators.py", "--frames", "3", "--seconds", "0")
    assert len(rows) > 100
    assert all(r["torch"] > 0 and r["engine"] > 0 and r["eager"] > 0 for r in rows)


@pytest.mark.slow
def test_loading():
    """All processes, with the reference kernels and with those chosen here, give the same bits."""
    if not Path("/proc/self/smaps_rollup").exists():
        pytest.skip("this system doesn't tell who shares what")
    rows = run("loading.py", "--mb", "16", "--streams", "150")
    assert [r["kernels"] for r in rows] == ["reference", "chosen"]
    assert len({r[which]["bits"] for r in rows for which in ("first", "second")}) == 1
    assert all(r["streams"]["streams"] == 150 for r in rows)


def test_patched():
    """Calls are counted: what a warm call of a convolution may run at most."""
    pytest.importorskip("torch")
    native, torch = run("patched.py", "--rounds", "1")
    assert native["calls"] <= 100
    assert torch["calls"] <= 60
