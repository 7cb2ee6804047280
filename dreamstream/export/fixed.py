"""Static exports: calls of one size, one graph of ONNX for each phase, without a length in them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..torch.export import FunctionalModule
from ..torch.export.manifest import of_static
from ..torch.export.schedule import Schedule
from ..torch.export.static import StaticModule


def static_onnx(
    module: FunctionalModule, path: Any, rows: int, frames: Sequence[int], export: Callable[..., Any]
) -> dict[str, Any]:
    """Write a file for each phase; return the manifest.

    ``export(module, arguments, names of inputs, names of outputs)`` returns the model.
    """
    import onnx as package

    from .folding import fold, order_of_state, reorder_state

    schedule = Schedule(module, frames)
    modules = [StaticModule(schedule, phase) for phase in range(schedule.n_phases)]
    with torch.no_grad():
        for each in modules:  # after which it is known what has to be given
            each(*each.example(rows))
    manifest = of_static(module.manifest, schedule, rows)
    names = _inputs_of(manifest)
    results = [*(p["name"] for p in manifest["outputs"]), *(s["next"] for s in manifest["states"])]
    graphs = []
    for each in modules:
        example = each.example(rows)
        graphs.append(export(each, example, names, results))
        restore_inputs(package, graphs[-1], names, example)
        graphs[-1] = fold(graphs[-1], False, module.manifest["frames"])
    schedule.counted = any(_counts(model.graph, module.manifest["frames"]) for model in graphs)
    schedule.ended = any(_is_read(model.graph, p["total"]) for model in graphs for p in manifest["inputs"])
    manifest = of_static(module.manifest, schedule, rows)
    for i, state in enumerate(manifest["states"]):
        order = order_of_state([model.graph for model in graphs], state["name"], state["next"])
        if order is not None:
            manifest["states"][i] = _reordered(state, order)
            for model in graphs:
                reorder_state(model.graph, state["name"], state["next"], order)
    paths = _paths(path, schedule)
    if schedule.n_phases > 1:
        manifest["phases"] = [os.path.basename(p) for p in paths]
    results = [*(p["name"] for p in manifest["outputs"]), *(s["next"] for s in manifest["states"])]
    for model, place in zip(graphs, paths):
        _keep(model.graph.input, _inputs_of(manifest))
        _keep(model.graph.output, results)
        model = fold(model, True, module.manifest["frames"])
        entry = model.metadata_props.add()
        entry.key, entry.value = "dreamstream", json.dumps(manifest)
        package.save_model(model, place)
    return manifest


def _reordered(state: dict[str, Any], order: Sequence[int]) -> dict[str, Any]:
    """Return what a manifest says of a state, in another order of its dimensions."""
    initial = np.array(state["initial"])
    if initial.ndim:
        initial = initial.transpose([i - 1 for i in order[1:]])
    return {**state, "dims": [state["dims"][i] for i in order], "initial": initial.tolist()}


def _inputs_of(manifest: dict[str, Any]) -> list[str]:
    """Return the names of a graph's inputs, in order."""
    totals = [p["total"] for p in manifest["inputs"] if p["total"] is not None]
    return [*(p["name"] for p in manifest["inputs"]), *totals, *(s["name"] for s in manifest["states"])]


def _is_read(graph: Any, name: str | None) -> bool:
    return any(name in node.input for node in graph.node)


def _counts(graph: Any, frames: str) -> bool:
    """Return whether the frames so far are read for more than to count on."""
    after = f"next.{frames}"
    return _is_read(graph, after) or any(frames in n.input and list(n.output) != [after] for n in graph.node)


def _keep(values: Any, names: Sequence[str]) -> None:
    """Drop inputs or outputs of other names."""
    kept = [value for value in values if value.name in names]
    del values[:]
    values.extend(kept)


def _paths(path: Any, schedule: Schedule) -> list[Any]:
    """Return where the graphs go: of several into files whose names are numbered."""
    n = schedule.n_phases
    if n == 1:
        return [path]
    if not isinstance(path, (str, os.PathLike)):
        raise ValueError(
            f"calls of {schedule.frames[0]} frames need {n} graphs, in as many files: give a path, or a multiple "
            f"of {schedule.graph.period} frames"
        )
    whole = Path(path)
    return [str(whole.with_name(f"{whole.stem}.{i}{whole.suffix}")) for i in range(n)]


def restore_inputs(
    package: Any, exported: Any, names: Sequence[str], example: Sequence[torch.Tensor], axes: Any = None
) -> None:
    """Declare all inputs, in order, those that nothing reads among them, such as one whose length alone counts."""
    there = {i.name: i for i in exported.graph.input}
    del exported.graph.input[:]
    for name, tensor in zip(names, example):
        if name not in there:
            kind = package.helper.np_dtype_to_tensor_dtype(tensor.numpy().dtype)
            shape = [(axes or {}).get(name, {}).get(i, n) for i, n in enumerate(tensor.shape)]
            there[name] = package.helper.make_tensor_value_info(name, kind, shape)
        exported.graph.input.append(there[name])
