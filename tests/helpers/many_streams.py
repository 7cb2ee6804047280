"""Streams that come and go: some move on in a call, some end, others take their places."""

from collections.abc import Callable
from typing import Any

import numpy as np

import dreamstream as ds


class Patched:
    """A patched module, native or torch's, stepped as an engine is; its input is ``(B, L, features)``."""

    def __init__(self, model: Any) -> None:
        self.model = ds.patch_module(model).online()
        self.native = isinstance(model, ds.nn.Module)

    @property
    def ids(self) -> list[str]:
        return self.model.live_ids

    def step(self, chunks: dict[str, Any], sos: Any = (), eos: Any = ()) -> dict[str, Any]:
        if not chunks:
            return {}
        ids, given = list(chunks), list(chunks.values())
        if not self.native:
            import torch

            given = [torch.from_numpy(x) for x in given]
        flags = {"sos": [i in sos for i in ids], "eos": [i in eos for i in ids]}
        y = self.model(ds.stream_tensor(given, ids=ids, names=("B", "L", None), **flags))
        return {i: y[i].numpy() if self.native else y[i].detach().numpy() for i in ids}


def come_and_go(
    engine: Any, arrays: list[Any], at_once: int, most: int, seed: int, expected: Callable[[Any], Any]
) -> None:
    """Hold each stream's outputs against what is expected of its whole array, within 1e-5.

    Parameters
    ----------
    engine : Engine or Patched
    arrays : list of ndarray
        ``(L, features)``, one for each stream.
    at_once : int
        Streams that are live at a time; each moves on with probability 1/2.
    most : int
        Frames of a chunk, below this one.
    seed : int
    expected : function (array) -> array
    """
    rng = np.random.default_rng(seed)
    waiting, live, done = list(range(len(arrays))), {}, 0
    while waiting or live:
        while waiting and len(live) < at_once:
            number = waiting.pop(0)
            live[f"s{number}"] = [arrays[number], 0, []]
        chunks, ends = {}, []
        for name, stream in live.items():
            if rng.random() < 0.5:
                x, at, _ = stream
                stream[1] = min(at + int(rng.integers(0, most)), len(x))
                chunks[name] = x[at : stream[1]]
                ends += [name] * (stream[1] == len(x))
        starts = [name for name in chunks if name not in engine.ids]
        for name, y in engine.step(chunks, sos=starts, eos=ends).items():
            live[name][2].append(y)
        for name in ends:
            x, _, parts = live.pop(name)
            np.testing.assert_allclose(np.concatenate(parts), expected(x), rtol=0, atol=1e-5)
            done += 1
    assert done == len(arrays) and not engine.ids
