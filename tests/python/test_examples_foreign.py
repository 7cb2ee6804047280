"""The examples in Rust and Go, compiled as their page says, give the same bits as Python."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from c_library import LIBRARY, needs_library

import dreamstream as ds
from dreamstream import nn

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "docs" / "examples"
PLACES = [os.environ.get("PATH", ""), str(Path.home() / ".cargo" / "bin"), "/usr/local/go/bin"]

pytestmark = [
    pytest.mark.skipif(not EXAMPLES.exists(), reason="the tests are away from the sources"),
    needs_library,
]


@pytest.fixture(scope="module", params=["rustc", "go"])
def program(tmp_path_factory, request):
    compiler, folder = shutil.which(request.param, path=os.pathsep.join(PLACES)), LIBRARY.parent
    if compiler is None or (request.param == "go" and shutil.which("pkg-config") is None):
        pytest.skip(f"no {request.param}, or no pkg-config for it")
    place = tmp_path_factory.mktemp("foreign")
    out = place / "stream_frames"
    if request.param == "rustc":
        command = [compiler, "-D", "warnings", EXAMPLES / "stream_frames.rs", "-L", folder, "-l", "dreamstream"]
        command += ["-C", f"link-arg=-Wl,-rpath,{folder}", "-o", out]
    else:
        command = [compiler, "build", "-o", out, EXAMPLES / "stream_frames.go"]
    own = {"PKG_CONFIG_PATH": str(folder / "pkgconfig"), "GOCACHE": str(place / "go"), "GOFLAGS": "-mod=mod"}
    done = subprocess.run(command, capture_output=True, env={**os.environ, "CC": "cc", **own})
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
