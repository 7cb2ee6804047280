"""A real Ray of several nodes: streams are what they are offline whatever is killed, stopped or removed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("websockets"), pytest.importorskip("h11"), pytest.importorskip("prometheus_client")
pytest.importorskip("ray")

FAULTS = Path(__file__).parents[1] / "helpers" / "ray_faults.py"


def figures(*options, seconds):
    run = subprocess.run([sys.executable, FAULTS, *options], capture_output=True, text=True, timeout=seconds)
    assert run.returncode == 0, run.stdout + run.stderr[-6000:]
    return json.loads(run.stdout.splitlines()[-1])


def test_a_worker_a_vault_and_a_server_are_killed():
    told = figures("--streams", "6", "--faults", "kill,vault,router", "--every", "1", "--warm", "1", seconds=120)
    assert told["streams"] >= 6 and told["frames"] > 10_000 and told["codes"] == [0, 0]


@pytest.mark.slow
def test_two_hundred_streams():
    """Also workers that are stopped and wake later, a node that is removed, two versions of the model."""
    faults = "kill,kill,stop,vault,kill,node,version,kill,stop,router,kill,kill"
    size = ("--streams", "200", "--nodes", "3", "--workers", "2:3", "--longest", "20", "--warm", "5")
    told = figures(*size, "--faults", faults, "--every", "3", seconds=600)
    assert told["streams"] >= 200 and told["versions"] == 2 and told["codes"] == [0, 0]
    assert told["p99"] < 6.0
