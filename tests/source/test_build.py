"""What a build is told: which OpenBLAS it takes, and by which names."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cbuild(c_build, monkeypatch):
    """The build's own module, on a machine on which pkg-config says nothing."""
    monkeypatch.setenv("PKG_CONFIG", "false")
    return c_build.cbuild


def test_none(cbuild):
    assert cbuild.find_blas("none") == "DREAMSTREAM_BLAS=none"


def test_the_system_s(cbuild, monkeypatch, tmp_path):
    """What pkg-config says, and nothing that would travel with the package."""
    assert cbuild.find_blas("system") == cbuild.Blas("", ["-lopenblas"], [], [])
    monkeypatch.setenv("PKG_CONFIG", str(tmp_path / "missing"))
    assert cbuild.find_blas("system").libraries == ["-lopenblas"]
    (tmp_path / "pkg-config").write_text(
        '#!/bin/sh\n[ "$*" = "--libs openblas" ] && echo -L/opt/blas -lopenblas_x\n'
    )
    (tmp_path / "pkg-config").chmod(0o755)
    monkeypatch.setenv("PKG_CONFIG", str(tmp_path / "pkg-config"))
    assert cbuild.find_blas("system").libraries == ["-L/opt/blas", "-lopenblas_x"]


def test_the_wheel_s(cbuild, monkeypatch):
    """Where it is installed, asked for or not; an error where it is asked for and isn't."""
    found = cbuild.find_blas("")
    if isinstance(found, cbuild.Blas):
        assert cbuild.find_blas("scipy") == found and found.prefix == "scipy_"
        assert "libscipy_openblas.so" in [path.name for path in found.carried]
        assert [path.name for path in found.licences] == ["LICENSE.txt"]
    monkeypatch.setattr(cbuild.util, "find_spec", lambda name: None)
    assert cbuild.find_blas("") == "scipy-openblas32 is not installed"
    with pytest.raises(ValueError, match="DREAMSTREAM_BLAS=scipy: scipy-openblas32 is not installed"):
        cbuild.find_blas("scipy")
    with pytest.raises(ValueError, match="must be scipy, system or none, got 'mkl'"):
        cbuild.find_blas("mkl")


@pytest.mark.parametrize("prefix", ["scipy_", ""])
def test_names_of_its_functions(c_build, tmp_path, prefix):
    """Nothing but the flags says how the library's symbols begin."""
    flags = c_build.cbuild.flags(openblas=True, prefix=prefix)
    target = tmp_path / "blas.o"
    command = [*c_build.cc(), *flags, "-c", str(ROOT / "csrc" / "kernels" / "blas.c"), "-o", str(target)]
    subprocess.run(command, check=True)
    listed = subprocess.run(["nm", "-u", str(target)], check=True, capture_output=True, text=True).stdout.split()
    names = {name.removeprefix(prefix) for name in listed if "blas" in name and name.startswith(prefix)}
    assert names == {
        "cblas_dgemm", "cblas_dgemv", "cblas_sgemm", "cblas_sgemv", "openblas_get_config",
        "openblas_set_num_threads",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("mkl", "must be scipy, system or none, got 'mkl'"),
        ("system", "-lno_such_blas does not link .*apt-get install libopenblas-dev.*DREAMSTREAM_BLAS=none"),
    ],
)
def test_a_choice_that_there_is_not_ends_the_build(c_build, monkeypatch, tmp_path, choice, said):
    """Before anything is compiled."""
    (tmp_path / "pkg-config").write_text("#!/bin/sh\necho -lno_such_blas\n")
    (tmp_path / "pkg-config").chmod(0o755)
    monkeypatch.setenv("PKG_CONFIG", str(tmp_path / "pkg-config"))
    monkeypatch.setenv("DREAMSTREAM_BLAS", choice)
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode and re.search(said, done.stderr.splitlines()[-1])
