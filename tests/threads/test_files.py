"""Threads that load, copy, save and step engines of one file at a time."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from same_bits import content

import dreamstream as ds
from dreamstream import nn


def test_one_file(tmp_path):
    ds.manual_seed(1)
    model = nn.Sequential(nn.Conv1d(3, 32, 5, padding=2), nn.ReLU(), nn.Conv1d(32, 4, 3)).eval()
    path, x = tmp_path / "m.dsm", np.ones((3, 20), np.float32)
    shared = ds.compile(model, ("B", 3, "L"))
    shared.save(path)
    whole, expected = content(shared), shared.step({"a": x}, "a", "a")["a"]

    def work(k):
        for i in range(20):
            source = path if (k + i) % 2 else whole
            engine = copy.copy(shared) if k == 0 else pickle.loads(pickle.dumps(ds.load(source)))
            assert np.array_equal(engine.step({"a": x}, "a", "a")["a"], expected)
            assert np.array_equal(shared.step({f"{k} {i}": x}, f"{k} {i}", f"{k} {i}")[f"{k} {i}"], expected)
            assert content(engine) == whole
            if k == 1:
                engine.save(path)
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
