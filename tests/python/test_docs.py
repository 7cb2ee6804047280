"""What docs/generate.py makes of the sources, and what pages say that the sources say too."""

import importlib
import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")  # its bridge has a page

from turns import in_blocks

import dreamstream as ds
from dreamstream import _core, models

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="the tests are away from the sources")


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generate():
    return load(DOCS / "generate.py")


@pytest.fixture(scope="module")
def files(generate):
    return generate.files()


@in_blocks("op", _core.operators(), 24)
def test_every_operator_is_documented(op, files):
    assert op["doc"]
    assert all(a["doc"] for a in op["attributes"]), op["attributes"]
    page = files[f"operators/{op['name']}.md"]
    definition, in_python = page.split("## Definition", 1)[1].split("## In Python", 1)
    assert re.search(r"`csrc/ops/\w+\.c`:\n\n```text\n.{20}", definition, re.DOTALL)
    assert in_python.strip(), "say in its row of dreamstream.operations how it is written"
    assert f"operators/{op['name']}.md" in files["operators.inc"]


def test_operators_of_layers(generate):
    users = generate.layers_and_functions()
    layers = ["dreamstream.nn.Conv1d", "dreamstream.nn.LookAhead"]
    assert users["conv1d"] == [*layers, "dreamstream.nn.functional.conv1d"]
    assert users["lstm"] == ["dreamstream.nn.LSTM"]
    assert "dreamstream.nn.ReLU" in users["relu"] and "dreamstream.Tensor.relu" in users["relu"]


@pytest.mark.parametrize("package", [ds, ds.nn, ds.nn.functional, ds.data, models], ids=lambda m: m.__name__)
def test_every_public_name_has_a_place(package, files):
    text = "".join(text for name, text in files.items() if name.endswith(".inc"))
    named = set(re.findall(r"^\.\. [\w:]+:: (\S+)$", text, re.MULTILINE))
    public = [n for n in package.__all__ if not inspect.ismodule(getattr(package, n))]
    assert not [n for n in public if f"{package.__name__}.{n}" not in named]


def test_every_name_of_the_bridge_has_a_place(generate, files):
    names = generate.bridge_names()
    assert {"dreamstream.torch.StreamTensor", "dreamstream.torch.StreamModule"} <= set(names)
    assert not [n for n in names if f":: {n}\n" not in files["torch.inc"]]


def test_every_generated_part_is_on_a_page(files):
    text = "".join(p.read_text(encoding="utf-8") for p in (DOCS / "reference").glob("*.md"))
    assert not [n for n in files if n.endswith(".inc") and f"{{include}} ../generated/{n}\n" not in text]


def test_header_by_sections(generate):
    sections = generate.c_sections()
    header = generate.HEADER.read_text(encoding="utf-8")
    assert [name for name, _ in sections][:3] == ["conventions", "version", "status"]
    assert all(text for _, text in sections)
    shown = "\n".join(text for _, text in sections)
    assert re.findall(r"^DS_API .*\b(ds_\w+)\(", shown, re.MULTILINE) == re.findall(
        r"^DS_API .*\b(ds_\w+)\(", header, re.MULTILINE
    )
    assert "#endif" not in sections[-1][1]


def test_generated_files_are_written_once(generate, files, tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "files", lambda: files)  # which take a second to make
    generate.write(tmp_path)
    old = tmp_path / "operators" / "conv1d.md"
    before = old.stat().st_mtime_ns
    (tmp_path / "operators" / "gone.md").write_text("an operator that is no more")
    generate.write(tmp_path)
    assert old.stat().st_mtime_ns == before
    assert {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()} == set(files)


def test_environment_variables_are_documented():
    sources = [*(ROOT / "dreamstream").rglob("*.py"), *(ROOT / "csrc").rglob("*.c"), ROOT / "setup.py"]
    sources.append(ROOT / "csrc" / "cbuild.py")
    read = re.compile(r"(?:getenv\(|environ\.get\(|environ\[)\s*\"(DREAMSTREAM_\w+)\"")
    names = {n for p in sources for n in read.findall(p.read_text(encoding="utf-8"))}
    page = (DOCS / "reference" / "environment.md").read_text(encoding="utf-8")
    assert "DREAMSTREAM_ISA" in names
    assert not [n for n in names if f"`{n}`" not in page]


def test_pages_say_where_else_their_text_is():
    """A viewer of the repository includes nothing: each page says what would be there, with links that hold."""
    pages = [page for page in DOCS.rglob("*.md") if "```{include} " in page.read_text(encoding="utf-8")]
    assert len(pages) > 10
    for page in pages:
        text = page.read_text(encoding="utf-8")
        notes = re.findall(r'```\n\n<p class="in-repository">\n(.*?)\n</p>\n', text, re.DOTALL)
        assert len(notes) == text.count("```{include} "), page
        for note in notes:
            places = re.findall(r'href="([^"]+)"', note)
            assert places or "--help</code>" in note, page
            assert all((page.parent / place).exists() for place in places), page
    assert ".in-repository {\n  display: none;" in (DOCS / "_static" / "wide.css").read_text(encoding="utf-8")


def test_figure_is_up_to_date():
    script = DOCS / "figures" / "make_chunks.py"
    made = load(script)
    assert made.PICTURE.read_text(encoding="utf-8") == made.picture(), f"run {sys.executable} {script}"


def test_what_pages_name_exists():
    """Objects that pages document by hand, beside what is generated."""
    for page in (DOCS / "reference").glob("*.md"):
        for name in re.findall(r"^\.\. auto\w+:: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            module, _, last = name.rpartition(".")
            assert hasattr(importlib.import_module(module), last), f"{page}: {name}"
