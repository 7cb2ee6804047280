"""Copies and pickles of engines: no streams, the same weights, the same bits."""

import concurrent.futures
import copy
import gc
import multiprocessing
import os
import pickle
import pickletools

import faults
import numpy as np
import pytest
from same_bits import answers, content

import dreamstream as ds
from dreamstream import nn
from dreamstream.errors import ClosedError, FormatError


def model(seed=1, size=64):
    ds.manual_seed(seed)
    return nn.Sequential(nn.Conv1d(3, size, 5, padding=2), nn.ReLU(), nn.Conv1d(size, 4, 3)).eval()


def compiled(seed=1, **options):
    return ds.compile(model(seed), ("B", 3, "L"), rate=100, verify=False, **options)


@pytest.fixture
def path(tmp_path):
    compiled().save(tmp_path / "m.dsm")
    return tmp_path / "m.dsm"


def test_a_loaded_engine_is_pickled_as_its_path(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    engine = ds.load("m.dsm", threads=2, max_streams=4)
    engine.step({}, sos=["a"])
    data = pickle.dumps(engine)
    assert len(data) < 400 and str(path).encode() in data
    monkeypatch.chdir("/")
    again = pickle.loads(data)
    assert (again.threads, again.ids, engine.ids) == (2, [], ["a"])
    assert answers(again) == answers(compiled()) and pickle.dumps(again) == data
    with pytest.raises(ds.StreamLimitError):
        again.step({}, sos=list("abcde"))


def test_a_compiled_engine_is_pickled_as_its_bytes():
    engine = compiled()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(engine, protocol))
        assert content(again) == content(engine) and answers(again) == answers(engine)
    data = pickle.dumps(engine)
    assert content(engine) in data
    names = {arg for op, arg, _ in pickletools.genops(data) if op.name.endswith("UNICODE")}
    assert {"dreamstream.engine.load", "unpickled"} <= names and not any("numpy" in n for n in names)


def test_a_file_that_has_changed(path):
    engine = ds.load(path)
    data = pickle.dumps(engine)
    compiled(2).save(path)
    with pytest.raises(FormatError, match="another model than the one that was pickled") as error:
        pickle.loads(data)
    assert str(path) in str(error.value) and engine.fingerprint in str(error.value)
    assert ds.load(path).fingerprint in str(error.value)
    assert answers(pickle.loads(pickle.dumps(engine))) == answers(compiled())  # now by its bytes
    path.unlink()
    with pytest.raises(FileNotFoundError):
        pickle.loads(data)
    assert answers(pickle.loads(pickle.dumps(engine))) == answers(compiled())


def test_the_fingerprint_knows_the_interface(path):
    class Named(nn.Module):
        def __init__(self, key):
            super().__init__()
            self.inner, self.key = model(), key

        def forward(self, x):
            return {self.key: self.inner(x)}

    one, other = (ds.compile(Named(key), ("B", 3, "L"), rate=100) for key in "ab")
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == ds.compile(Named("a"), ("B", 3, "L"), rate=100, threads=2).fingerprint


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
@pytest.mark.parametrize("loaded", [False, True], ids=["compiled", "loaded"])
def test_copies(duplicate, loaded, path):
    engine = ds.load(path, max_streams=3) if loaded else compiled(max_streams=3)
    engine.step({"a": np.ones((3, 9), np.float32)}, sos=["a"])
    other = duplicate(engine)
    assert (other.ids, engine.ids) == ([], ["a"])
    assert content(other) == content(engine) and other.summary() == engine.summary()
    other.restore(engine.snapshot("a"), "a")
    x = np.full((3, 4), 2, np.float32)
    assert np.array_equal(other.step({"a": x})["a"], engine.step({"a": x})["a"])
    with pytest.raises(ds.StreamLimitError):
        other.step({}, sos=["b", "c", "d"])
    third = duplicate(other)
    other.close()
    expected = answers(compiled())
    del engine, other
    gc.collect()
    assert answers(third) == expected  # the plan lives as long as one of them


def test_a_deep_copy_of_what_holds_engines():
    held = {"x": compiled(), "y": [1]}
    held["z"] = held["x"]
    other = copy.deepcopy(held)
    assert other["x"] is other["z"] is not held["x"]


def test_closed_engines():
    engine = compiled()
    engine.close()
    for duplicate in copy.copy, copy.deepcopy, pickle.dumps:
        with pytest.raises(ClosedError):
            duplicate(engine)


def test_weights_are_not_copied():
    """Ten copies of 36 MB of weights, in memory that the engine asks for."""
    faults.install()
    try:
        engine = ds.compile(model(size=3_000_000 // 8), ("B", 3, "L"), verify=False)
        before = faults.stats()["live_bytes"]
        assert before > 30e6
        copies = [copy.copy(engine) for _ in range(10)]
        assert faults.stats()["live_bytes"] - before < 1e6
        del copies
    finally:
        faults.uninstall()


def test_a_pool_of_processes(path):
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        assert pool.submit(os.getpid).result() != os.getpid()
        for engine in ds.load(path), compiled():
            assert pool.submit(answers, engine).result() == answers(engine)
