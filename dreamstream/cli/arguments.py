"""How commands read their arguments, and say what is wrong with one.

A model may be what a function of a user's file describes: FILE.py:FUNCTION on the command line.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from .. import models
from .._core import shown
from ..errors import DreamStreamError, FormatError
from ..file_kinds import OF_TORCH, kind_of_file
from ..nn import Module
from ..nn.state import read_safetensors
from ..online.front import is_module_class

Commands = Any
"""What `argparse` calls the group of sub-commands; it has no public name."""


def fault_of(error: BaseException) -> str:
    """Return an error in one line, that of a file by its name."""
    named = isinstance(error, OSError) and error.filename
    text = f"{error.filename}: {error.strerror}" if named else str(error)  # type: ignore[attr-defined]
    return " ".join(text.split())


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message, exit with status 2."""
        self.exit(2, f"{self.prog}: {shown(message, True)} (try {self.prog} --help)\n")


def at_least(lowest: float, kind: type, most: int = 10**9) -> Any:
    """Return a reader of numbers that are `lowest` or more, and not beyond `most`."""

    def read(text: str) -> Any:
        value = kind(text)
        if not lowest <= value <= most:
            limit = f"at most {most}" if value > most else f"{lowest} or more"
            raise argparse.ArgumentTypeError(f"expected {limit}, got {text}")
        return value

    read.__name__ = "number"
    return read


class _Joined(argparse.Action):
    """One list of what stands in several arguments."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, [x for part in values for x in part])


def add_numbers(parser: argparse.ArgumentParser, name: str, lowest: float, kind: type, default: list[Any]) -> None:
    """Add an option of some numbers, with spaces or commas in between."""
    one = at_least(lowest, kind)

    def read(text: str) -> list[Any]:
        return [one(part) for part in text.split(",")]

    read.__name__ = "number"
    text = f"({' '.join(f'{n:g}' for n in default)})"
    parser.add_argument(name, type=read, nargs="+", action=_Joined, default=default, metavar="N", help=text)


def add_command(commands: Commands, name: str, about: str, further: str = ".") -> argparse.ArgumentParser:
    """Add a command, of which is said what it does, and `further` in its own help; return its parser."""
    return commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}{further}")


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Add ``--threads N``."""
    text = "of the engine; DREAMSTREAM_THREADS or 1 by default"
    parser.add_argument("--threads", type=at_least(1, int, 1024), metavar="N", help=text)


FUNCTION = re.compile(r"(?P<file>.+\.py):(?P<function>[^:/]+)")
MODEL_FILES = (".dsm", ".json", ".xml")


def named_model(name: str) -> Any:
    """Return the class of a model by its name in any case; None for a file; FormatError for what is neither."""
    found = {n.lower(): n for n in models.COMPLETE}.get(name.lower())
    if found is not None:
        return getattr(models, found)
    if not os.path.exists(name) and os.path.splitext(name)[1].lower() not in MODEL_FILES:
        raise FormatError(
            f"there is no model {name!r}, nor a file; give a model file, FILE.py:FUNCTION or one of "
            f"{', '.join(models.COMPLETE)}"
        )
    return None


def require_function(source: str) -> None:
    """Raise FormatError for a file of Python without a function's name."""
    if source.endswith(".py"):
        raise FormatError(
            f"{source} names no function; give {source}:FUNCTION, a function without arguments that returns "
            "(model, spec, rate)"
        )


@contextmanager
def described(source: str) -> Iterator[tuple[Any, Any, Any]]:
    """Run FILE.py:FUNCTION; give the model, its spec and its rate, and what fails within the file's name.

    A file or a model that fails, and a function that is not there or returns something else, raise FormatError.
    """
    found = FUNCTION.fullmatch(source)
    assert found is not None
    path, before = found["file"], sys.path[:]
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no file {path}")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))  # for its imports, as `python FILE` would
    try:
        yield _returned(path, found["function"])
    except (DreamStreamError, OSError, ImportError, MemoryError):
        raise
    except Exception as error:  # the user's own
        raise FormatError(f"{path}: {type(error).__name__}: {error}") from error
    finally:
        sys.path[:] = before


def load_weights(model: Any, path: str) -> None:
    """Give a model the weights of a file: safetensors; for a torch model also ``torch.save``'s or icefall's."""
    if isinstance(model, Module):
        model.load_state_dict(path)
        return
    import torch  # the model is torch's

    kind = kind_of_file(path)
    if kind is not None and kind[1:] == OF_TORCH:
        found = torch.load(path, map_location="cpu", weights_only=True)
        inner = found.get("model") if isinstance(found, dict) else None
        model.load_state_dict(inner if isinstance(inner, dict) else found)  # icefall keeps them under "model"
    else:
        model.load_state_dict({name: torch.tensor(v) for name, v in read_safetensors(path).items()})


def _returned(path: str, function: str) -> tuple[Any, Any, Any]:
    name = os.path.splitext(os.path.basename(path))[0]
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules.setdefault(name, module)
    try:
        found.loader.exec_module(module)
        if not callable(getattr(module, function, None)):
            raise FormatError(f"{path} has no function {function}")
        result = getattr(module, function)()
    finally:
        if sys.modules.get(name) is module:
            del sys.modules[name]
    if not isinstance(result, tuple) or len(result) != 3 or not is_module_class(type(result[0])):
        got = type(result).__name__
        if isinstance(result, tuple):
            got = f"({', '.join(type(item).__name__ for item in result)})"
        raise FormatError(
            f"{path}: {function} must return (model, spec, rate), the model a module of dreamstream.nn or "
            f"torch.nn; got {got}"
        )
    return result
