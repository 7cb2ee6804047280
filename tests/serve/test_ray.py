"""A real Ray of several nodes: streams are what they are offline whatever is killed, stopped or removed."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("websockets"), pytest.importorskip("h11"), pytest.importorskip("prometheus_client")
pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")

from serving import engine, recorded

FAULTS = Path(__file__).parents[1] / "helpers" / "ray_faults.py"


def figures(*options, seconds):
    run = subprocess.run([sys.executable, FAULTS, *options], capture_output=True, text=True, timeout=seconds)
    assert run.returncode == 0, run.stdout + run.stderr[-6000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_worker_a_vault_and_a_server_are_killed():
    told = figures("--streams", "6", "--faults", "kill,vault,router", "--every", "1", "--warm", "1", seconds=120)
    assert told["streams"] >= 6 and told["frames"] > 10_000 and told["codes"] == [0, 0]


@pytest.mark.slow
def test_two_hundred_streams():
    """Also workers that are stopped and wake later, a node that is removed, two versions of the model.

    A worker that has Ray's niceness takes two cores that serve 200 streams ten seconds to start: with faults every
    three seconds there are soon none, and streams wait 13 s (99 of 100).
    """
    faults = "kill,kill,stop,vault,kill,node,version,kill,stop,router,kill,kill"
    size = ("--streams", "200", "--nodes", "3", "--workers", "2:3", "--longest", "20", "--warm", "5")
    told = figures(*size, "--faults", faults, "--every", "8", seconds=600)
    assert told["streams"] >= 200 and told["versions"] == 2 and told["codes"] == [0, 0]
    assert told["p99"] < 6.0


# ---------------------------------------------------------------- recordings
@pytest.fixture
def recordings(tmp_path):
    engine().save(tmp_path / "net.dsm")
    (tmp_path / "in").mkdir()
    for n, length in enumerate((4000, 900, 0, 2500, 16000, 1600, 700)):
        x = np.random.default_rng(n).integers(-9000, 9000, length).astype(np.int16)
        (tmp_path / "in" / f"{n}.wav").write_bytes(recorded(x))
    (tmp_path / "in" / "bad.wav").write_bytes(b"nothing")
    return tmp_path


def begun(folder, *options, output="out.jsonl"):
    command = [sys.executable, "-m", "dreamstream", "run", "net.dsm", "in", "-o", output, *options]
    environment = {**os.environ, "RAY_worker_niceness": "0"}  # else its workers wait for all other tests
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=environment, **piped)


def test_recordings_that_have_no_line_are_run(recordings):
    said, _ = begun(recordings, output="here.jsonl").communicate(timeout=60)
    lines = (recordings / "here.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) == 7
    (recordings / "out.jsonl").write_text("".join(lines[:3]) + lines[3][:40])  # killed while it wrote
    run = begun(recordings, "--ray", "local", "--workers", "2")
    said, complaints = run.communicate(timeout=120)
    assert run.returncode == 1 and "4 files were run, 3 had been before" in said
    assert "bad.wav: no WAV file" in complaints and "1 of 8 files could not be run" in complaints
    assert sorted((recordings / "out.jsonl").read_text().splitlines(keepends=True)) == sorted(lines)


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on(recordings):
    for n in range(100, 400):
        x = np.random.default_rng(n).integers(-9000, 9000, 40_000).astype(np.int16)
        (recordings / "in" / f"{n}.wav").write_bytes(recorded(x))
    kills, out = 0, recordings / "out.jsonl"
    while True:
        run, before = begun(recordings, "--ray", "local", "--workers", "2"), out.stat().st_size if kills else 0
        while run.poll() is None and not (out.exists() and out.stat().st_size > before + 30_000_000):
            time.sleep(0.05)
        if run.poll() is not None:
            break
        run.kill()
        run.communicate()
        kills += 1
    assert kills > 1
    begun(recordings, output="here.jsonl").communicate(timeout=120)
    found = [(recordings / name).read_text().splitlines() for name in ("out.jsonl", "here.jsonl")]
    assert len(found[0]) == 307 and sorted(found[0]) == sorted(found[1])
