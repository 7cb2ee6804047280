"""The corpora through the fuzz targets, built by the compiler at hand with sanitizers."""

from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TARGETS = sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.c"))


@pytest.mark.parametrize("name", TARGETS)
def test_corpus(c_build, name):
    built = c_build.build("asan", [HERE / f"fuzz_{name}.c"])
    assert not built.errors, built.errors
    files = sorted((HERE / "corpus" / name).iterdir())
    assert files, f"tests/fuzz/corpus/{name} is empty"
    done = c_build.run(built.programs[f"fuzz_{name}"], *map(str, files))
    assert done.returncode == 0, done.stdout
    assert done.stdout == f"{len(files)} files\n"


def test_every_corpus_has_a_target():
    assert sorted(path.name for path in (HERE / "corpus").iterdir()) == TARGETS
