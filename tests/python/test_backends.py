"""Which kernels run, as the environment and `blas` ask, and what their weights take."""

import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import _core, nn

USABLE = [b["name"] for b in _core.config()["backends"] if b["usable"]]
OWN = [name for name in USABLE if "+" not in name]
HAS_BLAS = _core.config()["openblas"] is not None

OUT, IN, KERNEL = 33, 7, 3

ASK = (
    f"IN, OUT, KERNEL = {IN}, {OUT}, {KERNEL}"
    + """
import json
import numpy as np
import dreamstream as ds
from dreamstream import _core, dispatch, nn

def compiled(blas, *layers):
    return ds.compile(nn.Sequential(*layers).eval(), ("B", IN, "L"), blas=blas)

ds.manual_seed(1)
layers = nn.Conv1d(IN, OUT, KERNEL), nn.Conv1d(OUT, OUT, 5, groups=OUT)
x = np.random.default_rng(0).standard_normal((1, IN, 40), dtype=np.float32)
answers = {}
for blas in (None, False, True):
    try:
        engine = compiled(blas, *layers)
    except ds.ModeError as error:
        answers[str(blas)] = str(error)
        continue
    y = engine.step({"a": x[0]}, sos=["a"], eos=["a"])["a"]
    whole = nn.Sequential(*layers).eval()(ds.tensor(x)).numpy()[0]
    assert np.abs(y - whole).max() < 1e-5
    answers[str(blas)] = {
        "kernels": engine.summary().split("kernels ")[1].split(",")[0],
        "bitwise": "the same bits: yes" in engine.summary(),
        "extra": compiled(blas, layers[0]).weights_size - sum(p.numpy().nbytes for p in layers[0].parameters()),
    }
op = dispatch.operator("linear", {}, [("float32", (IN,), 1, 1)], [np.zeros((OUT, IN), "f"), None])
print(json.dumps({"answers": answers, "op": op.prepared_bytes, **_core.config()}))
"""
)


def python(code, **environment):
    kept = {k: v for k, v in os.environ.items() if k not in ("DREAMSTREAM_ISA", "DREAMSTREAM_BLAS")}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env={**kept, **environment}, capture_output=True, text=True, timeout=300)


def ask(**environment):
    ran = python(ASK, **environment)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def aligned(n):
    return (n + 63) // 64 * 64


HEAD = 192  # sizeof(ds_packed), aligned


def prepared(name, columns, depth):
    """Bytes of one packed weight: what it says of itself, then nothing, rows, or panels of 32 columns."""
    if name == "ref":
        return HEAD
    return HEAD + aligned((columns if "+" in name else (columns + 31) // 32 * 32) * depth * 4)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("without", [False, True], ids=["as built", "DREAMSTREAM_BLAS=none"])
def test_what_was_asked_for_runs_and_takes_what_it_must(name, without):
    told = ask(DREAMSTREAM_ISA=name, **({"DREAMSTREAM_BLAS": "none"} if without else {}))
    assert told["kernels"] == name
    assert told["blas"] is (HAS_BLAS and not without)
    assert (told["openblas"] is not None) is HAS_BLAS
    assert told["op"] == prepared(name, OUT, IN)
    weight = OUT * IN * KERNEL * 4  # given back where it has been packed
    extra = prepared(name, OUT, IN * KERNEL) - (0 if name == "ref" else weight)
    own = {"kernels": name, "bitwise": True, "extra": extra}
    assert told["answers"]["None"] == told["answers"]["False"] == own
    if told["blas"]:
        theirs = f"{name}+openblas"
        extra = prepared(theirs, OUT, IN * KERNEL) - weight
        assert told["answers"]["True"] == {"kernels": theirs, "bitwise": False, "extra": extra}
    else:
        assert "OpenBLAS is not built in or kept out" in told["answers"]["True"]


def test_backends_are_listed(capsys):
    """Every variant, plainest first, then each with OpenBLAS where that is built in."""
    names = [b["name"] for b in _core.config()["backends"]]
    n = len(names) // 2 if HAS_BLAS else len(names)
    assert names[0] == "ref" and names[n:] == ([f"{name}+openblas" for name in names[:n]] if HAS_BLAS else [])
    assert [b["bitwise"] for b in _core.config()["backends"]] == ["+" not in name for name in names]
    ds.show_config()
    assert all(name in capsys.readouterr().out for name in names[:1])


def test_show_config_says_what_was_kept_out():
    code = "import dreamstream as ds; ds.show_config()"
    ran = python(code, DREAMSTREAM_BLAS="none", DREAMSTREAM_ISA="ref")
    assert ("kept out by DREAMSTREAM_BLAS=none" in ran.stdout) is HAS_BLAS
    assert ("not built in" in ran.stdout) is not HAS_BLAS
    assert "kernels   ref" in ran.stdout


def test_unknown_instruction_set():
    """An import alone computes nothing and raises nothing; whatever computes says what is wrong."""
    code = """
import dreamstream as ds
from dreamstream import nn
layer = nn.Linear(2, 3)
patched = ds.patch_module(nn.Linear(2, 3)).online()
asks = (ds.show_config, lambda: layer(ds.tensor([[1.0, 2.0]])), lambda: ds.compile(layer, ("B", "L", 2)),
        lambda: patched(ds.stream_tensor([[[1.0, 2.0]]], names=("B", "L", None), ids=["a"], sos=True)))
for ask in asks:
    try:
        ask()
    except ValueError as error:
        assert str(error).startswith("DREAMSTREAM_ISA: unknown instruction set 'fast'"), error
    else:
        raise SystemExit("no error")
"""
    ran = python(code, DREAMSTREAM_ISA="fast")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_weights_are_held_once(tmp_path):
    """What panels replace is given back; a file written then has every byte."""
    ds.manual_seed(3)
    layer = nn.LSTM(96, 128, num_layers=2, batch_first=True).eval()
    raw = sum(p.numpy().nbytes for p in layer.parameters())
    engine = ds.compile(layer, ("B", "L", 96), blas=False)
    assert raw <= engine.weights_size < 1.01 * raw
    engine.save(tmp_path / "model.dsm")
    again = ds.load(tmp_path / "model.dsm")
    for other in (again, ds.load((tmp_path / "model.dsm").read_bytes())):
        assert raw <= other.weights_size < 1.01 * raw
    again.save(tmp_path / "again.dsm")
    assert (tmp_path / "again.dsm").read_bytes() == (tmp_path / "model.dsm").read_bytes()
    written = (tmp_path / "model.dsm").read_bytes()
    assert all(p.numpy().tobytes() in written for p in layer.parameters())


# ---------------------------------------------------------------- forced
def steps(engine):
    x = np.random.default_rng(0).standard_normal((IN, 40), dtype=np.float32)
    return engine.step({"a": x}, sos="a", eos="a")["a"]


@pytest.mark.parametrize("backend", USABLE)
def test_a_backend_can_be_forced(backend):
    ds.manual_seed(1)
    model = nn.Sequential(nn.Conv1d(IN, OUT, KERNEL), nn.ReLU(), nn.Conv1d(OUT, 5, 4)).eval()
    compiled = ds.compile(model, ("B", IN, "L"), backend=backend)
    file = io.BytesIO()
    compiled.save(file)
    loaded = ds.load(file.getvalue(), backend=backend)
    assert compiled._core.kernels == loaded._core.kernels == backend
    assert np.array_equal(steps(compiled), steps(loaded))
    if backend in OWN:
        assert np.array_equal(steps(compiled), steps(ds.load(file.getvalue(), backend="ref")))
    assert ("OpenBLAS" in compiled.summary()) == (backend not in OWN)


def test_a_backend_that_is_not_there():
    model = nn.Conv1d(3, 4, 3).eval()
    with pytest.raises(ValueError, match='"z80" is not built in'):
        ds.compile(model, ("B", 3, "L"), backend="z80")
