"""``dreamstream run MODEL FOLDER -o OUT.jsonl``: every recording of folders, each once."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import dreamstream as ds

from .. import nn
from .._core import shown
from ..data import bulk
from ..data.items import items_of
from ..errors import FormatError, SourceError
from .outputs import check_path


def is_asked(args: argparse.Namespace) -> bool:
    """Whether folders are to be run, or lines of JSON to be written; options that don't go with it are refused."""
    folders = [path for path in args.audio if os.path.isdir(path)]
    lines = bool(args.output and args.output.endswith(".jsonl"))
    if folders and not lines:
        raise FormatError(f"{folders[0]} is a folder; its results go to lines of JSON: -o OUT.jsonl")
    for option in ("compare_offline", "json", "plot", "int16"):
        if lines and getattr(args, option):
            raise FormatError(f"--{option.replace('_', '-')} does not go with -o {args.output}")
    for option in ("workers", "ray"):
        if not lines and getattr(args, option):
            raise FormatError(f"--{option} goes with -o OUT.jsonl")
    return lines


def run(args: argparse.Namespace, model: Any) -> int:
    """Run what has no line yet; say how many there are, and which can't be run."""
    check_path(args.output, args.audio)
    if isinstance(model, nn.Module):
        model = ds.compile(model, model.spec, rate=model.sample_rate, threads=args.threads, verify=False)
    paths = [item.id for path in args.audio for item in items_of(path)]
    bad: list[SourceError] = []
    chunk = max(1, int(model.rate) * args.chunk_ms // 1000)
    n = bulk(model, paths, args.output, chunk=chunk, workers=args.workers, bad=bad.append, ray=args.ray)
    left = len(paths) - n - len(bad)
    print(f"{n} files were run, {left} had been before; {args.output} has a line for each")
    for error in bad:
        print(f"dreamstream run: {shown(str(error), True)}", file=sys.stderr)
    if bad:
        print(f"dreamstream run: {len(bad)} of {len(paths)} files could not be run", file=sys.stderr)
    return 1 if bad else 0
