"""The command line: ``dreamstream COMMAND``, each command a file of this folder.

Exit status 0: all that was asked held; 1: it did not, or failed; 2: the command was not understood;
130: interrupted. Errors go to stderr in one line.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence

import dreamstream as ds

from .. import _core
from ..config import default_threads
from . import bench, convert, demo, info, run, serve, transcribe
from .arguments import Parser, fault_of

__all__ = ["main"]


def _parser() -> Parser:
    parser = Parser(prog="dreamstream", description="Stream neural models: chunks in, the offline answer out.")
    parser.add_argument("--version", action="version", version=f"dreamstream {ds.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    demo.add(commands)
    run.add(commands)
    transcribe.add(commands)
    serve.add(commands)
    info.add(commands)
    convert.add(commands)
    bench.add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status."""
    try:
        parser = _parser()
        args = parser.parse_args(argv)
        try:  # what the environment asks for
            _core.config()
            if args.threads is None:
                args.threads = default_threads()
        except ValueError as error:
            parser.error(str(error))
        status: int = args.run(args)
        print(end="", flush=True)  # also where standard output is closed
        return status
    except KeyboardInterrupt:
        _drop_output()
        return 130
    except BrokenPipeError as error:  # whoever read the output has seen enough
        if error.filename:
            print(f"dreamstream: {_core.shown(fault_of(error), True)}", file=sys.stderr)
        _drop_output()
        return 1
    except UnicodeEncodeError as error:
        missing = error.object[error.start : error.end]
        print(f"dreamstream: {error.encoding} has no {missing!a}: set PYTHONIOENCODING=utf-8", file=sys.stderr)
        return 1
    except (ds.DreamStreamError, ImportError, OSError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and not error.filename:
            error.filename = "standard output"  # files are named where they are written
        print(f"dreamstream: {_core.shown(fault_of(error), True)}", file=sys.stderr)
        _drop_output()
        return 1


def _drop_output() -> None:
    """Keep what standard output doesn't take from failing once more when the interpreter ends."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
