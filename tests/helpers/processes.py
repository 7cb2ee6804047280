"""Python in a process of its own: scripts and modules that print what they found."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from dreamstream import _core

HELPERS = Path(__file__).resolve().parent
ROOT = HELPERS.parents[1]

#: The instruction sets that give the same bits here, the best one last.
VARIANTS = [b["name"] for b in _core.config()["backends"] if b["bitwise"] and b["usable"]]
#: What a process is told to take one of them; the reference differs from the others in threads and OpenBLAS, too.
SETTINGS = {name: {"DREAMSTREAM_ISA": name} for name in VARIANTS}
SETTINGS["ref"] |= {"DREAMSTREAM_THREADS": "3", "DREAMSTREAM_BLAS": "none"}

#: The beginning of a script: `resident()` is the memory that the process has, in KiB.
MEMORY = dedent("""
    import copy, gc, io, json, os, pickle, sys
    import numpy as np
    import dreamstream as ds
    from dreamstream import nn

    sys.path.insert(0, "tests/helpers")
    import faults

    PAGE = os.sysconf("SC_PAGE_SIZE") // 1024

    def resident(kind=1):
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[kind]) * PAGE
""")


def printed(*words: object, cwd: Path = ROOT, setting: str | None = None, **environment: str) -> str:
    """Run Python with these words to its end, which is to be a good one; return what it printed.

    Parameters
    ----------
    setting : str, optional
        One of SETTINGS, in the place of all that the environment says of DreamStream.
    """
    own = {k: v for k, v in os.environ.items() if setting is None or not k.startswith("DREAMSTREAM_")}
    own |= {**SETTINGS.get(setting or "", {}), **environment}
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=cwd, env=own, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout
