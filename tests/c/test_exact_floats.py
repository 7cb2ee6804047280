"""Flags that let a compiler compute something else reach neither the engine's objects nor its process.

`exact_floats.c` stands for the engine: it is compiled and linked as the package is, with such flags in CC, CFLAGS
or LDFLAGS. The slow tier compiles the reference kernels with each of them, and builds and tries a whole package.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROBE = HERE / "exact_floats.c"
KERNELS = ROOT / "csrc" / "kernels" / "ref" / "kernels_ref.c"
FLAGS = {
    "gcc": """-ffast-math
-Ofast
-funsafe-math-optimizations
-freciprocal-math
-ffinite-math-only
-fno-signed-zeros
-fsingle-precision-constant
-mfpmath=387
-frounding-math
-mfpmath=both
-fno-trapping-math
-ftrapping-math
-fassociative-math -fno-signed-zeros -fno-trapping-math
-fcx-limited-range
-fexcess-precision=fast
-ffp-contract=fast
-fno-math-errno
-fsignaling-nans
-mrecip
-mdaz-ftz
-Ofast -march=native
-ffast-math -flto
-O0
-O3""",
    "clang": """-ffast-math
-Ofast
-funsafe-math-optimizations
-freciprocal-math
-ffinite-math-only
-fno-signed-zeros
-frounding-math
-fassociative-math
-fno-honor-nans
-fno-honor-infinities
-ffp-model=fast
-ffp-contract=fast
-fdenormal-fp-math=positive-zero
-fapprox-func
-mrecip
-mdaz-ftz
-Ofast -march=native
-O0
-O3""",
}
NOTICED = FLAGS["gcc"].splitlines()[:8]  # which change what the probe gives
CASES = [(cc, flags) for cc, lines in FLAGS.items() for flags in lines.splitlines()]
#: In the default tier what would be noticed: all of that by gcc, and two of clang's, which has a way of its own.
USUAL = {"gcc": NOTICED, "clang": NOTICED[:2]}
TRY = """
import ctypes, sys
control = ctypes.CDLL(sys.argv[1]).exact_floats_control
before = control()
library = ctypes.CDLL(sys.argv[2])
library.exact_floats_digest.restype = ctypes.c_uint64
print(library.exact_floats_digest(), before == control())
"""


@pytest.fixture(scope="module")
def compiler():
    """gcc or clang, if it is here and knows the flags; compiled objects are kept by ccache where there is one."""

    def find(cc, flags=""):
        if shutil.which(cc) is None:
            pytest.skip(f"no {cc}")
        command = [*(["ccache"] if shutil.which("ccache") else []), cc]
        probe = [*command, *flags.split(), "-c", "-x", "c", os.devnull, "-o", os.devnull]
        if flags and subprocess.run(probe, capture_output=True).returncode:
            pytest.skip(f"{cc} does not know {flags}")
        return command

    return find


@pytest.fixture(scope="module")
def plain(c_build, compiler, tmp_path_factory):
    """What a program gives that was built with gcc and no flags, and the library itself."""
    folder = tmp_path_factory.mktemp("plain")
    library = shared(c_build.cbuild, compiler("gcc"), [], folder)
    digest, same = tried(library, library)
    assert same
    return digest, library


def shared(cbuild, cc, flags, folder, guarded=True):
    """Compile and link the probe as setup.py does what the package has."""
    cflags = ["-O3", "-fPIC", "-fno-trapping-math"]
    if guarded:  # flags that contradict each other are what is tried: their warnings are no errors
        cflags = [flag for flag in cbuild.flags(openblas=False) if flag != "-Werror"] + ["-fPIC"]
        (compiled,) = cbuild.compile_all([*cc, *flags], [PROBE], folder, cflags)
    else:
        compiled = folder / "probe.o"
        subprocess.run([*cc, *flags, *cflags, "-c", str(PROBE), "-o", str(compiled)], check=True)
    library = folder / "probe.so"
    end = cbuild.link_flags(cc) if guarded else []
    subprocess.run([*cc, *flags, "-shared", str(compiled), "-o", str(library), "-lm", *end], check=True)
    return library


def tried(plain_library, library):
    done = subprocess.run(
        [sys.executable, "-c", TRY, str(plain_library), str(library)], capture_output=True, text=True, check=True
    )
    digest, same = done.stdout.split()
    return int(digest), same == "True"


@pytest.mark.parametrize(
    ("cc", "flags"), [pytest.param(*c, marks=[pytest.mark.slow] * (c[1] not in USUAL[c[0]])) for c in CASES]
)
def test_flags_change_nothing(c_build, compiler, plain, tmp_path, cc, flags):
    library = shared(c_build.cbuild, compiler(cc, flags), flags.split(), tmp_path)
    assert tried(plain[1], library) == (plain[0], True)


@pytest.mark.parametrize("flags", NOTICED)
def test_the_probe_notices(c_build, compiler, plain, tmp_path, flags):
    """Without the package's flags, those of others change what the probe gives, or what the process computes."""
    library = shared(c_build.cbuild, compiler("gcc", flags), flags.split(), tmp_path, guarded=False)
    assert tried(plain[1], library) != (plain[0], True)


@pytest.mark.parametrize("flags", [*(flags for flags in NOTICED if flags != "-Ofast"), "-frounding-math"])
def test_behind_the_build_s_they_are_errors(c_build, compiler, flags):
    """A flag that comes last is stopped by `csrc/base/floats.h`, which every file sees."""
    cc = compiler("gcc", flags)
    done = subprocess.run(
        [*cc, *c_build.cbuild.flags(openblas=False), *flags.split(), "-fsyntax-only", str(PROBE)],
        capture_output=True,
        text=True,
    )
    assert done.returncode and "#error" in done.stderr and "DreamStream" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cc", "flags"), [case for case in CASES if "-march" not in case[1] and "-flto" not in case[1]]
)
def test_flags_leave_the_kernels_alone(c_build, compiler, tmp_path, cc, flags):
    """The reference kernels are the same object, to the byte."""
    command, cflags = compiler(cc, flags), c_build.cbuild.flags(openblas=False)
    objects = [
        c_build.cbuild.compile_all([*command, *more], [KERNELS], tmp_path / str(i), cflags)[0]
        for i, more in enumerate(([], flags.split()))
    ]
    assert objects[0].read_bytes() == objects[1].read_bytes()


@pytest.mark.slow
def test_a_package_built_with_them(tmp_path):
    """Built with all of them, the package gives what golden files say, and leaves the process's floats alone."""
    tree = tmp_path / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns("build", ".git", "*.so", "_openblas"))
    fast = "-Ofast -ffast-math -funsafe-math-optimizations"
    environment = {**os.environ, "CFLAGS": fast, "LDFLAGS": fast, "PYTHONPATH": str(tree)}
    environment["CC"] = f"{os.environ.get('CC', 'gcc')} -ffast-math -march=native"
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(build, cwd=tree, env=environment, check=True, capture_output=True)
    (library,) = (tree / "dreamstream" / "lib").glob("*.so")
    lines = f"""
import numpy as np
tiny = np.float32(1e-42)
before = float(tiny * np.float32(0.5))
import ctypes, dreamstream
ctypes.CDLL({str(library)!r})
assert before > 0 and float(tiny * np.float32(0.5)) == before
assert dreamstream.__file__.startswith({str(tree)!r})
"""
    subprocess.run([sys.executable, "-c", lines], env=environment, check=True, cwd=tree)
    golden = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/golden"]
    done = subprocess.run(golden, cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
