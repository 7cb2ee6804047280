"""How the tables of cases are written."""

from collections.abc import Callable
from types import FunctionType
from typing import Any

from nets import net

import dreamstream as ds
from dreamstream import nn
from dreamstream.nn import functional as F

from .case import Case, Given, Make

__all__ = ["BCL", "BLC", "CASES", "F", "case", "ds", "forward", "module", "net", "nn"]

CASES: dict[str, Case] = {}


def BCL(channels: int) -> tuple[Given, ...]:
    """Return one input as convolutions take it."""
    return (Given(("B", channels, "L")),)


def BLC(features: int) -> tuple[Given, ...]:
    """Return one input as recurrent layers with batch_first take it."""
    return (Given(("B", "L", features)),)


def case(name: str, inputs: tuple[Given, ...], make: Make, **more: Any) -> None:
    """Enter a case."""
    if name in CASES:
        raise ValueError(f"two cases {name}")
    CASES[name] = Case(name, make, inputs, **more)


def forward(
    inputs: tuple[Given, ...], layers: Callable[[], dict[str, Any]] | None = None, **more: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a forward under its name. Its `nn`, `F` and `ds`, and those of its layers, are of either library."""

    def own(function: Any, code: Any, **library: Any) -> Any:
        names, code = function.__globals__ | library, code.replace(co_name="forward")
        return FunctionType(code, names, "forward", function.__defaults__, function.__closure__)

    def enter(written: Any) -> Any:
        code = written.__code__  # as it is written: a forward that has streamed may hold another

        def make(nn: Any, F: Any, ds: Any) -> Any:
            library = {"nn": nn, "F": F, "ds": ds}
            return net(
                nn, own(written, code, **library), **(own(layers, layers.__code__, **library)() if layers else {})
            )

        make.__name__ = written.__name__
        module(inputs, **more)(make)
        return written

    return enter


def module(inputs: tuple[Given, ...], **more: Any) -> Callable[[Make], Make]:
    """Enter a case under the name of the function that makes it."""

    def enter(make: Make) -> Make:
        case(make.__name__.strip("_").replace("_", "-"), inputs, make, **more)
        return make

    return enter
