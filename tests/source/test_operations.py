"""`dreamstream.operations` says all there is, once, and nothing that isn't."""

from __future__ import annotations

import re
from typing import get_args

import pytest
import source_tree

from dreamstream import _core
from dreamstream.operations import ALIASES, ELEMENTWISE, OPERATIONS, OPERATORS, names, operators


def test_every_operator_has_a_row():
    assert set(OPERATORS) == {o["name"] for o in _core.operators()}
    assert len(OPERATORS) == len(operators._ROWS) + len(ELEMENTWISE)


def test_attributes_are_the_operators():
    attributes = {o["name"]: {a["name"] for a in o["attributes"]} for o in _core.operators()}
    for row in OPERATORS.values():
        assert set(row.takes) <= attributes[row.name], row.name


def test_names_stand_once():
    rows = [*names._ROWS, *ELEMENTWISE.values()]
    given = [n for row in rows for n in (row.name, *row.aliases)]
    assert len(given) == len(set(given)), {n for n in given if given.count(n) > 1}
    assert set(ALIASES) >= {a for row in rows for a in row.aliases}


def test_kernels_are_of_their_kind():
    pytest.importorskip("torch")
    from dreamstream.torch.run.kernels import KERNELS

    for name, row in OPERATORS.items():
        kernel = KERNELS[name]
        assert kernel.framewise == (row.kind in ("elementwise", "frame")), name
        assert (kernel.carries is not None) == (row.kind == "carried"), name


def test_every_rule_is_there_and_in_use():
    pytest.importorskip("torch")
    from dreamstream.torch.outside import RULES

    used = {row.outside for row in OPERATIONS.values()}
    assert used == set(get_args(names.Rule))
    assert used - {"", "as it is", "resizing"} == set(RULES)


def test_torch_has_these_names():
    torch = pytest.importorskip("torch")
    places = (torch.Tensor, torch, torch.nn.functional, torch.utils, torch.ops.aten)
    strange = [n for n in (*OPERATIONS, *ALIASES) if not any(hasattr(p, n) or hasattr(p, f"{n}_") for p in places)]
    assert not strange, strange


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
