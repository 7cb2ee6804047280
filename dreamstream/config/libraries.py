"""How shared libraries are called, on Linux and on Apple's systems; setup.py reads this file, too."""

import platform

APPLE = platform.system() == "Darwin"
HERE = "@loader_path" if APPLE else "$ORIGIN"  # the folder of a library that looks for another
# The folder of the jar with this system's libraries, as Loader.java calls it.
JAVA_PLATFORM = f"{'macos' if APPLE else 'linux'}-{platform.machine().replace('arm64', 'aarch64')}"


def library_name(name: str, abi: str = "") -> str:
    """Return a library's file name; `abi`: with the number of its interface, as those ask for it that use it."""
    number = f".{abi}" if abi else ""
    return f"lib{name}{number}.dylib" if APPLE else f"lib{name}.so{number}"
