"""Names of dimensions."""

import itertools

import numpy as np
import pytest

from dreamstream.errors import DTypeError, ShapeError
from dreamstream.stream import rules
from dreamstream.stream.rules import names as N


def test_defaults():
    assert N.default_names(3) == ("B", "F", "L") and N.default_names(2) == ("B", "L")
    for rank in (0, 1, 4):
        with pytest.raises(ShapeError, match="pass names="):
            N.default_names(rank)


def test_check():
    assert N.check_names(["B", None, "F", "F", "L"], 5) == ("B", None, "F", "F", "L")
    assert N.check_names((), 0) == ()
    assert N.check_names(["B_L", "F"], 2) == ("B_L", "F")
    for names in (["B", "B"], ["L", "L"], ["B_L", "L"], ["B_F", "B"], ["B"], ["B", "L", "F"], ["", "B"]):
        with pytest.raises(ShapeError):
            N.check_names(names, 2)
    for names in (["B", 1], "BL", [b"B", "L"]):
        with pytest.raises(DTypeError):
            N.check_names(names, 2)


def test_resolve():
    names = ("B", "F", None, "L", "F")
    assert [N.resolve(names, d) for d in ("B", "L", 0, -1, np.int64(2), -5)] == [0, 3, 0, 4, 2, 0]
    for dim in ("F", "X", 5, -6):
        with pytest.raises(ShapeError):
            N.resolve(names, dim)
    for dim in (True, 1.0, None):
        with pytest.raises(DTypeError):
            N.resolve(names, dim)


def test_permute_and_transpose_move_names_as_numpy_moves_sizes():
    names, sizes = ("B", "F", None, "L"), (2, 3, 4, 5)
    size_of = dict(zip(names, sizes))
    array = np.empty(sizes)
    for order in itertools.permutations(range(4)):
        got = N.permute(names, order)
        assert [size_of[n] for n in got] == list(array.transpose(order).shape)
        assert N.permute(names, [d - 4 for d in order]) == got
        assert N.order_of(names, [names[d] or d for d in order]) == order
    for a, b in itertools.product(range(-4, 4), repeat=2):
        assert [size_of[n] for n in N.transpose(names, a, b)] == list(array.swapaxes(a, b).shape)
    assert N.transpose(names, "B", "L") == ("L", "F", None, "B")
    for bad in ([0, 1, 2], [0, 0, 1, 2], [0, 1, 2, 4], [0, 1, 2, 3, 3]):
        with pytest.raises(ShapeError):
            N.permute(names, bad)


def test_join_and_split():
    names = ("B", "L", "F", None)
    assert N.join(names, "B", "L") == ("B_L", "F", None)
    assert N.join(names, 1, -1) == ("B", "L_F_?")
    assert N.join((None, None, "B"), 0, 1) == (None, "B")
    assert N.join(names, 2, 2) == names
    with pytest.raises(ShapeError):
        N.join(names, 2, 1)
    for a, b in itertools.combinations(range(4), 2):
        if names[b] is not None:
            assert N.split(N.join(names, a, b), a, b - a + 1) == names
    assert N.split(("B", "L_F_?"), 1, 3) == names
    assert N.split(names, "F", 2) == ("B", "L", None, None, None)
    assert N.split(names, 3, 3) == ("B", "L", "F", None, None, None)
    assert N.split(names, "B", 1) == names
    for dim, count in (("B", 2), ("L", 3)):
        with pytest.raises(ShapeError):
            N.split(names, dim, count)
    with pytest.raises(ShapeError):
        N.split(("B_L",), 0, 3)


def test_insert_and_remove():
    names = ("B", "F", "L")
    for d in range(-4, 4):
        got = N.insert(names, d)
        assert got.index(None) == np.expand_dims(np.empty((2, 3, 4)), d).shape.index(1)
        assert N.remove(got, d) == names
    assert N.insert(("F", "L"), 0, "B") == names
    assert N.remove(names, "F", 0) == ("L",)
    for d in (4, -5):
        with pytest.raises(ShapeError):
            N.insert(names, d)
    with pytest.raises(ShapeError):
        N.insert(names, 0, "L")
    with pytest.raises(DTypeError):
        N.insert(names, "B")


def test_holds():
    assert N.holds("B_L", "B") and N.holds("B_L", "L") and N.holds("L", "L")
    assert not N.holds("F", "L") and not N.holds(None, "B") and not N.holds("BL", "B")


def test_all_public_rules_exist():
    assert all(hasattr(rules, name) for name in rules.__all__)
