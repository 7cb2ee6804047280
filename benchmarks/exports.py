"""Exported networks in ONNX Runtime beside plain torch: nodes, and milliseconds per call.

Usage: python benchmarks/exports.py [--networks NAMES] [--frames N ...] [--others FILE:CLASS:DIMS:FRAMES ...]
[--file FILE.onnx ...] [--json]; needs torch, onnx and onnxruntime.

The networks of patched_networks.py, and `vocoder` (transposed convolutions by 4 and 4, dilated residual layers, as
in HiFi-GAN, looking ahead); one row, one thread, calls in mid-stream. "before" is the export of one size that
takes lengths and flags, "static" the one without. Plain torch is the untouched module on as many frames. Of a
static export in several phases the dearest call is timed. Nodes are those that are no constants. ``--others`` are
modules of others, of a file, as in ``gtcrn.py:GTCRN:B,257,L,2:1``, with the frames of a call; ``--file`` times
files of others in the same run.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", DREAMSTREAM_THREADS="1")

import argparse
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from machine import in_turns, machine
from patched_networks import NETWORKS, made
from torch import nn
from torch.nn import functional as F

import dreamstream as ds


class Vocoder(nn.Module):
    """Frames to samples: 16 for each."""

    dims = ("B", 80, "L")

    def __init__(self, c: int = 64) -> None:
        super().__init__()
        self.front = nn.Conv1d(80, c, 7, padding=3)
        self.up = nn.ModuleList(nn.ConvTranspose1d(c >> i, c >> i + 1, 8, stride=4, padding=2) for i in range(2))
        self.layers = nn.ModuleList(
            nn.ModuleList(nn.Conv1d(c >> i + 1, c >> i + 1, 3, dilation=d, padding=d) for d in (1, 3, 5))
            for i in range(2)
        )
        self.back = nn.Conv1d(c >> 2, 1, 7, padding=3)

    def forward(self, x: Any) -> Any:
        x = self.front(x)
        for up, layers in zip(self.up, self.layers):
            x = up(F.leaky_relu(x, 0.1))
            for layer in layers:
                x = x + layer(F.leaky_relu(x, 0.1))
        return torch.tanh(self.back(F.leaky_relu(x, 0.1)))


MODELS = [*NETWORKS, "vocoder"]
TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(bool)": np.bool_, "tensor(double)": float}


def nodes(path: Path) -> int:
    """Return how many nodes of a file compute something."""
    return sum(n.op_type != "Constant" for n in onnx.load(path).graph.node)


def call_of(path: Path) -> Callable[[], Any]:
    """Return a call in mid-stream: counts are large, flags are off, lengths are whole."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    said = session.get_modelmeta().custom_metadata_map.get("dreamstream")
    manifest = json.loads(said) if said else {"inputs": [], "states": []}
    lengths = {p.get("lengths"): p for p in manifest["inputs"]}
    rng, feeds = np.random.default_rng(0), {}
    for given in session.get_inputs():
        if given.type == "tensor(float)":
            feeds[given.name] = rng.standard_normal(given.shape, np.float32)
        elif given.name in lengths:
            n = manifest["chunk"]["frames"][lengths[given.name]["name"]]
            feeds[given.name] = np.full(given.shape, n, np.int64)
        else:
            value = 0 if given.type == "tensor(bool)" else 5040
            value = manifest["unended"] if given.name.endswith("_total") else value
            feeds[given.name] = np.full(given.shape, value, TYPES[given.type])
    return lambda: session.run(None, feeds)


def median_ms(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Return the median CPU time of each, called by turns."""
    times = in_turns(calls, seconds * len(calls), time.thread_time)
    return {name: 1e3 * float(np.median(t)) for name, t in times.items()}


def measured(name: str, frames: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Return a network's figures."""
    torch.manual_seed(0)
    model, dims = (Vocoder(), Vocoder.dims) if name == "vocoder" else made(name)
    model.eval()
    before, path = folder / "before.onnx", folder / "static.onnx"
    ds.export.onnx(model, dims, before, rows=1, frames=frames)
    phases = ds.export.onnx(model, dims, path, rows=1, frames=frames, static=True)["phases"]
    files = [path if f is None else folder / f for f in phases]
    x = torch.randn([{"B": 1, "L": frames}.get(d, d) for d in dims])
    calls = {"torch": lambda: model(x), "before": call_of(before)}
    calls.update({f"static {i}": call_of(f) for i, f in enumerate(files)})
    ms = median_ms(calls, seconds)
    static = max(t for key, t in ms.items() if key.startswith("static"))
    return {
        "network": name.split(":")[1] if ":" in name else name,
        "frames": frames,
        "phases": len(files),
        "nodes": {"before": nodes(before), "static": max(map(nodes, files))},
        "ms": {"torch": ms["torch"], "before": ms["before"], "static": static},
    }


def main() -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", choices=MODELS, default=MODELS)
    parser.add_argument("--frames", nargs="+", type=int, default=[1, 10])
    parser.add_argument("--others", nargs="+", default=[], metavar="FILE:CLASS:DIMS:FRAMES")
    parser.add_argument("--file", nargs="*", type=Path, default=[])
    parser.add_argument("--seconds", type=float, default=0.5, help="of every figure")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if not args.json:
        command = f"python {shlex.join(sys.argv)}"
        print("\n".join(machine(command, ("torch", "onnx", "onnxruntime"))))
        print(
            "\n| network | frames | nodes before | static | torch, ms | before, ms | static, ms | static ÷ torch |"
        )
        print("|---|--:|--:|--:|--:|--:|--:|--:|")
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        wanted = [(name, frames) for name in args.networks for frames in args.frames]
        for name, frames in wanted + [(n, int(f)) for n, _, f in (o.rpartition(":") for o in args.others)]:
            row = measured(name, frames, args.seconds, Path(folder))
            if args.json:
                print(json.dumps(row), flush=True)
                continue
            n, ms, label = row["nodes"], row["ms"], row["network"]
            times = f"{ms['torch']:.3f} | {ms['before']:.3f} | {ms['static']:.3f}"
            ratio = ms["static"] / ms["torch"]
            print(f"| {label} | {frames} | {n['before']} | {n['static']} | {times} | {ratio:.2f} |", flush=True)
        for path in args.file:
            ms = median_ms({"file": call_of(path)}, args.seconds)["file"]
            print(f"{path.name}: {nodes(path)} nodes, {ms:.3f} ms", flush=True)


if __name__ == "__main__":
    main()
