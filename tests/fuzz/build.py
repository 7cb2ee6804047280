"""Build a fuzz target, and run it.

Every `tests/fuzz/fuzz_*.c` is a target (see `fuzz.h`). It is built with the engine by clang, with libFuzzer
and the address and undefined-behaviour sanitizers, and begins with the inputs in `corpus/<target>`; what
it finds out on the way is kept under `build/fuzz/<target>`, so that the next run goes on from there.

    python tests/fuzz/build.py json --runs 10000000
    python tests/fuzz/build.py safetensors --seconds 600
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "csrc"))
import cbuild

BUILD = cbuild.build_folder() / "fuzz"
SANITIZERS = "address,undefined"
LIMITS = ["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"]
ENVIRONMENT = {"ASAN_OPTIONS": "allocator_may_return_null=1", "UBSAN_OPTIONS": "print_stacktrace=1"}


def targets() -> dict[str, Path]:
    """The sources of the targets, by name."""
    return {path.stem.removeprefix("fuzz_"): path for path in sorted(HERE.glob("fuzz_*.c"))}


def build(name: str) -> tuple[Path, Path | None]:
    """Compile what changed and link; returns the program, and the dictionary if the target has one.

    A dictionary is `<name>.dict`, and what the program of `words_<name>.c` prints.
    """
    clang = os.environ.get("FUZZ_CC", "clang").split()
    cflags = cbuild.flags(openblas=False, sanitize=f"fuzzer-no-link,{SANITIZERS}", werror=False)
    cflags += ["-DDS_LIBFUZZER", f"-I{ROOT / 'tests' / 'c'}"]
    sources = [targets()[name], *cbuild.sources(python=False), ROOT / "tests" / "c" / "fault.c"]
    main, *engine = cbuild.compile_all(clang, sources, BUILD, cflags)
    archive, program = BUILD / "engine.a", main.with_suffix("")
    archive.unlink(missing_ok=True)
    subprocess.run(["ar", "qcs", str(archive), *map(str, engine)], check=True)
    link = [*clang, *cbuild.sanitizer_flags(f"fuzzer,{SANITIZERS}"), str(main), str(archive)]
    subprocess.run([*link, "-lm", "-pthread", "-o", str(program)], check=True)
    words = HERE / f"{name}.dict"
    if not words.exists():
        return program, None
    lines = words.read_text().splitlines()
    if (source := HERE / f"words_{name}.c").exists():
        (speaker,) = cbuild.compile_all(clang, [source], BUILD, cflags)
        link = [*clang, *cbuild.sanitizer_flags(SANITIZERS), str(speaker), str(archive)]
        subprocess.run([*link, "-lm", "-pthread", "-o", str(speaker.with_suffix(""))], check=True)
        said = subprocess.run([str(speaker.with_suffix(""))], check=True, capture_output=True, text=True).stdout
        lines += [line for line in dict.fromkeys(said.splitlines()) if line not in lines]
    dictionary = BUILD / words.name
    dictionary.write_text("\n".join(lines) + "\n")
    return program, dictionary


def run(name: str, program: Path, dictionary: Path | None, options: list[str]) -> int:
    """Fuzz; returns libFuzzer's exit status. What it finds is named on standard error."""
    found = BUILD / name
    (found / "corpus").mkdir(parents=True, exist_ok=True)
    command = [str(program), *LIMITS, *options, f"-artifact_prefix={found}/"]
    command += [f"-dict={dictionary}"] if dictionary else []
    command += [str(found / "corpus"), str(HERE / "corpus" / name)]
    return subprocess.run(command, env={**ENVIRONMENT, **os.environ}).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=targets())
    parser.add_argument("--runs", type=int, default=-1, help="inputs; without end by default")
    parser.add_argument("--seconds", type=int, default=0, help="of time; without end by default")
    parser.add_argument("--longest", type=int, default=4096, help="bytes of an input")
    args = parser.parse_args()
    program, dictionary = build(args.target)
    options = [f"-runs={args.runs}", f"-max_total_time={args.seconds}", f"-max_len={args.longest}"]
    return run(args.target, program, dictionary, options)


if __name__ == "__main__":
    sys.exit(main())
