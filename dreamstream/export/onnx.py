"""onnx: a streaming model as a file that any ONNX runtime steps."""

from __future__ import annotations

import io
import json
import math
import os
import warnings
from functools import partial
from typing import IO, Any

import torch

from ..errors import CaptureError
from ..stream.rules._ints import as_int
from ..stream.tree import leaves
from ..torch.export import FunctionalModule, functionalize
from ..torch.export.loops import scanned
from ..torch.export.manifest import with_chunk
from .fixed import restore_inputs, static_onnx
from .symbolics import symbolics

OPSET = 18

LEAST_FRAMES = 16
"""Of a fixed chunk, where the caller names none."""


def onnx(
    model: Any,
    spec: Any,
    path: str | os.PathLike[str] | IO[bytes],
    dynamic_axes: bool = False,
    rate: Any = 1,
    dtype: Any = "float32",
    skew: int = 0,
    rows: int = 1,
    frames: int | None = None,
    static: bool = False,
) -> dict[str, Any]:
    """Save a model as ONNX, its states as named inputs and outputs.

    The manifest, which says all that a caller needs to stream with it, is in the file's metadata under
    ``"dreamstream"``, as JSON.

    Parameters
    ----------
    model, spec, rate, dtype, skew
        As for :func:`dreamstream.torch.functionalize`.
    path : path or file object
    dynamic_axes : bool
        True: any number of rows and of frames in a call. False: exactly `rows` and `frames`, which is the fastest;
        rows may still have fewer frames than that, padded.
    rows : int
        Streams of a call, where it is fixed.
    frames : int, optional
        Frames of the first input in a call, where it is fixed; the others have as many as their rates say. By
        default the least number from 16 on with which the model's strides come out even.
    static : bool
        True: exactly `rows` and `frames` in every call, none fewer. No length, count or index is computed in
        the graph, which is several times smaller and faster. Where `frames` is no multiple of the model's strides,
        each phase has a graph in a file of its own, ``name.0.onnx`` and so on, to be called by turns. The manifest
        says which frames of an output to drop at a stream's start, and how many it has in all.

    Returns
    -------
    dict
        The manifest.

    Raises
    ------
    CaptureError, NotStreamableError
        As for :func:`dreamstream.torch.functionalize`; CaptureError also for what ONNX has no form of.
    ImportError
        Where the package `onnx` is not installed.
    """
    try:
        import onnx as package
    except ImportError:
        raise ImportError('exporting takes the package "onnx": pip install onnx') from None
    module = functionalize(model, spec, rate, dtype, skew)
    chunk = _chunk(module, None if frames is None else as_int(frames, "frames"))
    if as_int(rows, "rows") < 1:
        raise ValueError(f"rows is a number from 1 on, got {rows}")
    _check(module)
    if static:
        if dynamic_axes:
            raise ValueError("static=True is for calls of one size, dynamic_axes=True for any")
        return static_onnx(module, path, rows, chunk, partial(_traced, module.manifest["name"]))
    manifest = module.manifest if dynamic_axes else with_chunk(module.manifest, rows, chunk)
    inputs, outputs = _names(manifest)
    example = module.example(max(rows, 2) if dynamic_axes else rows, chunk[0])
    axes = {**_axes(inputs), **_axes(outputs)} if dynamic_axes else None
    given = manifest["name"], module, example, list(inputs), list(outputs), axes
    exported = scanned(
        package, lambda: _traced(*given), partial(_of_frame, package, manifest["name"], axes is not None)
    )
    restore_inputs(package, exported, list(inputs), leaves(example), axes)
    entry = exported.metadata_props.add()
    entry.key, entry.value = "dreamstream", json.dumps(manifest)
    package.save_model(exported, path)
    return manifest


def _traced(
    name: str, module: torch.nn.Module, arguments: Any, inputs: list[str], outputs: list[str], axes: Any = None
) -> Any:
    """Return a module's graph, as torch's exporter makes it."""
    import onnx as package

    buffer: Any = io.BytesIO()
    options: Any = {"input_names": inputs, "output_names": outputs, "dynamic_axes": axes, "opset_version": OPSET}
    with warnings.catch_warnings(), symbolics(OPSET):
        warnings.simplefilter("ignore")  # of torch, about its own code
        try:
            torch.onnx.export(module, arguments, buffer, dynamo=False, verbose=False, **options)
        except torch.onnx.errors.OnnxExporterError as error:
            raise CaptureError(f"{name} has no form in ONNX: {str(error).splitlines()[0]}") from error
    return package.load_model_from_string(buffer.getvalue())


def _of_frame(
    package: Any, name: str, any_rows: bool, body: torch.nn.Module, example: tuple[torch.Tensor, ...]
) -> Any:
    """Return the graph of a loop's body."""
    names = [f"given.{i}" for i in range(len(example))], [f"made.{i}" for i in range(len(body(*example)))]
    axes = {each: {0: "B"} for each in (*names[0], *names[1])} if any_rows else None
    exported = _traced(name, body, example, *names, axes)
    restore_inputs(package, exported, names[0], example, axes)
    return exported.graph


def _check(module: FunctionalModule) -> None:
    for node in module.graph.nodes:
        attributes, what = node.op.attributes, ""
        if attributes.get("projection"):
            what = " with a projection (proj_size)"
        elif node.name == "cumulative" and attributes["kind"] not in ("sum", "mean"):
            what = f" {attributes['kind']} along L (cumprod, cummax, cummin, logcumsumexp)"
        if what:
            raise CaptureError(
                f"{node.path or 'the forward'}: {node.name}{what} has no form in ONNX; "
                "TorchScript and torch.export take it"
            )


def _chunk(module: FunctionalModule, frames: int | None) -> list[int]:
    """Return the frames of every input in a call of a fixed chunk."""
    graph = module.graph
    rates = [graph.edges[e].rate / graph.edges[graph.inputs[0]].rate for e in graph.inputs]
    even = math.lcm(graph.period, *(r.denominator for r in rates))
    n = even * math.ceil(LEAST_FRAMES / even) if frames is None else frames
    if n < 1 or any((n * r).denominator != 1 for r in rates):
        raise ValueError(f"frames is a number from 1 on that gives every input whole frames, got {frames}")
    return [int(n * r) for r in rates]


def _names(manifest: dict[str, Any]) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Return names and dimensions of the graph's inputs and outputs, in order."""
    ports_in, ports_out = manifest["inputs"], manifest["outputs"]
    inputs = {p["name"]: p["dims"] for p in ports_in}
    inputs.update({name: ["B"] for name in (*(p["lengths"] for p in ports_in), "sos", "eos")})
    inputs.update({s["name"]: s["dims"] for s in manifest["states"]})
    outputs = {p["name"]: p["dims"] for p in ports_out}
    outputs.update({p["lengths"]: ["B"] for p in ports_out})
    outputs.update({s["next"]: s["dims"] for s in manifest["states"]})
    return inputs, outputs


def _axes(named: dict[str, list[Any]]) -> dict[str, dict[int, str]]:
    """Return which dimensions have any size, and what they are called."""
    return {
        name: {i: d if d == "B" else f"{name}_{d}" for i, d in enumerate(dims) if isinstance(d, str)}
        for name, dims in named.items()
    }
