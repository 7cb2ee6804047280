"""Layers without weights, made from the functions that they call.

A function of `functional` states the parameters: their names, types, defaults and texts. The layer takes those
that are no tensors, keeps each as an attribute of its name, and calls the function with them. Editors and type
checkers read ``.pyi`` files beside the modules that do this; ``python tests/source/test_stubs.py`` writes them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..array import Tensor
from .functional.texts import parameters_of, summary_of
from .module import Module

__all__ = ["Derived", "layer"]

Prepare = Callable[[Any], None]
Shown = str | Callable[[Any], str]


class Derived(Module):
    """A layer that calls a function with the arguments of its constructor."""

    def forward(self, input: Tensor) -> Tensor:
        """Return what the function gives; each layer has its own."""
        raise NotImplementedError


def layer(
    module: str,
    notes: str,
    name: str,
    function: Callable[..., Tensor],
    shown: Shown = "",
    *,
    usual: Mapping[str, Any] | None = None,
    order: Sequence[str] = (),
    types: Mapping[str, str] | None = None,
    prepare: Prepare | None = None,
    base: type[Module] = Derived,
    about: str = "",
    operands: int = 1,
) -> Any:
    """Return the layer `name` of a module, which calls a function with the input, then its own attributes.

    `notes` is what the docstrings of its family end with, `about` what its own says beside the function's. `shown`
    has the constructor's arguments as text with attributes' names in braces, or makes that; attributes are shown
    where they are not as in `usual`, by default `inplace` where there is one. `order` has the constructor's
    parameters where they don't come in the function's order, `types` annotations that differ from the function's;
    `prepare` checks and converts the attributes once they are set; `base` is the layer that it is a kind of, and
    `operands` says how many of the function's parameters are inputs.
    """
    parameters = inspect.signature(function).parameters
    passed = [n for n in list(parameters)[operands:] if not n.startswith("_") and n != "dtype"]
    given = [parameters[n] for n in order or passed if n != "training"]
    passed = [n for n in passed if n == "training" or parameters[n] in given]
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    given = [p.replace(annotation=(types or {}).get(p.name, p.annotation), kind=either) for p in given]
    own = inspect.Parameter("self", either)
    signature = inspect.Signature([own, *given], return_annotation="None")

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{type(self).__name__}: {error}") from None
        bound.apply_defaults()
        Module.__init__(self)
        for name in list(bound.arguments)[1:]:
            setattr(self, name, bound.arguments[name])
        if prepare is not None:
            prepare(self)

    def forward(self: Any, *inputs: Any, **named: Any) -> Tensor:
        return function(*inputs, **named, **{name: getattr(self, name) for name in passed})

    inputs = [own, *list(parameters.values())[:operands]]
    forward.__signature__ = inspect.Signature(inputs, return_annotation="Tensor")  # type: ignore[attr-defined]
    __init__.__signature__ = signature  # type: ignore[attr-defined]
    summary = summary_of(function)
    forward.__doc__ = f"Return {summary[:1].lower()}{summary[1:]}"
    texts = (summary, parameters_of(function, [p.name for p in given]), about, notes)
    members = {
        "__init__": __init__,
        "forward": forward,
        "__doc__": "\n\n".join(filter(None, texts)),
        "__module__": module,
        "__qualname__": name,
    }
    if callable(shown):
        members["extra_repr"] = shown
    else:
        more = {"inplace": False} if "inplace" in parameters and "{inplace}" not in shown else {}
        members |= {"_shown": shown, "_usual": more if usual is None else usual}
    for method in (__init__, forward):
        method.__qualname__ = f"{name}.{method.__name__}"
    return type(name, (base,), members)
