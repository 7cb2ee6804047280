"""Nodes over planes of time and features, and within frames."""

import random
from typing import Any

from .source import Node, Value

KINDS = ["plane", "plane", "within", "within"]


class PlaneNodes:
    """What a drafter can add with two axes, or along the features of each frame."""

    random: random.Random

    def at(self, a: Value, layout: str) -> str:
        """Return a value as an expression with its dimensions in this order."""
        raise NotImplementedError

    def fresh(self, letter: str = "v") -> str:
        """Return a new name."""
        raise NotImplementedError

    def _window(self, n: int) -> tuple[int, int, int, int, int]:
        """Kernel, stride, padding and dilation along n features, and what comes out."""
        r = self.random
        padding = r.randint(0, min(2, n - 1))
        dilation = r.choice([1, 1, 2])
        kernel = r.randint(1, min(3, (n + 2 * padding - 1) // dilation + 1))
        stride = r.choice([1, 1, 2])
        return (kernel, stride, padding, dilation, (n + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1)

    def _spread(self, n: int) -> tuple[int, int, int, int, int]:
        """Kernel, stride, padding and output padding along n features, and what comes out."""
        r = self.random
        kernel, stride = r.randint(1, 3), r.choice([1, 2])
        extra = r.randint(0, stride - 1)
        whole = (n - 1) * stride + kernel + extra
        padding = r.randint(0, min(1, (whole - 1) // 2))
        return kernel, stride, padding, extra, whole - 2 * padding

    def plane(self, a: Value, name: str) -> Node:
        """Channels appear, a convolution over time and features, all of it one feature axis again."""
        r = self.random
        layout, channels = r.choice(["BFL", "BLF"]), r.choice([1, 1, 2])
        x = f"{self.at(a, layout)}.unsqueeze(1)"

        def both(inner: Any, along: Any) -> Any:
            return (inner, along) if layout == "BFL" else (along, inner)

        if r.random() < 0.3:
            kernel, stride, padding, extra, _ = self._spread(a.size)
            step = r.choice([1, 2])
            layer = (
                f"nn.ConvTranspose2d(1, {channels}, {both(kernel, r.randint(1, 3))}, stride={both(stride, step)}, "
                f"padding={both(padding, r.randint(0, 1))}, output_padding={both(extra, step - 1)})"
            )
        else:
            kernel, stride, padding, dilation, _ = self._window(a.size)
            layer = (
                f"nn.Conv2d(1, {channels}, {both(kernel, r.randint(1, 4))}, "
                f"stride={both(stride, r.choice([1, 1, 2, 3]))}, padding={both(padding, r.randint(0, 2))}, "
                f"dilation={both(dilation, r.choice([1, 1, 2]))}, "
                f"padding_mode={r.choice(['zeros', 'replicate', 'reflect'])!r})"
            )
        joined = ".flatten(1, 2)" if layout == "BFL" else ".transpose(1, 2).flatten(2)"
        return Node({f"plane{name}": layer}, [f"{name} = self.plane{name}({x}){joined}"], layout)

    def within(self, a: Value, name: str) -> Node:
        """A convolution along the features of each frame, or a pad of them."""
        r = self.random
        x, y, way = self.fresh("f"), self.fresh("f"), r.random()
        lines = [f"{x} = {self.at(a, 'BLF')}"]
        if way < 0.3:
            mode = r.choice(["constant", "replicate", "reflect", "circular"])
            pads = [r.randint(0, min(2, a.size - (mode == "reflect"))) for _ in range(2)]
            if mode != "circular" and r.random() < 0.5:
                pads += [r.randint(0, 2), r.randint(0, 2)]
            return Node({}, [*lines, f"{name} = F.pad({x}, {tuple(pads)}, mode={mode!r})"], "BLF")
        channels = r.choice([1, 1, 2])
        if way < 0.5:
            kernel, stride, padding, extra, n = self._spread(a.size)
            layer = (
                f"nn.ConvTranspose1d(1, {channels}, {kernel}, stride={stride}, padding={padding}, "
                f"output_padding={extra})"
            )
        else:
            kernel, stride, padding, dilation, n = self._window(a.size)
            layer = f"nn.Conv1d(1, {channels}, {kernel}, stride={stride}, padding={padding}, dilation={dilation})"
        lines += [
            f"{y} = self.within{name}({x}.reshape({x}.size(0) * {x}.size(1), 1, {a.size}))",
            f"{name} = {y}.reshape({x}.size(0), {x}.size(1), {channels * n})",
        ]
        return Node({f"within{name}": layer}, lines, "BLF")
