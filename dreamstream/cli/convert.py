"""``dreamstream convert``: model files of one form into another, and models in Python into files."""

from __future__ import annotations

import argparse
import os

import dreamstream as ds

from ..engine.load import load_changed
from ..errors import FormatError
from .arguments import Commands
from .described import FUNCTION, described, load_weights, require_function

__all__ = ["add", "convert"]

SUFFIXES = (".dsm", ".json", ".xml")


def convert(args: argparse.Namespace) -> int:
    """Read a model, write a file."""
    if os.path.splitext(args.output)[1].lower() not in SUFFIXES:
        raise FormatError(f"the name of what is written ends in {', '.join(SUFFIXES)}, got {args.output}")
    require_function(args.source)
    source = args.source if FUNCTION.fullmatch(args.source) else None
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


def _compiled(source: str, weights: str | None) -> ds.Engine:
    with described(source) as (model, spec, rate):
        if weights is not None:
            load_weights(model, weights)
        return ds.compile(model, spec, rate=rate)


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
