"""Where the extension module lies when this package is a source folder, and whether it is up to date.

After ``pip install .`` in a clone, Python that starts there imports the clone's folder, in which nothing was
built. It takes the installed package's ``_core`` then, if that was built from the same version. A ``_core`` that
was built in the folder itself (``pip install -e .``) must be newer than the sources in C. The package imports
this module first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableSequence
from importlib.machinery import PathFinder
from pathlib import Path


def find_core(here: Path, path: MutableSequence[str]) -> None:
    """Add the folder of the installed ``_core`` to `path`, the package's, where it has none of its own.

    ImportError says what to do where nothing is installed, or another version is, or the sources have changed.
    """
    core = PathFinder.find_spec("dreamstream._core", path)
    if core is not None:
        changed = _newer(here.parent / "csrc", os.stat(core.origin).st_mtime_ns) if core.origin else None
        if changed is not None and core.origin is not None and Path(core.origin).parent == here:
            raise ImportError(
                f"{changed} has changed since the engine in {here} was compiled: run "
                f"`python setup.py build_ext --inplace` in {here.parent}, which compiles what changed"
            )
        return
    found = [Path(entry or ".").resolve() / "dreamstream" for entry in sys.path]
    found = [f for f in found if f != here and PathFinder.find_spec("dreamstream._core", [str(f)]) is not None]
    if found and _interface(found[0], found[0]) == _interface(here.parent / "csrc", here):
        path.append(str(found[0]))
        return
    beside = f"and {found[0]} is of another version" if found else "and none is installed"
    python = ".".join(map(str, sys.version_info[:2]))
    raise ImportError(
        f"{here} has no compiled engine for Python {python}, {beside}: run `pip install -e .` in {here.parent}"
        + (", or start Python in another folder" if found else "")
    )


def _newer(sources: Path, built: int) -> Path | None:
    """Return a source of the engine that has changed since a time in ns; none outside of a source tree."""
    for folder, rooms, names in os.walk(sources):
        rooms[:] = [room for room in rooms if room != "java"]  # `python -m dreamstream.config --jar` compiles it
        for name in names:
            if name.endswith((".c", ".h", ".inc", ".def")) and os.stat(f"{folder}/{name}").st_mtime_ns > built:
                return Path(folder, name)
    return None


def _interface(built: Path, package: Path) -> list[bytes | None]:
    """Return what tells versions apart: the header, which has the number, and how Python sees ``_core``."""
    files = built / "include" / "dreamstream.h", package / "_core.pyi"
    return [file.read_bytes() if file.is_file() else None for file in files]


find_core(Path(__file__).resolve().parent, sys.modules["dreamstream"].__path__)
