"""The Java classes and their native libraries, compiled here into one jar."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from .flags import prefix
from .libraries import APPLE, HERE, JAVA_PLATFORM, library_name


def make_jar(target: Path) -> Path:
    """Compile the package's Java sources into the jar `target`; return its path.

    It needs a JDK of version 17 or later (``javac`` of ``JAVA_HOME`` or of the path) and a C compiler (``CC``, or
    ``cc``), and holds all that a program needs: the classes, the engine and what that is linked to. RuntimeError
    is raised where a compiler is missing, or fails, with its message.
    """
    package = prefix()
    sources = package / "lib" / "java"
    home, jni = java_home(), library_name("dreamstream_jni")
    with tempfile.TemporaryDirectory(prefix="dreamstream-jar-") as folder:
        made = Path(folder)
        javac = [str(home / "bin" / "javac"), "--release", "17", "-d", str(made)]
        _run([*javac, *map(str, sorted(sources.rglob("*.java")))])
        _run([*_compiler(), str(sources / "jni.c"), "-o", str(made / jni), *_jni_flags(home, package)])
        native = {f"_openblas/{path.name}": path for path in sorted(package.glob("_openblas/*.so*"))}
        native |= {
            f"lib/{path.name}": path for path in sorted(package.glob(f"lib/{library_name('dreamstream', '*')}"))
        }
        native[f"lib/{jni}"] = made / jni  # the last, as it is the one that is loaded
        target.unlink(missing_ok=True)
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as jar:
            jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\r\n\r\n")
            for path in sorted(made.rglob("*.class")):
                jar.write(path, path.relative_to(made).as_posix())
            place = f"dreamstream/native/{JAVA_PLATFORM}"
            jar.writestr(f"{place}/files", "".join(f"{name}\n" for name in native))
            for name, path in native.items():
                jar.write(path, f"{place}/{name}")
    return target


def java_home() -> Path:
    """Return the folder of the JDK."""
    folder = os.environ.get("JAVA_HOME")
    javac = str(Path(folder) / "bin" / "javac") if folder else "javac"
    found = shutil.which(javac)
    if found is None:
        raise RuntimeError(
            f"there is no Java compiler ({javac} is not found); on Debian or Ubuntu `sudo apt-get install "
            "openjdk-17-jdk-headless` brings it, elsewhere any JDK from 17 on, whose folder JAVA_HOME names"
        )
    return Path(found).resolve().parent.parent


def _compiler() -> list[str]:
    cc = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(cc[0]) is None:
        raise RuntimeError(f"there is no C compiler ({cc[0]} is not found), which jni.c needs")
    return cc


def _jni_flags(home: Path, package: Path) -> list[str]:
    includes = [package / "include", home / "include", *sorted((home / "include").glob("*/"))]
    library = package / "lib"
    return [
        *("-std=c11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden"),
        *(f"-I{folder}" for folder in includes),
        *(f"-L{library}", "-ldreamstream", f"-Wl,-rpath,{HERE}"),
        *(() if APPLE else (f"-Wl,-rpath-link,{folder}" for folder in (library, package / "_openblas"))),
    ]


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed\n{done.stderr or done.stdout}")
