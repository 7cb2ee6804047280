"""Files of released versions are read for ever, and give what they gave."""

import hashlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from dsm_files import container, fingerprint, small_model, text_of

import dreamstream as ds
from dreamstream import _core

HERE = Path(__file__).resolve().parent
TOOL = HERE.parent / "c" / "model_tool.c"
DIGESTS = {"version_1.dsm": "0cc6aada5e272393c659ba3e532fbd76f621fa7f3378c4f4686ef918be376daf"}


@pytest.fixture(scope="module")
def tool(c_build, tmp_path_factory):
    built = c_build.build("plain", [TOOL])
    assert not built.errors, built.errors
    folder = tmp_path_factory.mktemp("golden")

    def run(mode, path, *more):
        out = folder / "out"
        done = c_build.run(built.programs[TOOL.stem], mode, str(path), *more, str(out))
        assert done.returncode == 0, done.stdout
        return out.read_bytes()

    return run


def test_no_golden_file_changed():
    for name, digest in DIGESTS.items():
        assert hashlib.sha256((HERE / name).read_bytes()).hexdigest() == digest


def test_the_script_makes_it():
    spec = importlib.util.spec_from_file_location("dreamstream_tests_golden_make", HERE / "make.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    assert make.version_1() == (HERE / "version_1.dsm").read_bytes()
    assert make.frames_of_version_1().tobytes() == np.load(HERE / "version_1.npz")["x"].tobytes()


def test_it_is_written_again_as_the_same_bytes_and_a_fingerprint(tool, tmp_path):
    model, arrays = small_model()
    same = container(arrays, text_of(model, fingerprint(model, arrays, _core.operators())))
    assert container(arrays, text_of(model)) == (HERE / "version_1.dsm").read_bytes()
    assert tool("copy", HERE / "version_1.dsm") == same
    (tmp_path / "same.dsm").write_bytes(same)
    assert tool("copy", tmp_path / "same.dsm") == same


def test_outputs(tool, tmp_path):
    known = np.load(HERE / "version_1.npz")
    frames = tmp_path / "frames"
    frames.write_bytes(known["x"].tobytes())
    got = tool("run", HERE / "version_1.dsm", str(frames))
    assert got == known["tags"].tobytes() + known["mean"].tobytes()


def test_outputs_are_right():
    """Against the plain maths, in float64."""
    x = np.load(HERE / "version_1.npz")["x"].astype("float64")
    known = np.load(HERE / "version_1.npz")
    tags, mean = reference(x)
    np.testing.assert_allclose(known["tags"], tags, rtol=0, atol=1e-5)
    np.testing.assert_allclose(known["mean"], mean, rtol=0, atol=1e-5)


def reference(x):
    w = {name: array.astype("float64") for name, array in small_model()[1].items()}
    padded = np.concatenate([x[:1], x, x[-1:]])
    n = (len(padded) - 3) // 2 + 1
    windows = np.stack([padded[2 * i : 2 * i + 3].T for i in range(n)])
    h = np.einsum("nck,ock->no", windows, w["front.conv.weight"]) + w["front.conv.bias"]
    h = (h - h.mean(1, keepdims=True)) / np.sqrt(h.var(1, keepdims=True) + 1e-5) * w["front.norm.weight"]
    h = h / (1 + np.exp(-h))
    h = np.minimum(h + h @ w["tied.weight"].T @ w["tied.weight"].T, 1.5)
    state, cell, y = np.zeros(3), np.zeros(3), []
    for frame in h:
        gates = w["lstm.weight_ih_l0"] @ frame + w["lstm.bias_ih_l0"]
        gates += w["lstm.weight_hh_l0"] @ state + w["lstm.bias_hh_l0"]
        i, f, g, o = np.split(gates, 4)
        cell = cell / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        state = np.tanh(cell) / (1 + np.exp(-o))
        y.append(state)
    z = np.array(y) @ w["head.weight"].T + w["head.bias"]
    return z - np.log(np.exp(z).sum(1, keepdims=True)), np.mean(y, axis=0)


def test_python_loads_it():
    engine = ds.load(HERE / "version_1.dsm")
    known = np.load(HERE / "version_1.npz")
    out = engine.step({"a": known["x"].T.copy()}, sos=["a"], eos=["a"])["a"]
    assert out["tags"].tobytes() == known["tags"].tobytes()
    assert out["mean"].reshape(-1).tobytes() == known["mean"].tobytes()
