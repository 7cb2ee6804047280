"""Checks on the text of the sources: length of files, calls that a library must not make, words."""

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
import source_tree

MOST_LINES = 600
ENDS_OR_PRINTS = re.compile(
    r"\b(abort|_?exit|_Exit|quick_exit|v?f?printf|f?puts|f?putc|putchar|perror|assert|__builtin_trap"
    r"|Py_FatalError|Py_Exit)\s*\("
)


def plain(text: str) -> str:
    """Words are written with a ~ inside, so that this file holds none of them."""
    return text.replace("~", "")


WORDS = re.compile(
    plain(r"sh~ared/|/wo~rk/|cl~aude|anth~ropic|\biss~ue[ ]|(?<!-Wstrict-)(?<!-Wmissing-)proto~type"),
    re.IGNORECASE,
)
WORDS_ALLOWED = {".ci/run": {plain("sh~ared/")}}


def too_long(paths: Iterable[Path]) -> list[str]:
    out = []
    for path in paths:
        n = path.read_text(encoding="utf-8").count("\n")
        if n >= MOST_LINES:
            out.append(f"{path}: {n} lines, split it (fewer than {MOST_LINES})")
    return out


def forbidden_calls(csrc: Path) -> list[str]:
    out = []
    for path in source_tree.c_files(csrc):
        for number, line in enumerate(source_tree.c_code(path.read_text()).splitlines(), 1):
            out += [f"{path}:{number}: {match[1]}" for match in ENDS_OR_PRINTS.finditer(line)]
    return out


def forbidden_words(root: Path) -> list[str]:
    out = []
    for path in source_tree.files(root):
        name = path.relative_to(root).as_posix()
        allowed = WORDS_ALLOWED.get(name, set())
        data = path.read_bytes()
        if b"\0" in data:
            continue
        for number, line in enumerate([name, *data.decode("utf-8", "replace").splitlines()]):
            found = {word.lower() for word in WORDS.findall(line)} - allowed
            out += [f"{name}:{number}: {word!r}" for word in sorted(found)]
    return out


def test_files_are_short():
    wanted = source_tree.C_SUFFIXES | {".py"}
    assert not too_long(path for path in source_tree.files() if path.suffix in wanted)


def test_library_neither_ends_the_process_nor_prints():
    assert not forbidden_calls(source_tree.ROOT / "csrc")


@pytest.mark.parametrize("git", [False, True])
@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta/history"])
@pytest.mark.parametrize("name", ["v", "docs/my env", "a.b"])
def test_virtual_environments_are_not_ours(tmp_path, git, mark, name):
    """Whatever they are called, wherever they lie; what is new and not yet tracked is ours."""
    files = {"docs/page.md", "setup.py", "lib/deep/new.py"}
    theirs = {f"{name}/{mark}", f"{name}/bin/activate", f"{name}/lib/python3/site-packages/big/__init__.py"}
    for path in files | theirs:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("\n" * 2000)
    if git:
        subprocess.run(["git", "init", "-q", tmp_path], check=True)
        subprocess.run(["git", "add", "setup.py"], cwd=tmp_path, check=True)
    assert {path.relative_to(tmp_path).as_posix() for path in source_tree.files(tmp_path)} == files


def test_words():
    assert not forbidden_words(source_tree.ROOT)


def test_long_file_planted(tmp_path):
    short, long = tmp_path / "short.c", tmp_path / "long.c"
    short.write_text("\n" * 599)
    long.write_text("\n" * 600)
    assert too_long([short, long]) == [f"{long}: 600 lines, split it (fewer than 600)"]


@pytest.mark.parametrize(
    "line",
    [
        "abort();",
        "if (x) exit(1);", "_exit (2);", 'printf("x");', 'fprintf(stderr, "x");', 'puts("x");',
        "assert(n > 0);", "vfprintf(f, s, a);", "/* a */ exit(1); /* b */", 'x = "//"; abort();',
    ],
)  # fmt: skip
def test_forbidden_call_planted(tmp_path, line):
    (tmp_path / "a.c").write_text(f"static void f(void) {{\n{line}\n}}\n")
    assert len(forbidden_calls(tmp_path)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "// exit(1)",
        "/* abort() */", "/*\n * puts(x)\n */", 'message = "abort()";', "snprintf(b, n, s);",
        "_Static_assert(1, m);", "static_assert(1, m);", "vsnprintf(b, n, s, a);", "on_exit_hook(x);",
        r'message = "\" abort() \"";', "c = '\"'; // abort()",
    ],
)  # fmt: skip
def test_allowed_call(tmp_path, line):
    (tmp_path / "a.h").write_text(line)
    assert not forbidden_calls(tmp_path)


@pytest.mark.parametrize("text", ["../sh~ared/data", "cd /wo~rk/x", "by Cl~aude", "the Proto~type", "Iss~ue 12"])
@pytest.mark.parametrize("git", [False, True])
def test_word_planted(tmp_path, text, git):
    ours = plain("../sh~ared/data")
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "run").write_text(ours)
    (tmp_path / "good.md").write_text("-Wstrict-prototypes -Wmissing-prototypes, tissues, issued\n")
    (tmp_path / "data.bin").write_bytes(b"\0" + plain(text).encode())
    if git:
        subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert not forbidden_words(tmp_path)
    (tmp_path / "bad.md").write_text(f"fine\n{plain(text)}\n")
    (found,) = forbidden_words(tmp_path)
    assert found.startswith("bad.md:2: ")
    (tmp_path / "bad.md").unlink()
    (tmp_path / ".ci" / "run").write_text(plain(text))
    assert bool(forbidden_words(tmp_path)) == (plain(text) != ours)
