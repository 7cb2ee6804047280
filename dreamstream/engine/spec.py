"""What the inputs of a model look like: dimensions, dtype, rate."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ..array import dtypes
from ..array.lengths_of import LengthsOf
from ..errors import DTypeError, ShapeError
from ..stream.rules import read_rate


@dataclass(frozen=True)
class InputSpec:
    """One input of a model.

    Attributes
    ----------
    name : str
        The forward's argument.
    dimensions : tuple
        ``"B"``, ``"L"``, ``"M"`` or a size, one per dimension.
    dtype : str
    rate : Fraction
        0 without a stream axis: the input is given once, with a stream's start. So is one with ``"M"``, all of it.
    """

    name: str
    dimensions: tuple[str | int, ...]
    dtype: str
    rate: Fraction

    @property
    def dims(self) -> tuple[Any, ...]:
        """The dimensions with features numbered; M is the axis of frames."""
        features = iter(range(len(self.dimensions)))
        return tuple("L" if d == "M" else d if isinstance(d, str) else next(features) for d in self.dimensions)

    @property
    def features(self) -> tuple[int, ...]:
        """Shape of one frame."""
        return tuple(d for d in self.dimensions if isinstance(d, int))

    def shape_of(self, n_frames: int) -> tuple[int, ...]:
        """Shape of an array of so many frames, without B."""
        sizes: list[Any] = [n_frames if d in ("L", "M") else d for d in self.dimensions if d != "B"]
        return tuple(sizes)

    def shape_text(self, n_rows: int | None = None) -> str:
        """Return the shape of a chunk, or of a padded array of so many rows, as messages show it."""
        dims = [n_rows if d == "B" else d for d in self.dimensions if d != "B" or n_rows is not None]
        return f"({', '.join(map(str, dims))}{',' * (len(dims) == 1)})"

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether a chunk of this shape is one of the input's."""
        dims = [d for d in self.dimensions if d != "B"]
        return len(dims) == len(shape) and all(isinstance(d, str) or d == n for d, n in zip(dims, shape))

    @property
    def once(self) -> bool:
        """Whether it is given once, with a stream's start."""
        return self.rate == 0 or "M" in self.dimensions

    @property
    def axes(self) -> list[int]:
        """The caller's axis (without B) of each canonical one: L where there is one, then features."""
        kept = [d for d in self.dims if d != "B"]
        return [kept.index(d) for d in ("L", *range(len(self.features))) if d in kept]


@dataclass(frozen=True)
class OutputInfo:
    """One output of an engine.

    Attributes
    ----------
    name : str
        Its place in what forward returns.
    dimensions : tuple
        ``"B"``, ``"L"`` or a size.
    dtype : str
        Of the arrays that callers are given.
    rate : Fraction
        0 without a stream axis: one frame, at the end.
    delay : int or float
        Frames of the first input; infinite where it waits for the end, not-a-number where there is no plan yet.
    computed : str
        What C programs, servers and arrays of the caller are given instead: "float32" of "float16" and "complex64"
        (its parts, on an axis of 2 at the end), "int64" of narrower integers, of "float64" what was cast to it.
    """

    name: str
    dimensions: tuple[str | int, ...]
    dtype: str
    rate: Fraction
    delay: float = math.nan
    computed: str = ""


def _read_dimensions(name: str, spec: Any) -> tuple[str | int, ...]:
    if not isinstance(spec, (tuple, list)):
        got = f"an array of shape {tuple(spec.shape)}" if hasattr(spec, "shape") else repr(spec)
        raise ShapeError(f'input {name}: a spec is a tuple such as ("B", 80, "L"), got {got}')
    for d in spec:
        if isinstance(d, (tuple, list)):
            raise ShapeError(
                f'input {name}: several inputs are a dict by argument, as in {{"x": ("B", 80, "L"), …}}; got '
                f"{tuple(spec)}"
            )
        if not (
            d in ("B", "L", "M")
            if isinstance(d, str)
            else isinstance(d, (int, np.integer)) and not isinstance(d, bool)
        ):
            raise ShapeError(
                f'input {name}: each dimension is "B", "L" or a size, or "M" where an input that is given once '
                f"has another length for each stream; got {d!r}"
            )
        if not isinstance(d, str) and d < 1:
            raise ShapeError(f"input {name}: sizes must be positive, got {d}")
    if list(spec).count("B") != 1 or list(spec).count("L") + list(spec).count("M") > 1:
        raise ShapeError(
            f'input {name}: a spec names "B" once, and "L" once unless the input is given once, got {tuple(spec)}'
        )
    return tuple(d if isinstance(d, str) else int(d) for d in spec)


def _per_input(what: str, value: Any, names: Sequence[str], default: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return dict.fromkeys(names, value)
    unknown = set(value) - set(names)
    if unknown:
        raise ShapeError(f"{what}: there is no input {sorted(unknown)[0]!r}; inputs are {', '.join(names)}")
    return {n: value.get(n, default) for n in names}


def read_specs(model: Any, spec: Any, rate: Any, dtype: Any) -> list[InputSpec]:
    """Return the inputs of a model, in the order given: first those of streams, then those that are given once.

    `spec` has the dimensions of the only input, or of each by its name in forward; `lengths_of` an input is none.
    `rate` and `dtype` are one for all, or a dict by name.
    """
    parameters = [
        p
        for p in inspect.signature(model.forward).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    known = [p.name for p in parameters]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(model.forward).parameters.values())
    if isinstance(spec, Mapping):
        specs = {name: given for name, given in spec.items() if not isinstance(given, LengthsOf)}
        for name in spec:
            if name not in known and not open_ended:
                raise ShapeError(f"forward has no argument {name!r}; it has {', '.join(known)}")
    else:
        specs = {known[0] if known else "x": spec}
    if not specs:
        raise ShapeError("a model needs an input")
    names = list(specs)
    rates = _per_input("rate", rate, names, 1)
    types = _per_input("dtype", dtype, names, "float32")
    out: list[InputSpec] = []
    for name in names:
        dimensions = _read_dimensions(name, specs[name])
        once = "L" not in dimensions
        kind = dtypes.as_dtype(types[name]).name
        if kind == "float64":
            raise DTypeError(f"input {name}: the engine computes in float32; float64 runs in eager mode only")
        out.append(
            InputSpec(
                name,
                dimensions,
                kind,
                Fraction("M" in dimensions) if once else read_rate(rates[name], f"input {name}: a rate"),
            )
        )
    out.sort(key=lambda s: s.once)
    if out[0].once:
        raise ShapeError(f'input {names[0]}: one input of a spec has an "L", got {specs[names[0]]}')
    given = {*specs, *lengths_in(spec)}
    missing = [p.name for p in parameters if p.default is p.empty and p.name not in given]
    if missing:
        raise ShapeError(
            f"forward also takes {', '.join(missing)}; a spec of several inputs is a dict by argument, as in "
            '{"x": ("B", 80, "L"), "lengths": ds.lengths_of("x")}'
        )
    return out


def lengths_in(spec: Any) -> dict[str, LengthsOf]:
    """Return the arguments that are lengths of inputs."""
    return {n: x for n, x in spec.items() if isinstance(x, LengthsOf)} if isinstance(spec, Mapping) else {}


def number_of(name: str, value: int | None, default: int, most: int) -> int:
    """Return an option that is a number of 1 or more, or its default."""
    if value is None:
        return default
    if not isinstance(value, int) or not 1 <= value <= most:
        raise ValueError(f"{name} is a number from 1 to {most}, got {value!r}")
    return value
