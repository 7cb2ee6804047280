"""The engine on an allocator that counts, and fails on demand: `tests/c/fault.c`, by way of `ds_set_allocator`.

What is made between `install` and `uninstall` allocates through it for as long as it lives.
"""

import ctypes
import functools
import os
import subprocess
import sys
from pathlib import Path

from dreamstream import _core

BUILD = Path(__file__).resolve().parents[1] / "c" / "build.py"
COUNTS = ("live_bytes", "live_blocks", "peak_bytes", "calls", "failures", "bad_releases")

_made: list[ctypes.Array[ctypes.c_char]] = []  # never freed: objects made meanwhile use them
_installed: list[ctypes.Array[ctypes.c_char]] = []  # the one, or none


class Hooks(ctypes.Structure):
    """A ds_allocator."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("context", "allocate", "release")]


@functools.cache
def _library() -> ctypes.CDLL:
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}  # a sanitizer's: not for compilers
    command = [sys.executable, str(BUILD), "--faults"]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    library = ctypes.CDLL(done.stdout.strip())
    library.ds_fault_hooks.restype = Hooks
    library.ds_fault_arm.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_bool]
    for name in COUNTS:
        getattr(library, f"ds_fault_{name}").restype = ctypes.c_size_t
    return library


def _set(hooks: Hooks | None) -> None:
    status = ctypes.CDLL(_core.__file__).ds_set_allocator(hooks and ctypes.byref(hooks))
    assert status == 0


def install() -> None:
    """Count allocations of what is made from now on."""
    library = _library()
    fault = ctypes.create_string_buffer(ctypes.c_size_t.in_dll(library, "ds_fault_bytes").value)
    library.ds_fault_init(fault)
    _made.append(fault)
    _installed[:] = [fault]
    _set(library.ds_fault_hooks(fault))


def uninstall() -> None:
    """Go back to the usual allocator."""
    if _installed:
        arm(0)
    _installed.clear()
    _set(None)


def arm(nth: int) -> None:
    """Let the nth allocation from now fail; 0: none."""
    _library().ds_fault_arm(_installed[0], nth, False)


def stats() -> dict[str, int]:
    """What was counted since `install`; without it, zeros."""
    return {n: getattr(_library(), f"ds_fault_{n}")(_installed[0]) if _installed else 0 for n in COUNTS}
