"""``dreamstream convert``: model files of one form into another, and models in Python into files."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import sys
from typing import Any

import dreamstream as ds

from ..engine.load import load_changed
from ..errors import FormatError
from ..nn import Module
from ..nn.state import read_safetensors
from ..online.front import is_module_class
from .arguments import Commands

__all__ = ["add", "convert"]

SUFFIXES = (".dsm", ".json", ".xml")
FUNCTION = re.compile(r"(?P<file>.+\.py):(?P<function>[^:/]+)")


def convert(args: argparse.Namespace) -> int:
    """Read a model, write a file."""
    if os.path.splitext(args.output)[1].lower() not in SUFFIXES:
        raise FormatError(f"the name of what is written ends in {', '.join(SUFFIXES)}, got {args.output}")
    source = FUNCTION.fullmatch(args.source)
    if source is None and args.weights is not None:
        raise FormatError(f"--weights goes with FILE.py:FUNCTION; {args.source} has its weights")
    if source is not None and args.reseal:
        raise FormatError(f"--reseal goes with a model file that was edited, not with {args.source}")
    if source is not None:
        engine = _compiled(source, args.weights)
    else:
        engine = load_changed(args.source) if args.reseal else ds.load(args.source)
    with engine:
        engine.save(args.output)
    return 0


def _compiled(source: re.Match[str], weights: str | None) -> ds.Engine:
    path, before = source["file"], sys.path[:]
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no file {path}")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))  # for its imports, as `python FILE` would
    try:
        model, spec, rate = _described(path, source["function"])
        if weights is not None:
            _load_weights(model, weights)
        return ds.compile(model, spec, rate=rate)
    except (ds.DreamStreamError, OSError, ImportError, MemoryError):
        raise
    except Exception as error:  # the user's own
        raise FormatError(f"{path}: {type(error).__name__}: {error}") from error
    finally:
        sys.path[:] = before


def _load_weights(model: Any, path: str) -> None:
    """Give a model the weights of a file: safetensors; for a torch model also what ``torch.save`` wrote."""
    if isinstance(model, Module):
        model.load_state_dict(path)
        return
    import torch  # the model is torch's

    if path.endswith(".safetensors"):
        model.load_state_dict({name: torch.tensor(v) for name, v in read_safetensors(path).items()})
    else:
        model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))


def _described(path: str, function: str) -> tuple[Any, Any, Any]:
    """Return what a function of a user's file returns: model, spec, rate."""
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


def add(commands: Commands) -> None:
    """Add the command to the command line's."""
    parser = commands.add_parser(
        "convert",
        help="write a model file",
        description="Write a model file: of another one, in the form that the suffix of OUT says, or of a model "
        "in Python. What has been converted back is the same, byte by byte.",
    )
    parser.add_argument(
        "source",
        metavar="IN",
        help="a .dsm, .json or .xml file, or FILE.py:FUNCTION, a function without arguments that returns "
        "(model, spec, rate), as ds.compile takes them; the file is executed",
    )
    parser.add_argument("output", metavar="OUT", help="a .dsm, .json or .xml file")
    parser.add_argument(
        "--weights",
        metavar="FILE",
        help="for FILE.py:FUNCTION, a .safetensors file; for a torch model also a state dict of torch.save",
    )
    parser.add_argument(
        "--reseal",
        action="store_true",
        help="IN was edited on purpose, so that its fingerprint is another's: OUT has its own",
    )
    parser.set_defaults(run=convert, threads=1)
