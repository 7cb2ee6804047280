"""`python -m dreamstream.config`: a C program compiled with what it prints runs."""

import importlib
import os
import platform
import runpy
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import dreamstream as ds
from dreamstream.config import __main__ as command, flags, jar, libraries

PROGRAM = """
#include <stdio.h>
#include <string.h>
#include <dreamstream.h>

int main(void)
{
    puts(ds_version());
    return strcmp(ds_version(), DS_VERSION_STRING) != 0;
}
"""

PACKAGE = Path(ds.__file__).parent
SETUP = Path(__file__).resolve().parents[2] / "setup.py"
SANITIZED = "DREAMSTREAM_SANITIZE" in os.environ or "LD_PRELOAD" in os.environ


def printed(*options, capsys):
    assert command.main(list(options)) == 0
    return capsys.readouterr().out


def test_what_it_prints(capsys):
    assert printed("--version", capsys=capsys) == f"{ds.__version__}\n"
    assert printed("--prefix", capsys=capsys) == f"{PACKAGE}\n"
    assert printed("--libdir", "--includedir", capsys=capsys) == f"{PACKAGE}/lib {PACKAGE}/include\n"
    assert (Path(printed("--includedir", capsys=capsys).strip()) / "dreamstream.h").is_file()
    assert printed(capsys=capsys).startswith("version ")
    with pytest.raises(SystemExit) as stop:
        command.main(["--flags"])
    assert stop.value.code == 2 and "--flags" in capsys.readouterr().err


def test_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "dreamstream.config", "--cflags", "--libs"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert shlex.split(done.stdout) == [*shlex.split(flags.cflags()), *shlex.split(flags.libs())]


def build_and_run(folder, command_line):
    (folder / "version.c").write_text(PROGRAM)
    subprocess.run(command_line, shell=True, cwd=folder, check=True)
    env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    done = subprocess.run(["./version"], cwd=folder, capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout) == (0, f"{ds.__version__}\n"), done.stderr


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.skipif(SANITIZED, reason="the library needs the sanitizer's")
def test_a_program(tmp_path):
    asked = f"{shlex.quote(sys.executable)} -m dreamstream.config --cflags --libs"
    build_and_run(tmp_path, f"cc -Wall -Wextra -Wpedantic -Werror version.c $({asked}) -o version")


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.skipif(SANITIZED, reason="the library needs the sanitizer's")
def test_a_path_with_spaces(tmp_path, monkeypatch):
    """As it would be installed elsewhere: the library finds OpenBLAS beside itself."""
    installed = tmp_path / "a folder's" / "dreamstream"
    for name in "include", "lib", "_openblas":
        if (PACKAGE / name).is_dir():
            shutil.copytree(PACKAGE / name, installed / name)
    monkeypatch.setattr(flags, "prefix", lambda: installed)
    build_and_run(tmp_path, f"cc version.c {flags.cflags()} {flags.libs()} -o version")


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="there is no pkg-config")
@pytest.mark.skipif(SANITIZED, reason="the library needs the sanitizer's")
def test_pkg_config(tmp_path):
    """Of a package that has moved; the program asks for the library by the number of its interface."""
    for name in "include", "lib", "_openblas":
        if (PACKAGE / name).is_dir():
            shutil.copytree(PACKAGE / name, tmp_path / "moved" / name)
    asked = f"env PKG_CONFIG_PATH={tmp_path}/moved/lib/pkgconfig pkg-config"
    told = subprocess.run(f"{asked} --modversion dreamstream", shell=True, capture_output=True, text=True)
    assert told.stdout == f"{ds.__version__}\n"
    (tmp_path / "moved" / "lib" / "libdreamstream.so.1").rename(tmp_path / "kept")
    with pytest.raises(AssertionError, match=r"libdreamstream\.so\.1"):
        build_and_run(tmp_path, f"cc version.c $({asked} --cflags --libs dreamstream) -o version")
    (tmp_path / "kept").rename(tmp_path / "moved" / "lib" / "libdreamstream.so.1")
    build_and_run(tmp_path, f"cc version.c $({asked} --cflags --libs dreamstream) -o version")


SYSTEMS = {
    ("Linux", "x86_64"): ("linux-x86_64", "libdreamstream.so.1", "libdreamstream_jni.so", "$ORIGIN"),
    ("Linux", "aarch64"): ("linux-aarch64", "libdreamstream.so.1", "libdreamstream_jni.so", "$ORIGIN"),
    ("Darwin", "x86_64"): ("macos-x86_64", "libdreamstream.1.dylib", "libdreamstream_jni.dylib", "@loader_path"),
    ("Darwin", "arm64"): ("macos-aarch64", "libdreamstream.1.dylib", "libdreamstream_jni.dylib", "@loader_path"),
}


@pytest.fixture(params=SYSTEMS, ids="-".join)
def system(request, monkeypatch):
    """One of the systems, as which this one gives itself out; what is expected of it."""
    monkeypatch.setattr(platform, "system", lambda: request.param[0])
    monkeypatch.setattr(platform, "machine", lambda: request.param[1])
    monkeypatch.delitem(sys.modules, "libraries", raising=False)
    for module in (libraries, jar):
        importlib.reload(module)
    yield SYSTEMS[request.param]
    monkeypatch.undo()
    for module in (libraries, jar):
        importlib.reload(module)


def test_the_jar_of_each_system(system, monkeypatch, tmp_path):
    """The engine goes into it, and the native methods, which look for the engine beside them, come last."""
    place, engine, methods, here = system
    for name in ("include", "lib/java"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("libdreamstream.so", "libdreamstream.dylib", engine):
        (tmp_path / "lib" / name).touch()
    commands = []

    def run(command):
        commands.append(command)
        if "-o" in command:
            Path(command[command.index("-o") + 1]).touch()

    monkeypatch.setattr(jar, "_run", run)
    monkeypatch.setattr(jar, "prefix", lambda: tmp_path)
    monkeypatch.setattr(jar, "java_home", lambda: tmp_path)
    with zipfile.ZipFile(jar.make_jar(tmp_path / "made.jar")) as made:
        (files,) = [name for name in made.namelist() if name.endswith("/files")]
        assert files == f"dreamstream/native/{place}/files"
        assert made.read(files).decode().split() == [f"lib/{engine}", f"lib/{methods}"]
        assert {files.replace("files", f"lib/{name}") for name in (engine, methods)} < set(made.namelist())
    assert f"-Wl,-rpath,{here}" in commands[1]
    assert any("-rpath-link" in word for word in commands[1]) == (here == "$ORIGIN")


@pytest.mark.skipif(not SETUP.is_file(), reason="the tests are away from the sources")
def test_the_build_of_each_system(system, monkeypatch):
    _, engine, _, here = system
    monkeypatch.setattr(sys, "argv", ["setup.py", "--version"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    built = runpy.run_path(str(SETUP))
    assert built["SONAME"] == engine and built["LIBRARY"] == f"lib/{engine.replace('.1', '')}"
    assert any(flag.endswith(engine) for flag in built["linker_flags"](True))
    assert here == libraries.HERE
    module = ["clang", "-bundle", "-undefined", "dynamic_lookup", "-O2"]
    assert built["library_linker"](module) == (module if here == "$ORIGIN" else ["clang", "-dynamiclib", "-O2"])
