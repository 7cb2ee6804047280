"""``dreamstream info``: what a model file holds."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

import dreamstream as ds

from .._core import shown
from ..container import SIZES, Tensor
from ..engine.load import container_of
from ..engine.text import parts_of
from .arguments import Commands, add_command

BLOCK = 1 << 20  # elements looked at together


# ---------------------------------------------------------------------- what there is to say
def describe(path: str) -> dict[str, Any]:
    """Return what a model file holds, ready for JSON; an infinite delay or field is None."""
    with ds.load(path) as engine:  # first: it names the file in what it refuses
        model, _, tensors = parts_of(container_of(path))
        weights = {t.name: t for t in tensors}
        layers = [_layer(node, weights) for node in engine._core.nodes]
        return {
            "file": path,
            "version": model["version"],
            "name": model["interface"]["name"],
            "inputs": [
                {**_port(x, ()), "state_bytes": n} for x, n in zip(engine.inputs, engine._core.input_bytes)
            ],
            "outputs": [_port(x, ("delay",)) for x in engine.outputs],
            "rate": _number(engine.rate),
            "delay": _finite(engine.delay),
            "delay_ms": _milliseconds(engine),
            "receptive_field": _finite(engine.receptive_field),
            "state_bytes": engine.state_size,
            "state_bytes_per_frame": engine.state_bytes_per_frame,
            "layers": layers,
            "weights": {
                "tensors": len(tensors),
                "values": sum(math.prod(t.shape) for t in tensors),
                "bytes": sum(len(t.data) for t in tensors),
                "dtypes": sorted({t.dtype for t in tensors}),
                "not_finite": [line for t in tensors if (line := _not_finite(t))],
            },
        }


def _finite(value: float) -> int | None:
    return int(value) if math.isfinite(value) else None


def _number(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)


def _port(port: Any, more: tuple[str, ...]) -> dict[str, Any]:
    out = {"name": port.name, "dimensions": list(port.dimensions), "dtype": port.dtype, "rate": _number(port.rate)}
    return out | {name: _finite(getattr(port, name)) for name in more}


def _milliseconds(engine: ds.Engine) -> float | None:
    """Return the delay in time, where a rate was given (frames per second) and the delay is finite."""
    if engine.rate == 1 or not math.isfinite(engine.delay):
        return None
    return round(float(engine.delay / engine.rate * 1000), 6)


def _layer(planned: Any, weights: dict[str, Tensor]) -> dict[str, Any]:
    dtype, shape, num, den = planned["outputs"][0]
    names = [name for name in planned["weights"] if name is not None]
    names += [scales for name in names if (scales := f"{name}.scales") in weights]  # of int8
    return {
        "path": planned["path"],
        "operator": planned["name"],
        "shape": list(shape),
        "dtype": dtype,
        "rate": _number(Fraction(num, den)) if num else 0,
        "weight_bytes": sum(len(weights[name].data) for name in names),
        "state_bytes": planned["kept_bytes"] + planned["carried_bytes"],
        "grows": planned["grows"],
        "weights": names,
        "stored": sorted({weights[name].dtype for name in names}),
        "products": planned["products"],
    }


def _not_finite(tensor: Tensor) -> dict[str, Any] | None:
    """Count what is NaN or infinite in a tensor; None where nothing is."""
    nans = infinite = 0
    for at in range(0, len(tensor.data) if "F" in tensor.dtype else 0, step := BLOCK * SIZES[tensor.dtype]):
        values = tensor._replace(data=tensor.data[at : at + step]).values()
        nan = int(np.isnan(values).sum())
        nans += nan
        infinite += int((~np.isfinite(values)).sum()) - nan
    return {"name": tensor.name, "nan": nans, "infinite": infinite} if nans or infinite else None


# ---------------------------------------------------------------------- the command
def info(args: argparse.Namespace) -> int:
    """Print what a model file holds."""
    about = describe(args.model)
    if args.json:
        print(json.dumps(about))
    else:
        print("\n".join(_lines(about)))
    return 0


def _lines(about: dict[str, Any]) -> Iterator[str]:
    yield f"{shown(about['name'])}, in {shown(about['file'])} (version {about['version']})"
    for kind in ("input", "output"):
        for port in about[f"{kind}s"]:
            dimensions = ", ".join(map(str, port["dimensions"]))
            rate = f"rate {port['rate']:g}" if port["rate"] else "once, at the end"
            kept = f", {port['state_bytes']:,} bytes kept" if port.get("state_bytes") else ""
            yield f"  {kind:16}{shown(port['name'])}: ({dimensions}) {port['dtype']}, {rate}{kept}"
    delay = "until the end" if about["delay"] is None else f"{about['delay']} frames"
    time = "" if about["delay_ms"] is None else f", {about['delay_ms']:g} ms"
    yield f"  delay           {delay}{time}"
    field = about["receptive_field"]
    yield f"  receptive field {'without bound' if field is None else f'{field} frames'}"
    grows = about["state_bytes_per_frame"]
    growth = f", and {grows:g} per frame" if grows else ""
    yield f"  state           {about['state_bytes']:,} bytes per stream{growth}"
    w = about["weights"]
    dtypes = ", ".join(w["dtypes"]) or "none"
    yield f"  weights         {w['tensors']} tensors, {w['values']:,} values, {w['bytes']:,} bytes: {dtypes}"
    for t in w["not_finite"]:
        yield f"  not finite      {shown(t['name'])}: {t['nan']} NaN, {t['infinite']} infinite"
    paths = [shown(layer["path"]) or "-" for layer in about["layers"]]
    wide = max(6, *map(len, paths))
    yield f"  {'layer':{wide}}  {'operator':18} {'frame':14} {'rate':>8} {'weights':>12} {'state':>10}  stored"
    for path, layer in zip(paths, about["layers"]):
        shape = ", ".join(map(str, layer["shape"])) + ("," if len(layer["shape"]) == 1 else "")
        rate = f"{layer['rate']:g}" if layer["rate"] else "end"
        state = f"{layer['state_bytes']:,}{'+' if layer['grows'] else ''}"
        products = "" if layer["products"] == "fp32" else f"; products {layer['products']}"
        yield (
            f"  {path:{wide}}  {layer['operator']:18} {f'({shape})':14} {rate:>8} "
            f"{layer['weight_bytes']:>12,} {state:>10}  {', '.join(layer['stored'])}{products}".rstrip()
        )


def add(commands: Commands) -> None:
    """Add the command to the command line's."""
    further = (
        ": inputs, outputs, delay, state per stream, weights (and which of them are NaN or infinite), layers with "
        "the shape of a frame, and the bytes of weights and state."
    )
    parser = add_command(commands, "info", "say what a model file holds", further)
    parser.add_argument("model", metavar="MODEL", help="a .dsm, .json or .xml file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=info, threads=1)
