"""Every model to a file and back: the same bits, and when it is written again the same bytes."""

import pytest
from ds_laws import GENERATORS, MEMBERS, MODELS, made, models as table
from random_graphs.trial import Subject
from same_bits import answers, content
from turns import in_blocks

import dreamstream as ds


def comes_back(engine, folder):
    """An engine, through a mapped file and through both text forms."""
    whole = content(engine)
    (folder / "model.dsm").write_bytes(whole)
    expected = answers(engine)
    for source in (folder / "model.dsm", content(engine, "json"), content(engine, "xml")):
        with ds.load(source) as loaded:
            assert content(loaded) == whole
            assert answers(loaded) == expected
            assert loaded.summary() == engine.summary()
            assert loaded.fingerprint == engine.fingerprint
            assert (loaded.inputs, loaded.outputs) == (engine.inputs, engine.outputs)
            for fact in ("by_name", "delay", "receptive_field", "state_size", "state_bytes_per_frame"):
                assert getattr(loaded, fact) == getattr(engine, fact), fact


@pytest.mark.parametrize("name", MODELS)
def test_models(name, tmp_path):
    with table.case(name).engine() as engine:
        comes_back(engine, tmp_path)


@in_blocks("seed", range(100), 25)
def test_random_models(seed, tmp_path):
    with Subject.of(seed).compiled() as engine:
        comes_back(engine, tmp_path)


@pytest.mark.parametrize("name", GENERATORS)
def test_operators(name, tmp_path):
    """With every attribute and optional weight: what is absent, infinite or by default stays so."""
    n = 0
    for index in range(2 if name in MEMBERS else 8):
        case, _ = made("round trip", name, index)
        if "engine" in case.modes:
            n += 1
            with case.engine() as engine:
                comes_back(engine, tmp_path)
    assert n or name == "cast", name
