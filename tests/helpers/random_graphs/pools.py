"""Nodes that pool, repeat, overlap and sum up, and what of them torch lacks."""

import random
from typing import Any

from .source import FRAMES, Node, Value

#: Names of the methods below, for the drafter to choose from.
KINDS = ["pool", "pool", "inner_pool", "repeat", "every", "overlap", "running"]


class Pools:
    """Methods of a drafter."""

    random: random.Random

    def at(self, a: Value, layout: str) -> str:
        """Return a value as an expression with its dimensions in this order."""
        raise NotImplementedError

    def pool(self, a: Value, name: str) -> Node:
        """Windows of frames."""
        r = self.random
        kernel, stride = r.randint(1, 5), r.choice([1, 1, 2, 3, 4])
        padding, ceil = r.randint(0, kernel // 2), r.random() < 0.4
        x = self.at(a, "BFL")
        if r.random() < 0.5:
            dilation = r.choice([1, 1, 2])
            padding = padding if dilation == 1 else 0  # else windows may hold nothing, and be -inf
            span = dilation * (kernel - 1) + 1
            sums = [f"{name} = F.avg_pool1d({x}, {span}, {stride}, {padding}, {ceil})"]
            text = f"{kernel}, {stride}, {padding}, {dilation}, ceil_mode={ceil}"
            if r.random() < 0.5:
                return Node({}, [f"{name} = F.max_pool1d({x}, {text})"], "BFL", sums)
            layers = {f"pool{name}": f"nn.MaxPool1d({text})"}
            return Node(layers, [f"{name} = self.pool{name}({x})"], "BFL", sums)
        text = f"{kernel}, {stride}, {padding}, {ceil}, {r.random() < 0.5}"
        if r.random() < 0.3:  # time and features alike, as an image of one channel
            image = f"F.avg_pool2d({x}.unsqueeze(1), (1, {kernel}), (1, {stride}), (0, {padding}), {ceil})"
            return Node({}, [f"{name} = {image}.squeeze(1)"], "BFL")
        layers = {f"pool{name}": f"nn.AvgPool1d({text})"}
        return Node(layers, [f"{name} = self.pool{name}({x})"], "BFL")

    def inner_pool(self, a: Value, name: str) -> Node:
        """Windows and parts of features."""
        r = self.random
        kernel, n = r.randint(1, a.size), r.randint(1, 5)
        way = r.choice(
            [
                f"F.max_pool1d({{x}}, {kernel}, 1, {kernel // 2})",
                f"F.avg_pool1d({{x}}, {kernel}, ceil_mode=True)",
                f"F.adaptive_avg_pool1d({{x}}, {n})",
                f"F.adaptive_max_pool1d({{x}}, {n})",
                f"F.interpolate({{x}}, size={n})",
                f"F.interpolate({{x}}, scale_factor={r.choice([1.5, 2.0])})",
                "{x}.repeat_interleave(2, 2)",
            ]
        )
        x = self.at(a, "BLF")
        sums = way.replace("max_", "avg_").format(x=f"tie({x}, 2)")
        return Node({}, [f"{name} = {way.format(x=x)}"], "BLF", [f"{name} = {sums}"])

    def repeat(self, a: Value, name: str) -> Node:
        """Every frame several times."""
        n, axis = self.random.choice([2, 2, 3]), FRAMES[a.layout]
        if self.random.random() < 0.5:
            return Node({}, [f"{name} = {a.name}.repeat_interleave({n}, {axis})"], a.layout)
        layers = {f"up{name}": f"nn.Upsample(scale_factor={n})"}
        return Node(layers, [f"{name} = self.up{name}({self.at(a, 'BFL')})"], "BFL")

    def every(self, a: Value, name: str) -> Node:
        """Every k-th frame, as far as there are k."""
        k = self.random.choice([2, 3])
        return Node({}, [f"{name} = F.interpolate({self.at(a, 'BFL')}, scale_factor=1 / {k})"], "BFL")

    def overlap(self, a: Value, name: str) -> Node:
        """Frames in windows, and laid over each other again, at another step."""
        r = self.random
        size, step, again = r.randint(1, 4), r.choice([1, 2, 2, 3]), r.choice([1, 2, 2, 3])
        framed = f"{self.at(a, 'BFL')}.unfold(2, {size}, {step})"
        layers = {f"add{name}": f"nn.OverlapAdd({again})"}
        # A window is known when all of it is, though its first elements may be final before.
        sums = [f"{name} = self.add{name}(tie({framed}, 3))"]
        return Node(layers, [f"{name} = self.add{name}({framed})"], "BFL", sums)

    def running(self, a: Value, name: str) -> Node:
        """Sums and means of the frames so far."""
        dim = FRAMES[a.layout]
        ways = [
            f"nn.CumulativeMean(dim={dim})",
            f"nn.CumulativeSum(dim={dim})",
            f"nn.RunningMean({self.random.randint(1, 6)}, dim={dim})",
        ]
        layers: dict[str, Any] = {f"run{name}": self.random.choice(ways)}
        return Node(layers, [f"{name} = self.run{name}({a.name})"], a.layout)
