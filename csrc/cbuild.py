"""Compile the C engine: the part that `setup.py` and `tests/c/build.py` have in common.

Flags stand in `csrc/compile_flags.txt` (read by clangd and clang-tidy too). They come behind those of the
environment (CC, CFLAGS), so that none of these changes what is computed. Objects are kept in a folder
named after compiler and flags; a source is compiled again when it, or a header it includes, has
changed since.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata, util
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"


@functools.cache
def build_folder() -> Path:
    """Return where builds write: `build` in the tree; if that is read-only a folder that goes with the process."""
    if os.access(ROOT, os.W_OK):
        return ROOT / "build"
    folder = tempfile.mkdtemp(prefix="dreamstream-build-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def sources(*, python: bool) -> list[Path]:
    """Files of csrc that are compiled: of the room `python/`, or of the engine (not of `java/`)."""
    found = sorted(path for path in CSRC.rglob("*.c") if not path.name.endswith(".inc.c"))
    rooms = [path.parts[len(CSRC.parts)] for path in found]
    return [path for path, room in zip(found, rooms) if room != "java" and (room == "python") == python]


class Blas(NamedTuple):
    """The OpenBLAS that a build takes.

    `prefix` is what its symbols begin with, `libraries` the flags that link against it; `carried` are the files
    that travel in the package, `licences` theirs.
    """

    prefix: str
    libraries: list[str]
    carried: list[Path]
    licences: list[Path]


WHEEL = "scipy-openblas32"


def find_blas(wanted: str) -> Blas | str:
    """Return the OpenBLAS of a choice, or why there is none.

    Parameters
    ----------
    wanted : str
        What DREAMSTREAM_BLAS says: "scipy" is the library of the scipy-openblas32 wheel, which travels in the
        package; "system" the one that pkg-config calls openblas, or else the linker; "none"; and "", the wheel's
        where it is installed.

    Raises
    ------
    ValueError
        The choice isn't one of these, or what it names isn't here.
    """
    if wanted == "none":
        return "DREAMSTREAM_BLAS=none"
    if wanted == "system":
        command = [os.environ.get("PKG_CONFIG", "pkg-config"), "--libs", "openblas"]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError:
            return Blas("", ["-lopenblas"], [], [])
        return Blas("", done.stdout.split() if done.returncode == 0 else ["-lopenblas"], [], [])
    if wanted not in ("", "scipy"):
        raise ValueError(f"DREAMSTREAM_BLAS must be scipy, system or none, got {wanted!r}")
    spec = util.find_spec("scipy_openblas32")
    folders = [Path(place) / "lib" for place in (spec.submodule_search_locations or [] if spec else [])]
    carried = sorted(path for folder in folders for path in folder.glob("*.so*"))
    if carried and sys.platform.startswith("linux"):
        licences = [Path(f.locate()) for f in metadata.files(WHEEL) or [] if f.name == "LICENSE.txt"]
        return Blas("scipy_", [f"-L{carried[0].parent}", "-lscipy_openblas"], carried, licences)
    reason = f"{WHEEL} is not installed" if not carried else f"{WHEEL} is not used on {sys.platform}"
    if wanted:
        raise ValueError(f"DREAMSTREAM_BLAS=scipy: {reason}")
    return reason


def flags(*, openblas: bool, prefix: str = "scipy_", sanitize: str = "", werror: bool | None = None) -> list[str]:
    """Compiler flags. `werror=None` asks the environment (DREAMSTREAM_WERROR)."""
    out = (CSRC / "compile_flags.txt").read_text().split()
    out = [f"-I{CSRC / flag[2:]}" if flag.startswith("-I") else flag for flag in out]
    out = [str(CSRC / flag) if before == "-include" else flag for before, flag in zip(["", *out], out)]
    out.append(f"-DDS_HAVE_OPENBLAS={int(openblas)}")
    out += [f"-DDS_BLAS_PREFIX={prefix}"] if openblas else []
    if not sanitize:
        out.append("-Wframe-larger-than=16384")  # of the stack that dreamstream.h promises to be enough
    else:
        out += sanitizer_flags(sanitize)
        out += ["-fno-omit-frame-pointer", "-g1", "-O1"]  # -g1: lines of stacks; variables take a third longer
        out += ["-mfma"] if _fuses_inline() else []  # a call per product is ten times as slow
    if werror if werror is not None else os.environ.get("DREAMSTREAM_WERROR") == "1":
        out.append("-Werror")
    return out


EXACT = (
    "-fno-single-precision-constant",
    "-fexcess-precision=standard",
    "-fdenormal-fp-math=ieee",
    "-mfpmath=sse",
)
"""Flags like those of compile_flags.txt that only some compilers know."""


def link_flags(cc: Sequence[str]) -> list[str]:
    """Return what ends a command that links: so it adds no start-up code that flushes the process's denormals."""
    return ["-O3", "-fno-fast-math", "-fno-unsafe-math-optimizations", *known(tuple(cc), ("-mno-daz-ftz",))]


@functools.cache
def known(cc: tuple[str, ...], flags: tuple[str, ...]) -> list[str]:
    """Return the flags that a compiler knows."""

    def knows(flag: str) -> bool:
        probe = [*cc, "-Werror", flag, "-E", "-x", "c", os.devnull]
        return subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    return [flag for flag in flags if knows(flag)]


def extension_compiler() -> list[str]:
    """What setuptools compiles extensions with."""
    config = sysconfig.get_config_var
    words = [os.environ.get("CC") or config("CC"), config("CFLAGS"), config("CCSHARED")]
    return [w for text in words for w in shlex.split(text or "")]


def _fuses_inline() -> bool:
    """Can what runs on this machine alone have fma as an instruction? (Elsewhere than on x86 it always is one.)"""
    info = Path("/proc/cpuinfo")
    return platform.machine() == "x86_64" and info.exists() and " fma " in info.read_text()


def sanitizer_flags(sanitize: str) -> list[str]:
    """What compiling and linking with sanitizers need alike."""
    return [f"-fsanitize={sanitize}", "-fno-sanitize-recover=all"] if sanitize else []


def compile_all(
    cc: Sequence[str],
    files: Sequence[Path],
    cache: Path,
    cflags: Sequence[str],
    system_includes: Sequence[str] = (),
    key: str = "",
    jobs: int | None = None,
    progress: bool = False,
) -> list[Path]:
    """Compile `files`, return their objects in order; faults are raised when all have been tried.

    `system_includes` is no part of the folder's name (isolated builds put NumPy into a new folder
    each time): what it holds is named by `key`. As many run side by side as there are processors that
    this process may use, or `jobs`. `progress` prints what is compiled, a line per source.
    """
    cflags = [*cflags, *known(tuple(cc), EXACT)]
    digest = hashlib.sha256("\0".join([*cc, *cflags, key]).encode()).hexdigest()[:12]
    command = [*cc, *cflags, *(word for path in system_includes for word in ("-isystem", path))]

    def one(number: int, source: Path) -> Path:
        target = cache / digest / source.resolve().relative_to(ROOT).with_suffix(".o")
        if not _fresh(target):
            if progress:
                print(f"compiling {number} of {len(files)}: {source.relative_to(ROOT)}", flush=True)
            _compile(command, source, target)
        return target

    objects, errors = [], []
    with ThreadPoolExecutor(jobs or _processors()) as pool:
        for future in [pool.submit(one, *numbered) for numbered in enumerate(files, 1)]:
            try:
                objects.append(future.result())
            except CompileError as error:
                errors.append(str(error))
    if errors:
        raise CompileError("\n".join(errors), objects)
    return objects


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _compile(command: Sequence[str], source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(f".{os.getpid()}.part")  # nobody sees half an object
    # The dependency file names the same target in every process: else ccache would find nothing.
    dependencies = ["-MMD", "-MT", source.stem, "-MF", str(target.with_suffix(".d"))]
    step = [*command, "-c", str(source), "-o", str(part), *dependencies]
    began = time.time_ns() - 10_000_000
    try:
        done = subprocess.run(step, text=True, stderr=subprocess.PIPE)
        if done.returncode:
            raise CompileError(f"{source.relative_to(ROOT)} does not compile\n{done.stderr}")
        if done.stderr:
            print(done.stderr, file=sys.stderr, flush=True)
        os.utime(part, ns=(began, began))  # an edit made meanwhile is newer
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _fresh(target: Path) -> bool:
    """Is the object newer than its source and all headers (the compiler's dependency file)?"""
    deps = target.with_suffix(".d")
    if not (target.exists() and deps.exists()):
        return False
    built = target.stat().st_mtime_ns
    names = re.split(r"(?<!\\)\s+", deps.read_text().replace("\\\n", " ").split(":", 1)[1].strip())
    paths = [Path(name.replace("\\ ", " ")) for name in names]
    return all(path.exists() and path.stat().st_mtime_ns <= built for path in paths)


class CompileError(RuntimeError):
    """Files that do not compile: the compiler's messages, and in `objects` those that did."""

    def __init__(self, message: str, objects: Sequence[Path] = ()):
        super().__init__(message)
        self.objects = list(objects)
