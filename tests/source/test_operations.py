"""`dreamstream.operations` says all there is, once, and nothing that isn't."""

import ast
import re
import sys
from pathlib import Path
from typing import get_args

import pytest
import source_tree

from dreamstream import _core
from dreamstream.operations import ALIASES, ELEMENTWISE, OPERATIONS, OPERATORS, names, operators
from dreamstream.operations.operator import Operator, Rule


def test_every_operator_has_a_row():
    assert set(OPERATORS) == {o["name"] for o in _core.operators()}
    assert len(OPERATORS) == len(operators._ROWS) + len(ELEMENTWISE)


def test_attributes_are_the_operators():
    attributes = {o["name"]: {a["name"] for a in o["attributes"]} for o in _core.operators()}
    for row in OPERATORS.values():
        assert set(row.takes) <= attributes[row.name], row.name


def test_names_stand_once():
    rows = [*names._ROWS, *ELEMENTWISE.values(), *(n for row in OPERATORS.values() for n in row.named)]
    given = [n for row in rows for n in (row.name, *row.aliases)]
    assert len(given) == len(set(given)), {n for n in given if given.count(n) > 1}
    assert set(ALIASES) >= {a for row in rows for a in row.aliases}


def test_kernels_are_of_their_kind():
    pytest.importorskip("torch")
    from dreamstream.torch.run.kernels import KERNELS

    for name, row in OPERATORS.items():
        kernel = KERNELS[name]
        assert kernel.framewise == (row.kind in ("elementwise", "frame")), name
        carries = row.kind == "carried" or name == "attention"  # the first keys, beside its window
        assert (kernel.carries is not None) == carries, name


def test_every_rule_is_there_and_in_use():
    pytest.importorskip("torch")
    from dreamstream.torch.outside import RULES

    used = {row.outside for row in OPERATIONS.values()}
    assert used == set(get_args(Rule))
    assert used - {"", "as it is", "resizing"} == set(RULES)


def test_torch_has_these_names():
    torch = pytest.importorskip("torch")
    places = (torch.Tensor, torch, torch.nn.functional, torch.special, torch.utils, torch.ops.aten)
    strange = [n for n in (*OPERATIONS, *ALIASES) if not any(hasattr(p, n) or hasattr(p, f"{n}_") for p in places)]
    assert not strange, strange


def test_documented_rows_are_methods_of_torch():
    torch = pytest.importorskip("torch")
    for row in ELEMENTWISE.values():
        if row.doc:
            assert hasattr(torch.Tensor, row.name), (
                f"{row.name}: no method of torch's tensors, so its row has no doc"
            )


def test_what_torch_lacks_is_marked():
    torch = pytest.importorskip("torch")
    from dreamstream.nn import functional

    places = (torch.nn.functional, torch, torch.Tensor, torch.special, torch.fft)
    for name in functional.__all__:
        lacks = not any(hasattr(place, name) for place in places)
        marked = hasattr(getattr(functional, name), "torch_lacks")
        assert marked == lacks, f"{name}: @torch_lacks (nn/functional/texts.py) marks what torch has no name for"


def test_other_names_are_found():
    pytest.importorskip("torch")
    from dreamstream import StreamTensor, array
    from dreamstream.nn import functional

    for name in ALIASES.values():
        assert any(hasattr(place, name) for place in (StreamTensor, functional, array)), name


def test_page_names_files_that_are_there():
    text = (source_tree.ROOT / "docs" / "internals" / "testing.md").read_text()
    text = text.partition("## Adding an operator")[2].partition("## These pages")[0]
    named = re.findall(r"`((?:csrc|dreamstream|tests|docs|benchmarks)/[\w./]+)", text)
    assert len(named) > 15
    missing = [n for n in named if "NAME" not in n and not (source_tree.ROOT / n).exists()]
    assert not missing, missing


# ---------------------------------------------------------------------- how often it is said
#: How many operators keep to their limits; others are words for more than an operator, or have more to say.
KEEP_TO_IT = 43
#: What has variables of its own.
FUNCTIONS = (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def said_in(path: Path) -> set[str]:
    """Words that a file defines, registers, calls or quotes.

    Prose says nothing: comments, docstrings, and texts that are no lists of names. Nor do variables of a function,
    its parameters among them, or attributes: they may be called anything.
    """
    text = path.read_text()
    if path.suffix in source_tree.C_SUFFIXES:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
        text = re.sub(r'"((?:\\.|[^"\\\n])*)"', lambda m: listed(m[1]), text)
        return set(re.findall(r"\w+", text.lower() if path.suffix == ".def" else text))
    nodes, said, inside = list(ast.walk(ast.parse(text))), set[str](), set[ast.AST]()
    for n in nodes:  # parents first: all that stands within functions and comprehensions
        if n in inside or isinstance(n, FUNCTIONS):
            inside.update(ast.iter_child_nodes(n))
    prose = {n.value for n in nodes if isinstance(n, ast.Expr)}
    variables = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    variables |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    for n in nodes:
        if isinstance(n, ast.Name) and n.id not in variables:
            said.add(n.id)
        elif isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.alias)):
            said.add(n.name)
        elif isinstance(n, ast.keyword) and n.arg:
            said.add(n.arg)
        elif isinstance(n, ast.Constant) and isinstance(n.value, str) and n not in prose:
            said |= set(listed(n.value).split())
    return said


def listed(text: str) -> str:
    """A text that is no prose: one without spaces, or names with spaces between them; "" for others."""
    return text if re.fullmatch(r"[\w.\s?]*|\S*", text) else ""


def paths() -> list[Path]:
    """Sources; of stubs those that `test_stubs.py` does not write."""
    suffixes = {".py", *source_tree.C_SUFFIXES}
    return [p for p in source_tree.files() if p.suffix in suffixes or p.name == "_core.pyi"]


def saying(said: dict[Path, set[str]], name: str) -> list[Path]:
    """The files in which an operator, or its functions of one or two dimensions, are said."""
    return [p for p, words in said.items() if words & {name, f"{name}1d", f"{name}2d"}]


def limit(row: Operator) -> int:
    """In how many files an operator may stand, unless its name is a word for other things, too."""
    return 5 if row.name in ELEMENTWISE else 8 if "pool" in row.name else 10


def test_operators_stand_in_few_files() -> None:
    every = {p: set(re.findall(r"\w+", p.read_text())) for p in paths()}
    rare = {name: found for name in OPERATORS if len(found := saying(every, name)) <= 20}
    said = {p: said_in(p) for p in {p for found in rare.values() for p in found}}
    files = {name: len(saying(said, name)) for name in rare}
    within = [name for name, n in files.items() if n <= limit(OPERATORS[name])]
    assert len(within) >= KEEP_TO_IT, {name: n for name, n in files.items() if name not in within}


def counts(asked: list[str]) -> str:
    """Lines of code, and in which files operators, or functions of one or two dimensions, are said."""
    said, lines = {p.relative_to(source_tree.ROOT): said_in(p) for p in paths()}, []
    for root, suffixes in (("dreamstream", (".py",)), ("tests", (".py", ".c", ".h"))):
        n = sum(len(p.read_text().splitlines()) for p in said if p.parts[0] == root and p.suffix in suffixes)
        lines.append(f"{n} lines in {root}/")
    for name in asked or OPERATORS:
        found = saying(said, name)
        each = [f"{root} {sum(p.parts[0] == root for p in found)}" for root in ("csrc", "dreamstream", "tests")]
        lines += [f"{name}: {len(found)} files, {', '.join(each)}", *(f"  {p}" for p in found if asked)]
    return "\n".join(lines)


if __name__ == "__main__":
    print(counts(sys.argv[1:]))
