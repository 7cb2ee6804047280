"""The example in Rust, compiled as its page says, with warnings as errors, gives the same bits as Python."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from c_library import LIBRARY, needs_library

import dreamstream as ds
from dreamstream import nn

SOURCE = Path(__file__).resolve().parent.parent.parent / "docs" / "examples" / "stream_frames.rs"
PLACES = [os.environ.get("PATH", ""), str(Path.home() / ".cargo" / "bin")]
RUSTC = shutil.which("rustc", path=os.pathsep.join(PLACES))

pytestmark = [
    pytest.mark.skipif(not SOURCE.exists(), reason="the tests are away from the sources"),
    needs_library,
    pytest.mark.skipif(RUSTC is None, reason="no compiler of Rust"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder, out = LIBRARY.parent, tmp_path_factory.mktemp("rust") / "stream_frames"
    command = [RUSTC, "-D", "warnings", SOURCE, "-L", folder, "-l", "dreamstream"]
    done = subprocess.run([*command, "-C", f"link-arg=-Wl,-rpath,{folder}", "-o", out], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return out


def run(program, path, given=b""):
    return subprocess.run([program, path], input=given, capture_output=True, timeout=300)


@pytest.mark.parametrize("n_frames", [0, 1, 100, 1000])
def test_frames(program, tmp_path, rng, n_frames):
    ds.manual_seed(3)
    engine = ds.compile(nn.Conv1d(6, 4, 5, padding=2).eval(), ("B", 6, "L"), blas=False)
    engine.save(tmp_path / "conv.dsm")
    x = rng.standard_normal((n_frames, 6), dtype=np.float32)
    done = run(program, tmp_path / "conv.dsm", x.tobytes())
    assert done.returncode == 0, done.stderr
    assert done.stdout == np.ascontiguousarray(engine.step({"s": x.T}, sos="s", eos="s")["s"].T).tobytes()


def test_errors_are_told(program, tmp_path):
    done = run(program, tmp_path / "none.dsm")
    assert done.returncode == 1 and b"none.dsm" in done.stderr
