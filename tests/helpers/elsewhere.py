"""A process in which engines of saved files go on with streams of this one, from their snapshots."""

from __future__ import annotations

import functools
import io
import pickle
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

import dreamstream as ds
from dreamstream.stream.tree import leaves


@functools.cache
def _process() -> subprocess.Popen[bytes]:
    """One for all tests; it ends with its standard input."""
    words = [sys.executable, "-c", "import elsewhere; elsewhere.serve()"]
    return subprocess.Popen(words, cwd=Path(__file__).parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _asked(*what: Any) -> Any:
    process = _process()
    assert process.stdin is not None and process.stdout is not None
    pickle.dump(what, process.stdin)
    process.stdin.flush()
    done = pickle.load(process.stdout)
    if isinstance(done, Exception):
        raise done
    return done


def moved(engine: Any) -> Callable[[Any], list[Any]]:
    """Move all streams of an engine to one of its file, there; return what steps them, given a stream tensor.

    A step gives each output as arrays by id.
    """
    file = io.BytesIO()
    engine.save(file)
    _asked(None, file.getvalue(), {i: engine.snapshot(i) for i in engine.ids})
    engine.reset()
    return lambda x: [MappingProxyType(y) for y in _asked(np.asarray(x.tensor()), x.meta, x.names)]


def moving(engine: Any, after: int = 3) -> Callable[[Any], Any]:
    """Return a step of an engine, and after so many calls of that in the other process."""
    calls, ways = count(), [engine]

    def step(x: Any) -> Any:
        if next(calls) == after:
            ways.append(moved(engine))
        return ways[-1](x)

    return step


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
            first, *rest = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        done: Any = None
        try:
            if first is None:
                engine = _begun(*rest)
            else:
                meta, names = rest
                assert engine is not None
                made = engine(ds.stream_tensor(first, meta, names))
                done = [{i: np.array(y[i]) for i in meta.ids} for y in leaves(made)]
        except Exception as error:
            done = error
        pickle.dump(done, answers)
        answers.flush()
