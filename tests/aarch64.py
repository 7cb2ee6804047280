"""Make a Python for 64-bit ARM with this package, of Debian's and PyPI's packages, to be run under emulation.

    python tests/aarch64.py FOLDER                   # some minutes
    DREAMSTREAM_AARCH64=FOLDER pytest -m slow tests/c/test_aarch64.py -k digest
    (cd FOLDER/tree && ../python -m pytest -q -m fast tests/laws)       # hours

DREAMSTREAM_AARCH64_CPU names another processor of QEMU's, as cortex-a57, in place of one that has everything.

It needs Debian's qemu-user and gcc-aarch64-linux-gnu; nothing of the system is changed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy

ROOT = Path(__file__).resolve().parent.parent
TREE = ("csrc", "dreamstream", "tests", "docs/examples", "setup.py", "pyproject.toml", "README.md", "LICENSE")
APT = """APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
Dir::State::lists "{0}/apt/lists";
Dir::State::status "{0}/apt/status";
Dir::Cache "{0}/apt/cache";
"""
PYTHON = """#!/bin/sh
lib={0}/usr/lib/aarch64-linux-gnu
export PYTHONPATH={0}/tree:{0}/tree/tests/helpers:{0}/packages
exec qemu-aarch64 -cpu ${{DREAMSTREAM_AARCH64_CPU:-max}} \\
    -L {0} -E LD_LIBRARY_PATH=$lib:{0}/lib/aarch64-linux-gnu -E PYTHONHOME={0}/usr \\
    {1} "$@"
"""


def run(*command: object, **variables: str) -> None:
    """Run a command, with variables of the environment."""
    subprocess.run([*map(str, command)], check=True, env={**os.environ, **variables})


def install(folder: Path) -> Path:
    """Unpack Debian's Python, and put NumPy and what tests need beside it; return the Python."""
    for name in ("apt/lists/partial", "apt/cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "apt" / "status").touch()
    settings = folder / "apt" / "conf"
    settings.write_text(APT.replace("{0}", str(folder)))
    run("apt-get", "update", "-q", APT_CONFIG=str(settings))
    run("apt-get", "install", "-q", "-y", "--download-only", "python3-dev", "libstdc++6", APT_CONFIG=str(settings))
    for package in (folder / "apt" / "cache" / "archives").glob("*.deb"):
        run("dpkg", "-x", package, folder)
    (python,) = (path for path in folder.glob("usr/bin/python3.*") if path.suffix[1:].isdigit())
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", folder / "packages", "--upgrade"]
    command += ["--only-binary=:all:", "--python-version", python.name.removeprefix("python")]
    for platform in ("manylinux_2_28_aarch64", "manylinux2014_aarch64"):
        command += ["--platform", platform]
    run(*command, "setuptools", "packaging", f"numpy=={numpy.__version__}", "pytest", "hypothesis")
    return python


def main() -> None:
    """Make it."""
    folder = Path(sys.argv[1]).resolve()
    python = install(folder)
    launcher = folder / "python"
    launcher.write_text(PYTHON.format(folder, python))
    launcher.chmod(0o755)
    tree, left = folder / "tree", shutil.ignore_patterns("*.so*", "__pycache__")
    shutil.rmtree(tree, ignore_errors=True)
    for name in TREE:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=left)
        else:
            shutil.copy2(ROOT / name, tree / name)
    include = folder / "usr" / "include"
    compiler = "ccache aarch64-linux-gnu-gcc" if shutil.which("ccache") else "aarch64-linux-gnu-gcc"
    os.chdir(tree)
    run(
        launcher, "setup.py", "-q", "build_ext", "--inplace",
        CC=compiler, LDSHARED="aarch64-linux-gnu-gcc -shared", DREAMSTREAM_BLAS="none",
        CFLAGS=f"-I{include} -I{include / python.name}",
    )  # fmt: skip
    run(launcher, "-c", "import platform, dreamstream as ds; print(platform.machine(), ds._core.config())")


if __name__ == "__main__":
    main()
