"""``python -m dreamstream.config``: how to compile a C program against the package; what was chosen.

``cc program.c $(python -m dreamstream.config --cflags --libs) -o program``. Where the package's path has
spaces, the flags are quoted: ``eval cc program.c "$(python -m dreamstream.config --cflags --libs)"``, or a
Makefile's ``$(shell ...)``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .. import _core
from . import show_config
from .flags import cflags, libs, prefix


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
    wanted = parser.parse_args(argv).wanted
    if wanted is not None:
        print(" ".join(wanted))
        return 0
    try:
        show_config()
    except ValueError as error:  # the environment asks for what there is not
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
