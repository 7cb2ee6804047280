"""How shared libraries are called, on Linux and on Apple's systems; setup.py reads this file, too."""

from __future__ import annotations

import platform


def apple() -> bool:
    """Return whether this system is one of Apple's."""
    return platform.system() == "Darwin"


def library_name(name: str, abi: str = "") -> str:
    """Return a library's file name; `abi`: with the number of its interface, as those ask for it that use it."""
    number = f".{abi}" if abi else ""
    return f"lib{name}{number}.dylib" if apple() else f"lib{name}.so{number}"


def beside(folder: str = "") -> str:
    """Return where a library is looked for that lies in `folder`, seen from the one that uses it."""
    here = "@loader_path" if apple() else "$ORIGIN"
    return f"{here}/{folder}" if folder else here


def java_platform() -> str:
    """Return the folder of the jar with this system's libraries, as Loader.java calls it."""
    machine = platform.machine()
    return f"macos-{machine.replace('arm64', 'aarch64')}" if apple() else f"linux-{machine}"
