"""The model and the stream of tests/golden/snapshot_<version>.bin: `python golden_snapshot.py FILE` writes one.

A file there is never written again once its version has been released: it is what shows that snapshots of that
version are still read.
"""

import sys
from pathlib import Path

import numpy as np

from dreamstream import _core

STOP, END = 38, 90  # frames of x where the stream is saved, and where it ends


def engine(**options):
    """A graph made by hand, with weights that are exact, so that no capture or generator can change it."""
    g = _core.Graph()

    def weights(*shape):
        n = int(np.prod(shape))
        return ((np.arange(n) * 7 % 31 - 15) / 64).astype(np.float32).reshape(shape)

    x = g.input(("float32", (3,), 100, 1))
    ids = g.input(("int64", (), 50, 1))
    pads = {"left": 2, "right": 2, "mode": "reflect"}
    (a,) = g.node("conv1d", {"stride": 2, **pads}, [x], [weights(4, 3, 5), weights(4)])
    (b,) = g.node("embedding", {}, [ids], [weights(6, 4)])
    (sa,), (sb,) = g.node("sync", {}, [a, b], []), g.node("sync", {}, [b, a], [])
    (c,) = g.node("add", {}, [sa, sb], [])
    shapes = [(20, 4), (20, 5), (20,), (20,)]
    y, h, _ = g.node("lstm", {"layers": 1, "bias": 1}, [c], [weights(*s) for s in shapes])
    (mean,) = g.node("cumulative", {"kind": "mean"}, [y], [])
    (late,) = g.node("delay", {"frames": 3}, [ids], [])
    (tail,) = g.node("conv1d", {"left": 1, "right": 1, "mode": "circular"}, [x], [weights(1, 3, 3), None])
    for edge in (mean, h, late, tail):
        g.output(edge)
    return _core.Engine(g, **options)


def frames_between(low, high):
    """Frames of x [low, high), and of ids at half the rate: values and lengths of one row."""
    t = np.arange(low, high)
    x = ((t[:, None] * 5 + np.arange(3) * 11) % 23 / 16 - 0.6875).astype(np.float32)
    ids = np.arange(low // 2, high // 2) * 5 % 6
    return [x, ids], [[len(x)], [len(ids)]]


def stopped_engine():
    """The engine with a stream "a" that has come to where the snapshot is taken."""
    e = engine()
    e.step(["a"], [True], [False], *frames_between(0, STOP), False)
    return e


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(stopped_engine().snapshot("a"))
