"""Streams through a static export, by its manifest alone."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from exported import scaled

from dreamstream.errors import DreamStreamError
from dreamstream.stream.tree import leaves

Array = Any
GARBAGE = {"float32": np.nan, "int64": 1 << 50, "bool": True}


def total_of(told: dict[str, Any], n: int) -> int:
    """Return how many frames an output has of a stream of n frames."""
    told = told["total"]
    short = dict(map(tuple, told["short"]))
    if n in short:
        return int(short[n])
    if "line" in told:
        p, more, q = told["line"]
        return max(0, (p * n + more) // q)
    period, gain = told["period"]
    back = -(-(n - max(short)) // period)
    return int(short[n - back * period] + back * gain)


class _Stream:
    """One stream in its row: what it still has to give, what has come."""

    def __init__(self, manifest: dict[str, Any], arrays: Sequence[Array]) -> None:
        self.manifest = manifest
        self.arrays = arrays  # per input, L first
        self.fed = 0
        self.n = len(arrays[0])
        self.parts: list[list[Array]] = [[] for _ in manifest["outputs"]]
        self.at = [port.get("first") or 0 for port in manifest["outputs"]]
        self.states: list[Array] | None = None
        self.calls = 0

    def done(self) -> bool:
        """Return whether every output has had all of its frames."""
        if self.calls == 0:
            return False
        for port, at in zip(self.manifest["outputs"], self.at):
            if port["frames"] is None:
                if self.fed < self.n + port["after"]:
                    return False
            elif self.fed < self.n or at < total_of(port, self.n):
                return False
        return True

    def chunk(self, k: int) -> tuple[Array, int]:
        """Return the frames of an input in the next call, and its total."""
        port, x = self.manifest["inputs"][k], self.arrays[k]
        n = port["frames"]
        low = self.calls * n
        part = np.zeros((n, *x.shape[1:]), x.dtype)
        given = x[low : low + n]
        part[: len(given)] = given
        return part, len(x) if low + n >= len(x) else self.manifest["unended"]

    def take(self, outputs: Sequence[Array], phase: int) -> None:
        """Keep what came out, L first."""
        self.fed += self.manifest["inputs"][0]["frames"]
        for k, (port, y) in enumerate(zip(self.manifest["outputs"], outputs)):
            if port["frames"] is None:
                self.parts[k] = [y]
                continue
            early = max(0, port["first"])
            n = port["frames"][phase]
            assert len(y) == early + n
            at = self.at[k] - early
            if self.calls:
                y, at = y[early:], at + early
            end = total_of(port, self.n) if self.fed >= self.n else at + len(y)
            self.parts[k].append(y[max(0, -at) : max(0, end - at)])
            self.at[k] += n
        self.calls += 1


def outputs_of(
    call: Callable[..., Any],
    manifest: dict[str, Any],
    streams: Sequence[Sequence[Array]],
    rng: Any,
    apart: bool = True,
) -> list[list[Array]]:
    """Return every output of every stream, ``(L, *features)``, those without L ``(*features)``.

    Parameters
    ----------
    call : function (phase, inputs, totals or None, states) -> (outputs, states), lists of arrays with B
    streams : per stream its inputs, L first
    rng : Generator
        Rows that no stream has hold garbage, a stream may begin calls later than others.
    apart : bool
        Whether streams may begin at different calls.
    """
    rows, phases = manifest["chunk"]["rows"], len(manifest["phases"])
    waiting = [_Stream(manifest, s) for s in streams]
    every, live = list(waiting), [None] * rows
    apart = apart and phases == 1
    k = 0
    while waiting or any(s is not None for s in live):
        if apart or all(s is None for s in live):
            k = k if apart else 0
            for row in range(rows):
                if live[row] is None and waiting and (not apart or not any(live) or rng.random() < 0.6):
                    live[row] = waiting.pop(0)  # type: ignore[call-overload]
        xs, totals = [], []
        for i, port in enumerate(manifest["inputs"]):
            dims = [d for d in port["dims"] if d != "B"]
            shape = [port["frames"], *(d for d in dims if d != "L")]
            x = np.full((rows, *shape), GARBAGE[port["dtype"]], port["dtype"])
            if port["dtype"] == "int64":
                x[...] = 0
            total = np.zeros(rows, np.int64)
            for row, s in enumerate(live):
                if s is not None:
                    x[row], total[row] = s.chunk(i)
            x = np.moveaxis(np.moveaxis(x, 1, dims.index("L") + 1), 0, port["dims"].index("B"))
            xs.append(np.ascontiguousarray(x))
            totals.append(total)
        states = []
        for i, told in enumerate(manifest["states"]):
            shape = [rows, *told["dims"][1:]]
            state = np.full(shape, GARBAGE.get(told["dtype"], 0), told["dtype"])
            for row, s in enumerate(live):
                if s is not None:
                    state[row] = told["initial"] if s.states is None else s.states[i]
            states.append(state)
        phase = k % phases
        ys, after = call(phase, xs, totals if manifest["inputs"][0]["total"] else None, states)
        arrays = []
        for port, y in zip(manifest["outputs"], ys):
            y = np.moveaxis(y, port["dims"].index("B"), 0)
            dims = [d for d in port["dims"] if d != "B"]
            arrays.append(np.moveaxis(y, dims.index("L") + 1, 1) if "L" in dims else y)
        for row, s in enumerate(live):
            if s is None:
                continue
            s.states = [a[row].copy() for a in after]
            s.take([a[row].copy() for a in arrays], phase)
            if s.done():
                live[row] = None
        k += 1
    return [
        [
            part[-1] if port["frames"] is None else np.concatenate(part)
            for port, part in zip(manifest["outputs"], s.parts)
        ]
        for s in every
    ]


def in_onnxruntime(path: Any, manifest: dict[str, Any]) -> Callable[..., Any]:
    """Return a static export's call, as `outputs_of` wants it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    files = [path if f is None else path.parent / f for f in manifest["phases"]]
    sessions = [onnxruntime.InferenceSession(str(f), options, providers=["CPUExecutionProvider"]) for f in files]
    assert all(manifest == json.loads(s.get_modelmeta().custom_metadata_map["dreamstream"]) for s in sessions)
    totals = [p["total"] for p in manifest["inputs"] if p["total"] is not None]
    names = [*(p["name"] for p in manifest["inputs"]), *totals, *(s["name"] for s in manifest["states"])]
    n = len(manifest["outputs"])
    for s in sessions:
        assert [i.name for i in s.get_inputs()] == names

    def call(phase: int, xs: Any, totals: Any, states: Any) -> Any:
        found = sessions[phase].run(None, dict(zip(names, [*xs, *(totals or []), *states])))
        return found[:n], found[n:]

    return call


def furthest(
    call: Callable[..., Any], manifest: dict[str, Any], engine: Any, streams: Sequence[Sequence[Array]], rng: Any
) -> float | None:
    """Return the largest difference from an engine that takes each stream whole; None where nothing came out.

    Streams whose inputs are not equally long, or of no frames, or that the engine refuses, are left out.
    """
    ports = manifest["inputs"]
    axes = [[d for d in p["dims"] if d != "B"].index("L") for p in ports]
    taken, wanted = [], []
    for stream in streams:
        n = len(stream[0]) * ports[0]["rate"][1] / ports[0]["rate"][0]
        if not n or any(len(x) * p["rate"][1] / p["rate"][0] != n for x, p in zip(stream, ports)):
            continue
        arrays = {p["name"]: np.moveaxis(x, 0, at) for x, p, at in zip(stream, ports, axes)}
        whole = dict(zip((s.name for s in engine.inputs), arrays.values()))
        try:
            found = engine.step({"a": whole if len(whole) > 1 else next(iter(whole.values()))}, ["a"], ["a"])
        except DreamStreamError:
            engine.reset()
            continue
        taken.append([np.ascontiguousarray(x) for x in stream])
        wanted.append(leaves(found["a"]))
    if not taken:
        return None
    worst, some = 0.0, False
    for found, of_engine in zip(outputs_of(call, manifest, taken, rng), wanted):
        for port, a, b in zip(manifest["outputs"], found, of_engine):
            dims = [d for d in port["dims"] if d != "B"]
            if "L" in dims:
                a = np.moveaxis(a, 0, dims.index("L"))
            else:  # there at the stream's end
                b = b[-1] if len(b) else a
            worst, some = max(worst, scaled(a, b)), some or a.size > 0
    return worst if some else None
