"""A stream ``(B, L, features)`` in pieces, by a patched model and by engines, against what is wanted of it.

The stream is an array, or a tensor of torch for a model of torch.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import dreamstream as ds
from dreamstream.array import deferred

FIRST, LAST = 16, 6  # calls of one frame each at either end

Step = Callable[[Any, bool, bool], Any]


def patched(online: Any) -> Step:
    """Return what calls a patched model with a chunk, its first and its last one."""

    def step(chunk: Any, first: bool, last: bool) -> Any:
        y = online(ds.stream_tensor([chunk], ids=["s"], sos=first, eos=last, names=("B", "L", None)))
        return y["s"].detach().numpy()

    return step


def stepped(engine: Any) -> Step:
    """Return what steps an engine likewise."""

    def step(chunk: Any, first: bool, last: bool) -> Any:
        return engine.step({"s": np.asarray(chunk)}, sos=["s"] * first, eos=["s"] * last)["s"]

    return step


def singly(n: int) -> list[int]:
    """Return sizes of chunks: single frames, but what lies between a stream's beginning and its end is one."""
    between = n - FIRST - LAST
    return [1] * n if between <= 1 else [*[1] * FIRST, between, *[1] * LAST]


def held(steps: Sequence[Step], x: Any, want: Any, atol: float = 1e-5) -> set[bytes]:
    """Hold each to the wanted array: whole, by single frames, in chunks; return what they gave."""
    n, found = len(x), set()
    for step in steps:
        for sizes in ([n], singly(n), [n // 2, 0, 7, n - n // 2 - 7 - n // 7, n // 7]):
            out, at = [], 0
            for k, size in enumerate(sizes):
                out.append(step(x[at : at + size], k == 0, k == len(sizes) - 1))
                at += size
            got = np.concatenate(out)
            np.testing.assert_allclose(got, want, rtol=0, atol=atol)
            found.add(got.tobytes())
    return found


def answers_made(step: Step, x: Any) -> int:
    """Return how many answers about masks and positions a call makes, though one like it has made them before."""
    step(x[:3], True, False)
    before = dict(deferred._ANSWERS)
    step(x[3:6], False, True)
    return sum(answer is not before.get(key) for key, answer in deferred._ANSWERS.items())
