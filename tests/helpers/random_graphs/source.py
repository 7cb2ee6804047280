"""What a draft is: a model as source text, with a twin of its forward for finding dependence by NaN."""

import inspect
import linecache
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn, operations

from .totals import Input

N_LENGTHS = 70  # lengths at which a draft is tried out
TABLE = 700  # rows of a table that no stream outgrows
FEATURES = {"BFL": 1, "BLF": 2, "LBF": 2, "BF": 1}
FRAMES = {"BFL": 2, "BLF": 1, "LBF": 0}
MOVES = {
    ("BFL", "BLF"): ".transpose(1, 2)",
    ("BLF", "BFL"): ".transpose(-1, -2)",
    ("BLF", "LBF"): ".transpose(0, 1)",
    ("LBF", "BLF"): ".permute(1, 0, 2)",
    ("BFL", "LBF"): ".permute(2, 0, 1)",
    ("LBF", "BFL"): ".permute(1, 2, 0)",
}


class Value(NamedTuple):
    """A variable of a forward."""

    name: str
    layout: str  # order of its dimensions; "BF" without a stream axis
    size: int
    rate: Fraction
    totals: Any  # (rows,) final frames at every length tried out


class Node(NamedTuple):
    """Some lines of a forward."""

    layers: dict[str, str]
    code: list[str]
    layout: str
    sums: list[str] | None = None  # None: the same


KINDS = (
    ["conv"] * 6 + ["conv_transpose"] * 2 + ["pad"] * 2 + ["part"] * 3 + ["cut"] * 2 + ["late", "frames", "frames"]
    + ["stack", "unstack", "recurrence", "recurrence", "cell", "table", "table", "reduce"] + ["unary"] * 7
    + ["scalar", "linear", "flat", "norm", "softmax", "attention", "glu", "pick", "shape", "shape", "flags"]
    + ["join"] * 12 + ["rate"]
)  # fmt: skip

#: What functions of a domain are applied to.
SHOWN = {
    "any": "({x}.tanh() + 1.5)",
    "positive": "({x}.abs() + 0.5)",
    "unit": "({x}.tanh() * 0.9)",
    "above": "({x}.abs() + 1.5)",
    "halves": "({x} * 4)",
}


def _calls(row: operations.Elementwise) -> list[str]:
    """Return calls of the function of a row, where there is one: by defaults, and with every other parameter."""
    if not hasattr(F, row.name):
        return []
    known = inspect.signature(getattr(F, row.name)).parameters
    options = [f", {name}={tries[1]!r}" for name, tries in row.tries.items() if name in known]
    return [f"F.{row.name}({{x}}{''.join(more)})" for more in ([], *([options] if options else []))]


#: Functions of one value {x}, each with its twin.
UNARY: list[tuple[str, str | None]] = [
    ("F.relu({x})", "{x} + {x}"),
    ("{x}.relu()", "{x} + {x}"),
    ("{x}.clamp(-0.5, 1.0)", "{x} + {x}"),
    ("{x}.clamp(min=0.1)", "{x} + {x}"),
    ("F.hardtanh({x})", "{x} + {x}"),
    ("{x}.sign()", "{x} + {x}"),
    ("abs({x})", None),
    ("-{x}", None),
    ("{x}.abs().pow(1.5)", None),
    ("{x}.nan_to_num(0.5)", None),
    *((f"{SHOWN[row.domain]}.{row.name}()", None) for row in operations.UNARY if row.doc and row.domain in SHOWN),
    *((text, None) for row in operations.UNARY if not row.doc for text in _calls(row)),
    ("F.selu({x})", None),
    ("F.leaky_relu({x}, 0.2)", None),
    ("F.hardswish({x})", "{x} + {x}"),
    ("F.mish({x})", None),
    ("F.softshrink({x})", "{x} + {x}"),
]

#: Functions of two values {a} and {b}, each with its twin.
JOINS: list[tuple[str, str | None]] = [
    ("{a} + {b}", None),
    ("{a} + {b}", None),
    ("{a} + 0.5 * {b}", None),
    ("{a} - {b}", None),
    ("{a} * {b}", None),
    ("{a} * {b}.tanh()", None),
    ("{a} / ({b}.abs() + 1)", None),
    ("{a}.minimum({b})", "{a} + {b}"),
    ("{a}.maximum({b})", "{a} + {b}"),
    ("({a}.abs() + 0.5) ** {b}.tanh()", None),
    ("ds.where({a} > {b}, {a}, {b})", "{a} + {b}"),
    ("ds.where({b} < 0.2, {a}, {b} + 1)", "{a} + {b}"),
    ("{a} * ({b} > 0)", "{a} + {b}"),
    ("{a} * (({a} >= 0) & ({b} <= 0))", "{a} + {b}"),
    ("{a} * (({a} >= 0) | ({b} <= 0))", "{a} + {b}"),
    ("{a} * ({a}.round() == {b}.round())", "{a} + {b}"),
    ("{a} * ({a}.round() != {b}.round())", "{a} + {b}"),
    ("{a}.masked_fill({b} > 0.5, 0.0)", "{a} + {b}"),
    ("{a}.atan2({b}.abs() + 0.5)", None),
    ("{a}.hypot({b})", None),
    ("{a}.fmod({b}.abs() + 1)", None),
    ("{a}.remainder({b}.abs() + 1)", None),
    ("({a} * 4).floor_divide({b}.abs() + 1)", None),
    ("{a}.copysign({b})", "{a} + {b}"),
    ("{a}.lerp({b}, 0.3)", None),
    ("{a}.logaddexp({b})", "{a} + {b}"),
    ("{a}.sigmoid() * {b} + (1 - {a}.sigmoid()) * {b}.tanh()", None),
]


@dataclass
class Draft:
    """A model as text.

    Attributes
    ----------
    seed : int
    inputs : list of Input
    layers : dict of str to str
        Attributes of the model and the expressions that make them.
    code, sums : list of str
        Lines of `forward` and of `sums`.
    result : str
        What both return.
    buffered, buffer_limit, skew
        Options under which it streams.
    kinds : list of str
        The nodes' kinds.
    """

    seed: int
    inputs: list[Input]
    layers: dict[str, str] = field(default_factory=dict)
    code: list[str] = field(default_factory=list)
    sums: list[str] = field(default_factory=list)
    result: str = ""
    buffered: bool = False
    buffer_limit: int | None = None
    skew: int = 0
    kinds: list[str] = field(default_factory=list)

    @property
    def source(self) -> str:
        """The class."""
        names = ", ".join(["self", *(x.name for x in self.inputs)])
        body = [f"        self.{k} = {v}" for k, v in self.layers.items()]
        lines = ["class RandomModel(nn.Module):", "    def __init__(self):", "        super().__init__()", *body]
        for name, code in (("forward", self.code), ("sums", self.sums)):
            lines += [
                "",
                f"    def {name}({names}):",
                *(f"        {c}" for c in code),
                f"        return {self.result}",
            ]
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        inputs = [f"{x.name}: {x.spec}, rate {x.rate}" for x in self.inputs]
        return f"seed {self.seed}; {'; '.join(inputs)}; skew {self.skew}; buffered {self.buffered}\n{self.source}"


def tie(x: Any, axis: int) -> Any:
    """Make every feature depend on all of its frame's."""
    return x + x.sum(axis, keepdim=True)


def build(given: Draft, namespace: dict[str, Any] | None = None) -> Any:
    """Return the model, with weights drawn from its seed.

    Parameters
    ----------
    namespace : dict, optional
        Other meanings of ``ds``, ``nn`` and ``F``, such as torch's.
    """
    scope = {"ds": ds, "nn": nn, "F": F, "tie": tie} | (namespace or {})
    name = f"<random model {given.seed}>"
    linecache.cache[name] = (len(given.source), None, given.source.splitlines(True), name)
    exec(compile(given.source, name, "exec"), scope)
    model = scope["RandomModel"]().eval()
    rng = np.random.default_rng(given.seed)
    for _, p in model.named_parameters():
        scale = 0.5 if p.ndim < 2 else 1 / np.sqrt(np.prod(p.shape[1:]))
        values = (rng.standard_normal(tuple(p.shape)) * scale).astype(np.float32)
        p.detach().copy_(scope["ds"].from_numpy(values))
    return model


def grid(inputs: list[Input], n_lengths: int) -> list[tuple[int, ...]]:
    """Return numbers of frames of all inputs that stand for equal times, in order of time."""
    if len(inputs) == 1:
        return [(n,) for n in range(n_lengths)]
    fast = max(x.rate for x in inputs)
    rows = []
    for n in range(n_lengths):
        for half in sorted({n // 2, -(-n // 2)}):
            rows.append(tuple(n if x.rate == fast else half for x in inputs))
    return rows
