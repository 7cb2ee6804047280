"""Build the C test programs, and run them.

Every `tests/c/test_*.c` is a program linked against the engine without its Python room. Variants:

plain    the objects of the package itself, with OpenBLAS where it is found
noblas   the same without OpenBLAS
asan     address and undefined-behaviour sanitizers, without OpenBLAS
tsan     thread sanitizer, without OpenBLAS
aarch64  for 64-bit ARM by a cross compiler, run under emulation, without OpenBLAS

    python tests/c/build.py --variant asan --run [name ...]
    python tests/c/build.py --variant noblas --valgrind [name ...]     # slow
    python tests/c/build.py --faults                                   # the allocator for tests in Python
"""

import argparse
import fcntl
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "csrc"))
import cbuild

SANITIZERS = {"plain": "", "noblas": "", "asan": "address,undefined", "tsan": "thread", "aarch64": ""}
CROSS = "aarch64-linux-gnu-"
PROCESSOR = os.environ.get("DREAMSTREAM_AARCH64_CPU", "max")
EMULATOR = ["qemu-aarch64", "-cpu", PROCESSOR, "-L", "/usr/aarch64-linux-gnu"]
BUILD = cbuild.build_folder() / "c"
FAULT = HERE / "fault.c"
VALGRIND = ["valgrind", "-q", "--error-exitcode=99", "--leak-check=full"]
RUN_ENVIRONMENT = {
    "ASAN_OPTIONS": "allocator_may_return_null=1:detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "allocator_may_return_null=1:halt_on_error=1:second_deadlock_stack=1",
}


def cc(variant: str = "plain") -> list[str]:
    """The compiler."""
    if variant == "aarch64":
        return [*(["ccache"] if shutil.which("ccache") else []), f"{CROSS}gcc", "-O2"]
    return os.environ.get("CC", "cc").split()


def programs() -> list[Path]:
    """The sources of the test programs."""
    return sorted(HERE.glob("test_*.c"))


class Engine(NamedTuple):
    """The engine as a program takes it: an archive, how a program is compiled and linked; what did not compile."""

    variant: str
    archive: Path
    cflags: list[str]
    libraries: list[str]
    error: str


class Built(NamedTuple):
    """What a build made: executables by name, and messages by name; `engine` is its own name."""

    programs: dict[str, Path]
    errors: dict[str, str]


@functools.cache
def engine(variant: str) -> Engine:
    """Compile what changed of the engine, once, and the allocator that fails on demand."""
    blas = openblas() if variant == "plain" else None
    flags = cbuild.flags(
        openblas=blas is not None, prefix=blas.prefix if blas else "", sanitize=SANITIZERS[variant]
    )
    cflags, where, error = [*flags, f"-I{HERE}", "-Wno-frame-larger-than"], BUILD / variant, ""  # of tests
    cflags += ["-DDS_EMULATED"] if variant == "aarch64" else []
    with _lock(where):
        try:
            if variant == "plain":
                files = cbuild.sources(python=False)
                objects = cbuild.compile_all(
                    cbuild.extension_compiler(), files, cbuild.build_folder() / "objects", flags
                )
                objects += cbuild.compile_all(cc(), [FAULT], where, cflags)
            else:
                objects = cbuild.compile_all(cc(variant), [*cbuild.sources(python=False), FAULT], where, cflags)
        except cbuild.CompileError as fault:
            objects, error = fault.objects, str(fault)
        members, archive, held = [str(path) for path in objects], where / "engine.a", where / "engine.txt"
        if not _newer(archive, objects) or not held.exists() or held.read_text() != "\n".join(members):
            archive.unlink(missing_ok=True)
            subprocess.run([CROSS * (variant == "aarch64") + "ar", "qcs", str(archive), *members], check=True)
            held.write_text("\n".join(members))
    libraries = ["-lm", "-pthread", *cbuild.sanitizer_flags(SANITIZERS[variant])]
    libraries += [*blas.libraries, *(f"-Wl,-rpath,{path.parent}" for path in blas.carried[:1])] if blas else []
    # What the programs themselves do takes a third of the time to compile, and is as fast.
    return Engine(variant, archive, [*cflags, "-O1"], libraries, error)


def program(made: Engine, source: Path, everything: bool = False) -> Path:
    """Compile and link one program, which takes from the engine what it uses, or everything.

    Raises
    ------
    CompileError
        With the compiler's messages.
    """
    where = BUILD / made.variant
    compiler = cc(made.variant)
    with _lock(where / source.stem):  # the processes of pytest compile side by side
        (main,) = cbuild.compile_all(compiler, [source], where, made.cflags)
        linked = main.with_suffix("")
        inputs = [str(made.archive)]
        if everything:
            inputs = ["-Wl,--whole-archive", *inputs, "-Wl,--no-whole-archive"]
        if not _newer(linked, [main, made.archive]):
            fresh = linked.with_suffix(".new")  # the old one may be running
            flags = [*made.libraries, *cbuild.link_flags(compiler)]
            _link([*compiler, "-o", str(fresh), str(main), *inputs, *flags])
            fresh.replace(linked)
    return linked


def _newer(made: Path, sources: Sequence[Path]) -> bool:
    """Whether a file is newer than all that it is made of."""
    return made.exists() and made.stat().st_mtime_ns > max(path.stat().st_mtime_ns for path in sources)


def whole(made: Engine) -> Path:
    """Return an empty program that takes all of the engine: every name that the engine uses exists."""
    empty = BUILD / made.variant / "engine.c"
    empty.write_text("int main(void) { return 0; }\n")
    return program(made, empty, everything=True)


def build(variant: str, chosen: Sequence[Path] | None = None) -> Built:
    """Compile and link programs, all of them by default. A fault ends only what needs the faulty part."""
    made = engine(variant)
    built = Built({}, {"engine": made.error} if made.error else {})
    wanted = programs() if chosen is None else list(chosen)
    with suppress(cbuild.CompileError):  # side by side; faults are told below, one by one
        cbuild.compile_all(cc(variant), wanted, BUILD / variant, made.cflags)
    for source in wanted:
        try:
            built.programs[source.stem] = program(made, source)
        except cbuild.CompileError as error:
            built.errors[source.stem] = str(error)
    return built


def faults() -> Path:
    """The allocator that fails on demand, as a library for Python."""
    where, cflags = BUILD / "faults", [*cbuild.flags(openblas=False), "-fPIC", "-fvisibility=default"]
    library = where / "faults.so"
    with _lock(where):
        sources = [FAULT, *sorted((ROOT / "csrc" / "base").glob("*.c"))]
        objects = cbuild.compile_all(cc(), sources, where, cflags)
        fresh = library.with_suffix(".new")  # a process may have the old one mapped
        _link([*cc(), "-shared", "-o", str(fresh), *map(str, objects), "-pthread", *cbuild.link_flags(cc())])
        fresh.replace(library)
    return library


def build_alone(source: Path, program: Path, variant: str) -> None:
    """Compile and link one file without the engine: for tests of `check.h` and of the variants."""
    cflags = [*cbuild.flags(openblas=False, sanitize=SANITIZERS[variant]), f"-I{HERE}"]
    _link([*cc(), *cflags, str(source), "-o", str(program)])


def run(
    program: Path, *arguments: str, timeout: float = 600, under: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a program, `under` another one (VALGRIND); its output (both streams) is in `.stdout`."""
    command = [*under, *(EMULATOR if "aarch64" in program.parts else []), str(program), *arguments]
    randomised = Path("/proc/sys/vm/mmap_rnd_bits")
    if "tsan" in program.parts and randomised.exists() and int(randomised.read_text()) > 28:
        command = ["setarch", "-R", *command]  # gcc's thread sanitizer can't cope with more
    return subprocess.run(
        command,
        text=True,
        errors="replace",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout,
        env={**RUN_ENVIRONMENT, **os.environ},
    )


def openblas() -> cbuild.Blas | None:
    """The OpenBLAS that a build would take, else the copy inside an installed DreamStream."""
    wanted = os.environ.get("DREAMSTREAM_BLAS", "")
    found = cbuild.find_blas(wanted)
    if isinstance(found, cbuild.Blas):
        return found
    spec = importlib.util.find_spec("dreamstream") if wanted != "none" else None
    for place in (spec.submodule_search_locations or []) if spec else []:
        library = Path(place) / "_openblas" / "libscipy_openblas.so"
        if library.exists():
            return cbuild.Blas("scipy_", [f"-L{library.parent}", "-lscipy_openblas"], [library], [])
    return None


def extension() -> Path | None:
    """The built `dreamstream._core`, found without importing it."""
    spec = importlib.util.find_spec("dreamstream")
    for place in (spec.submodule_search_locations or []) if spec else []:
        library = Path(place) / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
        if library.exists():
            return library
    return None


def _link(command: Sequence[str]) -> None:
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise cbuild.CompileError(f"does not link\n{done.stdout}")


@contextmanager
def _lock(where: Path) -> Iterator[None]:
    where.mkdir(parents=True, exist_ok=True)
    with open(where / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variant", choices=SANITIZERS, default="plain")
    parser.add_argument("--run", action="store_true", help="run them too")
    parser.add_argument("--valgrind", action="store_true", help="run them under valgrind")
    parser.add_argument(
        "--faults", action="store_true", help="build the allocator for Python, and say where it is"
    )
    parser.add_argument("names", nargs="*", help="test_*.c without the suffix; all by default")
    args = parser.parse_args()
    if args.faults:
        print(faults())
        return 0
    chosen = [path for path in programs() if path.stem in args.names]
    if unknown := set(args.names) - {path.stem for path in chosen}:
        parser.error(f"no such program: {', '.join(sorted(unknown))}")
    built = build(args.variant, chosen or None)
    failed = len(built.errors)
    for name, message in built.errors.items():
        print(f"{name}: does not build\n{message}")
    for name, program in built.programs.items():
        if not (args.run or args.valgrind):
            print(program)
        else:
            done = run(program, timeout=3600, under=VALGRIND) if args.valgrind else run(program)
            failed += done.returncode != 0
            print(f"{name}: {'ok' if done.returncode == 0 else f'FAILED ({done.returncode})'}")
            print(done.stdout, end="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
