"""What a C program needs to be compiled against the installed package."""

from __future__ import annotations

import shlex
from pathlib import Path

from .. import _core


def prefix() -> Path:
    """Return the folder of the build: ``include/dreamstream.h`` and ``lib/libdreamstream.so`` lie in it."""
    return Path(_core.__file__).resolve().parent


def cflags() -> str:
    """Return the compiler's flags, quoted for a shell."""
    return shlex.join([f"-I{prefix() / 'include'}"])


def libs() -> str:
    """Return the linker's flags, quoted for a shell; the program finds the library where it lies now."""
    folder = prefix() / "lib"
    return shlex.join([f"-L{folder}", f"-Wl,-rpath,{folder}", "-ldreamstream"])
