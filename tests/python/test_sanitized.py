"""The tests of threads, faults and laws once more, with the engine instrumented by the sanitizers."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "sanitize.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["address", "tests/laws", "-m", "fast"],
        ["address", "tests/threads", "tests/python/test_faults.py"],
        ["thread", "tests/threads"],
    ],
    ids=" ".join,
)
def test_nothing_is_found(arguments):
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
