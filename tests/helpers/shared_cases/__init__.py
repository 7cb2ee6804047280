"""One table of cases, modules of torch with their twins, and the front ends that stream them."""

from fractions import Fraction
from typing import Any

from ds_laws import MODELS

from . import attention, forwards, joined, layers, lengths, masks, one_liners, stacks, statistics, writing  # noqa: F401  (each enters its cases)
from .case import Case, Given, expected, require_close, theirs, twin
from .exports import EXPORTS
from .front_ends import FRONT_ENDS, FrontEnd, baseline
from .streaming import Run, Schedule, schedule
from .tables import CASES, case

__all__ = [
    "CASES",
    "EXPORTS",
    "FRONT_ENDS",
    "Case",
    "FrontEnd",
    "Given",
    "Run",
    "Schedule",
    "baseline",
    "expected",
    "require_close",
    "schedule",
    "theirs",
    "twin",
]


def _given(layout: Any, features: tuple[int, ...], rate: Fraction) -> Given:
    return Given(tuple(features[d] if isinstance(d, int) else d for d in layout), rate)


for _name, _entry in MODELS.items():
    if _entry.torch:
        case(
            _name,
            tuple(_given(_entry.layout, *x) for x in _entry.inputs),
            lambda nn, F, ds, make=_entry.make: make(nn, F),
            reach=_entry.reach,
            multiple=_entry.multiple,
            whole=_entry.whole,
            exports=not _entry.whole,
            onnx="projected" not in _name,
        )
