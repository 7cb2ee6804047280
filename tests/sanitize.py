"""Run the tests with the engine instrumented by the compiler's sanitizers.

    python tests/sanitize.py address               # C programs with leaks, then Python: ten minutes
    python tests/sanitize.py thread                # what threads do
    python tests/sanitize.py address tests/laws -k lstm      # these tests of Python only

`address` finds accesses beyond arrays and after their release, overflows and other undefined behaviour;
`thread` finds races. The extension is built, without OpenBLAS, in a copy of the tree under
build/sanitize/, which is kept, so that the next run compiles only what has changed. Python itself is not
instrumented: the sanitizer's library is loaded before it, objects come from malloc one by one
(PYTHONMALLOC), and leaks are looked for in the C programs only.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SANITIZERS = {"address": "address,undefined", "thread": "thread"}
LIBRARIES = {"address": "libasan.so", "thread": "libtsan.so"}
THREADED = tuple(sorted(path.stem for path in (ROOT / "tests" / "c").glob("test_thread_*.c")))
PROGRAMS = {"address": ("asan", ()), "thread": ("tsan", THREADED)}
MEMORY = [f"--ignore=tests/python/test_memory{name}.py" for name in ("", "_files")]  # of the sanitizers, too
PEERS = ["--ignore=tests/python/test_benchmarks.py"]  # libraries of others, which sanitizers end
TESTS = {
    "address": [["tests/laws", "-m", "fast"], ["tests/threads", "tests/python", *MEMORY, *PEERS]],
    "thread": [["tests/threads"]],
}
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "allocator_may_return_null=1:halt_on_error=1:second_deadlock_stack=1:"
    "ignore_noninstrumented_modules=1",
}
COPIED = ("csrc", "dreamstream", "tests", "docs", "examples", "benchmarks")


def copy_tree(place: Path) -> None:
    """Copy what has changed; what is gone is removed."""
    wanted: set[Path] = set()
    files = [p for p in ROOT.iterdir() if p.is_file() and p.suffix in (".py", ".toml", ".md", ".in", "")]
    for folder in COPIED:
        files += [p for p in (ROOT / folder).rglob("*") if p.is_file()]
    for source in files:
        relative = source.relative_to(ROOT)
        parts = set(relative.parts)
        if parts & {"__pycache__", "_openblas"} or source.suffix == ".so" or relative.name == ".git":
            continue
        if relative.parts[:2] in (("dreamstream", "include"), ("dreamstream", "lib")):
            continue
        target = place / relative
        wanted.add(target)
        if target.exists() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)  # as of now: what was compiled from it is older
    for folder in COPIED:
        for old in (place / folder).rglob("*"):
            if old.is_file() and old not in wanted and old.suffix in (".py", ".c", ".h", ".inc"):
                old.unlink()


def build(kind: str, place: Path) -> None:
    """Build the extension in the copy."""
    copy_tree(place)
    environment = {**os.environ, "DREAMSTREAM_SANITIZE": SANITIZERS[kind], "DREAMSTREAM_BLAS": "none"}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=place, env=environment, check=True, stdout=subprocess.DEVNULL)


def library(name: str) -> str:
    """Where the compiler keeps a library."""
    command = [*os.environ.get("CC", "cc").split(), f"-print-file-name={name}"]
    return subprocess.run(command, text=True, check=True, stdout=subprocess.PIPE).stdout.strip()


def environment(kind: str, place: Path) -> dict[str, str]:
    """What a Python that imports the instrumented extension needs; reports go to files."""
    preloaded = " ".join([library(LIBRARIES[kind]), library("libstdc++.so")])
    options = {name: f"{text}:log_path={place / 'report'}" for name, text in OPTIONS.items()}
    more = {"LD_PRELOAD": preloaded, "PYTHONMALLOC": "malloc", "DREAMSTREAM_BLAS": "none"}
    return {**options, **os.environ, **more}


def print_reports(place: Path) -> bool:
    """Print what the sanitizers wrote; whether there was anything."""
    found = False
    for file in sorted(place.glob("report.*")):
        text = file.read_text(errors="replace")
        if "ERROR: " in text or "runtime error" in text or "WARNING: ThreadSanitizer" in text:
            print(text)
            found = True
        file.unlink()
    return found


def run_pytest(kind: str, place: Path, arguments: list[str]) -> int:
    """Run tests of the copy against its own extension."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    if kind == "thread" and randomised():
        command = ["setarch", "-R", *command]
    print("==", " ".join(arguments), flush=True)
    status = subprocess.run(command, cwd=place, env=environment(kind, place)).returncode
    if print_reports(place):
        return 1
    return 0 if status == 5 else status  # 5: no test was chosen


def randomised() -> bool:
    """Whether addresses vary more than the thread sanitizer can cope with."""
    bits = Path("/proc/sys/vm/mmap_rnd_bits")
    return bits.exists() and int(bits.read_text()) > 28


def run_programs(kind: str) -> int:
    """Run the C programs, leaks included."""
    variant, names = PROGRAMS[kind]
    command = [sys.executable, str(ROOT / "tests" / "c" / "build.py"), "--variant", variant, "--run", *names]
    print("== C programs,", variant, flush=True)
    return subprocess.run(command).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=SANITIZERS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of pytest, instead of the usual tests")
    args = parser.parse_args()
    place = ROOT / "build" / "sanitize" / args.kind
    build(args.kind, place)
    status = 0 if args.arguments else run_programs(args.kind)
    for arguments in [args.arguments] if args.arguments else TESTS[args.kind]:
        status = run_pytest(args.kind, place, arguments) or status
    print("all is well" if status == 0 else "FAILED")
    return status


if __name__ == "__main__":
    sys.exit(main())
