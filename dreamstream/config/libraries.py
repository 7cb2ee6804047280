"""How shared libraries are named, linked and found, on Linux and on Apple's systems; setup.py reads this file, too."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from pathlib import Path


def apple() -> bool:
    """Return whether this system is one of Apple's."""
    return platform.system() == "Darwin"


def library_name(name: str, abi: str = "") -> str:
    """Return a library's file name; `abi`: with the number of its interface, as those ask for it that use it."""
    number = f".{abi}" if abi else ""
    return f"lib{name}{number}.dylib" if apple() else f"lib{name}.so{number}"


def beside(folder: str = "") -> str:
    """Return where a library is looked for that lies in `folder`, seen from the one that uses it."""
    return "/".join(["@loader_path" if apple() else "$ORIGIN", *([folder] if folder else [])])


def name_flags(file: str) -> list[str]:
    """Return the linker's flags that write into a library by which name it is asked for."""
    return [f"-Wl,-install_name,@rpath/{file}" if apple() else f"-Wl,-soname,{file}"]


def indirect_flags(folders: Iterable[Path]) -> list[str]:
    """Return the linker's flags that say where libraries of libraries lie, which Apple's linker does not ask for."""
    return [] if apple() else [f"-Wl,-rpath-link,{folder}" for folder in folders]


def library_linker(module_linker: Sequence[str]) -> list[str]:
    """Return the command that links a library for programs, of the one that links a module for Python.

    Apple's systems have two kinds of files for the two, and a module takes Python's names from the program that loads
    it, where a library must have all of its names.
    """
    words = " ".join(module_linker).replace("-undefined dynamic_lookup", "").split()
    return ["-dynamiclib" if word == "-bundle" else word for word in words] if apple() else list(module_linker)


def java_platform() -> str:
    """Return the folder of the jar with this system's libraries, as Loader.java calls it."""
    machine = platform.machine()
    return f"macos-{machine.replace('arm64', 'aarch64')}" if apple() else f"linux-{machine}"
