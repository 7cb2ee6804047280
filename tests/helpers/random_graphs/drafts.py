"""Random models, as source text that a user could have written.

A draft grows by one node at a time. A node is a few lines of a forward and the layers that they call; it is
tried out at once on counts (`totals`), so that what would give no frames, or run at an odd rate, is dropped
again, and so that branches of different lengths can be repaired by slices and cuts before they join.

Every line has a twin for finding dependence by NaN: there, what hides it (maxima, comparisons, where, picking
some features) is replaced by sums. `forward` holds the lines, `sums` the twins.
"""

import random
import re
from collections.abc import Collection
from fractions import Fraction
from typing import Any

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import DreamStreamError

from . import recurrent
from .mixed import KINDS as MIXED, Mixed
from .norms import KINDS as NORMS, Norms
from .planes import KINDS as PLANES, PlaneNodes
from .pools import KINDS as POOLS, Pools
from .source import (
    FEATURES,
    FRAMES,
    JOINS,
    KINDS,
    MOVES,
    N_LENGTHS,
    TABLE,
    UNARY,
    Draft,
    Node,
    Value,
    build,
    grid,
    tie,
)  # fmt: skip
from .totals import Input, Totals

__all__ = ["Draft", "build", "draft", "grid"]


class _Drafter(Pools, Norms, PlaneNodes, Mixed):
    """A draft in the making: the nodes so far, and their counts."""

    def __init__(self, seed: int, without: Collection[str] = ()) -> None:
        self.without = without
        self.random = r = random.Random(seed)
        two = r.random() < 0.3
        rates = [Fraction(1), Fraction(1, 2)] if two else [Fraction(1)]
        r.shuffle(rates)
        self.width = r.choice([2, 2, 3, 4])
        layouts = ["BFL", "BFL", "BFL", "BLF", "BLF", "LBF"]
        inputs = [Input(n, rate, self.width, r.choice(layouts)) for n, rate in zip("xy", rates)]
        self.draft = Draft(seed, inputs)
        self.draft.buffered = r.random() < 0.15
        self.draft.skew = r.choice([0, 0, 3]) if two else 0
        self.totals = Totals(inputs, grid(inputs, N_LENGTHS))
        self.holder = nn.Module()
        self.scope: dict[str, Any] = {"ds": ds, "nn": nn, "F": F, "self": self.holder}
        self.values: list[Value] = []
        self.extra: list[str] = []  # names of outputs that are no values to build on
        self.n_names = 0
        for x, t in zip(inputs, self.totals.tensors):
            self.scope[x.name] = t
            self.values.append(Value(x.name, x.layout, x.size, x.rate, t.edge.counts[:, 3]))

    # ---------------------------------------------------------------- growing
    def fresh(self, letter: str = "v") -> str:
        self.n_names += 1
        return f"{letter}{self.n_names}"

    def add(self, kind: str, name: str, node: Node | None) -> Value | None:
        """Try a node out and keep it if frames come out at a sane rate."""
        if node is None:
            return None
        before = set(self.scope), len(self.totals.met), set(self.totals.refused)
        try:
            for attribute, expression in node.layers.items():
                setattr(self.holder, attribute, eval(expression, self.scope))
            self.holder.eval()
            for line in node.code:
                exec(line, self.scope)
        except DreamStreamError as error:
            raise AssertionError(f"{error}\n{node}\nafter\n{self.draft}") from error
        edge = self.scope[name].edge
        if node.sums is not None:
            self.check_twin(name, node)
        totals = edge.counts[:, 3]
        pooled = edge.rate == 0
        sane = pooled or (Fraction(1, 24) <= edge.rate <= 4 and totals.any() and (totals == 0).mean() < 0.5)
        if not sane or max(edge.features, default=1) > 12:
            for attribute in node.layers:
                delattr(self.holder, attribute)
            for key in set(self.scope) - before[0]:
                del self.scope[key]
            del self.totals.met[before[1] :]
            self.totals.refused = before[2]
            return None
        self.draft.layers |= node.layers
        self.draft.code += node.code
        self.draft.sums += node.code if node.sums is None else node.sums
        self.draft.kinds.append(kind)
        value = Value(name, node.layout, edge.features[0], edge.rate, totals)
        self.values.append(value)
        return value

    def check_twin(self, name: str, node: Node) -> None:
        """A node's twin has its dimensions."""
        kept = len(self.totals.met), set(self.totals.refused)
        scope = self.scope | {"tie": tie}
        for line in node.sums or ():
            exec(line, scope)
        del self.totals.met[kept[0] :]
        self.totals.refused = kept[1]
        own, twin = ((s[name].dims, s[name].edge.features) for s in (self.scope, scope))
        assert own == twin, f"{name} has dimensions and features {own}, in its twin {twin}:\n{node}"

    def grow(self) -> None:
        """Add one node, if it turns out sane."""
        a = self.random.choice(self.values[-3:])
        if a.rate == 0:
            kinds: list[Any] = ["unary", "scalar", "linear", "join", "flags"]
        else:
            kinds = list(KINDS) + POOLS + NORMS + PLANES + MIXED + (["waits"] * 6 if self.draft.buffered else [])
            kinds = [k for k in kinds if k not in self.without]
        kind = self.random.choice(kinds)
        if kind == "join":
            self.join(a)
            return
        name = self.fresh()
        self.add(kind, name, getattr(self, kind)(a, name))

    # ---------------------------------------------------------------- small helpers
    def at(self, a: Value, layout: str) -> str:
        """Return a value as an expression with its dimensions in this order."""
        return a.name if a.layout in (layout, "BF") else a.name + MOVES[a.layout, layout]

    def index(self, layout: str, part: str) -> str:
        """Return an index on the stream axis."""
        axis = FRAMES[layout]
        if axis == 2 and self.random.random() < 0.7:
            return f"[..., {part}]"
        return f"[{':, ' * axis}{part}{', :' * (2 - axis) if self.random.random() < 0.3 else ''}]"

    def length(self, a: Value) -> str:
        """Return a value's length as an expression."""
        axis = FRAMES[a.layout]
        return f"{a.name}.size({axis - 3 if self.random.random() < 0.3 else axis})"

    def some_size(self) -> int:
        return self.width if self.random.random() < 0.8 else self.random.randint(1, 5)

    # ---------------------------------------------------------------- along the stream
    def conv(self, a: Value, name: str) -> Node:
        r = self.random
        n_out, kernel = self.some_size(), r.randint(1, 4)
        stride, dilation = r.choice([1, 1, 1, 2, 3, 6]), r.choice([1, 1, 1, 2, 3])
        padding: Any = r.choice(
            [0, r.randint(0, 4), r.randint(0, 4), (r.randint(0, 4), r.randint(0, 4)), "causal"]
        )
        if padding == 0 and stride == 1 and r.random() < 0.5:
            padding = "same"
        options = {"stride": stride, "padding": padding, "dilation": dilation}
        options["groups"] = r.choice([g for g in range(1, 5) if a.size % g == n_out % g == 0])
        options["padding_mode"] = r.choice(["zeros", "zeros", "replicate", "reflect"])
        options["bias"] = r.random() < 0.7
        usual = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "padding_mode": "zeros", "bias": True}
        text = "".join(f", {k}={v!r}" for k, v in options.items() if v != usual[k])
        x = self.at(a, "BFL")
        if r.random() < 0.2 and isinstance(padding, int):  # by hand, with weights made on the fly
            del options["bias"], options["padding_mode"]
            text = "".join(f", {k}={v!r}" for k, v in options.items() if v != usual[k])
            w = f"w{name}"
            layers = {w: f"nn.Parameter(ds.randn({n_out}, {a.size // options['groups']}, {kernel}))"}
            weight = r.choice(
                [f"self.{w}", f"self.{w} * 0.7", f"self.{w} - self.{w}.mean((1, 2), keepdim=True) / 3"]
            )
            return Node(layers, [f"{name} = F.conv1d({x}, {weight}{text})"], "BFL")
        layers = {f"conv{name}": f"nn.Conv1d({a.size}, {n_out}, {kernel}{text})"}
        return Node(layers, [f"{name} = self.conv{name}({x})"], "BFL")

    def conv_transpose(self, a: Value, name: str) -> Node:
        r = self.random
        n_out, kernel = self.some_size(), r.randint(1, 4)
        stride, dilation = r.choice([1, 2, 2, 3]), r.choice([1, 1, 2])
        padding, extra = r.choice([0, 0, 1, 2]), r.randint(0, max(stride, dilation) - 1)
        groups = r.choice([g for g in range(1, 5) if a.size % g == n_out % g == 0])
        text = f"stride={stride}, padding={padding}, output_padding={extra}, groups={groups}, dilation={dilation}"
        x = self.at(a, "BFL")
        if r.random() < 0.2:
            w = {f"w{name}": f"nn.Parameter(ds.randn({a.size}, {n_out // groups}, {kernel}))"}
            return Node(w, [f"{name} = F.conv_transpose1d({x}, self.w{name}, {text})"], "BFL")
        layers = {f"up{name}": f"nn.ConvTranspose1d({a.size}, {n_out}, {kernel}, {text})"}
        return Node(layers, [f"{name} = self.up{name}({x})"], "BFL")

    def pad(self, a: Value, name: str) -> Node:
        r = self.random
        left, right = r.randint(0, 3), r.randint(0, 3)
        mode = r.choice(["constant", "replicate", "reflect"])
        way = r.random()
        if way < 0.2:
            pairs, x = f"(0, 0, {left}, {right})", self.at(a, "BLF")
            return Node({}, [f"{name} = F.pad({x}, {pairs}, value={r.choice([0.0, 0.5])})"], "BLF")
        x = self.at(a, "BFL")
        if way < 0.35:
            return Node({}, [f"{name} = F.pad({x}, ({left}, {-r.randint(1, 3)}))"], "BFL")
        if way < 0.5:
            word = {"constant": "Constant", "replicate": "Replication", "reflect": "Reflection"}[mode]
            value = ", 0.25" if mode == "constant" else ""
            layers = {f"pad{name}": f"nn.{word}Pad1d(({left}, {right}){value})"}
            return Node(layers, [f"{name} = self.pad{name}({x})"], "BFL")
        text = f", mode={mode!r}" if mode != "constant" else r.choice(["", ", value=0.5"])
        if way > 0.85:
            whole = f"{r.randint(2, 4)}, ({left}, {right}){text}, least={r.choice([0, 0, 5])}"
            return Node({}, [f"{name} = F.pad_to_multiple({x}, {whole})"], "BFL")
        return Node({}, [f"{name} = F.pad({x}, ({left}, {right}){text})"], "BFL")

    def part(self, a: Value, name: str) -> Node:
        """A slice: frames dropped at both ends, and between."""
        r = self.random
        start, crop, step = r.randint(0, 3), r.choice([0, 1, 2, 4]), r.choice([1, 1, 1, 2, 4])
        text = f"{start or ''}:{-crop if crop else ''}" + (f":{step}" if step > 1 else "")
        return Node({}, [f"{name} = {a.name}{self.index(a.layout, text)}"], a.layout)

    def cut(self, a: Value, name: str) -> Node | None:
        """A slice up to a function of another's length, of one that has frames where this has some."""
        r = self.random
        ratios = {b.name: a.rate / b.rate for b in self.values if b.rate}
        near = [
            b
            for b in self.values
            if b.rate
            and max(ratios[b.name].as_integer_ratio()) <= 4
            and (b.name == a.name or not ((a.totals > 0) & (b.totals == 0)).any())
        ]
        b = r.choice(near)
        up, down = ratios[b.name].as_integer_ratio()
        stop = self.length(b) + (f" * {up}" if up > 1 else "") + (f" // {down}" if down > 1 else "")
        text = f"{r.choice(['', '', 1, 2])}:{stop}" + (":2" if r.random() < 0.15 else "")
        return Node({}, [f"{name} = {a.name}{self.index(a.layout, text)}"], a.layout)

    def late(self, a: Value, name: str) -> Node:
        layers = {f"late{name}": f"nn.Delay({self.random.randint(0, 5)}, dim={FRAMES[a.layout]})"}
        return Node(layers, [f"{name} = self.late{name}({a.name})"], a.layout)

    def rate(self, a: Value, name: str) -> Node:
        """Resampling, up or down."""
        r = self.random
        orig, new = r.choice([(1, 2), (2, 1), (2, 3), (3, 2)])
        layers = {f"rate{name}": f"nn.Resample({orig}, {new}, {r.choice([1, 2])}, {r.choice([0.7, 0.99])})"}
        return Node(layers, [f"{name} = self.rate{name}({self.at(a, 'BFL')})"], "BFL")

    def frames(self, a: Value, name: str) -> Node:
        """Windows by unfold, brought back to one feature axis."""
        r = self.random
        size, step = r.randint(1, 5), r.choice([1, 1, 2, 3])
        way = r.randint(0, 3)
        if way == 0:
            framed = f"{self.at(a, 'BFL')}.unfold(2, {size}, {step})"
            return Node({}, [f"{name} = {framed}.{r.choice(['mean', 'sum'])}(-1)"], "BFL")
        if way == 1:
            framed, at = f"{self.at(a, 'BFL')}.unfold(-1, {size}, {step})", r.randrange(size)
            lines = [f"{name} = {framed}[..., {at}]"]
            return Node({}, lines, "BFL", [f"{name} = tie({framed}, 3)[..., {at}]"])
        layers = {f"lin{name}": f"nn.Linear({a.size * size}, {self.some_size()})"}
        if way == 2:
            framed = f"{self.at(a, 'BFL')}.unfold(2, {size}, {step}).transpose(1, 2).flatten(2)"
        else:
            framed = f"{self.at(a, 'BLF')}.unfold(1, {size}, {step}).flatten(-2)"
        return Node(layers, [f"{name} = self.lin{name}({framed})"], "BLF")

    def stack(self, a: Value, name: str) -> Node:
        """k frames become one by a view."""
        r = self.random
        k, x = r.choice([2, 3]), self.fresh("s")
        lines = [f"{x} = {self.at(a, 'BLF')}"]
        if r.random() < 0.85:  # else a length that k doesn't divide is refused at the end
            lines.append(f"{x} = {x}[:, : {x}.size(1) // {k} * {k}]")
        sizes = r.choice([f"{x}.size(1) // {k}, {k * a.size}", f"-1, {k * a.size}"])
        layers = {f"lin{name}": f"nn.Linear({k * a.size}, {self.some_size()})"}
        lines.append(f"{name} = self.lin{name}({x}.reshape({x}.size(0), {sizes}))")
        return Node(layers, lines, "BLF")

    def unstack(self, a: Value, name: str) -> Node:
        """One frame becomes k."""
        r = self.random
        k, n, x = r.choice([2, 2, 3]), self.some_size(), self.fresh("s")
        layers = {f"lin{name}": f"nn.Linear({a.size}, {k * n})"}
        shape = r.choice([f"{x}.size(1) * {k}, {n}", f"-1, {n}"])
        lines = [f"{x} = self.lin{name}({self.at(a, 'BLF')})", f"{name} = {x}.reshape({x}.size(0), {shape})"]
        return Node(layers, lines, "BLF")

    def recurrence(self, a: Value, name: str) -> Node:
        return recurrent.layer(self, a, name)

    def cell(self, a: Value, name: str) -> Node:
        return recurrent.cell(self, a, name)

    def table(self, a: Value, name: str) -> Node:
        """A table by position, such as positional encodings."""
        r = self.random
        rows = TABLE if r.random() < 0.97 else 40  # the shorter one is outgrown
        pe = f"pe{name}"
        size, mul = self.length(a), r.choice(["+", "+", "*"])
        if a.layout == "BFL":
            shape, part = f"1, {a.size}, {rows}", f"[:, :, : {size}]"
        elif a.layout == "LBF":
            shape, part = f"{rows}, 1, {a.size}", f"[: {size}]"
        elif r.random() < 0.5:
            shape, part = f"{rows}, {a.size}", f"[: {size}]"
        else:
            shape, part = f"1, {rows}, {a.size}", f"[:, : {size}]"
        layers = {pe: f"nn.Parameter(ds.randn({shape}))"}
        return Node(layers, [f"{name} = {a.name} {mul} self.{pe}{part}"], a.layout)

    def reduce(self, a: Value, name: str) -> Node:
        """One vector at the end."""
        axis = FRAMES[a.layout]
        ways = [f"{a.name}.{kind}({axis})" for kind in ("mean", "sum", "amax", "amin")]
        ways += [
            f"{a.name}.var({axis}, unbiased=False)",
            f"({a.name} * (0.1 * {a.name}).softmax({axis})).sum({axis})",
        ]
        return Node({}, [f"{name} = {self.random.choice(ways)}"], "BF", [f"{name} = {a.name}.sum({axis})"])

    def waits(self, a: Value, name: str) -> Node:
        """What needs the whole stream."""
        if self.random.random() < 0.3:
            axis = FRAMES[a.layout]
            ways = [
                f"{a.name} - {a.name}.mean({axis}, keepdim=True)",
                f"{a.name} * {a.name}.amax({axis}).unsqueeze({axis}).sigmoid()",
                f"{a.name}.flip({axis})",
                f"(0.1 * {a.name}).softmax({axis})",
                f"{a.name}.sort({axis}).values",
            ]
            return Node({}, [f"{name} = {self.random.choice(ways)}"], a.layout)
        if self.random.random() < 0.7:
            return recurrent.layer(self, a, name, bidirectional=True)
        if a.size > 1 and self.random.random() < 0.5:
            layers = {f"norm{name}": f"nn.GroupNorm(1, {a.size}, eps=0.1)"}
            return Node(layers, [f"{name} = self.norm{name}({self.at(a, 'BFL')})"], "BFL")
        kernel = self.random.choice([2, 3])
        text = f"{a.size}, {self.some_size()}, {kernel}, padding={kernel - 1}, padding_mode='circular'"
        layers = {f"conv{name}": f"nn.Conv1d({text})"}
        return Node(layers, [f"{name} = self.conv{name}({self.at(a, 'BFL')})"], "BFL")

    # ---------------------------------------------------------------- within a frame
    def unary(self, a: Value, name: str) -> Node:
        """Some functions, one of the other."""
        code = twin = a.name
        for function, sums in self.random.choices(UNARY, k=self.random.randint(1, 4)):
            twin = f"({(function if sums is None else sums).format(x=twin)})"
            code = f"({function.format(x=code)})"
        return Node({}, [f"{name} = {code}"], a.layout, [f"{name} = {twin}"])

    def scalar(self, a: Value, name: str) -> Node:
        r = self.random
        ways = [
            "{x} * 2 - 1",
            "1 - {x}",
            "{x} / 3",
            "0.5 * {x} + {x}",
            "-{x}",
            "({x} * 0.4) ** 2",
            "+{x} - {x}.abs()",
        ]
        if r.random() < 0.4:
            shape = f"{a.size}, 1" if a.layout == "BFL" else f"{a.size}"
            code = f"{a.name} {r.choice('+-*')} self.scale{name}"
            return Node({f"scale{name}": f"nn.Parameter(ds.randn({shape}))"}, [f"{name} = {code}"], a.layout)
        return Node({}, [f"{name} = {r.choice(ways).format(x=a.name)}"], a.layout)

    def linear(self, a: Value, name: str) -> Node:
        r = self.random
        n_out, bias = self.some_size(), r.choice(["", ", bias=False"])
        layers = {f"lin{name}": f"nn.Linear({a.size}, {n_out}{bias})"}
        if a.layout == "BFL" and r.random() < 0.3:
            layers = {f"w{name}": f"nn.Parameter(ds.randn({n_out}, {a.size}))"}
            return Node(layers, [f"{name} = self.w{name} @ {a.name}"], "BFL")
        if a.layout == "BFL":
            return Node(layers, [f"{name} = self.lin{name}({self.at(a, 'BLF')}).transpose(1, 2)"], "BFL")
        if a.layout != "BF" and a.size % 2 == 0 and r.random() < 0.3:  # a matrix for each half
            half = a.size // 2
            layers = {f"w{name}": f"nn.Parameter(ds.randn(2, {half}, {n_out}))"}
            line = f"{name} = ({a.name}.unflatten(2, (2, 1, {half})) @ self.w{name}).flatten(2)"
            return Node(layers, [line], a.layout)
        if r.random() < 0.2:
            layers = {f"w{name}": f"nn.Parameter(ds.randn({a.size}, {n_out}))"}
            return Node(layers, [f"{name} = {a.name} @ self.w{name}"], a.layout)
        return Node(layers, [f"{name} = self.lin{name}({a.name})"], a.layout)

    def flat(self, a: Value, name: str) -> Node:
        """A network per frame, on B and L joined."""
        r = self.random
        x, n = self.fresh("s"), self.some_size()
        layers = {f"lin{name}": f"nn.Linear({a.size}, {n})"}
        joined = r.choice(
            [f"reshape(-1, {a.size})", f"reshape({x}.size(0) * {x}.size(1), {a.size})", "flatten(0, 1)"]
        )
        back = r.choice([f"{x}.size(0), -1, {n}", f"{x}.size(0), {x}.size(1), {n}"])
        lines = [f"{x} = {self.at(a, 'BLF')}", f"{name} = self.lin{name}({x}.{joined}).tanh().reshape({back})"]
        return Node(layers, lines, "BLF")

    def attention(self, a: Value, name: str) -> Node:
        r = self.random
        x, heads = self.at(a, "BLF"), r.choice([1, 2]) if a.size % 2 == 0 else 1
        sizes = ", ".join(str(r.choice(some)) for some in ([1, 1, 2, 3], [0, 2, 5], [0, 0, 2], [0, 0, 3]))
        layer = f"nn.MultiheadAttention({a.size}, {heads}, batch_first=True, context=ds.Context({sizes}))"
        return Node({f"att{name}": layer}, [f"s = {x}", f"{name} = self.att{name}(s, s, s)[0]"], "BLF")

    def glu(self, a: Value, name: str) -> Node:
        x, n = self.fresh("s"), self.some_size()
        layers = {f"conv{name}": f"nn.Conv1d({a.size}, {2 * n}, {self.random.choice([1, 2])})"}
        lines = [f"{x} = self.conv{name}({self.at(a, 'BFL')})"]
        if self.random.random() < 0.5:
            lines.append(f"{name} = F.glu({x}, dim=1)")
        else:
            lines += [f"p, q = {x}.chunk(2, dim=1)", f"{name} = p * q.sigmoid()"]
        return Node(layers, lines, "BFL")

    def pick(self, a: Value, name: str) -> Node | None:
        """Some of the features."""
        r = self.random
        axis, n = FEATURES[a.layout], a.size
        if n < 2:
            return None
        lead = ":, " * axis
        ways = [
            f"[{lead}1:]",
            f"[{lead}{n - 1}:]",
            f"[{lead}::2]",
            f"[{lead}[{n - 1}, 0]]",
            f".narrow({axis}, 1, {n - 1})",
            f".split([1, {n - 1}], {axis})[{r.randint(0, 1)}]",
            f".select({axis}, {r.randrange(n)}).unsqueeze({axis})",
        ]
        way = r.choice(ways)
        return Node({}, [f"{name} = {a.name}{way}"], a.layout, [f"{name} = tie({a.name}, {axis}){way}"])

    def shape(self, a: Value, name: str) -> Node:
        """Feature axes moved about."""
        r = self.random
        axis, n = FEATURES[a.layout], a.size
        wide = [str(self.width) if i == axis else "-1" for i in range(3)]
        ways = [
            f"{a.name} - {a.name}.mean({axis}, keepdim=True)",
            f"{a.name}.sum({axis}).unsqueeze({axis}) * {a.name}",
            f"{a.name}.unsqueeze({axis}).squeeze({axis})",
            f"ds.cat([{a.name}, {a.name}.tanh()], {axis})",
            f"{a.name}.mean({axis}, keepdim=True).expand({', '.join(wide)})",
            f"{a.name}.repeat({', '.join('2' if i == axis else '1' for i in range(3))})",
        ]
        if n % 2 == 0 and a.layout != "BFL":
            ways.append(f"{a.name}.unflatten(2, (2, {n // 2})).transpose(2, 3).flatten(2)")
            ways.append(f"{a.name}.unflatten(2, (2, {n // 2})).mean(2)")
        if n % 2 == 0 and a.layout == "BFL":
            x = a.name
            ways.append(f"{x}.reshape({x}.size(0), 2, {n // 2}, {x}.size(2)).permute(0, 2, 1, 3).flatten(1, 2)")
        return Node({}, [f"{name} = {r.choice(ways)}"], a.layout)

    def flags(self, a: Value, name: str) -> Node:
        """A mask by comparison."""
        word, sign = self.random.choice([("gt", ">"), ("lt", "<"), ("ge", ">="), ("le", "<=")])
        ways = [
            f"{a.name} * ({a.name} {sign} 0.1)",
            f"({a.name}.{word}(0.1)).to({a.name}.dtype)",
            f"{a.name}.masked_fill({a.name} {sign} 0.3, -1.0)",
            f"ds.where(~({a.name} {sign} 0), {a.name}, {a.name} * 0.1)",
            f"{a.name} * ({a.name}.round() {self.random.choice(['==', '!='])} 0)",
            f"{a.name} * {a.name}.floor().logical_not()",
            f"ds.where(({a.name} > -0.5) & ({a.name} < 0.5) | ({a.name} > 1), {a.name}, 1 - {a.name})",
        ]
        return Node({}, [f"{name} = {self.random.choice(ways)}"], a.layout, [f"{name} = {a.name} + {a.name}"])

    # ---------------------------------------------------------------- joins
    def join(self, a: Value) -> None:
        """Bring two or three branches together: lengths are repaired first, but for a few."""
        r = self.random
        partners = [b for b in self.values if b.rate == a.rate and b.name != a.name]
        if not partners:
            return
        pair: list[Value] | None = [a, r.choice(partners)]
        if a.rate and r.random() > 0.06:  # else lengths may differ at the end, which is refused
            pair = self.repaired(*pair)
        if pair is None:
            return
        a, b = pair
        layout, name = a.layout, self.fresh()
        p, q = a.name, self.at(b, layout)
        axis = FEATURES[layout]
        if a.size != b.size or r.random() < 0.25:
            parts = [p, q] + ([p] if r.random() < 0.2 else [])
            self.add("cat", name, Node({}, [f"{name} = ds.cat([{', '.join(parts)}], dim={axis})"], layout))
            return
        code, sums = r.choice(JOINS)
        line = f"{name} = {code.format(a=p, b=q)}"
        twin = None if sums is None else [f"{name} = {sums.format(a=p, b=q)}"]
        self.add("join", name, Node({}, [line], layout, twin))

    def repaired(self, a: Value, b: Value) -> list[Value] | None:
        """Return both cut to equal lengths: by a slice where they differ by a constant, or each to the other.

        Counts decide for lengths at which both have frames; what is too short to be reflected has none.
        """
        r = self.random
        both = (a.totals > 0) & (b.totals > 0)
        differences = set((a.totals - b.totals)[both].tolist())
        if len(differences) == 1 and r.random() < 0.75:
            d = differences.pop()
            if d == 0:
                return [a, b]
            long, short = (a, b) if d > 0 else (b, a)
            start = r.randint(0, abs(d))
            crop = abs(d) - start
            text = f"{start or ''}:{-crop if crop else ''}"
            part = self._cut(long, text)
            return None if part is None else [part, short] if d > 0 else [short, part]
        if not both[(a.totals > 0) | (b.totals > 0)].all():
            return None
        one, other = self._cut(a, f": {self.length(b)}"), self._cut(b, f": {self.length(a)}")
        return None if one is None or other is None else [one, other]

    def _cut(self, a: Value, text: str) -> Value | None:
        name = self.fresh()
        return self.add("repair", name, Node({}, [f"{name} = {a.name}{self.index(a.layout, text)}"], a.layout))

    # ---------------------------------------------------------------- finishing
    def finish(self) -> Draft:
        r, d = self.random, self.draft
        names = [self.values[-1].name]
        code = "\n".join(d.code)
        loose = [v.name for v in self.values if len(re.findall(rf"\b{v.name}\b", code)) < 2]
        names += [
            r.choice(loose if loose and r.random() < 0.8 else [v.name for v in self.values])
            for _ in range(r.choice([0, 1, 2, 3]))
        ]
        names = list(dict.fromkeys(names)) + [e for e in self.extra if e.split("[")[0] in self.scope]
        if len(names) == 1:
            d.result = names[0]
        elif r.random() < 0.2:
            d.result = "{" + ", ".join(f"'{chr(97 + i)}': {n}" for i, n in enumerate(names)) + "}"
        else:
            d.result = ", ".join(names)
        if d.buffered and r.random() < 0.5:
            d.buffer_limit = r.choice([25, 10_000])
        return d


def draft(seed: int, least: int = 2, most: int = 8, without: Collection[str] = ()) -> Draft:
    """Return the random model of a seed, with 2 to 8 nodes (repairs and syncs not counted).

    Parameters
    ----------
    least, most : int
        Other bounds.
    without : collection of str
        Kinds of nodes that it must not have.
    """
    making = _Drafter(seed, without)
    wanted = making.random.randint(least, most)
    for _ in range(60):
        if sum(k != "repair" for k in making.draft.kinds) >= wanted:
            break
        making.grow()
    return making.finish()
