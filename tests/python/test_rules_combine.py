"""Which tensors may be combined, and lineage."""

import itertools
import json
from fractions import Fraction
from types import SimpleNamespace

import pytest

from dreamstream.errors import StreamMismatchError
from dreamstream.stream import StreamMetadata
from dreamstream.stream.rules import (
    as_cid,
    entry,
    joined,
    lineages,
    require_equal_rates,
    require_same,
    same_lineage,
)


def base():
    return StreamMetadata(["a", "b", "c"], [True, False, False], False, [3, 4, 0])


def test_equal_metadata_combine():
    m = base()
    assert require_same([m]) == (m, None)
    assert require_same([m, base(), m]) == (m, None)
    assert require_same([m, base()], [(0, 5, 7), [0, 5, 7]]) == (m, (0, 5, 7))
    assert require_same([m, base()], [None, [0, 5, 7]]) == (m, (0, 5, 7))
    assert require_same([m, m, m], [(0, None, None), None, [None, 5, None]]) == (m, (0, 5, None))
    assert require_same([m, m], [None, None]) == (m, None)


def test_what_differs_is_shown():
    with pytest.raises(StreamMismatchError, match=r"^adding: .*lengths .4 and 5"):
        require_same([base(), base().replace(lengths=[3, 5, 0])], what="adding")


def test_starts_must_agree():
    m = base()
    with pytest.raises(StreamMismatchError, match=r"^adding: .*starts differ .5 and 6") as caught:
        require_same([m, m, m], [(0, None, 7), (0, 5, 7), (0, 6, 7)], "adding")
    assert caught.value.ids == ("b",)
    with pytest.raises(StreamMismatchError, match="2 starts for 3"):
        require_same([m, m], [(0, 5), (0, 5)])


def test_lineages_of_outputs():
    """What keeps counts keeps the lineage; an output of another rate has its own, as each has of what does not."""
    frames, end = ("float32", (3,), 1, 2), ("float32", (3,), 0, 1)
    for keeps, rates, wanted in [
        (True, [frames, frames], [entry(1), entry(1)]),
        (True, [frames, end, end], [entry(1), ("op", 5, 1), ("op", 5, 2)]),
        (False, [frames, frames], [("op", 5), ("op", 5, 1)]),
    ]:
        assert lineages(SimpleNamespace(same_counts=keeps, outputs=rates), entry(1), 5) == wanted


def test_lineage():
    a, b, c = entry(0), ("op", 4), ("op", 12)
    assert len({a, b, c, entry(1)}) == 4
    assert same_lineage([]) and same_lineage([a, a]) and not same_lineage([a, b])
    assert joined([a]) == joined([a, a]) == a
    whole = joined([a, b, c])
    for cids in itertools.permutations([a, b, c]):
        x, y, z = cids
        assert joined(cids) == joined([joined([x, y]), z]) == joined([x, joined([y, z]), x]) == whole
    assert joined([whole, b]) == whole and joined([a, b]) != whole
    assert as_cid(json.loads(json.dumps(whole))) == whole and hash(whole) is not None
    assert joined([("op", 13), a]) == ("sync", a, ("op", 13))
    with pytest.raises(ValueError, match="at least one"):
        joined([])


def test_rates():
    assert require_equal_rates([Fraction(1, 2), Fraction(2, 4)], "adding") == Fraction(1, 2)
    assert require_equal_rates([1, Fraction(1)], "adding") == 1
    with pytest.raises(StreamMismatchError, match=r"^adding: .* 1/2 and 3"):
        require_equal_rates([Fraction(1, 2), Fraction(1, 2), 3], "adding")
