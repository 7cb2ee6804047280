"""Nodes of random models that look at all features of a frame: norms, statistics, matrices."""

import random
from collections.abc import Callable

from .source import FEATURES, Node, Value

#: Names of the methods below, for the drafter to choose from.
KINDS = ["normed", "statistic", "statistic", "matrix"]


class Norms:
    """Methods of a drafter."""

    random: random.Random
    fresh: Callable[..., str]
    some_size: Callable[[], int]

    def at(self, a: Value, layout: str) -> str:
        """Return a value as an expression with its dimensions in this order."""
        raise NotImplementedError

    def norm(self, a: Value, name: str) -> Node:
        r = self.random
        x = self.at(a, "BLF")
        if r.random() < 0.3 and a.size % 2 == 0:
            layers = {f"norm{name}": f"nn.LayerNorm((2, {a.size // 2}), eps=0.1)"}
            x = f"{x}.unflatten(2, (2, {a.size // 2}))"
            return Node(layers, [f"{name} = self.norm{name}({x}).flatten(2)"], "BLF")
        kind = r.choice(["LayerNorm", "LayerNorm", "RMSNorm", "BatchNorm1d", "GroupNorm"])
        if kind == "BatchNorm1d":
            layers = {f"norm{name}": f"nn.BatchNorm1d({a.size}, eps=0.1).eval()"}
            return Node(layers, [f"{name} = self.norm{name}({self.at(a, 'BFL')})"], "BFL")
        if kind == "GroupNorm" and a.size > 1:  # of every frame
            s, layers = self.fresh("s"), {f"norm{name}": f"nn.GroupNorm(1, {a.size}, eps=0.1)"}
            back = f"reshape({s}.size(0), -1, {a.size})"
            lines = [f"{s} = {x}", f"{name} = self.norm{name}({s}.flatten(0, 1)).{back}"]
            return Node(layers, lines, "BLF")
        kind = "LayerNorm" if kind == "GroupNorm" else kind
        affine = r.choice(["", ", elementwise_affine=False"])
        layers = {f"norm{name}": f"nn.{kind}({a.size}, eps=0.1{affine})"}
        return Node(layers, [f"{name} = self.norm{name}({x})"], "BLF")

    def softmax(self, a: Value, name: str) -> Node:
        dim = FEATURES[a.layout]
        way = self.random.choice(["{x}.softmax({d})", "F.log_softmax({x}, dim={d})", "F.softmax({x}, {d})"])
        return Node({}, [f"{name} = {way.format(x=a.name, d=dim)}"], a.layout)

    def normed(self, a: Value, name: str) -> Node:
        """A norm of frames, or of groups of their features with B and L joined."""
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
        layers = {f"norm{name}": f"nn.GroupNorm({groups}, {a.size}, eps=0.1)"}
        lines = [f"{x} = {self.at(a, 'BLF')}"]
        joined = f"{x}.reshape({x}.size(0) * {x}.size(1), {a.size})"
        back = f".reshape({x}.size(0), {x}.size(1), {a.size})"
        return Node(layers, [*lines, f"{name} = self.norm{name}({joined}){back}"], "BLF")

    def statistic(self, a: Value, name: str) -> Node:
        """A reduction over the features, met again by what it was made of."""
        d = FEATURES[a.layout]
        ways = [
            f"{a.name}.mean({d}, keepdim=True)",
            f"{a.name}.sum({d}, keepdim=True)",
            f"{a.name}.tanh().logsumexp({d}, keepdim=True)",
            f"({a.name}.square() + 0.1).prod({d}, keepdim=True).tanh()",
            f"({a.name}.var({d}, correction=0, keepdim=True) + 0.1).sqrt()",
            f"{a.name}.tanh().cumsum({d})",
        ]
        hiding = [
            f"{a.name}.amax({d}, keepdim=True)",
            f"{a.name}.amin(dim={d}, keepdim=True)",
            f"{a.name}.max({d}, keepdim=True)[0]",
            f"{a.name}.min({d}, keepdim=True).values",
        ]
        made = self.random.choice(ways + hiding)
        twin = f"{a.name}.sum({d}, keepdim=True)" if made in hiding else made
        return Node({}, [f"{name} = {a.name} + {made}"], a.layout, [f"{name} = {a.name} + {twin}"])

    def matrix(self, a: Value, name: str) -> Node:
        """A product with a constant, on either side, or of matrices that are both of a frame."""
        n = self.some_size()
        if a.size % 2 == 0 and a.size > 2 and self.random.random() < 0.2:
            halves = f"{self.at(a, 'BLF')}.unflatten(2, (2, {a.size // 2})).tanh()"
            return Node({}, [f"{name} = {halves}", f"{name} = ({name}.mT @ {name}).sum(-1)"], "BLF")
        if a.size % 2 == 0 and self.random.random() < 0.3:  # one for each half of the features
            layers = {f"m{name}": f"nn.Parameter(ds.randn(2, {a.size // 2}, {n}))"}
            halves = f"{self.at(a, 'BLF')}.unflatten(2, (2, 1, {a.size // 2}))"
            return Node(layers, [f"{name} = ({halves} @ self.m{name}).flatten(2)"], "BLF")
        if self.random.random() < 0.5:
            layers = {f"m{name}": f"nn.Parameter(ds.randn({a.size}, {n}))"}
            return Node(layers, [f"{name} = {self.at(a, 'BLF')} @ self.m{name}"], "BLF")
        layers = {f"m{name}": f"nn.Parameter(ds.randn({n}, {a.size}))"}
        return Node(layers, [f"{name} = self.m{name} @ {self.at(a, 'BFL')}"], "BFL")
