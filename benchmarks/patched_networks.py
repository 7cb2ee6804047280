"""What a call of a patched network takes beside the bare module's: evaluation, and training with its backward.

Usage: python benchmarks/patched_networks.py [--before FOLDER] [--networks NAMES] [--others FILE:CLASS:DIMS ...]
[--seconds S]; needs torch.
       python benchmarks/patched_networks.py --architectures; needs pytest and the packages whose models are there.

Networks in mid-stream, on one thread: `conv` and `lstm` of torch_bridge.py, `tcn` (eight dilated layers of
64), `dualpath` (two blocks with a GRU over bands and one over frames), `gtcrn` (a network like GTCRN: planes,
batch norms, PReLUs, GRUs, a complex mask), `conformer` (four blocks of 144 with a mask of chunks that the forward
makes) and three loops over frames. One row, and eight ragged ones of 10, 3, 7, 1, 9, 5, 8 and 2 frames (of one
frame: six of them have it). Bare is the untouched module on as many frames, padding included; it forgets what
came before them.

In evaluation the same is called functionalized (`ds.torch.functionalize`) and with `online(backend="engine")`,
beside `step` of the engine that `ds.compile` gives, on arrays. ``--others`` are modules of others, of a file, as
in ``gtcrn.py:GTCRN:B,257,L,2``.

Times are CPU time of the thread, medians of calls in turns with the bare module's. The tree in `--before` (built
in place) is timed by a process of its own, right after. "functions" are the Python functions that one call runs.

``--architectures`` times all models of tests/torch/architectures, small ones of other projects, each in calls of
as many frames as its test cuts at most: one row in evaluation, a few calls of each way. Bare is as above.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", DREAMSTREAM_THREADS="1")

import argparse
import copy
import importlib.util
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine
from torch import nn
from torch.nn import functional as F
from torch_bridge import MODELS as OF_BRIDGE

ROOT = Path(__file__).resolve().parent.parent
RAGGED = {1: [1, 1, 0, 1, 1, 0, 1, 1], 10: [10, 3, 7, 1, 9, 5, 8, 2]}
CASES = [(rows, frames) for rows in (1, 8) for frames in (1, 10)]
TURN = 4


class Tcn(nn.Module):
    """Dilated convolutions with residuals."""

    dims = ("B", 64, "L")

    def __init__(self, layers: int = 8, c: int = 64) -> None:
        super().__init__()
        self.wide = nn.ModuleList(nn.Conv1d(c, c, 3, dilation=2**i) for i in range(layers))
        self.narrow = nn.ModuleList(nn.Conv1d(c, c, 1) for _ in range(layers))

    def forward(self, x: Any) -> Any:
        for i, (wide, narrow) in enumerate(zip(self.wide, self.narrow)):
            x = x + narrow(F.relu(wide(F.pad(x, (2 ** (i + 1), 0)))))
        return x


class Band(nn.Module):
    """A recurrence over bands, and one over frames, on (B, C, L, bands)."""

    def __init__(self, c: int, bands: int) -> None:
        super().__init__()
        self.c, self.bands = c, bands
        self.within = nn.GRU(c, c // 2, batch_first=True, bidirectional=True)
        self.along = nn.GRU(c, c, batch_first=True)
        self.first, self.second = nn.Linear(c, c), nn.Linear(c, c)
        self.norms = nn.ModuleList(nn.LayerNorm((bands, c)) for _ in range(2))

    def forward(self, x: Any) -> Any:
        x = x.permute(0, 2, 3, 1)
        y = x.reshape(x.shape[0] * x.shape[1], self.bands, self.c)
        y = self.first(self.within(y)[0]).reshape(x.shape[0], -1, self.bands, self.c)
        x = x + self.norms[0](y)
        z = x.permute(0, 2, 1, 3)
        y = z.reshape(z.shape[0] * z.shape[1], z.shape[2], self.c)
        y = self.second(self.along(y)[0]).reshape(z.shape[0], self.bands, -1, self.c).permute(0, 2, 1, 3)
        return (x + self.norms[1](y)).permute(0, 3, 1, 2)


class DualPath(nn.Module):
    """Two blocks over bands and frames."""

    dims = ("B", 16, "L", 17)

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Band(16, 17), Band(16, 17))

    def forward(self, x: Any) -> Any:
        return self.blocks(x)


class Plane(nn.Module):
    """A dilated convolution over frames and bands, weighed by a recurrence of its energy."""

    def __init__(self, c: int, dilation: int) -> None:
        super().__init__()
        self.into = nn.Sequential(nn.Conv2d(c, c, 1), nn.BatchNorm2d(c), nn.PReLU())
        self.wide = nn.Conv2d(c, c, (3, 3), padding=(0, 1), dilation=(dilation, 1), groups=c)
        self.out = nn.Sequential(nn.BatchNorm2d(c), nn.PReLU(), nn.Conv2d(c, c, 1))
        self.gru, self.linear, self.pad = nn.GRU(c, 2 * c, batch_first=True), nn.Linear(2 * c, c), 2 * dilation

    def forward(self, x: Any) -> Any:
        h = self.out(self.wide(F.pad(self.into(x), (0, 0, self.pad, 0))))
        energy = h.pow(2).mean(-1).transpose(1, 2)
        return x + h * torch.sigmoid(self.linear(self.gru(energy)[0])).transpose(1, 2)[..., None]


class Gtcrn(nn.Module):
    """Spectra in and out, (B, 129, L, 2)."""

    dims = ("B", 129, "L", 2)

    def __init__(self, c: int = 16) -> None:
        super().__init__()
        self.band, self.unband = nn.Linear(96, 32, bias=False), nn.Linear(32, 96, bias=False)
        half = {"stride": (1, 2), "padding": (0, 2)}
        self.down1 = nn.Sequential(nn.Conv2d(9, c, (1, 5), **half), nn.BatchNorm2d(c), nn.PReLU())
        self.down2 = nn.Sequential(nn.Conv2d(c, c, (1, 5), groups=2, **half), nn.BatchNorm2d(c), nn.PReLU())
        self.encoder = nn.ModuleList(Plane(c, d) for d in (1, 2, 5))
        self.middle = nn.Sequential(Band(c, 17), Band(c, 17))
        self.decoder = nn.ModuleList(Plane(c, d) for d in (5, 2, 1))
        self.up1, self.norm1 = nn.Conv2d(c, 2 * c, (1, 3), padding=(0, 1)), nn.BatchNorm2d(c)
        self.up2, self.norm2 = nn.ConvTranspose2d(c, 2, (1, 5), **half), nn.BatchNorm2d(2)

    def forward(self, spectrum: Any) -> Any:
        re, im = spectrum[..., 0].permute(0, 2, 1), spectrum[..., 1].permute(0, 2, 1)
        x = torch.stack([torch.sqrt(re**2 + im**2 + 1e-12), re, im], 1)
        x = torch.cat([x[..., :33], self.band(x[..., 33:])], -1)
        near = F.pad(x, (1, 1))
        a = self.down1(torch.cat([near[..., :-2], x, near[..., 2:]], 1))
        b = self.down2(a)
        kept, x = [], b
        for layer in self.encoder:
            x = layer(x)
            kept.append(x)
        x = self.middle(x)
        for layer in self.decoder:
            x = layer(x + kept.pop())
        y = self.up1(x + b)
        B, C, L, n = y.shape
        y = y.reshape(B, 2, C // 2, L, n).permute(0, 2, 3, 4, 1).reshape(B, C // 2, L, 2 * n)[..., :33]
        y = torch.tanh(self.norm2(self.up2(F.relu(self.norm1(y)) + a)))
        m = torch.cat([y[..., :33], self.unband(y[..., 33:])], -1)
        made = [re * m[:, 0] - im * m[:, 1], im * m[:, 0] + re * m[:, 1]]
        return torch.stack(made, 1).permute(0, 3, 2, 1)


class Block(nn.Module):
    """Attention and a convolution between two feed-forward layers."""

    def __init__(self, d: int, heads: int, kernel: int = 15) -> None:
        super().__init__()
        self.heads, self.kernel = heads, kernel
        self.fed = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.SiLU(), nn.Linear(4 * d, d)) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(4))
        self.qkvo = nn.ModuleList(nn.Linear(d, d) for _ in range(4))
        self.gated, self.out = nn.Conv1d(d, 2 * d, 1), nn.Conv1d(d, d, 1)
        self.deep = nn.Conv1d(d, d, kernel, groups=d)

    def attended(self, x: Any, mask: Any) -> Any:
        y = self.norms[0](x)
        B, L, d = y.shape
        q, k, v = (f(y).view(B, L, self.heads, -1).transpose(1, 2) for f in self.qkvo[:3])
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.qkvo[3](y.transpose(1, 2).reshape(B, L, d))

    def convolved(self, x: Any) -> Any:
        y = F.glu(self.gated(self.norms[1](x).transpose(1, 2)), 1)
        y = self.deep(F.pad(y, (self.kernel - 1, 0))).transpose(1, 2)
        return self.out(F.silu(self.norms[2](y)).transpose(1, 2)).transpose(1, 2)

    def forward(self, x: Any, mask: Any) -> Any:
        x = x + 0.5 * self.fed[0](x)
        x = x + self.attended(x, mask)
        x = x + self.convolved(x)
        return self.norms[3](x + 0.5 * self.fed[1](x))


class Conformer(nn.Module):
    """Chunks of four frames that see eight before them."""

    dims = ("B", 80, "L")

    def __init__(self, n: int = 4, d: int = 144) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(80, d), nn.Linear(d, 32)
        self.blocks = nn.ModuleList(Block(d, 4) for _ in range(n))

    def forward(self, x: Any) -> Any:
        x = self.first(x.transpose(1, 2))
        chunk = torch.arange(x.shape[1], device=x.device) // 4
        mask = (chunk[None, :] <= chunk[:, None]) & (chunk[None, :] >= chunk[:, None] - 8)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


class Levels(nn.Module):
    """Levels down and up, each padded to an even length and cut again by ifs, as U-Nets are."""

    dims = ("B", 32, "L")

    def __init__(self, levels: int = 2, c: int = 32) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv1d(c, c, 4, 2, 1) for _ in range(levels))
        self.up = nn.ModuleList(nn.ConvTranspose1d(c, c, 4, 2, 1) for _ in range(levels))

    def forward(self, x: Any) -> Any:
        kept = []
        for down in self.down:
            kept.append(x)
            if x.size(2) % 2:
                x = F.pad(x, (0, 1))
            x = F.relu(down(x))
        for up in self.up:
            x, y = up(x), kept.pop()
            if x.size(2) > y.size(2):
                x = x[..., : y.size(2)]
            x = x + y
        return x


class CellLoop(nn.Module):
    """A loop over frames around a cell."""

    dims = ("B", "L", 32)

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(32, 64)

    def forward(self, x: Any) -> Any:
        h, ys = torch.zeros(x.size(0), 64), []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            ys.append(h)
        return torch.stack(ys, 1)


class GateLoop(nn.Module):
    """A loop over frames around an LSTM that is written out."""

    dims = ("B", "L", 32)

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(32 + 64, 4 * 64)

    def forward(self, x: Any) -> Any:
        h, c, ys = torch.zeros(x.size(0), 64), torch.zeros(x.size(0), 64), []
        for frame in x.unbind(1):
            i, f, g, o = self.gates(torch.cat([frame, h], -1)).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            ys.append(h)
        return torch.stack(ys, 1)


class LeakyLoop(nn.Module):
    """A loop over frames that does little: a moving average of 32 features."""

    dims = ("B", "L", 32)

    def __init__(self) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.rand(32))

    def forward(self, x: Any) -> Any:
        mean, ys = torch.zeros(x.size(0), 32), []
        for t in range(x.size(1)):
            mean = self.decay * mean + (1 - self.decay) * x[:, t]
            ys.append(mean)
        return torch.stack(ys, 1)


NETWORKS = {
    "tcn": Tcn, "dualpath": DualPath, "gtcrn": Gtcrn, "conformer": Conformer,
    "levels": Levels, "cell loop": CellLoop, "gate loop": GateLoop, "leaky loop": LeakyLoop,
}  # fmt: skip


def made(name: str) -> tuple[Any, tuple[Any, ...]]:
    """Return a network, and the dimensions of its input."""
    if ":" not in name:
        model = (NETWORKS.get(name) or OF_BRIDGE[name])()
        return model, getattr(model, "dims", ("B", 80, "L"))
    file, kind, dims = name.split(":")
    spec: Any = importlib.util.spec_from_file_location(Path(file).stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, kind)(), tuple(int(d) if d.isdigit() else d for d in dims.split(","))


def calls_of(name: str, rows: int, frames: int, training: bool) -> dict[str, Callable[[], Any]]:
    """Return a call of the bare module, and of all others in mid-stream."""
    import dreamstream as ds

    torch.manual_seed(0)
    bare, dims = made(name)
    bare.train(training)
    for module in bare.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    patched: Any = ds.patch_module(copy.deepcopy(bare), train_variant="chunk-wise-aligned").online()
    names = tuple(d if isinstance(d, str) else None for d in dims)
    ids = [f"stream {i}" for i in range(rows)]

    def frames_of(n: int) -> torch.Tensor:
        return torch.randn([{"B": rows, "L": n}.get(d, d) for d in dims])

    def chunk(x: torch.Tensor, lengths: Any, sos: bool) -> Any:
        return ds.stream_tensor(x, ids=ids, names=names, lengths=np.array(lengths), sos=sos)

    begin, x = frames_of(40), frames_of(frames)
    with torch.no_grad():
        patched(chunk(begin, [40] * rows, True))
    lengths = RAGGED[frames] if rows > 1 else [frames]
    given = chunk(x, lengths, False)
    if training:

        def trained(module: Any, x: Any, plain: Callable[[Any], Any]) -> None:
            module.zero_grad()
            plain(module(x)).square().mean().backward()

        return {
            "bare": lambda: trained(bare, x, lambda y: y),
            "patched": lambda: trained(patched, given, lambda y: y.tensor()),
        }
    functional = ds.torch.functionalize(bare, dims)
    no, yes = torch.zeros(rows, dtype=torch.bool), torch.ones(rows, dtype=torch.bool)
    states = functional(begin, torch.full((rows,), 40), yes, no, functional.initial(rows))[-1]
    n = torch.tensor(lengths)
    on_engine: Any = ds.patch_module(copy.deepcopy(bare)).online(backend="engine")
    on_engine(chunk(begin, [40] * rows, True))
    engine = ds.compile(bare, dims, threads=1)
    along = dims.index("L") - 1
    rows_of = {i: np.ascontiguousarray(row.narrow(along, 0, k).numpy()) for i, row, k in zip(ids, x, lengths)}
    engine.step({i: row.numpy() for i, row in zip(ids, begin)}, sos=ids)
    return {
        "bare": lambda: bare(x),
        "patched": lambda: patched(given),
        "functionalized": lambda: functional(x, n, no, no, states),
        "on engine": lambda: on_engine(given),
        "engine": lambda: engine.step(rows_of),
    }


def functions_of(call: Callable[[], Any]) -> int:
    """Return how many Python functions a call runs."""
    seen = 0

    def note(frame: Any, event: str, _: Any) -> None:
        nonlocal seen
        seen += event == "call"

    sys.setprofile(note)
    call()
    sys.setprofile(None)
    return seen


def worker(name: str, seconds: float) -> None:
    """Time one network; a line out per row."""
    torch.set_num_threads(1)
    for training in (False, True):
        torch.set_grad_enabled(training)
        for rows, frames in CASES:
            calls = calls_of(name, rows, frames, training)
            times: dict[str, list[float]] = {way: [] for way in calls}
            for _ in range(4):
                for call in calls.values():
                    call()
            stop = time.perf_counter() + seconds
            while time.perf_counter() < stop or len(times["bare"]) < 3 * TURN:
                for way, call in calls.items():
                    for _ in range(TURN):
                        begin = time.thread_time()
                        call()
                        times[way].append(1e3 * (time.thread_time() - begin))
            row = {"case": [name, rows, frames, training], "functions": functions_of(calls["patched"])}
            row["ms"] = {way: float(np.median(own)) for way, own in times.items()}
            print(json.dumps(row), flush=True)


def measured(name: str, root: Path, seconds: float) -> list[Any]:
    """Return the rows of a network by one tree."""
    path = os.pathsep.join([str(root), str(Path(__file__).parent)])
    command = [sys.executable, __file__, "--worker", name, "--seconds", str(seconds)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Anything:
    """What `check` of the tests of architectures gives here: any delay will do."""

    def __eq__(self, other: object) -> bool:
        return True


class Architectures:
    """Stands for `check` of the tests of architectures: times the model that it is given.

    Attributes
    ----------
    rows : list of tuple
        The test, frames, milliseconds bare and patched, Python functions of a patched call.
    without : list of str
        The tests whose models have no bare call of so many frames, or wait for whole streams.
    """

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, float, float, int]] = []
        self.without: list[str] = []

    def __call__(
        self, model: Any, spec: Any, lengths: Any, most: int, policy: str = "raise", seed: int = 0
    ) -> Any:
        import dreamstream as ds

        test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0].partition("architectures/")[2]
        patched: Any = ds.patch_module(copy.deepcopy(model.eval()), unstreamable=policy).online()
        names = tuple(d if isinstance(d, str) else None for d in spec)

        def frames_of(n: int) -> torch.Tensor:
            return torch.randn([{"B": 1, "L": n}.get(d, d) for d in spec])

        x, begin = frames_of(most), frames_of(max(lengths))
        with torch.no_grad():
            try:
                model(x)
            except RuntimeError:  # it is too short
                self.without.append(test)
                return Anything()
            patched(ds.stream_tensor(begin, ids=["a"], names=names, sos=True))
            given = ds.stream_tensor(x, ids=["a"], names=names)
            calls = {"bare": lambda: model(x), "patched": lambda: patched(given)}
            times: dict[str, list[float]] = {way: [] for way in calls}
            for _ in range(TURN):
                for call in calls.values():
                    call()
            for _ in range(3):
                for way, call in calls.items():
                    for _ in range(TURN):
                        start = time.thread_time()
                        call()
                        times[way].append(1e3 * (time.thread_time() - start))
            functions = functions_of(calls["patched"])
        if policy == "buffer":
            self.without.append(test)
        else:
            self.rows.append((test, most, *(float(np.median(own)) for own in times.values()), functions))
        return Anything()


def architectures() -> None:
    """Print the models of tests/torch/architectures, worst first."""
    import pytest

    sys.path[:0] = [str(ROOT / "tests" / "helpers"), str(ROOT)]
    import architectures as helper

    torch.set_num_threads(1)
    helper.check = timed = Architectures()
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        pytest.main(["-q", "-p", "no:cacheprovider", "-k", "not refused", str(ROOT / "tests/torch/architectures")])
    rows = sorted(timed.rows, key=lambda row: -row[3] / row[2])
    print(
        "\n| model of the test | frames | bare, ms | patched, ms | ÷ bare | functions |\n|---|--:|--:|--:|--:|--:|"
    )
    for test, frames, bare, patched, functions in rows:
        print(f"| {test} | {frames} | {bare:.2f} | {patched:.2f} | {patched / bare:.2f} | {functions} |")
    ratios = [row[3] / row[2] for row in rows]
    above = sum(ratio > 3 for ratio in ratios)
    print(
        f"\n{len(rows)} models, median {np.median(ratios):.2f}, {above} above 3; not timed: {len(timed.without)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path)
    known = [*NETWORKS, *(name for name in OF_BRIDGE if name not in NETWORKS)]
    parser.add_argument("--networks", nargs="*", choices=known, default=known)
    parser.add_argument("--others", nargs="+", default=[], metavar="FILE:CLASS:DIMS")
    parser.add_argument("--seconds", type=float, default=1.0, help="per row (1)")
    parser.add_argument("--architectures", action="store_true", help="models of tests/torch/architectures alone")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.seconds)
        return
    for line in machine(shlex.join(["python", Path(sys.argv[0]).name, *sys.argv[1:]]), ("numpy", "torch")):
        print(line)
    if options.architectures:
        architectures()
        return
    rows = []
    for name in (*options.networks, *options.others):
        after = measured(name, ROOT, options.seconds)
        before = measured(name, options.before, options.seconds) if options.before else [None] * len(after)
        rows += list(zip(after, before))
    ways = ["bare, ms", "patched, ms", "÷ bare", "functions", "÷ bare before", "functions"]
    ways += ["functionalized ÷ bare", "on engine, ms", "÷ engine's step"]
    print(f"\n| network | rows × frames | | {' | '.join(ways)} |")
    print(f"|---|---|---|{'--:|' * len(ways)}")
    for after, before in sorted(rows, key=lambda row: -row[0]["ms"]["patched"] / row[0]["ms"]["bare"]):
        (name, n, frames, training), ms = after["case"], after["ms"]
        cells = [name.split(":")[1] if ":" in name else name, f"{n}{'r' if n > 1 else ''} × {frames}"]
        cells += ["training" if training else "evaluation", f"{ms['bare']:.2f}", f"{ms['patched']:.2f}"]
        for row in (after, before):
            cells += (
                ["–", "–"]
                if row is None
                else [f"{row['ms']['patched'] / row['ms']['bare']:.2f}", str(row["functions"])]
            )
        cells += (
            ["–"] * 3
            if training
            else [
                f"{ms['functionalized'] / ms['bare']:.2f}",
                f"{ms['on engine']:.2f}",
                f"{ms['on engine'] / ms['engine']:.2f}",
            ]
        )
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
