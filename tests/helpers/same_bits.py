"""What an engine says of random streams, as bytes: two engines of one model must say the same."""

import io
from typing import Any

import numpy as np

import dreamstream as ds
from dreamstream.stream.tree import leaves


def content(engine: ds.Engine, form: str = "dsm") -> bytes:
    """Return an engine's file."""
    file = io.BytesIO()
    engine.save(file, format=form)
    return file.getvalue()


def answers(engine: ds.Engine, seed: int = 0, n_streams: int = 3, n_calls: int = 5, most: int = 9) -> list[Any]:
    """Step random chunks of random streams; return what came out of each call, or how it was refused.

    Inputs of several rates advance by the same time.
    """
    rng = np.random.default_rng(seed)
    ids = [f"s{i}" for i in range(n_streams)]
    at = dict.fromkeys(ids, 0)
    said: list[Any] = []
    for call in range(n_calls):
        chunks = {}
        for i in ids:
            stop = at[i] + int(rng.integers(0, most))
            chunks[i] = {s.name: _frames(rng, s, at[i], stop, engine.rate) for s in engine.inputs}
            at[i] = stop
        try:
            out = engine.step(chunks, sos=ids if call == 0 else (), eos=ids if call == n_calls - 1 else ())
        except ds.DreamStreamError as error:
            said.append((type(error).__name__, str(error)))
            if not engine.ids:
                break
        else:
            said.append([(i, o.shape, o.dtype.name, o.tobytes()) for i in ids for o in leaves(out[i])])
            said.append(repr(_kinds(out[ids[0]])))
    engine.reset()
    return said


def _frames(rng: Any, spec: Any, at: int, stop: int, rate: Any) -> Any:
    ratio = spec.rate / rate
    shape = spec.shape_of(int(stop * ratio) - int(at * ratio))
    if spec.dtype == "float32":
        return rng.standard_normal(shape, dtype=np.float32)
    return rng.integers(0, 2, shape).astype(spec.dtype)


def _kinds(tree: Any) -> Any:
    """Return how an output is nested; a named tuple is a tuple."""
    if isinstance(tree, dict):
        return {k: _kinds(v) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        kind = list if isinstance(tree, list) else tuple
        return kind(_kinds(v) for v in tree)
    return 0
