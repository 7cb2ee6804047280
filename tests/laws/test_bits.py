"""The same bits on every instruction set, with and without OpenBLAS, with any number of threads.

Each setting is a process of its own that streams models and operators and prints hashes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dreamstream import _core

HELPERS = Path(__file__).resolve().parent.parent / "helpers"
VARIANTS = [b["name"] for b in _core.config()["backends"] if b["bitwise"] and b["usable"]]
#: The reference is what differs from the others in threads and OpenBLAS, too.
SETTINGS = {name: {"DREAMSTREAM_ISA": name} for name in VARIANTS}
SETTINGS["ref"] |= {"DREAMSTREAM_THREADS": "3", "DREAMSTREAM_BLAS": "none"}


def stream(setting: str, *words: str) -> dict:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("DREAMSTREAM_")}
    done = subprocess.run(
        [sys.executable, "-m", "ds_laws.bits", *words],
        cwd=HELPERS,
        env={**clean, **SETTINGS[setting]},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("words", [("batched",), pytest.param((), marks=pytest.mark.slow)], ids=len)
def test_bits_are_those_of_the_reference(words):
    """By default in batches and float32 only, and of the best instruction set: laws hold the rest of one, the programs
    tests/c/test_ops.c and test_kernels_*.c each operator's and each kernel's of all."""
    reference = stream("ref", *words)["hashes"]
    assert len(reference) > (250 if words else 500)
    for setting in VARIANTS[-1:] if words else VARIANTS[1:]:
        found = stream(setting, *words)
        assert found["kernels"] == setting, "the instruction set was not taken"
        assert found["hashes"].keys() == reference.keys()
        differ = [name for name, bits in found["hashes"].items() if reference[name] != bits]
        assert not differ, f"{setting}: other bits in {', '.join(differ[:10])}"
