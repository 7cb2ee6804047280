"""Steps of training without torch beside torch's own: times, memory, and that the losses are the same.

Usage: python benchmarks/training.py [--recipes gru conformer ctc moe] [--steps 15] [--json].

The same networks from the same weights take the same steps on the same ragged batches: modules of
dreamstream.nn that are online, in one call per batch; and plain torch modules, offline, on padded batches and,
where a layer takes them, on packed ones. Forward, loss, backward, clipping and Adam are timed: CPU time of the
one thread. Each side runs in a process of its own, alternately; the ratio is of medians, with the better one of
torch's. Memory is by how much the process has grown, at most.

gru        a convolution with stride, two GRU layers, a class for each frame
conformer  two Conformer blocks, causal attention, on chunks of at most 64 frames, each a stream of its own
ctc        convolutions with stride and a GRU on whole files, CTC
moe        a convolution with stride, a GRU layer and eight experts, two for each frame, a class for each frame

With --hours N a recording of ten seconds and one of N hours are trained on instead, natively, a second at a time
from their WAV files, by the network of "gru" on a convolution over samples: how far the memory of the process has
grown behind the first steps, and a step's time.

In plain torch frames are sorted by their experts; "packed" leaves out those behind shorter rows. Behind the table
stands how far losses are from torch's over all steps, and torch's two ways from each other: after hundreds of
steps (--recipes ctc --steps 300 --rounds 1, a minute of CPU time) that is what float32's rounding has become. In
float64 300 steps of "ctc" give the same losses within 1e-15; in float32 those of the first 40 are 4e-7 from these
natively and 2e-5 with torch, whose CTC adds up in float32, in both ways alike.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

FEATURES, CLASSES, BATCH = 80, 40, 16
RECIPES = ("gru", "conformer", "ctc", "moe")
EXPERTS, CHOSEN = 8, 2
LENGTHS = {"gru": (40, 200), "conformer": (24, 64), "ctc": (150, 400), "moe": (40, 200)}
SIDES = {
    "gru": ("padded", "packed"),
    "conformer": ("padded",),
    "ctc": ("padded", "packed"),
    "moe": ("padded", "packed"),
}


def batches(recipe: str, n: int) -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
    """Inputs (L, features) of random lengths, and their targets."""
    rng, out = np.random.default_rng(0), []
    low, high = LENGTHS[recipe]
    for _ in range(n):
        lengths = rng.integers(low, high + 1, BATCH)
        rows = [np.float32(rng.standard_normal((k, FEATURES))) for k in lengths]
        ends = [frames_of(recipe, k) for k in lengths]
        if recipe == "ctc":
            targets = [rng.integers(1, CLASSES, max(1, k // 5)) for k in ends]
        else:
            targets = [rng.integers(0, CLASSES, k) for k in ends]
        out.append((rows, targets))
    return out


def frames_of(recipe: str, n: int) -> int:
    once = (int(n) - 1) // 2 + 1
    return (once - 1) // 2 + 1 if recipe == "ctc" else once


def experts(lib: Any) -> Any:
    """A mixture of experts: this package's, or in plain torch one with the same names of weights."""
    if lib.__name__ == "dreamstream":
        return lib.nn.FMoETransformerMLP(EXPERTS, 128, 256, top_k=CHOSEN)
    nn, f = lib.nn, lib.nn.functional

    class Product(nn.Module):
        def __init__(self, n: int, k: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(lib.zeros(EXPERTS, n, k))
            self.bias = nn.Parameter(lib.zeros(EXPERTS, n))

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.ModuleDict({"gate": nn.Linear(128, EXPERTS)})
            self.experts = nn.ModuleDict({"htoh4": Product(256, 128), "h4toh": Product(128, 256)})

        def forward(self, x: Any, mask: Any = None) -> Any:
            there = None if mask is None else mask[:, 0].flatten().nonzero()[:, 0]
            frames = x.flatten(0, 1) if there is None else x.flatten(0, 1)[there]
            score, index = self.gate["gate"](frames).topk(CHOSEN, -1)
            order = index.flatten().argsort(stable=True)
            up, down, parts = self.experts["htoh4"], self.experts["h4toh"], []
            sizes = lib.bincount(index.flatten(), minlength=EXPERTS).tolist()
            for e, part in enumerate(frames[order // CHOSEN].split(sizes)):
                hidden = f.gelu(f.linear(part, up.weight[e], up.bias[e]))
                parts.append(f.linear(hidden, down.weight[e], down.bias[e]))
            y = lib.cat(parts) * score.softmax(-1).flatten()[order, None]
            y = lib.zeros_like(frames).index_add(0, order // CHOSEN, y)
            return (y if there is None else lib.zeros_like(x).flatten(0, 1).index_copy(0, there, y)).view_as(x)

    return Experts()


def network(recipe: str, lib: Any) -> Any:
    """The network with one library's layers; `mask` zeroes what lies behind the frames of padded rows."""
    nn, f = lib.nn, lib.nn.functional

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = [nn.Conv1d(FEATURES if k == 0 else 128, 128, 5, 2, 2) for k in range(1 + (recipe == "ctc"))]
            self.convs = nn.ModuleList(layers)
            self.rnn = nn.GRU(128, 128, 2 if recipe == "gru" else 1, batch_first=True)
            if recipe == "moe":
                self.experts = experts(lib)
            self.head = nn.Linear(128, CLASSES)

        def forward(self, x: Any, masks: Any = None, through: Any = None) -> Any:
            for k, conv in enumerate(self.convs):
                x = f.relu(conv(x))
                x = x if masks is None else x * masks[k]
            x = x.transpose(1, 2)
            x = self.rnn(x)[0] if through is None else through(self.rnn, x)
            if recipe == "moe":
                x = x + (self.experts(x) if through is None else self.experts(x, masks[-1]))
            return self.head(x)

    class Block(nn.Module):
        def __init__(self, d: int = 128) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(d) for _ in range(5)])
            self.up = nn.ModuleList([nn.Linear(d, 4 * d) for _ in range(2)])
            self.down = nn.ModuleList([nn.Linear(4 * d, d) for _ in range(2)])
            self.qkv, self.out = nn.ModuleList([nn.Linear(d, d) for _ in range(3)]), nn.Linear(d, d)
            self.wide, self.depth = nn.Conv1d(d, 2 * d, 1), nn.Conv1d(d, d, 15, padding=7, groups=d)
            self.narrow = nn.Conv1d(d, d, 1)

        def forward(self, x: Any, mask: Any) -> Any:
            x = x + self.down[0](f.silu(self.up[0](self.norms[0](x)))) * 0.5
            y = self.norms[1](x)
            q, k, v = (layer(y).unflatten(-1, (4, 32)).transpose(1, 2) for layer in self.qkv)
            x = x + self.out(f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
            y = f.glu(self.wide(self.norms[2](x).transpose(1, 2)), 1)
            y = self.depth(y if mask is None else y * mask)
            x = x + self.narrow(f.silu(y)).transpose(1, 2)
            return self.norms[4](x + self.down[1](f.silu(self.up[1](self.norms[3](x)))) * 0.5)

    class Conformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.front = nn.Conv1d(FEATURES, 128, 3, 2, 1)
            self.blocks, self.head = nn.ModuleList([Block(), Block()]), nn.Linear(128, CLASSES)

        def forward(self, x: Any, masks: Any = None, through: Any = None) -> Any:
            x = self.front(x).transpose(1, 2)
            for block in self.blocks:
                x = block(x, None if masks is None else masks[0])
            return self.head(x)

    model = Conformer() if recipe == "conformer" else Recurrent()
    rng = np.random.default_rng(1)
    state: dict[str, Any] = {}
    for name, p in model.state_dict().items():
        scale = 1.0 if name.endswith("weight") and p.ndim == 1 else 0.0
        spread = 0.01 if p.ndim == 1 else 1 / np.prod(p.shape[1:]) ** 0.5
        state[name] = np.float32(scale + spread * rng.standard_normal(tuple(p.shape)))
    if lib.__name__ == "torch":
        state = {name: lib.from_numpy(value) for name, value in state.items()}
    model.load_state_dict(state)
    return model


# ---------------------------------------------------------------------- a step of each side
def native(recipe: str) -> Any:
    import dreamstream as ds
    import dreamstream.nn.functional as F

    model = ds.patch_module(network(recipe, ds)).train().online()
    optimizer = ds.optim.Adam(model.parameters(), lr=1e-3)
    ids = [str(k) for k in range(BATCH)]

    def step(rows: Any, targets: Any) -> float:
        y = model(ds.stream_tensor([r.T for r in rows], ids=ids, sos=True, eos=True))
        if recipe == "ctc":
            scores = F.log_softmax(y, -1).tensor().transpose(0, 1)
            loss = F.ctc_loss(scores, np.concatenate(targets), y.lengths, np.array([len(t) for t in targets]))
        else:
            wanted = ds.train.align(y, dict(zip(ids, targets)))
            loss = F.cross_entropy(y.transpose(1, 2), wanted)
        optimizer.zero_grad()
        loss.backward()
        ds.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    return step


def plain(recipe: str, packed: bool) -> Any:
    import torch
    from torch.nn import functional as F
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

    torch.set_num_threads(1)
    model = network(recipe, torch).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def mask(lengths: Any) -> Any:
        return (torch.arange(int(lengths.max()))[None] < lengths[:, None])[:, None].float()

    def step(rows: Any, targets: Any) -> float:
        x = pad_sequence([torch.from_numpy(r) for r in rows], batch_first=True).transpose(1, 2)
        lengths = torch.tensor([len(r) for r in rows])
        halves = [(lengths - 1) // 2 + 1]
        halves += [(halves[0] - 1) // 2 + 1] * (recipe == "ctc")
        ends = halves[-1]

        def through(rnn: Any, x: Any) -> Any:
            y, _ = rnn(pack_padded_sequence(x, ends, batch_first=True, enforce_sorted=False))
            return pad_packed_sequence(y, batch_first=True)[0]

        y = model(x, list(map(mask, halves)), through if packed else None)
        if recipe == "ctc":
            scores, labels = F.log_softmax(y, -1).transpose(0, 1), torch.from_numpy(np.concatenate(targets))
            loss = F.ctc_loss(scores, labels, ends, torch.tensor([len(t) for t in targets]))
        else:
            wanted = pad_sequence(list(map(torch.from_numpy, targets)), batch_first=True, padding_value=-100)
            loss = F.cross_entropy(y.transpose(1, 2), wanted)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    return step


def recording(seconds: int) -> dict[str, float]:
    """Train on one recording of noise, a second at a time; of the steps behind the first five."""
    import tempfile
    import wave
    from pathlib import Path

    import dreamstream as ds

    class OfSamples(ds.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bands, self.network = ds.nn.Conv1d(1, FEATURES, 400, 160), network("gru", ds)

        def forward(self, x: Any) -> Any:
            return self.network(self.bands(x.unsqueeze(1)).relu())

    times, before = [time.thread_time()], [0.0]

    def note(trainer: Any) -> None:
        times.append(time.thread_time())
        if trainer.steps == 5:
            before[:] = [memory(peak=False)]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "noise.wav")
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, 16000, 0, "NONE", ""))
            for k in range(seconds):
                file.writeframes(np.random.default_rng(k).integers(-9999, 9999, 16000, np.int16).tobytes())
        model = ds.patch_module(OfSamples()).train()
        optimizer = ds.optim.Adam(model.parameters(), lr=1e-3)
        trainer = ds.train.ChunkTrainer(model, optimizer, lambda y: y.square().mean(), callbacks=[note])
        trainer.epoch(ds.data.StreamLoader([path], chunk=16000))
    grown = memory(peak=True) - before[0]
    return {"steps": trainer.steps, "mb": grown, "ms": 1000 * float(np.median(np.diff(times)[5:]))}


def memory(peak: bool) -> float:
    """Megabytes of this process that are resident now, or were at most since they were last asked for (Linux)."""
    if not peak:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    with open("/proc/self/status") as file:
        said = dict(line.split(":") for line in file if line.startswith(("VmRSS", "VmHWM")))
    return int(said["VmHWM" if peak else "VmRSS"].split()[0]) / 1024


def run(side: str, recipe: str, n_steps: int) -> dict[str, Any]:
    """Take steps in this process; the first three are not timed."""
    given = batches(recipe, n_steps + 3)
    step = native(recipe) if side == "native" else plain(recipe, side == "packed")
    before = memory(peak=False)
    losses, times = [], []
    for rows, targets in given:
        start = time.thread_time()
        losses.append(step(rows, targets))
        times.append(1000 * (time.thread_time() - start))
    grown = memory(peak=True) - before
    return {"ms": sorted(times[3:]), "losses": losses, "mb": grown}


def measured(recipe: str, n_steps: int, rounds: int) -> dict[str, Any]:
    sides = ("native", *SIDES[recipe])
    found: dict[str, list[Any]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            command = [sys.executable, __file__, "--side", side, "--recipes", recipe, "--steps", str(n_steps)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            done = subprocess.run(command, capture_output=True, text=True, env=environment)
            if done.returncode:
                raise SystemExit(done.stderr)
            found[side].append(json.loads(done.stdout))
    out: dict[str, Any] = {"recipe": recipe, "losses": {}, "ms": {}, "mb": {}}
    for side in sides:
        out["ms"][side] = [
            float(t) for t in np.percentile([t for r in found[side] for t in r["ms"]], [10, 50, 90])
        ]
        out["mb"][side] = max(r["mb"] for r in found[side])
        out["losses"][side] = found[side][0]["losses"]
    best = min(SIDES[recipe], key=lambda side: out["ms"][side][1])
    out["ratio"] = out["ms"]["native"][1] / out["ms"][best][1]
    out["memory_ratio"] = out["mb"]["native"] / min(out["mb"][side] for side in SIDES[recipe])
    first = np.array(out["losses"]["native"][:5])
    out["difference"] = max(float(np.abs(first / out["losses"][s][:5] - 1).max()) for s in SIDES[recipe])
    losses = [np.array(out["losses"][side]) for side in sides]
    out["drift"] = max(float(np.abs(losses[0] / other - 1).max()) for other in losses[1:])
    out["drift_of_torch"] = float(np.abs(losses[1] / losses[-1] - 1).max())
    if not out["difference"] < 1e-3:
        raise SystemExit(f"{recipe}: the losses are not the same: {out['losses']}")
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=RECIPES)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--hours", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seconds", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(run(options.side, options.recipes[0], options.steps)))
        return
    if options.seconds:
        print(json.dumps(recording(options.seconds)))
        return
    if options.hours:
        for seconds in (10, 3600 * options.hours):
            command = [sys.executable, __file__, "--seconds", str(seconds)]
            row = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            behind = f"{row['mb']:.1f} MB more than behind five of them"
            print(f"a recording of {seconds} s: {row['steps']} steps, {behind}, {row['ms']:.2f} ms a step")
        return
    if not options.json:
        from machine import kernels, machine

        print("\n".join(machine("python benchmarks/training.py", ("numpy", "torch"))), kernels(), sep="\n")
        print("\n| recipe | native, ms | torch padded | torch packed | native ÷ torch | native, MB | torch, MB |")
        print("|---|--:|--:|--:|--:|--:|--:|")
    drifts = []
    for recipe in options.recipes:
        row = measured(recipe, options.steps, options.rounds)
        if options.json:
            print(json.dumps(row))
            continue
        shown = [row["ms"][side] for side in ("native", *SIDES[recipe])]
        cells = [f"{middle:.1f} ({low:.1f}–{high:.1f})" for low, middle, high in shown]
        cells += ["–"] * (3 - len(cells))
        least = min(row["mb"][side] for side in SIDES[recipe])
        print(f"| {recipe} | {' | '.join(cells)} | {row['ratio']:.2f} | {row['mb']['native']:.0f} | {least:.0f} |")
        own = f", torch's own two by {row['drift_of_torch']:.1e}" if len(SIDES[recipe]) > 1 else ""
        drifts.append(f"{recipe}: losses of all steps differ by at most {row['drift']:.1e}{own}")
    if drifts:
        print("", *drifts, sep="\n")


if __name__ == "__main__":
    main()
