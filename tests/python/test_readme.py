"""The examples of the README and the pages of docs/: they run as written, links and lists hold."""

import ast
import contextlib
import fnmatch
import io
import linecache
import re
import subprocess
import sys
from pathlib import Path

import pytest
from turns import in_blocks

from dreamstream import cli

ROOT = Path(__file__).resolve().parent.parent.parent
MADE = {"generated", "_build"}  # by Sphinx
DOCS = [p for p in sorted((ROOT / "docs").rglob("*.md")) if p.relative_to(ROOT / "docs").parts[0] not in MADE]
PAGES = [ROOT / "README.md", *DOCS, ROOT / "benchmarks" / "README.md"]
BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="the tests are away from the sources")


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def blocks(page):
    """(line, language, text, whether only blank lines stand before it) of every fenced block."""
    text, end, out = page.read_text(encoding="utf-8"), 0, []
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        out.append((line, match[1], match[2], not text[end : match.start()].strip()))
        end = match.end()
    return out


WITH_CODE = [p for p in PAGES if p.exists() and any(language == "python" for _, language, *_ in blocks(p))]


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_examples(page, tmp_path, monkeypatch):
    """Python blocks run in one namespace, in order; a text block right behind one is what it prints."""
    if re.search(r"^(?:import|from) torch\b", page.read_text(encoding="utf-8"), re.MULTILINE):
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    lines = [""] * len(page.read_text(encoding="utf-8").splitlines())  # what the file would be, for who reads it
    for line, language, text, _ in blocks(page):
        if language == "python":
            lines[line : line + text.count("\n")] = text.splitlines()
    monkeypatch.setitem(linecache.cache, str(page), (1, None, [f"{line}\n" for line in lines], str(page)))
    scope, printed, last = {"__name__": "example"}, "", ""
    for line, language, text, adjacent in blocks(page):
        if language == "python":
            tree = ast.parse(text, filename=str(page))
            ast.increment_lineno(tree, line)
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(tree, str(page), "exec"), scope)
            printed = out.getvalue()
        elif language == "text" and adjacent and last == "python":
            assert printed == text, f"{page}:{line}"
        last = language


def test_readme_and_tutorial_have_examples():
    assert {"README.md", "docs/tutorial.md"} <= {name_of(p) for p in WITH_CODE}


def anchors(page):
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@in_blocks("page", PAGES, 62)
def test_links(page):
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors(found), f"{page}: {target}"


@in_blocks("page", PAGES, 62)
def test_lines_are_readable(page):
    code = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        code ^= line.startswith("```")
        assert len(line) <= 120 or code or line.startswith("|"), f"{page}:{number}"


def test_every_page_is_in_the_map():
    index = ROOT / "docs" / "index.md"
    trees = [text for _, language, text, _ in blocks(index) if language == "{toctree}"]
    entries = [line.removesuffix(".md") for tree in trees for line in tree.splitlines()]

    def listed(page):  # * is any name, in the same folder
        folder, _, name = page.removesuffix(".md").rpartition("/")
        parts = [entry.rpartition("/") for entry in entries]
        return any(f == folder and fnmatch.fnmatchcase(name, n) for f, _, n in parts)

    pages = [p.relative_to(ROOT / "docs").as_posix() for p in DOCS if p != index]
    assert not [p for p in pages if not listed(p)], "add a line to docs/index.md"


def shape(text):
    """Lines with numbers replaced: what depends on the machine."""
    text = re.sub(r"\bx86_\w+\b|\bref\b", "KERNELS", text)
    return re.sub(r"\d[\d.,]*(e[-+]\d+)?", "0", text)


def test_demo_prints_what_the_readme_shows(capsys):
    """Figures apart; those that don't depend on the machine too."""
    shown = next(text for _, _, text, _ in blocks(ROOT / "README.md") if text.startswith("24 calls"))
    assert cli.main(["demo"]) == 0
    printed = capsys.readouterr().out
    assert [re.sub(" +", " ", line) for line in shape(printed).splitlines()] == [
        re.sub(" +", " ", line) for line in shape(shown).splitlines()
    ]
    same = (
        r"^24 calls.*$",
        r"^  caller-02 .*  ",
        r"^word errors.*$",
        r"^offline model +\d+ frames",
        r"^delay.*$",
        r"^state.*$",
    )
    for pattern in same:
        assert re.search(pattern, shown, re.MULTILINE)[0] == re.search(pattern, printed, re.MULTILINE)[0]


def test_benchmark_runs():
    """Its outputs agree with PyTorch's, and it prints a table; figures are not looked at."""
    pytest.importorskip("torch")
    script = ROOT / "benchmarks" / "step_latency.py"
    command = [sys.executable, str(script), "--seconds", "0", "--streams", "2", "--networks", "audio"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^network +audio: 345,520 weights; outputs within .* of torch's", done.stdout, re.MULTILINE)
    assert len(re.findall(r"^\| audio \| 2 \| 1000? ms \|", done.stdout, re.MULTILINE)) == 2
