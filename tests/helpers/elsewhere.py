"""A process in which engines of saved files go on with streams of this one, from their snapshots."""

from __future__ import annotations

import functools
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import dreamstream as ds
from dreamstream.stream.tree import leaves


@functools.cache
def _process() -> subprocess.Popen[bytes]:
    """One for all tests; it ends with its standard input."""
    words = [sys.executable, "-c", "import elsewhere; elsewhere.serve()"]
    return subprocess.Popen(words, cwd=Path(__file__).parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def elsewhere(*asked: Any) -> Any:
    """Have ``("begin", model, snapshots by id)``, then ``("step", padded, metadata, names)`` done there.

    A step gives for each output a dictionary of arrays by id.
    """
    process = _process()
    assert process.stdin is not None and process.stdout is not None
    pickle.dump(asked, process.stdin)
    process.stdin.flush()
    done = pickle.load(process.stdout)
    if isinstance(done, Exception):
        raise done
    return done


def _begun(model: bytes, snapshots: dict[str, bytes]) -> Any:
    engine = ds.load(io.BytesIO(model))
    for name, data in snapshots.items():
        engine.restore(data, name)
    return engine


def serve() -> None:
    """Answer in that process until nobody asks any more."""
    answers, engine = sys.stdout.buffer, None
    sys.stdout = sys.stderr
    while True:
        try:
            what, *given = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        done: Any = None
        try:
            if what == "begin":
                engine = _begun(*given)
            else:
                padded, meta, names = given
                assert engine is not None
                made = engine(ds.stream_tensor(padded, meta, names))
                done = [{i: np.array(y[i]) for i in meta.ids} for y in leaves(made)]
        except Exception as error:
            done = error
        pickle.dump(done, answers)
        answers.flush()
