"""Build `dreamstream._core` from csrc/. The rest of the packaging stands in pyproject.toml.

The environment decides: DREAMSTREAM_BLAS=scipy, system or none chooses OpenBLAS (the wheel's, which the
package then carries; the one that is installed here; none), DREAMSTREAM_WERROR=1 makes warnings errors,
DREAMSTREAM_SANITIZE=address,undefined (or thread) instruments the code; a Python that imports such a build
needs `LD_PRELOAD=$(gcc -print-file-name=libasan.so)` (or libtsan.so).

Developers: `pip install -e . --no-build-isolation`, or `python setup.py build_ext --inplace`, compile
only what changed.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import numpy
from setuptools import Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.errors import SetupError

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT / "csrc"), str(ROOT / "dreamstream" / "config")]
import cbuild  # noqa: E402
import libraries  # noqa: E402

HEADER = (cbuild.CSRC / "include" / "dreamstream.h").read_text(encoding="utf-8")
VERSION, ABI = (
    re.search(rf"#define {name} \"?([0-9.]+)", HEADER)[1] for name in ("DS_VERSION_STRING", "DS_ABI_VERSION")
)
# The engine for C programs, which have no Python to resolve _core.
LIBRARY = f"lib/{libraries.library_name('dreamstream')}"
SONAME = libraries.library_name("dreamstream", ABI)
# For `python -m dreamstream.config --jar`, which compiles them where there is a JDK.
JAVA_SOURCES = sorted(path for kind in ("*.java", "*.c") for path in (cbuild.CSRC / "java").rglob(kind))
SANITIZE = os.environ.get("DREAMSTREAM_SANITIZE", "")
PYTHON_MACROS = ["-DNPY_NO_DEPRECATED_API=NPY_1_25_API_VERSION", "-DNPY_TARGET_VERSION=NPY_1_25_API_VERSION"]


#: How C programs are compiled against the package by pkg-config, wherever it lies.
PKG_CONFIG = f"""prefix=${{pcfiledir}}/../..
includedir=${{prefix}}/include
libdir=${{prefix}}/lib

Name: DreamStream
Description: Neural models on streams, chunk by chunk, with the offline model's answers
Version: {VERSION}
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -Wl,-rpath,${{libdir}} -ldreamstream
"""


def chosen_blas() -> cbuild.Blas | None:
    """The OpenBLAS to build with; none: the build says why."""
    try:
        found = cbuild.find_blas(os.environ.get("DREAMSTREAM_BLAS", ""))
    except ValueError as error:
        raise SetupError(f"dreamstream can't be built: {error}") from error
    if isinstance(found, cbuild.Blas):
        return found
    print(f"dreamstream: building without OpenBLAS ({found})", file=sys.stderr)
    return None


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)  # a process may have it mapped
    shutil.copy2(source, target)


def linker_flags(named: bool) -> list[str]:
    """Return what this system's linker is told; `named`: of the library for C programs, which has a soname."""
    if libraries.APPLE:  # its linker has no versions of symbols, and takes no undefined ones anyway
        return [f"-Wl,-install_name,@rpath/{SONAME}"] if named else []
    flags = [] if SANITIZE else ["-Wl,--strip-debug"]  # names stay
    if named:
        flags += [f"-Wl,-soname,{SONAME}", f"-Wl,--version-script={cbuild.CSRC / 'dreamstream.map'}"]
        flags += [] if SANITIZE else ["-Wl,-z,defs"]
    return flags


def library_linker(module_linker: list[str]) -> list[str]:
    """Return the command that links a library for programs, of the one that links a module for Python.

    Apple's systems have two kinds of files for the two, and a module takes Python's names from the program that
    loads it, where a library must have all of its names.
    """
    words = " ".join(module_linker).replace("-undefined dynamic_lookup", "").split()
    return ["-dynamiclib" if word == "-bundle" else word for word in words] if libraries.APPLE else module_linker


def check_compiler(cc: list[str], includes: list[str]) -> None:
    """Raise what a user can act on where no C program for Python can be compiled here."""
    probe = "#include <Python.h>\n#if __STDC_VERSION__ < 201112L\n#error no C11\n#endif\n"
    where = [f"-I{path}" for path in includes]
    try:
        done = subprocess.run([*cc, "-std=c11", *where, "-E", "-"], input=probe, text=True, capture_output=True)
    except OSError:
        reason = f"there is no C compiler ({cc[0]} is not found)"
    else:
        if done.returncode == 0:
            return
        if "Python.h" in done.stderr:
            reason = f"the C headers of Python {sys.version.split()[0]} (Python.h) are not found"
        else:
            reason = f"{cc[0]} does not compile C11: {(done.stderr.splitlines() or ['no message'])[0]}"
    raise SetupError(
        f"dreamstream can't be built, because {reason}; on Debian or Ubuntu `sudo apt-get install build-essential "
        "python3-dev` brings both, elsewhere the system's packages of GCC or Clang and of Python's headers do; "
        "a wheel needs neither"
    )


def check_blas(cc: list[str], blas: cbuild.Blas | None) -> None:
    """Raise what a packager can act on where the system's OpenBLAS does not link: before anything is compiled."""
    if blas is None or blas.carried:
        return
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "blas.c"
        probe.write_text("void openblas_set_num_threads(int); int main(void) { openblas_set_num_threads(1); }\n")
        command = [*cc, str(probe), "-o", str(probe.with_suffix("")), *blas.libraries]
        done = subprocess.run(command, text=True, capture_output=True)
    if done.returncode:
        raise SetupError(
            f"dreamstream can't be built: DREAMSTREAM_BLAS=system: {' '.join(blas.libraries)} does not link "
            f"({(done.stderr.splitlines() or ['no message'])[0]}); on Debian or Ubuntu `sudo apt-get install "
            "libopenblas-dev` brings it; DREAMSTREAM_BLAS=none builds without"
        )


class Build(build):
    """Compiles first, so that what is missing is said before hundreds of files are copied."""

    sub_commands = sorted(build.sub_commands, key=lambda command: command[0] != "build_ext")


class BuildCore(build_ext):
    """Compiles in parallel and only what changed; puts beside _core what it needs and C programs want."""

    def build_extension(self, ext):
        paths = sysconfig.get_paths()
        cc, cache = self.compiler.compiler_so, cbuild.build_folder() / "objects"
        self.exact = cbuild.link_flags(cc)
        check_compiler(cc, [paths["include"], paths["platinclude"]])
        self.blas = chosen_blas()
        check_blas(cc, self.blas)
        prefix = self.blas.prefix if self.blas else ""
        cflags = cbuild.flags(openblas=self.blas is not None, prefix=prefix, sanitize=SANITIZE)
        engine = cbuild.compile_all(cc, cbuild.sources(python=False), cache, cflags, progress=True)
        module = cbuild.compile_all(
            cc,
            cbuild.sources(python=True),
            cache,
            cflags + PYTHON_MACROS,
            system_includes=[paths["include"], paths["platinclude"], numpy.get_include()],
            key=f"{sys.version} numpy {numpy.__version__}",
            progress=True,
        )
        core = Path(self.get_ext_fullpath(ext.name))
        self.place_companions(core.parent)
        self.link(core, engine + module, f"{libraries.HERE}/_openblas")
        library = core.parent / LIBRARY
        self.compiler.linker_so = library_linker(self.compiler.linker_so)  # _core is the last module
        self.link(library, engine, f"{libraries.HERE}/../_openblas", named=True)
        copy(library, library.with_name(SONAME))  # under both names, for a wheel holds no links

    def link(self, target, objects, rpath, named=False):
        self.compiler.link_shared_object(
            [str(path) for path in objects],
            str(target),
            libraries=["m"],
            runtime_library_dirs=[rpath] if self.blas and self.blas.carried else [],
            extra_postargs=[
                *(self.blas.libraries if self.blas else []),
                "-pthread",
                *linker_flags(named),
                *self.exact,
                *cbuild.sanitizer_flags(SANITIZE),
            ],
            build_temp=self.build_temp,
        )

    def place_companions(self, package: Path) -> None:
        """Put what is not compiled beside _core; a former build's is removed."""
        for folder in ("_openblas", "include", "lib"):
            shutil.rmtree(package / folder, ignore_errors=True)
        for path in [*self.blas.carried, *self.blas.licences] if self.blas else []:
            copy(path, package / "_openblas" / path.name)
        copy(cbuild.CSRC / "include" / "dreamstream.h", package / "include" / "dreamstream.h")
        (package / "lib" / "pkgconfig").mkdir(parents=True)
        (package / "lib" / "pkgconfig" / "dreamstream.pc").write_text(PKG_CONFIG, encoding="utf-8")
        for path in JAVA_SOURCES:
            copy(path, package / "lib" / "java" / path.relative_to(cbuild.CSRC / "java"))

    def companions(self, package: Path) -> list[Path]:
        """All that the build puts beside _core."""
        blas = [*self.blas.carried, *self.blas.licences] if self.blas else []
        names = [f"_openblas/{path.name}" for path in blas]
        names += ["include/dreamstream.h", LIBRARY, f"lib/{SONAME}", "lib/pkgconfig/dreamstream.pc"]
        names += [f"lib/{path.relative_to(cbuild.CSRC)}" for path in JAVA_SOURCES]
        return [package / name for name in names]

    def copy_extensions_to_source(self):
        super().copy_extensions_to_source()  # in place, editable: the package is the source folder
        built, package = Path(self.build_lib) / "dreamstream", ROOT / "dreamstream"
        shutil.rmtree(package / "_openblas", ignore_errors=True)
        for source, target in zip(self.companions(built), self.companions(package)):
            copy(source, target)

    def get_outputs(self):
        package = Path(self.get_ext_fullpath("dreamstream._core")).parent
        return [*super().get_outputs(), *map(str, self.companions(package))]


core = Extension(
    "dreamstream._core",
    [str(p.relative_to(ROOT)) for python in (False, True) for p in cbuild.sources(python=python)],
)
elsewhere = {
    "build": {"build_base": str(cbuild.build_folder())},
    "egg_info": {"egg_base": str(cbuild.build_folder())},
}
setup(
    ext_modules=[core],
    cmdclass={"build": Build, "build_ext": BuildCore},
    options={} if os.access(ROOT, os.W_OK) else elsewhere,  # of a tree that is read-only
)
