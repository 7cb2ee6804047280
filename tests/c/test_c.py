"""Builds and runs every C test program, one test each: plain and under the sanitizers."""

import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in HERE.glob("test_*.c"))
CASES = [("asan", name) for name in NAMES]
#: What compilers may make something else of without the sanitizers: arithmetic, and threads. The objects are the
#: package's own, by which all tests in Python run: what operators give of them is for the laws to say, and of all
#: else what the sanitizers find is found there.
PLAIN = ("test_kernels_", "test_thread_", "test_expr", "test_fft", "test_float_env", "test_tiles")
CASES += [pytest.param("plain", name, marks=[pytest.mark.slow] * (not name.startswith(PLAIN))) for name in NAMES]
CASES += [pytest.param("tsan", name, marks=pytest.mark.slow) for name in NAMES if "thread" in name]


@pytest.mark.parametrize("variant", ["plain", "asan"])
def test_engine_builds(c_build, variant):
    """Every file compiles, and every name that the engine uses exists."""
    assert not c_build.engine(variant).error, c_build.engine(variant).error
    c_build.whole(c_build.engine(variant))


@pytest.mark.parametrize(("variant", "name"), CASES, ids=lambda word: word)
def test_program(c_build, variant, name):
    done = c_build.run(c_build.program(c_build.engine(variant), HERE / f"{name}.c"))
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}"


@pytest.mark.slow
def test_many_variations(c_build):
    """Thirty times as many of every operator as the default tier tries."""
    program = c_build.program(c_build.engine("plain"), HERE / "test_ops.c")
    done = c_build.run(program, "30")
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if "api" in name])
def test_program_under_valgrind(c_build, name):
    """No error, no leak: seen by another tool than the compiler's."""
    if shutil.which("valgrind") is None:
        pytest.skip("no valgrind")
    program = c_build.program(c_build.engine("noblas"), HERE / f"{name}.c")
    done = c_build.run(program, timeout=3600, under=c_build.VALGRIND)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}"


TILES = "kernels/x86_amx/tiles.inc"
FAULTS_OF_TILES = {
    "TILES_RUN = 15": "TILES_RUN = 16",
    "TILE_LOAD(1, sums + DS_CELL, TILES_LINE);": "TILE_ZERO(1);",
    "t < 6 ? n_rows : TILES_ROWS": "n_rows",
    "ds_bf16_flushed(x[k])": "ds_float_bits(x[k])",
    "TILES_PART_WEIGHTS(2);": "TILES_PART_WEIGHTS(1);",
    "TILES_PART_ROWS(2);": "TILES_PART_ROWS(1);",
}


@pytest.mark.slow
@pytest.mark.parametrize("line", FAULTS_OF_TILES)
def test_planted_in_tiles(c_build, tmp_path, line):
    """A fault in the tile units' own text is noticed where there are none."""
    text = (HERE.parents[1] / "csrc" / TILES).read_text()
    assert text.count(line) == 1
    planted = tmp_path / TILES
    planted.parent.mkdir(parents=True)
    planted.write_text(text.replace(line, FAULTS_OF_TILES[line]))
    sound = c_build.engine("plain")
    done = c_build.run(
        c_build.program(sound._replace(cflags=[f"-I{tmp_path}", *sound.cflags]), HERE / "test_tiles.c")
    )
    assert done.returncode != 0 and "test_tiles.c" in done.stdout


def test_a_failing_check_fails(c_build, tmp_path):
    """CHECK, check_report and the sanitizers notice what they are there for."""
    bodies = {
        "good": "CHECK(1 == 1);",
        "bad": "CHECK(1 == 2);",
        "none": "",
        "overflow": "volatile int n = 2147483647; n += 1; CHECK(n != 0);",
        "leak": "char *volatile p = malloc(9); CHECK(p); p = NULL;",
    }
    results = {}
    for name, body in bodies.items():
        source = tmp_path / f"{name}.c"
        source.write_text(
            f'#include "check.h"\n#include <time.h>\nint main(void) {{\n{body}\nreturn check_report();\n}}\n'
        )
        program = tmp_path / name
        c_build.build_alone(source, program, "asan")
        results[name] = c_build.run(program)
    assert results["good"].returncode == 0, results["good"].stdout
    assert results["bad"].returncode == 1
    assert "bad.c:4: CHECK(1 == 2) failed" in results["bad"].stdout
    assert results["none"].returncode == 1
    assert "runtime error: signed integer overflow" in results["overflow"].stdout
    assert results["overflow"].returncode != 0
    assert "LeakSanitizer" in results["leak"].stdout
    assert results["leak"].returncode != 0


def test_a_race_is_found(c_build, tmp_path):
    source = tmp_path / "race.c"
    source.write_text("""#include "check.h"
#include <pthread.h>
static int n;
static void *add(void *unused) { (void)unused; n++; return NULL; }
int main(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, add, NULL) == 0);
    n++;
    CHECK(pthread_join(thread, NULL) == 0);
    return check_report();
}
""")
    program = tmp_path / "tsan" / "race"
    program.parent.mkdir()
    c_build.build_alone(source, program, "tsan")
    done = c_build.run(program)
    assert "data race" in done.stdout
    assert done.returncode != 0
