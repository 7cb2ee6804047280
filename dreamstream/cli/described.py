"""Models that a function of a user's file describes: FILE.py:FUNCTION on the command line."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import models
from ..errors import DreamStreamError, FormatError
from ..file_kinds import OF_TORCH, kind_of_file
from ..nn import Module
from ..nn.state import read_safetensors
from ..online.front import is_module_class

FUNCTION = re.compile(r"(?P<file>.+\.py):(?P<function>[^:/]+)")
MODEL_FILES = (".dsm", ".json", ".xml")


def named_model(name: str) -> Any:
    """Return the class of a model of the package by its name, whatever its case; None for what is a file.

    Raises
    ------
    FormatError
        Where there is neither such a model nor such a file.
    """
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

    Raises
    ------
    FormatError
        For a file or a model that fails, or a function that is not there or returns something else.
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
