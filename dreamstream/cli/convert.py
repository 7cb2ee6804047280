"""``dreamstream convert``: model files of one form into another, and models in Python into files."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

import dreamstream as ds

from ..engine.load import load_changed, stored_as
from ..engine.weights import FORMATS, PRODUCTS, Narrowing
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
    stored = next((w for w in reversed(args.weights) if w in FORMATS), None)
    files = [w for w in args.weights if w not in FORMATS]
    if source is None and files:
        raise FormatError(
            f"--weights {files[0]} goes with FILE.py:FUNCTION; {args.source} has its weights, which can be "
            f"stored in {', '.join(FORMATS)}"
        )
    if source is not None and args.reseal:
        raise FormatError(f"--reseal goes with a model file that was edited, not with {args.source}")
    if source is not None:
        engine = _compiled(source, files, stored or "fp32", args.products or "fp32")
    elif args.reseal:
        engine = load_changed(args.source)
        how = Narrowing(stored, args.products)
        engine = engine if how.nothing else stored_as(engine, how)
    else:
        engine = ds.load(args.source, weights=stored, products=args.products)
    with engine:
        engine.save(args.output)
    return 0


def _compiled(source: str, files: Sequence[str], stored: str, products: str) -> ds.Engine:
    with described(source) as (model, spec, rate):
        for file in files:
            load_weights(model, file)
        return ds.compile(model, spec, rate=rate, weights=stored, products=products)


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
        metavar="FORMAT",
        action="append",
        default=[],
        help=f"how weights are stored: {', '.join(FORMATS)}; for FILE.py:FUNCTION also a .safetensors file, "
        "and for a torch model a state dict of torch.save",
    )
    parser.add_argument(
        "--products",
        metavar="FORMAT",
        choices=PRODUCTS,
        help=f"what rows are that weights are multiplied with, and the weights: {', '.join(PRODUCTS)}",
    )
    parser.add_argument(
        "--reseal",
        action="store_true",
        help="IN was edited on purpose, so that its fingerprint is another's: OUT has its own",
    )
    parser.set_defaults(run=convert, threads=1)
