"""Hostile model files: each is refused, with words that say why, by the C reader and by Python."""

import importlib.util
import io
import json
import struct
import tracemalloc
from pathlib import Path

import pytest
from turns import in_blocks

import dreamstream as ds
from dreamstream.cli import main
from dreamstream.data import AudioReader

HERE = Path(__file__).resolve().parent
TOOL = HERE.parent / "c" / "model_tool.c"
TABLE = json.loads((HERE / "attacks.json").read_text())


@pytest.fixture(scope="module")
def make():
    spec = importlib.util.spec_from_file_location("dreamstream_tests_attacks_make", HERE / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def copy(c_build, tmp_path_factory):
    """path -> (exit status, what was said, bytes written), under the sanitizers."""
    built = c_build.build("asan", [TOOL])
    assert not built.errors, built.errors
    out = tmp_path_factory.mktemp("attacks") / "out"

    def run(path):
        out.unlink(missing_ok=True)
        done = c_build.run(built.programs[TOOL.stem], "copy", str(path), str(out))
        return done.returncode, done.stdout, out.read_bytes() if out.exists() else None

    return run


def test_the_script_makes_them(make):
    made = {name: (file, words) for name, file, words in make.attacks()}
    assert set(made) == set(TABLE) == {path.stem for path in HERE.glob("*.dsm")}
    for name, (file, words) in made.items():
        assert file == (HERE / f"{name}.dsm").read_bytes(), name
        assert words == TABLE[name], name


def test_what_is_right_is_taken(make, copy, tmp_path):
    path = tmp_path / "right.dsm"
    path.write_bytes(make.right())
    assert copy(path) == (0, "", make.sealed())
    path.write_bytes(make.sealed())
    assert copy(path) == (0, "", make.sealed())


@pytest.mark.parametrize("name", sorted(TABLE))
def test_attack(copy, name):
    status, said, written = copy(HERE / f"{name}.dsm")
    assert status == 1 and written is None, said
    assert said.startswith("DS_FORMAT: ") and TABLE[name] in said, said
    assert said.count("\n") == 1


@in_blocks("name", sorted(TABLE), 30)
def test_attack_from_python(name):
    path = HERE / f"{name}.dsm"
    for source in (path, path.read_bytes()):
        with pytest.raises(ds.FormatError) as caught:
            ds.load(source)
        assert TABLE[name] in str(caught.value)


def test_what_was_changed_on_purpose_is_sealed_again(tmp_path):
    """What only the fingerprint finds is loaded once it is sealed again."""
    names = sorted(name for name in TABLE if name.startswith(("changed_", "fingerprint_")))
    assert len(names) == 16
    for name in names:
        out = tmp_path / f"{name}.dsm"
        assert main(["convert", str(HERE / f"{name}.dsm"), str(out)]) == 1 and not out.exists()
        if name not in ("changed_attribute", "changed_choice"):  # a residual that would need a sync
            assert main(["convert", "--reseal", str(HERE / f"{name}.dsm"), str(out)]) == 0
            ds.load(out).close()


def test_recordings_that_promise_channels():
    """44 bytes and no sample: whatever is asked for, memory is for what comes."""
    sizes = struct.pack("<IHHIIHH", 16, 1, 65535, 16000, 0, 65535, 8)
    for promised in (2**32 - 1, 2**30):
        head = struct.pack("<4sI4s4s", b"RIFF", promised, b"WAVE", b"fmt ") + sizes
        head += struct.pack("<4sI", b"data", promised)
        assert len(head) == 44
        for source in (head, io.BytesIO(head)):
            tracemalloc.start()
            with AudioReader(source) as reader:
                if promised == 2**30:
                    with pytest.raises(ds.FormatError, match="the recording ends"):
                        reader.read()
                else:
                    assert len(reader.read()) == 0
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 20_000_000
