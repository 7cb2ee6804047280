"""``python -m dreamstream.config``: how to compile a C program against the package; what was chosen.

``cc program.c $(python -m dreamstream.config --cflags --libs) -o program``. Where the package's path has
spaces, the flags are quoted: ``eval cc program.c "$(python -m dreamstream.config --cflags --libs)"``, or a
Makefile's ``$(shell ...)``.

``python -m dreamstream.config --jar dreamstream.jar`` makes the classes for Java programs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import _core
from . import show_config
from .flags import cflags, libs, prefix
from .jar import make_jar


def main(argv: Sequence[str] | None = None) -> int:
    """Print what was asked for, in the order of the options; return the exit status."""
    folder = prefix()
    answers = {
        "cflags": ("the compiler's flags", cflags()),
        "libs": ("the linker's flags", libs()),
        "prefix": ("the package's folder", str(folder)),
        "includedir": ("the folder of dreamstream.h", str(folder / "include")),
        "libdir": ("the folder of libdreamstream.so", str(folder / "lib")),
        "version": ("the version", _core.version),
    }
    parser = argparse.ArgumentParser(
        prog="python -m dreamstream.config",
        description="How to compile a C program against the installed package; without options, what was chosen.",
    )
    for name, (about, text) in answers.items():
        parser.add_argument(f"--{name}", dest="wanted", action="append_const", const=text, help=about)
    about = "make the jar for Java programs, and print its path (needs a JDK and a C compiler)"
    parser.add_argument("--jar", type=Path, nargs="?", const=Path("dreamstream.jar"), metavar="FILE", help=about)
    arguments = parser.parse_args(argv)
    if arguments.jar is not None:
        try:
            print(make_jar(arguments.jar.resolve()))
        except (RuntimeError, OSError) as error:
            parser.exit(1, f"{parser.prog}: {error}\n")
    if arguments.wanted is not None:
        print(" ".join(arguments.wanted))
    if arguments.wanted is not None or arguments.jar is not None:
        return 0
    try:
        show_config()
    except ValueError as error:  # the environment asks for what there is not
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
