"""The engine for 64-bit ARM, made by a cross compiler and run under emulation: the C tests hold there, and files
made here give the same bits."""

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import nn
from dreamstream.models import Commands

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden"
NAMES = sorted(
    path.stem
    for path in HERE.glob("test_*.c")
    if path.stem.startswith(("test_kernels", "test_exec", "test_thread", "test_api", "test_f"))
    or path.stem in ("test_detect", "test_snapshot", "test_model", "test_codec", "test_ops")
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cross(c_build):
    """source -> its program for ARM, after a look at what is needed."""
    for tool in (c_build.cc("aarch64")[-2], c_build.EMULATOR[0]):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}")
    engine = functools.cache(lambda: c_build.engine("aarch64"))

    @functools.cache
    def make(source):
        assert not engine().error, engine().error
        return c_build.program(engine(), source)

    return make


@pytest.mark.parametrize("name", NAMES)
def test_program(c_build, cross, name):
    done = c_build.run(cross(HERE / f"{name}.c"), timeout=3600)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}"


@pytest.mark.parametrize("isa", ["ref", "arm_v8"])
def test_golden_file(c_build, cross, tmp_path, monkeypatch, isa):
    monkeypatch.setenv("DREAMSTREAM_ISA", isa)
    known = np.load(GOLDEN / "version_1.npz")
    (tmp_path / "frames").write_bytes(known["x"].tobytes())
    words = ["run", str(GOLDEN / "version_1.dsm"), str(tmp_path / "frames"), str(tmp_path / "out")]
    done = c_build.run(cross(HERE / "model_tool.c"), *words)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "out").read_bytes() == known["tags"].tobytes() + known["mean"].tobytes()


class Mixed(nn.Module):
    """Recurrence, attention, normalisation, functions and products on frames of 40 features."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(40, 72, 5, padding=2)
        self.own = nn.Conv1d(72, 72, 9, groups=72)
        self.rnn = nn.LSTM(72, 72, batch_first=True)
        self.norm = nn.LayerNorm(72)
        self.attention = nn.MultiheadAttention(72, 3, batch_first=True)
        self.head = nn.Linear(72, 37)

    def forward(self, x):
        y = nn.functional.gelu(self.own(self.conv(x))).transpose(1, 2)
        y = self.norm(y + self.rnn(y)[0])
        y = y + self.attention(y, y, y, is_causal=True)[0]
        return nn.functional.log_softmax(self.head(y), -1)


def commands():
    return Commands(pretrained=True), Commands.spec, 16000


def mixed():
    return Mixed(), ("B", 40, "L"), 300


FORMATS = [
    ("fp32", "fp32"),
    ("bf16", "fp32"),
    ("fp16", "fp32"),
    ("int8", "fp32"),
    ("fp32", "bf16"),
    ("fp32", "int8"),
]


@pytest.mark.parametrize(("weights", "products"), FORMATS)
@pytest.mark.parametrize("make", [commands, mixed])
def test_models_give_the_same_bits(c_build, cross, tmp_path, monkeypatch, rng, make, weights, products):
    ds.manual_seed(5)
    model, spec, n = make()
    engine = ds.compile(model.eval(), spec, blas=False, weights=weights, products=products)
    path = tmp_path / "model.dsm"
    engine.save(path)
    x = rng.standard_normal((n, 40) if make is mixed else (n,), dtype=np.float32)
    (tmp_path / "in").mkdir()
    x.tofile(tmp_path / "in" / "a.0")
    sizes = [n // 3, 1, n // 2, 0]
    lines = ["open a", *(f"step a {int(i == 0)} {size}" for i, size in enumerate(sizes))]
    lines += [f"step a 2 {n - sum(sizes)}"]
    got = {}
    here = c_build.program(c_build.engine("noblas"), HERE / "dsm_run.c")
    emulated = [*c_build.EMULATOR, str(cross(HERE / "dsm_run.c"))]
    runs = [([here], "ref", 1), ([here], "", 1), (emulated, "ref", 1), (emulated, "", 1), (emulated, "", 2)]
    for command, isa, threads in runs:
        out = tmp_path / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        done = subprocess.run(
            [*map(str, command), str(path), str(tmp_path / "in"), str(out), str(threads)],
            input="\n".join(lines) + "\n", text=True, capture_output=True,
            env={**os.environ, "DREAMSTREAM_ISA": isa},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        got[command[0], isa, threads] = {p.name: p.read_bytes() for p in out.iterdir()}
    first, *others = got.values()
    assert len(first["a.0"]) > 1000
    assert all(other == first for other in others)


# Doubles for which two C libraries give other bits: erf (gelu by default), erfc and hypot.
BY_LIBM = {
    f"{name} float64 {part}"
    for name in ("gelu-layer", "tagger", "phases", "erf 0", "erfc 0", "hypot 0", "transformer-encoder-causal",
                 "transformer-encoder-window", "transformer-encoder-chunks")
    for part in ("eager", "slopes")
}  # fmt: skip


def test_digest():
    """Models, large cases and every operator: all but doubles that go through three functions of libm."""
    if "DREAMSTREAM_AARCH64" not in os.environ:
        pytest.skip("DREAMSTREAM_AARCH64 does not name what tests/aarch64.py has made")
    found = []
    for python in (sys.executable, Path(os.environ["DREAMSTREAM_AARCH64"]) / "python"):
        said = subprocess.check_output([python, "-m", "ds_laws.bits", "batched"], cwd=HERE.parent / "helpers")
        found.append(json.loads(said)["hashes"])
    here, there = found
    assert here.keys() == there.keys() and len(here) > 800
    assert {name for name in here if here[name] != there[name]} <= BY_LIBM
