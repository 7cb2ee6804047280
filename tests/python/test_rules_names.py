"""Names of dimensions."""

import itertools

import numpy as np
import pytest

from dreamstream.errors import DTypeError, ShapeError
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


def test_order():
    names = ("B", "F", None, "L")
    for order in itertools.permutations(range(4)):
        assert N.order_of(names, order) == N.order_of(names, [d - 4 for d in order]) == order
        assert N.order_of(names, [names[d] or d for d in order]) == order
    for bad in ([0, 1, 2], [0, 0, 1, 2], [0, 1, 2, 4], [0, 1, 2, 3, 3]):
        with pytest.raises(ShapeError):
            N.order_of(names, bad)


def test_join():
    names = ("B", "L", "F", None)
    assert N.join(names, "B", "L") == ("B_L", "F", None)
    assert N.join(names, 1, -1) == ("B", "L_F_?")
    assert N.join((None, None, "B"), 0, 1) == (None, "B")
    assert N.join(names, 2, 2) == names
    with pytest.raises(ShapeError):
        N.join(names, 2, 1)


def test_holds():
    assert N.holds("B_L", "B") and N.holds("B_L", "L") and N.holds("L", "L")
    assert not N.holds("F", "L") and not N.holds(None, "B") and not N.holds("BL", "B")
