"""A room uses only rooms above it: `docs/internals/layers.md`, held against includes and imports."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import source_tree

PAGE = source_tree.ROOT / "docs" / "internals" / "layers.md"
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
JAVA_HEADER = re.compile(r"jni(_md)?\.h$")
PYTHON_HEADER = re.compile(r"(Python|structmember|pythread|datetime)\.h$|numpy/|cpython/")
TYPE_CHECKING = {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def rooms(kind: str) -> list[str]:
    """The list of rooms in the block ```<kind>-rooms of the page."""
    block = re.search(rf"^```{kind}-rooms\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert block, f"{PAGE} has no block ```{kind}-rooms"
    lines = [line.split(maxsplit=1) for line in block[1].splitlines()]
    assert all(len(line) == 2 for line in lines), "a line is: name, sentence"
    names = [line[0] for line in lines]
    assert len(set(names)) == len(names)
    return names


def may_use(order: list[str], user: str, used: str) -> bool:
    return used in order and order.index(used) <= order.index(user)


def c_violations(csrc: Path, order: list[str]) -> list[str]:
    out = []
    for path in source_tree.c_files(csrc):
        where = path.relative_to(csrc)
        room = where.parts[0] if len(where.parts) > 1 else ""
        if room not in order:
            out.append(f"{where}: no room of this name is listed")
            continue
        for match in INCLUDE.finditer(source_tree.c_code(path.read_text())):
            name = match[2]
            if PYTHON_HEADER.match(name):
                if room != "python":
                    out.append(f"{where}: <{name}> belongs to the room python")
                continue
            if JAVA_HEADER.match(name) and room != "java":
                out.append(f"{where}: <{name}> belongs to the room java")
            used = _included_room(csrc, path, match[1] == '"', name, order)
            if room == "java" and used not in (None, "include", "java"):
                out.append(f"{where}: includes {name}, but java may use the public header alone")
            if used is not None and not may_use(order, room, used):
                out.append(f"{where}: includes {name}, of the room {used}, which is not above {room}")
    return out


def _included_room(csrc: Path, user: Path, quoted: bool, name: str, order: list[str]) -> str | None:
    """The room of the file that an include finds; None for the system's headers."""
    folders = [csrc, csrc / "include"]
    for folder in [user.parent, *folders] if quoted else folders:
        found = (folder / name).resolve()
        if found.is_file() and found.is_relative_to(csrc.resolve()):
            return found.relative_to(csrc.resolve()).parts[0]
    first = name.split("/")[0]
    return first if first in order and "/" in name else None


def python_violations(package: Path, order: list[str]) -> list[str]:
    out = []
    for path in sorted(package.rglob("*.py")):
        where = path.relative_to(package)
        room = where.parts[0].removesuffix(".py")
        if room not in order:
            out.append(f"{where}: no room of this name is listed")
            continue
        for line, used in _imported_rooms(path, package, order):
            if not may_use(order, room, used):
                out.append(f"{where}:{line}: imports {used}, which is not above {room}")
    return out


def _imported_rooms(path: Path, package: Path, order: list[str]) -> Iterator[tuple[int, str]]:
    inside = [package.name, *path.relative_to(package).parent.parts]
    for node, runs in _imports(path.read_text()):
        if not runs:
            continue
        if isinstance(node, ast.Import):
            modules = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = inside[: len(inside) + 1 - node.level] if node.level else []
            base = start + (node.module.split(".") if node.module else [])
            modules = [[*base, alias.name] for alias in node.names] if len(base) == 1 else [base]
        else:
            modules = _imported_by_name(node, package)
        for module in modules:
            if module[0] == package.name:
                room = module[1] if len(module) > 1 else "__init__"
                is_room = room in order or (package / room).is_dir() or (package / f"{room}.py").exists()
                yield node.lineno, room if is_room else "__init__"


@functools.cache
def _imports(text: str) -> list[tuple[ast.AST, bool]]:
    """All imports, calls of ``import_module`` among them; whether they run: not under `if TYPE_CHECKING:`."""
    found: list[tuple[ast.AST, bool]] = []
    left: list[tuple[ast.AST, bool]] = [(ast.parse(text), True)]
    skipped = () if "import_module" in text else (ast.expr,)
    while left:
        node, runs = left.pop()
        is_call = isinstance(node, ast.Call) and _called(node).endswith("import_module") and node.args
        if is_call or isinstance(node, (ast.Import, ast.ImportFrom)):
            found.append((node, runs))
        typed = node.body if isinstance(node, ast.If) and ast.unparse(node.test) in TYPE_CHECKING else []
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, skipped):
                left.append((child, runs and child not in typed))
    return found


def _imported_by_name(node: ast.Call, package: Path) -> list[list[str]]:
    """What a call of ``import_module`` names: a text, or a text behind the package's own name."""
    texts = [c.value for c in ast.walk(node.args[0]) if isinstance(c, ast.Constant) and isinstance(c.value, str)]
    names = [t.strip(".") for t in texts if t.strip(".") and not t.endswith(".")]
    return [[*([] if n.startswith(package.name) else [package.name]), *n.split(".")] for n in names]


def _called(node: ast.Call) -> str:
    """The last name of what is called."""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def circles(package: Path) -> list[list[str]]:
    """Files that name each other, directly or through others: also for the type checker only."""
    files = {_module(path, package): path for path in package.rglob("*.py")}
    uses = {name: _used_files(path, package, files) for name, path in files.items()}
    reach = {name: set(used) for name, used in uses.items()}
    while sum(_grow(reach, name) for name in reach):
        pass
    found = {frozenset(b for b in reach[a] if a in reach[b]) for a in reach if a in reach[a]}
    return sorted(sorted(circle) for circle in found)


def _grow(reach: dict[str, set[str]], name: str) -> bool:
    more = set().union(*(reach[used] for used in reach[name])) - reach[name]
    reach[name] |= more
    return bool(more)


def _module(path: Path, package: Path) -> str:
    parts = [package.name, *path.relative_to(package).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _used_files(path: Path, package: Path, files: dict[str, Path]) -> set[str]:
    """The files of the package that one imports; what is no file of its own stands in its package's."""
    inside = [package.name, *path.relative_to(package).parent.parts]
    out = set()
    for node, _ in _imports(path.read_text()):
        if isinstance(node, ast.Import):
            out |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = inside[: len(inside) + 1 - node.level] if node.level else []
            base = ".".join(start + (node.module.split(".") if node.module else []))
            names = [a.name for a in node.names if a.name != "_core"]
            out |= {f"{base}.{n}" if f"{base}.{n}" in files else base for n in names}
    return (out & set(files)) - {_module(path, package)}


def test_c_rooms():
    assert not c_violations(source_tree.ROOT / "csrc", rooms("c"))


def test_python_rooms():
    assert not python_violations(source_tree.ROOT / "dreamstream", rooms("python"))


def test_no_circles():
    assert not circles(source_tree.ROOT / "dreamstream")


def test_private_names_of_torch_stand_in_one_file():
    private = re.compile(r"torch(\.\w+)*\._[a-zA-Z]\w*|from torch[\w.]* import _\w+")
    package = source_tree.ROOT / "dreamstream"
    found = {p.relative_to(package).as_posix() for p in package.rglob("*.py") if private.search(p.read_text())}
    assert found == {"torch/private.py"}


def test_a_circle_is_found(tmp_path):
    root = plant(
        tmp_path / "package",
        {
            "__init__.py": "from .a import x\n",
            "a.py": "def f():\n    from . import b\n",
            "b.py": "from .sub.c import y\n",
            "sub/__init__.py": "",
            "sub/c.py": "from package.a import x\n",
            "sub/d.py": "import typing\nif typing.TYPE_CHECKING:\n    from .e import z\n",
            "sub/e.py": "from .d import z\n",
        },
    )
    assert circles(root) == [["package.a", "package.b", "package.sub.c"], ["package.sub.d", "package.sub.e"]]


def plant(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


GOOD_C = {
    "include/dreamstream.h": "#include <stddef.h>\n",
    "base/status.h": "#include <dreamstream.h>\n",
    "base/status.c": '#include "status.h"\n#include "base/status.h"\n',
    "kernels/ref/add.c": '#include "../add.inc"\n/*\n#include "ops/op.h"\n*/\n// #include "ops/op.h"\n',
    "kernels/add.inc": "",
    "ops/op.h": '#include "kernels/add.inc"\n#include <stdio.h>\n',
    "python/module.c": "#include <Python.h>\n#include <numpy/arrayobject.h>\n",
}


@pytest.mark.parametrize(
    "bad",
    [
        {"base/a.c": '#include "ops/op.h"\n'},
        {"base/a.c": "  #  include <ops/op.h>\n"},
        {"base/a.c": '#include "../ops/op.h"\n'},
        {"base/a.c": '#include "ir/not_yet_written.h"\n'},
        {"kernels/ref/b.c": '#include "../../ops/op.h"\n'},
        {"kernels/b.inc": '#include "ops/op.h"\n'},
        {"include/dreamstream.h": '#include "base/status.h"\n'},
        {"ops/a.c": "#include <Python.h>\n"},
        {"ops/a.c": "#include <numpy/npy_math.h>\n"},
        {"attic/a.c": ""},
        {"a.c": ""},
    ],
    ids=str,
)
def test_c_plants(tmp_path, bad):
    order = rooms("c")
    assert not c_violations(plant(tmp_path, GOOD_C), order)
    assert len(c_violations(plant(tmp_path, bad), order)) == 1


GOOD_PYTHON = {
    "__init__.py": "from dreamstream.nn import Linear\nfrom .array import Tensor\n",
    "errors.py": "import torch, os\n",
    "array/__init__.py": "from .. import errors\nfrom ..stream import rules\nfrom . import dtypes\n",
    "array/dtypes.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dreamstream import nn\n",
    "stream/__init__.py": "import typing\nif typing.TYPE_CHECKING:\n    from ..torch import bridge\n",
    "nn/__init__.py": "from dreamstream import dispatch, _core\nimport dreamstream.array as da\n",
    "dispatch.py": "from .array.dtypes import float32\n",
    "torch/__init__.py": "import torch\nfrom torch import nn\n",
    "cli.py": "import dreamstream as ds\nfrom . import tensor\n",
}


@pytest.mark.parametrize(
    "bad",
    [
        {"errors.py": "from . import array\n"},
        {"errors.py": "from .array import Tensor\n"},
        {"errors.py": "import dreamstream\n"},
        {"errors.py": "from dreamstream import tensor\n"},
        {"array/other.py": "def f():\n    from dreamstream.nn.functional import relu\n"},
        {"array/other.py": "def f():\n    import os, dreamstream.nn\n"},
        {"array/other.py": "from ..nn import functional\n"},
        {"array/other.py": "try:\n    from .. import nn\nexcept ImportError:\n    pass\n"},
        {"array/other.py": "if not TYPE_CHECKING:\n    from .. import nn\n"},
        {"array/other.py": "if TYPE_CHECKING:\n    pass\nelse:\n    from .. import nn\n"},
        {"nn/layers/deep.py": "from ...online import sessions\n"},
        {"nn/other.py": "from dreamstream import cli\n"},
        {"attic.py": ""},
    ],
    ids=str,
)
def test_python_plants(tmp_path, bad):
    order, package = rooms("python"), tmp_path / "dreamstream"
    assert not python_violations(plant(package, GOOD_PYTHON), order)
    assert len(python_violations(plant(package, bad), order)) == 1


@pytest.mark.parametrize("room", ["array", "stream", "nn", "torch"])
def test_every_file_is_on_the_map(room):
    """The overview says of each file of these rooms what is in it, and names none that is not there."""
    page = (PAGE.parent / "overview.md").read_text()
    part = re.search(rf"^### `{room}/`.*?(?=^### |\Z)", page, re.MULTILINE | re.DOTALL)
    assert part
    rows = [line.split("|")[1] for line in part[0].splitlines() if line.startswith("| `")]
    named = re.findall(r"`([\w/]+\.py)`", "".join(rows))
    home = source_tree.ROOT / "dreamstream" / room
    files = {str(f.relative_to(home)) for f in home.rglob("*.py") if f.name != "__init__.py"}
    assert {name for name in named if not name.endswith("__init__.py")} == files
    assert len(set(named)) == len(named)


#: Where names of other files are set when the package is loaded: what assembles the front end of torch, and what
#: gives both kinds of tensors their class and their methods.
ASSEMBLE = {"torch/__init__.py", "array/tensor.py", "torch/outside/__init__.py"}
#: What `global` changes: the door that arrays reach, what loads torch, a tensor's maker, and the seeded generator.
CHANGED = {
    "array/hook.py": {"apply", "lowered"},
    "stream/foreign.py": {"_load"},
    "autograd.py": {"_as_tensor"},
    "array/creation.py": {"_generator"},
}


def set_elsewhere(path: Path) -> list[str]:
    """Give the attributes of imported modules and classes that a file sets when it is loaded."""
    tree, nodes = ast.parse(path.read_text()), [node for node, _ in _imports(path.read_text())]
    imports = [a for n in nodes if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names]
    names = {(a.asname or a.name).partition(".")[0] for a in imports}
    found, left = [], list[ast.AST](tree.body)
    while left:
        node = left.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.For) and names & {n.id for n in ast.walk(node.iter) if isinstance(n, ast.Name)}:
            names |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.append((node.value, ast.unparse(node)))
        if isinstance(node, ast.Call) and _called(node) == "setattr":
            found.append((node.args[0], ast.unparse(node.args[0])))
        left += ast.iter_child_nodes(node)
    return sorted(text for of, text in found if ast.unparse(of).partition(".")[0] in names)


def test_who_assembles():
    """No other file fills another's slots when it is loaded."""
    package = source_tree.ROOT / "dreamstream"
    found = {p.relative_to(package).as_posix(): set_elsewhere(p) for p in package.rglob("*.py")}
    assert {name for name, what in found.items() if what} == ASSEMBLE, found
    changed = {name: re.findall(r"^ +global (.*)$", (package / name).read_text(), re.MULTILINE) for name in found}
    said = {name: {*", ".join(names).split(", ")} for name, names in changed.items() if names}
    assert said == CHANGED


def test_a_slot_that_another_fills_is_found(tmp_path):
    for text in ("a.b = 1", "a.B.c, d = 1, 2", "for k in (a,):\n    setattr(k, 'c', 1)"):
        (tmp_path / "file.py").write_text(f"from . import a\n{text}\n\n\nclass C:\n    d = a\n\n\nC.d = 1\n")
        assert len(set_elsewhere(tmp_path / "file.py")) == 1
