"""How callers see an engine's inputs and outputs, and its text in model files (docs/file_format.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import FormatError
from .spec import InputSpec, OutputInfo

if TYPE_CHECKING:
    from .._core import Signature


@dataclass(frozen=True)
class Interface:
    """What an engine knows of its model beside the graph."""

    name: str  #: The model's class.
    by_name: bool  #: Whether forward takes its inputs by name.
    skew: int  #: Frames of the slowest input by which inputs may be apart.
    blas: bool  #: Whether products go to OpenBLAS where it is there.
    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputInfo, ...]
    #: Per output its dimensions in the caller's order: "B", "L", or the number of a frame's axis.
    dims: tuple[tuple[Any, ...], ...]
    structure: Any  #: What forward returns, with the numbers of outputs in the places of tensors.

    def text(self) -> str:
        """Return the JSON object that a model file holds.

        It is a FormatError where forward returns dicts with keys that are no str, or no valid one.
        """
        inputs = [
            {"name": s.name, "dimensions": [n if n == "M" else d for n, d in zip(s.dimensions, s.dims)]}
            for s in self.inputs
        ]
        outputs = []
        for info, dims in zip(self.outputs, self.dims):
            features = dict(zip(dims, (*info.dimensions, 2)))  # of complex numbers two parts
            outputs.append(
                {
                    "name": info.name,
                    "dimensions": dims,
                    "dtype": info.computed or info.dtype,
                    "shape": [features[i] for i in range(len(dims)) if i in features],
                    "rate": [info.rate.numerator, info.rate.denominator],
                }
            )
        members = {
            "name": self.name,
            "by_name": self.by_name,
            "skew": self.skew,
            "blas": self.blas,
            "inputs": inputs,
            "outputs": outputs,
            "structure": _encoded(self.structure),
        }
        text = json.dumps(members, ensure_ascii=False, separators=(",", ":"))
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise FormatError(f"a model file can't hold this model's names: {error}") from None
        return text

    @classmethod
    def read(
        cls, text: str, inputs: Sequence[Signature], outputs: Sequence[Signature], types: str | None
    ) -> Interface:
        """Return what a text says that the file's reader has checked; signatures are the graph's.

        Delays are unknown until there is a plan: `with_delays`. FormatError for `types` that outputs don't have.
        """
        given, kinds = json.loads(text), [o[0] for o in outputs] if types is None else types.split(",")
        if len(kinds) != len(outputs):
            raise FormatError(f'model, text "dreamstream.types": expected {len(outputs)} types, got {len(kinds)}')
        specs = [
            InputSpec(port["name"], sizes_of(port["dimensions"], shape), dtype, Fraction(num, den))
            for port, (dtype, shape, num, den) in zip(given["inputs"], inputs)
        ]
        infos = [
            output_of(port["name"], port["dimensions"], shape, dtype, Fraction(num, den), kind=kind)
            for port, (dtype, shape, num, den), kind in zip(given["outputs"], outputs, kinds)
        ]
        return cls(
            name=given["name"],
            by_name=given["by_name"],
            skew=given["skew"],
            blas=given["blas"],
            inputs=tuple(specs),
            outputs=tuple(infos),
            dims=tuple(tuple(port["dimensions"]) for port in given["outputs"]),
            structure=_decoded(given["structure"]),
        )

    def with_delays(self, delays: Sequence[int | None]) -> Interface:
        """Return the same with the delays of a plan, None where infinite."""
        known = (math.inf if delay is None else delay for delay in delays)
        return replace(self, outputs=tuple(replace(o, delay=n) for o, n in zip(self.outputs, known)))


#: The types that callers may be given, by the one that is computed.
_CASTS = {"float32": "float16 float64 complex64", "int64": "uint8 int8 int16 int32 float64", "bool": "float64"}


def output_of(
    name: str, dims: Sequence[Any], shape: Sequence[int], dtype: str, rate: Fraction, kind: str
) -> OutputInfo:
    """Return an output of the graph as callers are given it, in a type of their own; FormatError for another."""
    dimensions, is_complex = sizes_of(dims, shape), kind == "complex64"
    if (kind != dtype and kind not in _CASTS.get(dtype, "").split()) or (is_complex and dimensions[-1:] != (2,)):
        raise FormatError(
            f'model, text "dreamstream.types": no output of {dtype} {dimensions} is given as "{kind}"'
        )
    return OutputInfo(name, dimensions[:-1] if is_complex else dimensions, kind, rate, computed=dtype)


def cast(array: Any, kind: str) -> Any:
    """Return an output of the graph in the type that callers are given."""
    if kind == "complex64":  # whose parts lie side by side
        return np.ascontiguousarray(array).view(kind)[..., 0]
    with np.errstate(over="ignore"):  # in float16
        return array.astype(kind, copy=False)


def names_of(structure: Any, prefix: str = "") -> dict[int, str]:
    """Return the name of each output: its place in what forward returns."""
    if isinstance(structure, int):
        return {structure: prefix or "output"}
    items = structure.items() if isinstance(structure, dict) else enumerate(structure)
    out: dict[int, str] = {}
    for k, v in items:
        out.update(names_of(v, f"{prefix}.{k}" if prefix else str(k)))
    return out


def sizes_of(dims: Sequence[Any], shape: Sequence[int]) -> tuple[str | int, ...]:
    """Return dimensions with the sizes of a frame in place of its axes' numbers."""
    return tuple(d if isinstance(d, str) else shape[d] for d in dims)


# ---------------------------------------------------------------- what forward returns, as JSON
# An array is a tuple; {"list": [...]} and {"dict": {...}} are the others.
def _encoded(structure: Any) -> Any:
    if isinstance(structure, int):
        return structure
    if isinstance(structure, tuple):
        return [_encoded(item) for item in structure]
    if isinstance(structure, list):
        return {"list": [_encoded(item) for item in structure]}
    for key in structure:
        if not isinstance(key, str):
            raise FormatError(
                f"forward returns a dict with the key {key!r}; a model file holds dicts whose keys are str"
            )
    return {"dict": {key: _encoded(item) for key, item in structure.items()}}


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decoded(item) for item in value)
    if not isinstance(value, dict):
        return value
    if "list" in value:
        return [_decoded(item) for item in value["list"]]
    return {key: _decoded(item) for key, item in value["dict"].items()}
