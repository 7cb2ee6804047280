"""The corpora through the fuzz targets, built by the compiler at hand with sanitizers."""

from pathlib import Path

import pytest

from dreamstream import _core

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


def test_words_of_models(c_build):
    """The dictionary takes operators from the registry, each word once, and `model.dict` names none of them."""
    built = c_build.build("asan", [HERE / "words_model.c"])
    assert not built.errors, built.errors
    said = c_build.run(built.programs["words_model"]).stdout.splitlines()
    words = set()
    for o in _core.operators():
        words.add(f'"\\"{o["name"]}\\""')
        for a in o["attributes"]:
            words.add(f'"\\"{a["name"]}\\":"')
            words |= {f'"\\"{choice}\\""' for choice in (a["choices"] or "").split("|") if choice}
    assert set(said) == words
    assert not words & set((HERE / "model.dict").read_text().splitlines()) - TYPES


#: Words of the format, and of operators' attributes.
TYPES = {f'"\\"{name}\\""' for name in ("float32", "float64", "int64", "bool")}
