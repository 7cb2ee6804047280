"""What parameters are, written once: functions name their texts here, and layers made from them repeat those."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, TypeVar

from ...array.in_place import apart

__all__ = ["described", "parameters_of", "summary_of", "torch_lacks"]

Function = TypeVar("Function", bound=Callable[..., Any])

HEADING = "Parameters\n----------\n"
USUAL = {
    "input": "Of any shape, float32 or float64.",
    "inplace": "Whether the result is written into `input`, except into streams outside a forward.",
    "eps": "Added to the variance.",
    "device": 'None or "cpu": For torch\'s sake.',
    "dtype": "dtype or str, optional: float32 or float64.",
}


def described(
    returns: str = "", raises: Mapping[str, str] | None = None, /, **texts: str
) -> Callable[[Function], Function]:
    """Add to the docstring of a function or a class what its parameters are, and what it returns.

    `returns` is of the result, where the first line doesn't say all; `raises` says which errors there are, and
    when. Texts of parameters are ``"type: meaning"`` where the annotation is not their type's best name; a
    meaning has no colon.
    """

    def add(function: Function) -> Function:
        lines = []
        known = {**USUAL, **texts}
        for name, parameter in inspect.signature(function).parameters.items():
            if name in known:
                kind, _, text = known[name].rpartition(": ")
                kind = kind or str(parameter.annotation).replace(" | None", ", optional")
                lines += [f"{name} : {kind}", _wrapped(text)]
        doc = inspect.cleandoc(function.__doc__ or "")
        first, _, rest = doc.partition("\n\n")
        before, notes, after = rest.partition("Notes\n-----\n")
        prose, *sections = re.split(r"^(?=\w+\n-+$)", before, maxsplit=1, flags=re.MULTILINE)
        parts = [first, prose.strip(), HEADING + "\n".join(lines)]
        parts += [f"Returns\n-------\nTensor\n{_wrapped(returns)}"] if returns else []
        errors = "\n".join(f"{error}\n{_wrapped(when)}" for error, when in (raises or {}).items())
        parts += [*map(str.rstrip, sections), errors and f"Raises\n------\n{errors}", notes + after]
        function.__doc__ = "\n\n".join(filter(None, parts))
        return _writing(function) if "inplace" in inspect.signature(function).parameters else function

    return add


def torch_lacks(function: Function) -> Function:
    """Mark a function that torch has none for: `dreamstream.torch.functional` gives it to torch streams."""
    function.torch_lacks = True  # type: ignore[attr-defined]
    return function


def _writing(function: Function) -> Function:
    """Let a function write its result into its input where that is asked for."""
    place = list(inspect.signature(function).parameters).index("inplace")

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not (args[place] if len(args) > place else kwargs.get("inplace")):
            return function(*args, **kwargs)
        input: Any = args[0] if args else kwargs["input"]
        read = apart(input)
        out = function(read, *args[1:], **kwargs) if args else function(**{**kwargs, "input": read})
        return (
            out if out is input or (input.is_stream and input.edge is None) else input._write("inplace=True", out)
        )

    return run  # type: ignore[return-value]


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 100, initial_indent="    ", subsequent_indent="    ")


def summary_of(function: Callable[..., Any]) -> str:
    """What a function returns, by the first line of its docstring."""
    first = inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0].removeprefix("Return ")
    return re.sub("^the ", "The ", first)


def parameters_of(function: Callable[..., Any], names: Iterable[str]) -> str:
    """The part of a function's docstring that tells of some of its parameters."""
    wanted = set(names)
    doc = inspect.cleandoc(function.__doc__ or "")
    if HEADING not in doc or not wanted:
        return ""
    entries = re.split(r"\n(?=\S)", doc.partition(HEADING)[2].partition("\n\n")[0])
    kept = [e for e in entries if wanted & set(e.partition(" : ")[0].split(", "))]
    return HEADING + "\n".join(kept) if kept else ""
