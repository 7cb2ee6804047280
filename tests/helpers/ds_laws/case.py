"""Cases: a model, random data for it, and what must come out.

A `Case` is one operator with random attributes (generators in `operators`, `pointwise`) or one small model
(`models`). Arrays of a stream are ``[frames][features]`` everywhere but at the door, where `layout` says
in which order the dimensions are given.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import dreamstream as ds
from dreamstream import _core, dispatch, nn

from .reference import REFERENCES, Refused

#: Operators whose references are asked what comes of no frames; of others none do.
OF_NONE = (
    "lstm", "gru", "rnn",
    "pad", "pad_to_multiple", "pad_to", "slice", "cut", "put", "delay", "table", "positions", "hold", "spread",
    "length", "require", "reduce_frames", "var_frames", "softmax_sum", "adaptive_pool",
)  # fmt: skip

Array = npt.NDArray[Any]
Rng = np.random.Generator
Layout = tuple[Any, ...]

DEFINITIONS = {o["name"]: o for o in _core.operators()}


def pick(rng: Rng, *options: Any) -> Any:
    """One of the options."""
    return options[int(rng.integers(len(options)))]


# ---------------------------------------------------------------- what comes in
def normal(rng: Rng, shape: Sequence[int], dtype: str) -> Array:
    """Random values of a type, none of them special."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype == "int64":
        return rng.integers(-9, 10, shape)
    return rng.standard_normal(shape).astype(dtype)


def sizes(rng: Rng, shape: Sequence[int], octaves: float) -> Array:
    """Random numbers above zero, some octaves around 1: the same on all machines, which NumPy's exp is not."""
    log2 = rng.standard_normal(shape) * octaves
    whole = np.floor(log2)
    return np.ldexp(1 + (log2 - whole), whole.astype(int))


@dataclass
class Input:
    """One input of a case."""

    features: tuple[int, ...]
    dtype: str = "float32"
    rate: Fraction = Fraction(1)
    draw: Callable[[Rng, Sequence[int], str], Array] = normal

    def frames(self, rng: Rng, n: int) -> Array:
        """n random frames."""
        return self.draw(rng, (n, *self.features), self.dtype)

    def poison(self, n: int, features: tuple[int, ...] | None = None) -> Array:
        """n frames that nobody may look at."""
        garbage = {"bool": True, "int64": -(1 << 40)}
        return np.full(
            (n, *(self.features if features is None else features)), garbage.get(self.dtype, np.nan), self.dtype
        )


def random_layout(rng: Rng, rank: int) -> Layout:
    """A random place for B and L among the features, which keep their order."""
    out: list[Any] = list(range(rank))
    out.insert(int(rng.integers(len(out) + 1)), "B")
    out.insert(int(rng.integers(len(out) + 1)), "L")
    return tuple(out)


def together(rates: Sequence[Fraction], frames: Sequence[int], skew: int) -> bool:
    """Whether inputs with these frames so far are within the skew."""
    if len(frames) == 1:
        return True
    spacing = _spacing(tuple(rates))
    times = [n * s for n, s in zip(frames, spacing)]
    return max(times) - min(times) < (skew + 1) * max(spacing)


@lru_cache
def _spacing(rates: tuple[Fraction, ...]) -> list[int]:
    """The time from a frame to the next at each of these rates, in a unit that makes them whole numbers."""
    unit = math.lcm(*(r.numerator for r in rates))
    return [unit // r.numerator * r.denominator for r in rates]


# ---------------------------------------------------------------- a case
class Call(NamedTuple):
    """What a case's forward knows of it, and its model holds: a trace looks at all that a model holds."""

    name: str
    attributes: dict[str, Any]
    given: dict[str, Any]
    layout: Layout
    dims: Any


@dataclass
class Case:
    """A model, what goes into it, and what must come out.

    Attributes
    ----------
    name : str
        The operator that the case is about, or the model's name.
    attributes : dict
        The operator's, all of them.
    inputs, weights
    layout : tuple
        Dimensions of every input at the door: "B", "L", and features in order.
    forward : function (call, weights, *tensors) -> tensors, optional
        What a user would write, of a `Call`; `door` without it.
    depends : function (*arrays) -> list of arrays, optional
        What must come out in float64, and NaN wherever a NaN was looked at: for operators that hide it, and for
        models. Else the reference says so.
    late : str
        Why frames may leave later than brute force finds them to be final; empty: they never may.
    grows : bool
        Whether what a stream keeps grows with it.
    reach : int
        Frames of an input within which everything that can happen has happened.
    lengths : function (rng, n) -> list of int, optional
        Frames of every input of a stream of about n frames that is not refused.
    refused : function (rng) -> list of int, optional
        Frames of every input of a stream that is refused at its end.
    wrong : function (rng) -> list of arrays, optional
        Frames of every input that are refused at once for the values that they hold.
    module : function () -> module, optional
        Makes the model, where it is none of a single operator.
    """

    name: str
    inputs: list[Input]
    attributes: dict[str, Any] = field(default_factory=dict)
    weights: list[Array | None] = field(default_factory=list)
    layout: Layout = ("B", "L")
    forward: Callable[..., Any] | None = None
    dims: Any = "layout"
    depends: Callable[..., list[Array]] | None = None
    late: str = ""
    reach: int = 4
    skew: int = 0
    whole: bool = False
    grows: bool = False
    exact: bool = False
    lengths: Callable[[Rng, int], list[int]] | None = None
    refused: Callable[[Rng], list[int]] | None = None
    wrong: Callable[[Rng], list[Array]] | None = None
    module: Callable[[], nn.Module] | None = None
    given: dict[str, Any] | None = None

    def __str__(self) -> str:
        inputs = ", ".join(f"{i.dtype}{list(i.features)}@{i.rate}" for i in self.inputs)
        weights = [None if w is None else f"{w.dtype}{list(w.shape)}" for w in self.weights]
        more = f"weights {weights}, layout {self.layout}, skew {self.skew}"
        return f"{self.name}({self.attributes}) of {inputs}, {more}"

    @property
    def modes(self) -> list[str]:
        """The modes in which it can stream: the engine computes in float32."""
        types = [i.dtype for i in self.inputs] + [w.dtype.name for w in self.weights if w is not None]
        return ["eager"] if "float64" in types or self.attributes.get("to") == "float64" else ["eager", "engine"]

    @property
    def names(self) -> list[str]:
        """The forward's arguments."""
        return ["x", "y", "z", "u"][: len(self.inputs)]

    # ------------------------------------------------------------ data
    def random_lengths(self, rng: Rng) -> list[int]:
        """Frames of every input of a random stream: none, one, few, up to three times the reach."""
        n = pick(rng, 0, 1, 2, int(rng.integers(0, self.reach + 2)), int(rng.integers(0, 3 * self.reach + 2)))
        return self.lengths(rng, n) if self.lengths else [n] * len(self.inputs)

    def data(self, rng: Rng, lengths: Sequence[int]) -> list[Array]:
        """Random frames."""
        return [i.frames(rng, n) for i, n in zip(self.inputs, lengths)]

    def stream(self, rng: Rng) -> list[Array]:
        """A random stream: the frames of every input."""
        return self.data(rng, self.random_lengths(rng))

    def futures(self, frames: Sequence[int], horizon: int) -> Iterator[tuple[int, ...]]:
        """Every pair of lengths that inputs with these frames so far may still come to."""
        rates = [i.rate for i in self.inputs]
        for more in itertools.product(range(horizon + 1), repeat=len(frames)):
            lengths = tuple(n + m for n, m in zip(frames, more))
            if together(rates, lengths, self.skew):
                yield lengths

    # ------------------------------------------------------------ truth
    @property
    def lockstep(self) -> bool:
        """Whether streams are combined frame by frame: they must be of equal length at the end."""
        return (
            self.module is None
            and len(self.inputs) > 1
            and (DEFINITIONS[self.name]["lockstep"] or self.name == "sync")
        )

    def expected(self, arrays: Sequence[Array], weights: Sequence[Array | None] | None = None) -> list[Array]:
        """What must come out of one whole stream, by the independent reference."""
        if self.lockstep and all(map(len, arrays)) and len({len(a) for a in arrays}) > 1:
            raise Refused
        return _independent(self, REFERENCES[self.name], arrays, self.weights if weights is None else weights)

    def truth(self, arrays: Sequence[Array]) -> list[Array] | None:
        """The same; None of a model, which has no reference but itself."""
        return self.expected(arrays) if self.module is None else None

    def dependence(self, arrays: Sequence[Array]) -> list[Array]:
        """What must come out, with NaN for all that a NaN can reach."""
        if self.depends is None or (self.module is None and not all(map(len, arrays))):
            return self.expected(arrays)
        if self.lockstep and len({len(a) for a in arrays}) > 1:
            raise Refused
        return self.depends(*[a.astype(np.float64) for a in arrays])

    # ------------------------------------------------------------ the model
    def model(self) -> Any:
        """A new module of the case, with copies of the weights."""
        return CaseModel(self).eval() if self.module is None else self.module().eval()

    def patched(self, model: nn.Module | None = None, **options: Any) -> Any:
        """The model, online."""
        options = {"unstreamable": "buffer" if self.whole else "raise", "skew": self.skew, **options}
        return ds.patch_module(self.model() if model is None else model, **options).online()

    def engine(self, model: nn.Module | None = None, **options: Any) -> ds.Engine:
        """The model, compiled."""
        dimensions = [tuple(d if isinstance(d, str) else i.features[d] for d in self.layout) for i in self.inputs]
        single = len(self.inputs) == 1
        options = {
            "unstreamable": "buffer" if self.whole else "raise",
            "skew": self.skew,
            "verify": False,
            **options,
        }
        return ds.compile(
            self.model() if model is None else model,
            dimensions[0] if single else dict(zip(self.names, dimensions)),
            rate=self.inputs[0].rate if single else {n: i.rate for n, i in zip(self.names, self.inputs)},
            dtype=self.inputs[0].dtype if single else {n: i.dtype for n, i in zip(self.names, self.inputs)},
            **options,
        )


def _independent(case: Case, reference: Callable[..., list[Array]], arrays: Any, weights: Any) -> list[Array]:
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
    constants = [None if w is None else w.astype(np.float64) if w.dtype.kind == "f" else w for w in weights]
    if not all(map(len, wide)) and case.name not in OF_NONE:
        ones = [np.ones((1, *i.features), w.dtype) for i, w in zip(case.inputs, wide)]
        try:
            return [y[:0] for y in reference(case.attributes, constants, *ones)]
        except Refused:
            pass
    return reference(case.attributes, constants, *wide)


def without_defaults(rng: Rng, name: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes as a caller may give them: those at their default left out, or not."""
    out = {}
    for d in DEFINITIONS[name]["attributes"]:
        if d["name"] not in attributes:
            continue
        value = attributes[d["name"]]
        kind = d["kind"]
        if kind == "choice":
            default = d["choices"].split("|")[d["int"]]
        else:
            default = {"ints": [], "text": None}.get(kind) if kind in ("ints", "text") else d[kind]
        if d["required"] or value != default or rng.random() < 0.5:
            out[d["name"]] = value
    return out


# ---------------------------------------------------------------- its module
def constant(layout: Layout, weight: Any) -> Any:
    """A constant operand with B and L of extent 1 where the layout has them."""
    rank = sum(isinstance(d, int) for d in layout)
    sizes = (1,) * (rank - weight.ndim) + tuple(weight.shape)
    return weight.reshape(tuple(sizes[d] if isinstance(d, int) else 1 for d in layout))


def door(call: Call, weights: Sequence[Any], *tensors: Any) -> Any:
    """One call of the operator."""
    dims = call.layout if call.dims == "layout" else call.dims
    if dims is None:
        weights = [constant(call.layout, w) for w in weights]
    return dispatch.apply(call.name, call.given, tensors, weights, dims)


class CaseModel(nn.Module):
    """A case's forward with its weights; `after` is called when all has been computed."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        given = case.attributes if case.given is None else case.given
        self.call = Call(case.name, case.attributes, given, case.layout, case.dims)
        self.written = case.forward or door
        weights = case.weights
        self.held = [None if w is None else f"w{i}" for i, w in enumerate(weights)]
        self.after: Callable[[], None] | None = None
        for name, w in zip(self.held, weights):
            if name is not None and w is not None and w.dtype.kind == "f":
                self.register_parameter(name, nn.Parameter(w.copy()))
            elif name is not None and w is not None:
                self.register_buffer(name, ds.tensor(w.copy()))

    def weights(self) -> list[Any]:
        """The tensors as they are now."""
        return [None if n is None else getattr(self, n) for n in self.held]

    def forward(self, x: Any, y: Any = None, z: Any = None, u: Any = None) -> Any:
        tensors = [t for t in (x, y, z, u) if t is not None]
        out = self.written(self.call, self.weights(), *tensors)
        if self.after is not None:
            self.after()
        return out
