"""A crowd: 64 streams in random batches, some of them full of NaN and infinity.

Each must equal itself alone and in one chunk, to the bit: in the engine with one thread and with two, and
in eager mode.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ds_laws.case import normal
from ds_laws.drive import alone, driver, run, schedule
from ds_laws.models import case

N_STREAMS, MOST_FRAMES = 64, 1000


def wild(rng, shape, dtype):
    x = normal(rng, shape, dtype)
    if rng.random() < 0.2:
        x[rng.random(shape) < 0.05] = rng.choice([np.nan, np.inf, -np.inf])
    return x


def same_bits(a, b):
    return a.shape == b.shape and bool(
        ((a.view(np.int32) == b.view(np.int32)) | (np.isnan(a) & np.isnan(b))).all()
    )


@pytest.mark.parametrize("name", ["tagger", "windows"])
@pytest.mark.parametrize(("mode", "threads"), [("engine", 1), ("engine", 2), ("eager", 1)])
def test_bits_are_those_of_each_stream_alone(name, mode, threads):
    crowd, rng = case(name), np.random.default_rng(threads)
    crowd.inputs[0].draw = wild
    lengths = [0, 1, 2, MOST_FRAMES, *rng.integers(0, MOST_FRAMES + 1, N_STREAMS - 4)]
    data = {f"s{i}": crowd.data(rng, [int(n)]) for i, n in enumerate(lengths)}
    options = {"threads": threads} if mode == "engine" else {}
    got = run(driver(mode, crowd, rng, **options), schedule(crowd, rng, data), data)
    single = alone(driver(mode, crowd, rng), data, rng)
    n_wild = 0
    for i, (x,) in data.items():
        for k, (y, z) in enumerate(zip(got.frames[i], single.frames[i])):
            assert same_bits(y, z), f"output {k} of {i}, {len(x)} frames"
            assert np.isfinite(z).all() or not np.isfinite(x).all() or not len(x), f"{i} caught another's NaN"
        n_wild += any(np.isnan(z).any() for z in single.frames[i])
    assert n_wild >= 4


def test_bits_without_openblas():
    environment = {**os.environ, "DREAMSTREAM_BLAS": "none"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "alone"]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "6 passed" in done.stdout
