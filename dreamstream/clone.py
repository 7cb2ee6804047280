"""Where the extension module lies when this package is a source folder without one.

After ``pip install .`` in a clone, Python that starts there imports the clone's folder, in which nothing was
built. It takes the installed package's ``_core`` then, if that was built from the same version. The package
imports this module first.
"""

from __future__ import annotations

import sys
from collections.abc import MutableSequence, Sequence
from importlib.machinery import PathFinder
from pathlib import Path


def find_core(here: Path, path: MutableSequence[str]) -> None:
    """Add the folder of the installed ``_core`` to `path`, the package's, where it has none of its own.

    Raises
    ------
    ImportError
        Nothing is installed, or another version is: says what to do.
    """
    if _has_core(path):
        return
    found = [Path(entry or ".").resolve() / "dreamstream" for entry in sys.path]
    found = [folder for folder in found if folder != here and _has_core([str(folder)])]
    if found and _interface(found[0], found[0]) == _interface(here.parent / "csrc", here):
        path.append(str(found[0]))
        return
    beside = f"and {found[0]} is of another version" if found else "and none is installed"
    python = ".".join(map(str, sys.version_info[:2]))
    raise ImportError(
        f"{here} has no compiled engine for Python {python}, {beside}: run `pip install -e .` in {here.parent}"
        + (", or start Python in another folder" if found else "")
    )


def _has_core(path: Sequence[str]) -> bool:
    return PathFinder.find_spec("dreamstream._core", path) is not None


def _interface(built: Path, package: Path) -> list[bytes | None]:
    """Return what tells versions apart: the header, which has the number, and how Python sees ``_core``."""
    files = built / "include" / "dreamstream.h", package / "_core.pyi"
    return [file.read_bytes() if file.is_file() else None for file in files]


find_core(Path(__file__).resolve().parent, sys.modules["dreamstream"].__path__)
