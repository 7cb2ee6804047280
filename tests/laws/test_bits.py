"""The same bits on every instruction set, with and without OpenBLAS, with any number of threads.

Each setting is a process of its own that streams models and operators and prints hashes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from dreamstream import _core

HELPERS = Path(__file__).resolve().parent.parent / "helpers"
VARIANTS = [b["name"] for b in _core.config()["backends"] if b["bitwise"] and b["usable"]]
#: The reference is what differs from the others in threads and OpenBLAS, too.
SETTINGS = {name: {"DREAMSTREAM_ISA": name} for name in VARIANTS}
SETTINGS["ref"] |= {"DREAMSTREAM_THREADS": "3", "DREAMSTREAM_BLAS": "none"}


def stream(setting: str) -> dict:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("DREAMSTREAM_")}
    done = subprocess.run(
        [sys.executable, "-m", "ds_laws.bits"],
        cwd=HELPERS,
        env={**clean, **SETTINGS[setting]},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_bits_are_those_of_the_reference():
    reference = stream("ref")
    assert reference["kernels"] == "ref" and len(reference["hashes"]) > 250
    for setting in SETTINGS:
        if setting == "ref":
            continue
        found = stream(setting)
        assert found["kernels"] == setting, "the instruction set was not taken"
        assert found["hashes"].keys() == reference["hashes"].keys()
        differ = [name for name, bits in reference["hashes"].items() if found["hashes"][name] != bits]
        assert not differ, f"{setting}: other bits in {', '.join(differ[:10])}"
