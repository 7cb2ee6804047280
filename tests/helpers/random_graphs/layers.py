"""Nodes of random models: pooling, recurrence, images, norms and statistics.

Each function takes a value and a name and returns the node, as those of `drafts` do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from .source import Node, Value

__all__ = ["Layers"]


class Layers:
    """The nodes; a drafter has them."""

    random: random.Random
    at: Callable[[Value, str], str]
    fresh: Callable[..., str]
    some_size: Callable[[], int]

    # ---------------------------------------------------------------- windows along the stream
    def pool(self, a: Value, name: str) -> Node:
        r = self.random
        kernel = r.randint(1, 4)
        options: dict[str, Any] = {"stride": r.choice([1, 1, 2, 3, kernel + 2])}
        options["padding"] = r.randint(0, kernel // 2)
        options["ceil_mode"] = r.random() < 0.4
        text = "".join(f", {k}={v!r}" for k, v in options.items() if v)
        x = self.at(a, "BFL")
        if r.random() < 0.5:
            more = ", count_include_pad=False" if r.random() < 0.5 else ""
            layers = {f"pool{name}": f"nn.AvgPool1d({kernel}{text}{more})"}
            return Node(layers, [f"{name} = self.pool{name}({x})"], "BFL")
        layers = {f"pool{name}": f"nn.MaxPool1d({kernel}{text})"}
        twin = f"{name} = F.avg_pool1d({x}, {kernel}{text})"
        return Node(layers, [f"{name} = self.pool{name}({x})"], "BFL", [twin])

    def repeat(self, a: Value, name: str) -> Node:
        """Every frame several times."""
        k, x = self.random.choice([2, 3]), self.at(a, "BFL")
        ways = [f"F.interpolate({x}, scale_factor={k})", f"{x}.repeat_interleave({k}, dim=2)"]
        return Node({}, [f"{name} = {self.random.choice(ways)}"], "BFL")

    # ---------------------------------------------------------------- recurrence
    def recurrent(self, a: Value, name: str) -> Node:
        r = self.random
        layout, hidden, n_layers = r.choice(["BLF", "LBF"]), self.some_size(), r.choice([1, 1, 2])
        kind = r.choice(["GRU", "RNN", "LSTM"])
        text = f"{a.size}, {hidden}, num_layers={n_layers}" + (", batch_first=True" if layout == "BLF" else "")
        if kind == "RNN" and r.random() < 0.5:
            text += ", nonlinearity='relu'"
        if kind == "LSTM":
            text += f", proj_size={hidden}".replace(f"{hidden}", "1") if hidden > 1 else ""
        layers = {f"rnn{name}": f"nn.{kind}({text})"}
        return Node(layers, [f"{name}, _ = self.rnn{name}({self.at(a, layout)})"], layout)

    # ---------------------------------------------------------------- images and windows within a frame
    def image(self, a: Value, name: str) -> Node:
        """Features as the second axis of an image whose other axis is time."""
        r = self.random
        across, along = r.randint(1, min(2, a.size)), r.randint(1, 3)
        strides, pads = (1, r.choice([1, 1, 2])), (r.randint(0, 1), r.randint(0, 2))
        layout = r.choice(["BFL", "BLF"])
        kernel: tuple[int, int] = (across, along)
        if layout == "BLF":
            kernel, strides, pads = kernel[::-1], strides[::-1], pads[::-1]
        x = f"{self.at(a, layout)}.unsqueeze(1)"
        kind = "ConvTranspose2d" if r.random() < 0.25 else "Conv2d"
        n_out = r.choice([1, 2])
        layers = {f"image{name}": f"nn.{kind}(1, {n_out}, {kernel}, stride={strides}, padding={pads})"}
        if kind == "ConvTranspose2d":  # padding would take rows away that small images don't have
            layers = {f"image{name}": f"nn.{kind}(1, {n_out}, {kernel}, stride={strides})"}
        made = f"self.image{name}({x})"
        if layout == "BFL":
            return Node(layers, [f"{name} = {made}.flatten(1, 2)"], "BFL")
        return Node(layers, [f"{name} = {made}.transpose(1, 2).flatten(2)"], "BLF")

    def within(self, a: Value, name: str) -> Node:
        """A small network over each frame's features, frames joined with the batch."""
        r, x = self.random, self.fresh("s")
        n_out, pad = r.choice([1, 2]), r.choice([1, 2])
        layers = {f"inner{name}": f"nn.Conv1d(1, {n_out}, {r.choice([2, 3])}, padding={pad})"}
        way = r.choice(["self.inner{n}({x})", "F.relu(self.inner{n}({x}))", "F.max_pool1d(self.inner{n}({x}), 2, 1)"])
        inner = way.format(n=name, x=f"{x}.reshape({x}.size(0) * {x}.size(1), 1, {a.size})")
        plain = f"self.inner{name}({x}.reshape({x}.size(0) * {x}.size(1), 1, {a.size}))"
        twins = {"F.max": f"F.avg_pool1d({plain}, 2, 1)", "F.rel": plain}
        twin = next((t for start, t in twins.items() if way.startswith(start)), inner)
        lines = [f"{x} = {self.at(a, 'BLF')}"]
        back = f".flatten(1).reshape({x}.size(0), {x}.size(1), -1)"
        return Node(layers, [*lines, f"{name} = {inner}{back}"], "BLF", [*lines, f"{name} = {twin}{back}"])

    # ---------------------------------------------------------------- norms and statistics of a frame
    def normed(self, a: Value, name: str) -> Node:
        r = self.random
        way = r.randint(0, 2)
        if way == 0:
            x = self.at(a, "BLF")
            return Node({f"norm{name}": f"nn.RMSNorm({a.size})"}, [f"{name} = self.norm{name}({x})"], "BLF")
        if way == 1:
            x = self.at(a, "BFL")
            layers = {f"norm{name}": f"nn.BatchNorm1d({a.size})"}
            return Node(layers, [f"{name} = self.norm{name}({x})"], "BFL")
        x, groups = self.fresh("s"), r.choice([g for g in (1, 2, 3, 4) if a.size % g == 0])
        layers = {f"norm{name}": f"nn.GroupNorm({groups}, {a.size})"}
        lines = [f"{x} = {self.at(a, 'BLF')}"]
        both = f"{x}.reshape({x}.size(0) * {x}.size(1), {a.size})"
        back = f".reshape({x}.size(0), {x}.size(1), {a.size})"
        return Node(layers, [*lines, f"{name} = self.norm{name}({both}){back}"], "BLF")

    def statistic(self, a: Value, name: str) -> Node:
        """A reduction over the features, met again by what it was made of."""
        axis = {"BFL": 1, "BLF": 2, "LBF": 2}[a.layout]
        ways = [
            ("amax", "{x}.amax({d}, keepdim=True)"),
            ("amin", "{x}.amin(dim={d}, keepdim=True)"),
            ("max", "{x}.max({d}, keepdim=True)[0]"),
            ("", "{x}.mean({d}, keepdim=True)"),
            ("", "{x}.sum({d}, keepdim=True)"),
            ("", "{x}.tanh().logsumexp({d}, keepdim=True)"),
            ("", "{x}.norm(dim={d}, keepdim=True)"),
        ]
        hides, way = self.random.choice(ways)
        made = way.format(x=a.name, d=axis)
        twin = f"{a.name}.sum({axis}, keepdim=True)" if hides else made
        return Node({}, [f"{name} = {a.name} + {made}"], a.layout, [f"{name} = {a.name} + {twin}"])

    # ---------------------------------------------------------------- statistics of the past
    def past(self, a: Value, name: str) -> Node:
        """Running sums and means."""
        r, x = self.random, self.at(a, "BFL")
        kind = r.choice(["CumulativeMean()", "CumulativeSum()", f"RunningMean({r.randint(1, 5)})"])
        return Node({f"past{name}": f"nn.{kind}"}, [f"{name} = self.past{name}({x})"], "BFL")

