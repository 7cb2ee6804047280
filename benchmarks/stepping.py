"""Streams of one network in mid-stream, to be stepped and timed; also as a process of its own.

`python benchmarks/stepping.py` reads lines of JSON, does what each says, and answers with a line of JSON.
before_after.py starts one per source tree (PYTHONPATH says which dreamstream it is), threads.py uses the class.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from typing import Any

import numpy as np
from networks import NETWORKS, chunks

import dreamstream as ds

LONG = 100.0  # milliseconds: a turn is one step then


class Streams:
    """`n_streams` streams of a network that get the same chunks in every step."""

    def __init__(self, name: str, n_streams: int, n_frames: int, threads: int, **narrow: str) -> None:
        network = NETWORKS[name]
        options = {"rate": network.rate, "threads": threads, "verify": False, **narrow}
        self.engine = ds.compile(network.model(), network.spec, **options)
        self.chunks = chunks(name, n_streams, n_frames)
        self.first = [self.engine.step(self.chunks, sos=list(self.chunks)), self.engine.step(self.chunks)]

    def facts(self) -> dict[str, Any]:
        """What does not depend on the clock; `bits` are those of two steps' outputs, `size` tells them roughly."""
        arrays = [y for out in self.first for y in out.values()]
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(y).tobytes() for y in arrays))
        return {
            "bits": digest.hexdigest()[:16],
            "frames": sum(y.size for y in arrays),
            "size": float(sum(np.abs(y, dtype=np.float64).sum() for y in arrays)),
            "state_size": self.engine.state_size,
            "kept_bytes": getattr(self.engine, "kept_bytes", None),
            "weights_size": self.engine.weights_size,
        }

    def timed(self) -> float:
        """Milliseconds of one step on the wall's clock."""
        begin = time.perf_counter()
        self.engine.step(self.chunks)
        return 1000 * (time.perf_counter() - begin)

    def turn(self, seconds: float, least: int) -> tuple[list[float], float]:
        """Steps for that long, and at least so many: milliseconds each, and the process's CPU time per step.

        The first one, in which caches are filled again, counts only where it takes long. The system knows what
        another thread has used only when that sleeps: CPU time is of the whole turn.
        """
        cpu = time.process_time()
        times = [self.timed()]
        if times[0] < LONG:
            time.sleep(0.001)
            cpu, end, times = time.process_time(), time.perf_counter() + seconds, []
            while len(times) < least or time.perf_counter() < end:
                times.append(self.timed())
        time.sleep(0.001)
        return times, 1000 * (time.process_time() - cpu) / len(times)


def compile_seconds(name: str) -> float:
    """One `ds.compile` without verification."""
    network = NETWORKS[name]
    model = network.model()
    begin = time.perf_counter()
    ds.compile(model, network.spec, rate=network.rate, threads=1, verify=False)
    return time.perf_counter() - begin


def serve() -> None:
    """Answer the lines of standard input; `slot` tells several sets of streams apart."""
    slots: dict[str, Streams] = {}
    for line in sys.stdin:
        ask = json.loads(line)
        do, slot = ask.pop("do"), ask.pop("slot", "")
        answer: Any = None
        if do == "tree":
            answer = ds.__file__
        elif do == "open":
            slots[slot] = Streams(**ask)
            answer = slots[slot].facts()
        elif do == "turn":
            answer = slots[slot].turn(**ask)
        elif do == "close":
            slots.clear()
        elif do == "compile":
            answer = compile_seconds(**ask)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
