"""Nodes of random models that write, that say where a frame stands, and that run networks within a frame."""

import random
from typing import Protocol

from .source import FEATURES, FRAMES, Node, Value

KINDS = ["written", "placed", "across", "mixture"]


class _Drafter(Protocol):
    random: random.Random

    def at(self, a: Value, layout: str) -> str: ...
    def fresh(self, letter: str = "v") -> str: ...
    def index(self, layout: str, part: str) -> str: ...


class Mixed:
    """What a drafter of models adds by these kinds."""

    def written(self: _Drafter, a: Value, name: str) -> Node:
        """Frames or features that are written in place."""
        r = self.random
        if r.random() < 0.3:
            axis = FEATURES[a.layout]
            part = f"[{':, ' * axis}{r.randrange(a.size)}]"
        else:
            start, crop, step = r.randint(0, 3), r.choice([0, 0, 1, 3]), r.choice([1, 1, 2, 3])
            part = self.index(
                a.layout, f"{start or ''}:{-crop if crop else ''}" + (f":{step}" if step > 1 else "")
            )
        value = r.choice([f"{a.name}{part} * 0.5 + 0.25", "0.75"])
        written = f"{name}{part} {r.choice(['=', '=', '+='])} {value}"
        return Node({}, [f"{name} = {a.name}.clone()", written], a.layout)

    def placed(self: _Drafter, a: Value, name: str) -> Node:
        """A function of absolute positions."""
        r = self.random
        if a.size > 1 and r.random() < 0.5:
            dim = 2 * r.randint(1, a.size // 2)
            layers = {f"turn{name}": f"nn.RotaryEmbedding({dim}, interleaved={r.random() < 0.5})"}
            return Node(layers, [f"{name} = self.turn{name}({self.at(a, 'BLF')})"], "BLF")
        after = ".unsqueeze(1)" * (2 - FRAMES[a.layout]) if a.layout != "BFL" else ""
        place = f"(ds.arange({a.name}.size({FRAMES[a.layout]})) * 0.01).sin().to({a.name}.dtype){after}"
        return Node({}, [f"{name} = {a.name} {r.choice('+*')} {place}"], a.layout)

    def across(self: _Drafter, a: Value, name: str) -> Node:
        """A recurrence over the features of a frame, in both directions."""
        r = self.random
        x, n, kind = self.fresh("s"), r.choice([1, 2]), r.choice(["GRU", "LSTM", "RNN"])
        both = r.random() < 0.5
        layers = {f"run{name}": f"nn.{kind}(1, {n}, batch_first=True, bidirectional={both})"}
        n_out = a.size * n * (1 + both)
        lines = [
            f"{x} = {self.at(a, 'BLF')}",
            f"{name} = self.run{name}({x}.reshape({x}.size(0) * {x}.size(1), {a.size}, 1))[0]",
            f"{name} = {name}.reshape({x}.size(0), {x}.size(1), {n_out})",
        ]
        return Node(layers, lines, "BLF")

    def mixture(self: _Drafter, a: Value, name: str) -> Node:
        """A mixture of all its experts: a choice among nearly equal ones may change with the precision."""
        n = self.random.choice([1, 2, 3])
        options = f"num_expert={n}, top_k={n}, d_model={a.size}, d_hidden={self.random.choice([2, 3])}"
        return Node(
            {f"mix{name}": f"nn.FMoETransformerMLP({options})"},
            [f"{name} = self.mix{name}({self.at(a, 'BLF')})"],
            "BLF",
        )
