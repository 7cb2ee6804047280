"""compile: from a model to an engine, checked against the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _core
from ..array.tensor import Tensor
from ..config import default_threads
from ..errors import CaptureError, ShapeError
from ..nn.module import Module
from ..online.audit import set_capture
from ..online.patch import POLICIES, refuse_unstreamable
from ..stream.tree import leaves, map_leaves
from .capture import captured, untouched
from .engine import Engine, OutputInfo
from .spec import InputSpec, read_specs

__all__ = ["Report", "compile", "verify"]


def compile(
    model: Module,
    spec: Any,
    rate: Any = 1,
    dtype: Any = "float32",
    weights: str = "fp32",
    threads: int | None = None,
    blas: bool | None = None,
    unstreamable: str = "raise",
    buffer_limit: int | None = None,
    max_streams: int | None = None,
    skew: int = 0,
    verify: bool = True,
) -> Engine:
    """Compile a model into an engine: no Python per layer, batching over streams.

    The model may be in any mode; its live streams are left alone. Weights are copied.

    Parameters
    ----------
    model : Module
    spec : tuple or dict
        Dimensions of the input, such as ``("B", 80, "L")``, or of each input by forward's names.
    rate : number, Fraction or dict
        Frames per unit of time of the inputs.
    dtype : str or dict
        Element types of the inputs.
    weights : str
        How weights are stored: "fp32".
    threads : int, optional
        Threads per step; ``DREAMSTREAM_THREADS`` or 1 by default.
    blas : bool, optional
        Whether products go to OpenBLAS; None: only for weights that the engine's kernels don't take
        (there are none in float32), so that answers are bitwise the same however they are batched.
    unstreamable : {"raise", "buffer"}
        What to do with layers that need the whole stream.
    buffer_limit : int, optional
        The most frames that such a layer may wait for.
    max_streams : int, optional
        The most streams that may be live.
    skew : int
        Frames of the slowest input by which the inputs of one stream may be apart.
    verify : bool
        Stream random chunks through the engine and compare with the model.

    Returns
    -------
    Engine

    Raises
    ------
    CaptureError
        For what can't be captured, with the line; where the engine and the model differ.
    NotStreamableError
        For what can't stream, with its path, the reason and what would work.
    """
    if not isinstance(model, Module):
        raise TypeError(f"compile takes a dreamstream.nn.Module, got {type(model).__name__}")
    if weights != "fp32":
        raise ValueError(f'weights: "fp32" is available, got {weights!r}')
    if unstreamable not in POLICIES:
        raise ValueError(f"unstreamable is one of {', '.join(POLICIES)}, got {unstreamable!r}")
    if unstreamable == "raise":
        refuse_unstreamable(model)
    specs = read_specs(model, spec, rate, dtype)
    capture, result = captured(model, specs, isinstance(spec, Mapping), unstreamable == "buffer", buffer_limit)
    tensors = leaves(result)
    for x in tensors:
        capture.graph.output(x.edge.handle)
    core = _core.Engine(
        capture.graph,
        [s.axes for s in specs],
        [_output_axes(x.dims) for x in tensors],
        threads=default_threads() if threads is None else int(threads),
        blas=bool(blas),
        max_streams=0 if max_streams is None else int(max_streams),
        skew=skew,
    )
    number = iter(range(len(tensors)))
    structure = map_leaves(result, lambda _: next(number))
    names = _names_of(structure)
    outputs = [
        OutputInfo(
            names[k],
            tuple(d if isinstance(d, str) else x.features[d] for d in x.dims),
            x.dtype.name,
            x.rate,
            math.inf if core.delays[k] is None else core.delays[k],
        )
        for k, x in enumerate(tensors)
    ]
    engine = Engine(core, specs, outputs, structure, [x.dims for x in tensors], type(model).__name__)
    if verify:
        report = _compare(model, engine, isinstance(spec, Mapping), 3, None, 0)
        if not report.ok:
            raise CaptureError(
                f"the engine and {type(model).__name__} differ by {report.max_difference:g} on random chunks: "
                "the forward's course or its values depend on data in a way that a graph can't hold"
            )
    return engine


def _output_axes(dims: tuple[Any, ...]) -> list[int]:
    kept = [d for d in dims if d != "B"]
    if "L" not in kept and "B_L" not in kept:
        kept.insert(0, "L")
    return [0 if isinstance(d, str) else d + 1 for d in kept]


def _names_of(structure: Any, prefix: str = "") -> dict[int, str]:
    if isinstance(structure, int):
        return {structure: prefix or "output"}
    items = structure.items() if isinstance(structure, dict) else enumerate(structure)
    out: dict[int, str] = {}
    for k, v in items:
        out.update(_names_of(v, f"{prefix}.{k}" if prefix else str(k)))
    return out


def _plan_for_audit(
    model: Module, spec: Any, rate: Any, dtype: Any, skew: int
) -> tuple[_core.Engine, list[tuple[str, str, Any, Any]], int]:
    """Plan a model with every node as an output after its own; return also the nodes."""
    specs = read_specs(model, spec, rate, dtype)
    capture, result = captured(model, specs, isinstance(spec, Mapping), True, None)
    tensors = leaves(result)
    edges = [x.edge for x in tensors] + [edge for _, _, edge in capture.nodes]
    for edge in edges:
        capture.graph.output(edge.handle)
    axes = [range(len(e.features) + 1) for e in edges]
    core = _core.Engine(capture.graph, [s.axes for s in specs], axes, skew=skew)
    nodes = [(path, name, edge.rate, specs[0].rate) for path, name, edge in capture.nodes]
    return core, nodes, len(tensors)


set_capture(_plan_for_audit)


# ---------------------------------------------------------------------- verification
@dataclass(frozen=True)
class Report:
    """What `verify` saw.

    Attributes
    ----------
    streams, frames : int
        Streams run to their ends, output frames compared.
    max_difference : float
        The largest difference, relative to the larger of 1 and the outputs' largest value.
    ok : bool
        Whether frames agree in number, and values within 1e-4 (two orders of summation).
    """

    streams: int
    frames: int
    max_difference: float
    ok: bool


TOLERANCE = 1e-4


def verify(
    model: Module, engine: Engine, n_streams: int = 3, n_frames: int | None = None, seed: int = 0
) -> Report:
    """Stream random chunks through the engine and compare with the model's offline output.

    Parameters
    ----------
    n_streams : int
        Streams, together in random batches.
    n_frames : int, optional
        Frames of the longest, by default enough to see every layer.
    seed : int

    Returns
    -------
    Report
    """
    return _compare(model, engine, len(engine.inputs) > 1, n_streams, n_frames, seed)


def _random(rng: np.random.Generator, spec: InputSpec, n: int) -> Any:
    shape = [n if d == "L" else d for d in spec.dimensions if d != "B"]
    if spec.dtype == "float32":
        return rng.standard_normal(shape, dtype=np.float32)
    return rng.integers(0, 2, shape).astype(spec.dtype)


def _offline(model: Module, engine: Engine, inputs: list[Any], by_name: bool) -> list[Any] | None:
    """Return the model's outputs on whole sequences, or None where it refuses their lengths."""
    batched = [np.expand_dims(a, s.dimensions.index("B")) for s, a in zip(engine.inputs, inputs)]
    tensors = [Tensor(a) for a in batched]
    with untouched(model):
        try:
            if by_name:
                result = model(**{s.name: t for s, t in zip(engine.inputs, tensors)})
            else:
                result = model(tensors[0])
        except ShapeError:
            return None
    out = []
    for k, t in enumerate(leaves(result)):
        dims = engine._dims[k]
        array = np.asarray(t)
        if "L" not in dims and "B_L" not in dims:
            array = np.moveaxis(array, dims.index("B"), 0)
        elif "B" in dims:
            array = array.squeeze(dims.index("B"))
        out.append(array)
    return out


def _lengths(engine: Engine, n_frames: int | None, n_streams: int, rng: np.random.Generator) -> list[int]:
    field = engine.receptive_field
    reach = int(field) if math.isfinite(field) else int(engine.delay) if math.isfinite(engine.delay) else 16
    most = n_frames if n_frames is not None else min(max(24, 3 * reach), 8000)
    return [most, *(int(rng.integers(0, most + 1)) for _ in range(n_streams - 1))]


def _compare(
    model: Module, engine: Engine, by_name: bool, n_streams: int, n_frames: int | None, seed: int
) -> Report:
    rng = np.random.default_rng(seed)
    rates = [s.rate for s in engine.inputs]
    streams: dict[str, list[Any]] = {}
    for i, n in enumerate(_lengths(engine, n_frames, n_streams, rng)):
        whole = [_random(rng, s, int(n * r / rates[0])) for s, r in zip(engine.inputs, rates)]
        streams[f"\0verify {i}"] = whole
    expected = {i: _offline(model, engine, x, by_name) for i, x in streams.items()}
    streams = {i: x for i, x in streams.items() if expected[i] is not None}
    axes = [s.axes[0] for s in engine.inputs]
    collected: dict[str, list[list[Any]]] = {i: [[] for _ in engine.outputs] for i in streams}
    done = dict.fromkeys(streams, 0)
    started: set[str] = set()
    while done:
        chunks, ends = {}, []
        for i in list(done):
            x, at = streams[i], done[i]
            total = x[0].shape[axes[0]]
            stop = min(total, at + int(rng.integers(0, max(2, total // 3))))
            if stop == total:
                ends.append(i)
            cut = {}
            for s, a, r, axis in zip(engine.inputs, x, rates, axes):
                low, high = int(at * r / rates[0]), int(stop * r / rates[0]) if stop < total else a.shape[axis]
                cut[s.name] = a[(slice(None),) * axis + (slice(low, high),)]
            chunks[i] = cut
            done[i] = stop
        outputs = engine.step(chunks, sos=[i for i in chunks if i not in started], eos=ends)
        started.update(chunks)
        for i, out in outputs.items():
            for k, array in enumerate(leaves(out)):
                collected[i][k].append(array)
        for i in ends:
            del done[i]
    frames, worst, ok = 0, 0.0, True
    for i in streams:
        for k, (parts, whole) in enumerate(zip(collected[i], expected[i] or [])):
            kept = [d for d in engine._dims[k] if d != "B"]
            axis = kept.index("L") if "L" in kept else 0
            got = np.concatenate(parts, axis=axis)
            if got.shape != whole.shape:
                ok = False
                worst = math.inf
                continue
            frames += got.shape[axis]
            if got.size:
                scale = max(1.0, float(np.nanmax(np.abs(np.where(np.isfinite(whole), whole, 0)))))
                same = (got == whole) | (np.isnan(got) & np.isnan(whole))
                gap = np.where(same, 0.0, np.abs(got.astype(np.float64) - whole)) / scale
                worst = max(worst, float(np.nanmax(np.where(np.isnan(gap), math.inf, gap))))
    return Report(len(streams), frames, worst, ok and worst <= TOLERANCE)
