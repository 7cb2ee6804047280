"""Streams through an exported model: any callable of tensors with a manifest, held against an engine."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from dreamstream.stream.tree import leaves

Array = Any
GARBAGE = {"float32": np.nan, "int64": -(1 << 40), "bool": True}


def _tuple(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def in_onnxruntime(path: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return a file's call, as a functional module's, and its manifest."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    manifest = json.loads(session.get_modelmeta().custom_metadata_map["dreamstream"])
    ports, states = manifest["inputs"], manifest["states"]
    names = [*(p["name"] for p in ports), *(p["lengths"] for p in ports), "sos", "eos"]
    names += [s["name"] for s in states]
    assert [i.name for i in session.get_inputs()] == names
    wanted = [p[key] for key in ("name", "lengths") for p in manifest["outputs"]]
    wanted += [s["next"] for s in states]
    n = len(manifest["outputs"])

    def call(x: Any, lengths: Any, sos: Any, eos: Any, given: Any) -> Any:
        tensors = [*_tuple(x), *_tuple(lengths), sos, eos, *given]
        found = session.run(wanted, {k: t.numpy() for k, t in zip(names, tensors)})
        results = [torch.from_numpy(a) for a in found]
        return tuple(results[:n]), tuple(results[n : 2 * n]), tuple(results[2 * n :])

    return call, manifest


class Exported:
    """Streams by id.

    Parameters
    ----------
    call : function (x, lengths, sos, eos, states) -> (y, lengths, states)
    manifest : dict
    rng : Generator
        For the order of rows, and how far they are padded.
    """

    def __init__(self, call: Callable[..., Any], manifest: Mapping[str, Any], rng: np.random.Generator) -> None:
        self._call, self.manifest, self.rng = call, manifest, rng
        self.states: dict[str, list[Array]] = {}

    def step(
        self, chunks: Mapping[str, Sequence[Array]], sos: Sequence[str] = (), eos: Sequence[str] = ()
    ) -> dict[str, list[Array]]:
        """Advance streams, whose arrays per input lack B; return per id its outputs, likewise."""
        ids = [list(chunks)[i] for i in self.rng.permutation(len(chunks))]
        fixed = self.manifest["chunk"]
        rows = fixed["rows"] or len(ids)
        ids += [""] * (rows - len(ids))
        xs, lengths = [], []
        for k, port in enumerate(self.manifest["inputs"]):
            dims = [d for d in port["dims"] if d != "B"]
            at = dims.index("L")
            ns = [chunks[i][k].shape[at] if i else 0 for i in ids]
            width = fixed["frames"][port["name"]] if fixed["frames"] else max(1, *ns) + int(self.rng.integers(3))
            x = np.full((rows, width, *(d for d in dims if d != "L")), GARBAGE[port["dtype"]], port["dtype"])
            for row, i, n in zip(x, ids, ns):
                row[:n] = np.moveaxis(chunks[i][k], at, 0) if i else 0
            x = np.moveaxis(np.moveaxis(x, 1, at + 1), 0, port["dims"].index("B"))
            xs.append(torch.from_numpy(np.ascontiguousarray(x)))
            lengths.append(torch.tensor(ns, dtype=torch.int64))
        states = []
        for k, s in enumerate(self.manifest["states"]):
            shape = [rows if d == "B" else d for d in s["dims"]]
            garbage = np.full(shape, GARBAGE.get(s["dtype"], 0), s["dtype"])
            for row, i in enumerate(ids):
                if i and i not in sos:
                    garbage[row] = self.states[i][k]
            states.append(torch.from_numpy(garbage))
        flags = [torch.tensor([i in given for i in ids]) for given in (sos, eos)]
        one = len(xs) == 1
        y, counts, after = self._call(
            xs[0] if one else tuple(xs), lengths[0] if one else tuple(lengths), *flags, tuple(states)
        )
        for row, i in enumerate(ids):
            self.states[i] = [a[row].detach().numpy().copy() for a in after]
        for i in (*eos, ""):
            self.states.pop(i, None)
        found: dict[str, list[Array]] = {i: [] for i in ids if i}
        for port, values, n in zip(self.manifest["outputs"], _tuple(y), _tuple(counts)):
            array = np.moveaxis(values.detach().numpy(), port["dims"].index("B"), 0)
            dims = [d for d in port["dims"] if d != "B"]
            for row, i in enumerate(ids):
                if i and "L" in dims:
                    frames = np.moveaxis(array[row], dims.index("L"), 0)
                    assert not frames[n[row] :].any()
                    found[i].append(np.moveaxis(frames[: n[row]], 0, dims.index("L")))
                elif i:
                    found[i].append(array[row][None][: n[row]])
        return found


def scaled(got: Array, wanted: Array) -> float:
    """Return the largest difference, as a part of 1 or of the largest value wanted."""
    assert got.shape == wanted.shape, (got.shape, wanted.shape)
    assert got.dtype == wanted.dtype, (got.dtype, wanted.dtype)
    if not got.size:
        return 0.0
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted)) if got.dtype.kind == "f" else got == wanted
    gap = np.where(same, 0.0, np.abs(got.astype(np.float64) - wanted.astype(np.float64)))
    finite = np.abs(wanted[np.isfinite(wanted)])
    return float(np.nan_to_num(gap, nan=np.inf).max()) / max(1.0, float(finite.max(initial=0)))


def compare(
    exported: Exported, engine: Any, rng: np.random.Generator, calls: int = 25, rows: int = 3, most: int = 12
) -> tuple[int, float]:
    """Stream the same random chunks through both, some rows starting and ending in each call.

    Returns frames compared and the largest difference; counts are asserted to be equal.
    """
    live: list[str] = []
    names, n_streams, frames, worst = [p["name"] for p in exported.manifest["inputs"]], 0, 0, 0.0
    fixed = exported.manifest["chunk"]["frames"]
    for _ in range(calls):
        sos = [f"s{n_streams + k}" for k in range(rows - len(live))]
        n_streams += len(sos)
        live += sos
        longest = fixed[names[0]] if fixed else int(rng.integers(1, most))
        chunks, eos = {}, [i for i in live if rng.random() < 0.2]
        for i in live:
            n = longest if rng.random() < 0.3 else int(rng.integers(0, longest + 1))
            chunks[i] = [_random(rng, s, int(n * s.rate / engine.inputs[0].rate)) for s in engine.inputs]
        wanted = engine.step({i: dict(zip(names, c)) if len(c) > 1 else c[0] for i, c in chunks.items()}, sos, eos)
        got = exported.step(chunks, sos, eos)
        for i in live:
            for a, b in zip(got[i], leaves(wanted[i])):
                worst, frames = max(worst, scaled(a, b)), frames + len(a)
        live = [i for i in live if i not in eos]
    engine.reset()
    return frames, worst


def _random(rng: np.random.Generator, spec: Any, n: int) -> Array:
    if spec.dtype == "float32":
        return rng.standard_normal(spec.shape_of(n), dtype=np.float32)
    return rng.integers(0, 2, spec.shape_of(n)).astype(spec.dtype)
