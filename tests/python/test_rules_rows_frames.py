"""What indexing, splitting and joining do to metadata, against lists of frames."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dreamstream.errors import DTypeError, ShapeError, StreamIdError, StreamIndexError, StreamMismatchError
from dreamstream.stream import StreamMetadata
from dreamstream.stream.rules import (
    cat_batch,
    cat_length,
    drop_empty,
    index_batch,
    index_length,
    split_batch,
    split_length,
    unbind_batch,
)


@st.composite
def metas(draw, min_rows=0, max_length=7):
    n = draw(st.integers(min_rows, 4))
    flags = st.lists(st.booleans(), min_size=n, max_size=n)
    lengths = st.lists(st.integers(0, max_length), min_size=n, max_size=n)
    ids = draw(st.permutations(["a", "b", "c", "d"]))[:n]
    return StreamMetadata(ids, draw(flags), draw(flags), draw(lengths))


bounds = st.none() | st.integers(-9, 9)
steps = st.none() | st.integers(1, 4)


def row(meta, r):
    return meta.ids[r], bool(meta.sos[r]), bool(meta.eos[r]), int(meta.lengths[r])


# ---------------------------------------------------------------- rows


@given(metas(), st.data())
def test_index_batch_picks_rows(m, data):
    n = len(m)
    slices = st.builds(slice, bounds, bounds, st.sampled_from([None, 1, 2, 3, -1, -2]))
    index = data.draw(
        slices
        | st.permutations(range(n)).flatmap(lambda p: st.integers(0, n).map(lambda k: list(p[:k])))
        | st.lists(st.booleans(), min_size=n, max_size=n)
    )
    expected = np.arange(n)[np.asarray(index, dtype=None if index else int) if isinstance(index, list) else index]
    got = index_batch(m, index)
    assert [row(got, i) for i in range(len(got))] == [row(m, r) for r in expected]
    if isinstance(index, list):
        assert index_batch(m, np.array(index, dtype=None if index else int)) == got
        if not (index and isinstance(index[0], bool)):
            assert index_batch(m, [i - n for i in index]) == got
            assert index_batch(m, tuple(index)) == got


def test_index_batch_int_keeps_one_row():
    m = StreamMetadata(["a", "b"], [True, False], [False, True], [3, 4])
    assert row(index_batch(m, -1), 0) == ("b", False, True, 4)
    assert index_batch(m, np.int32(0)) == index_batch(m, np.array(0)) == m[[0]]


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (2, StreamIndexError),
        (-3, StreamIndexError),
        ([0, 2], StreamIndexError),
        ([True], StreamIndexError),
        ([[0, 1]], StreamIndexError),
        (np.ones((2, 2), bool), StreamIndexError),
        ([0.0], StreamIndexError),
        (slice(None, None, 0), StreamIndexError),
        ([[0], [0, 1]], StreamIndexError),
        (slice("a", None), DTypeError),
        ("a", DTypeError),
        (0.0, DTypeError),
        (True, DTypeError),
        (np.True_, DTypeError),
        (None, DTypeError),
        ({}, DTypeError),
    ],
)
def test_index_batch_refuses(index, error):
    with pytest.raises(error):
        index_batch(StreamMetadata(["a", "b"], True, False, 3), index)


def test_index_batch_refuses_doubles():
    m = StreamMetadata(["a", "b", "c"], True, False, 3)
    with pytest.raises(StreamIdError) as caught:
        index_batch(m, [0, 2, -1, 1, 0])
    assert caught.value.ids == ("a", "c")


@given(metas(), st.data())
def test_split_batch_and_back(m, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(m)), max_size=3)))
    sizes = np.diff([0, *cuts, len(m)]).tolist()
    pieces = split_batch(m, sizes)
    assert [len(p) for p in pieces] == sizes
    assert cat_batch(pieces) == m
    size = data.draw(st.integers(1, 5))
    pieces = split_batch(m, size)
    assert [len(p) for p in pieces] == ([size] * (len(m) // size) + [len(m) % size] * (len(m) % size > 0) or [0])
    assert cat_batch(pieces) == m
    assert unbind_batch(m) == [m[r] for r in range(len(m))]
    assert drop_empty(m).ids == [i for i, n in zip(m.ids, m.lengths) if n]


def test_batch_refusals():
    m = StreamMetadata(["a", "b"], True, False, 3)
    for sizes in ([1], [1, 2], [3, -1], [], 0, -1):
        with pytest.raises(ShapeError):
            split_batch(m, sizes)
    for sizes in (True, 1.0, [1.0, 1.0], "ab", None):
        with pytest.raises(DTypeError):
            split_batch(m, sizes)
    with pytest.raises(StreamIdError) as caught:
        cat_batch([m, m[1]])
    assert caught.value.ids == ("b",)
    with pytest.raises(ShapeError):
        cat_batch([])


# ---------------------------------------------------------------- frames


def picked(index, m, width):
    """The positions that an index picks of a padded row, negative ones counted from the longest."""
    if isinstance(index, slice):
        # a virtual width beyond all bounds stands for slices that end in the padding
        start, stop = index.start, index.stop
        start = max(0, start + m.max_length) if start is not None and start < 0 else start
        stop = max(0, stop + m.max_length) if stop is not None and stop < 0 else stop
        return list(range(width))[slice(start, stop, index.step)]
    return [i + m.max_length if i < 0 else i for i in index]


@given(metas(), bounds, bounds, steps, st.integers(0, 3))
def test_slices_pick_frames(m, start, stop, step, extra):
    index = slice(start, stop, step)
    got = index_length(m, index, m.max_length + extra)
    positions = picked(index, m, m.max_length + extra)
    assert got.ids == m.ids
    for r in range(len(m)):
        n = int(m.lengths[r])
        assert got.lengths[r] == sum(p < n for p in positions)
        if m.max_length:
            assert got.sos[r] == (m.sos[r] and 0 in positions)
            assert got.eos[r] == (m.eos[r] and max(n - 1, 0) in positions)


@given(metas(), st.data())
def test_lists_and_masks_pick_frames(m, data):
    width = m.max_length
    index = sorted(data.draw(st.lists(st.integers(0, width - 1), max_size=6))) if width else []
    got = index_length(m, index)
    for r in range(len(m)):
        n = int(m.lengths[r])
        assert got.lengths[r] == sum(p < n for p in index)
        assert got.sos[r] == (m.sos[r] and (0 in index or not width))
        assert got.eos[r] == (m.eos[r] and (max(n - 1, 0) in index or not width))
    assert index_length(m, np.array(index, np.int64)) == got
    assert index_length(m, [i - width for i in index]) == got
    if len(set(index)) == len(index):
        mask = np.isin(np.arange(width), index)
        assert index_length(m, mask) == got
        if width:
            assert index_length(m, mask.tolist()) == got


def flags_once(m, pieces):
    """Each flag of each row is in exactly one piece, those of empty rows where frame 0 is."""
    for r in range(len(m)):
        assert sum(bool(p.sos[r]) for p in pieces) == m.sos[r]
        assert sum(bool(p.eos[r]) for p in pieces) == m.eos[r]
        assert sum(int(p.lengths[r]) for p in pieces) == m.lengths[r]
        if m.sos[r] and m.eos[r] and m.lengths[r] == 0:
            assert [bool(p.sos[r]) for p in pieces] == [bool(p.eos[r]) for p in pieces]


@given(metas(min_rows=1), st.integers(1, 4), st.integers(0, 3), st.data())
def test_any_partition_has_each_flag_once(m, n_pieces, extra, data):
    width = m.max_length + extra
    owner = data.draw(st.lists(st.integers(0, n_pieces - 1), min_size=width, max_size=width))
    positions = [[p for p in range(width) if owner[p] == k] for k in range(n_pieces)]
    if width:
        flags_once(m, [index_length(m, p, width) for p in positions])
        flags_once(m, [index_length(m, np.isin(np.arange(width), p), width) for p in positions])
    flags_once(m, [index_length(m, slice(k, None, n_pieces)) for k in range(n_pieces)])
    cut = data.draw(st.integers(0, width + 1))
    rest = [index_length(m, slice(cut + k, None, n_pieces)) for k in range(n_pieces)]
    flags_once(m, [index_length(m, slice(0, cut)), *rest])
    if 0 < cut <= m.max_length:
        flags_once(m, [index_length(m, slice(None, -cut)), index_length(m, slice(-cut, None))])


@given(metas(), st.integers(1, 9), st.integers(0, 3), st.data())
def test_split_length_and_back(m, size, extra, data):
    pieces = split_length(m, size)
    assert len(pieces) == max(1, -(-m.max_length // size))
    flags_once(m, pieces)
    if len(m):
        assert cat_length(pieces) == m
    cuts = sorted(data.draw(st.lists(st.integers(0, m.max_length + extra), max_size=4)))
    sizes = np.diff([0, *cuts, m.max_length + extra]).tolist()
    pieces = split_length(m, sizes)
    assert [p.max_length for p in pieces] == [
        max(0, min(m.max_length, a + n) - a) for a, n in zip([0, *cuts], sizes)
    ] or not len(m)
    flags_once(m, pieces)
    assert cat_length(pieces) == m


def test_single_positions():
    m = StreamMetadata(["a", "b", "c"], True, [True, True, False], [3, 1, 3])
    frames = [index_length(m, i) for i in range(3)]
    assert [f.lengths.tolist() for f in frames] == [[1, 1, 1], [1, 0, 1], [1, 0, 1]]
    assert [f.sos.tolist() for f in frames] == [[True] * 3, [False] * 3, [False] * 3]
    # a row that has ended by this frame says so, in its padding too
    assert [f.eos.tolist() for f in frames] == [[False, True, False], [False, True, False], [True, True, False]]
    assert index_length(m, -1) == frames[2] and index_length(m, np.int8(-3)) == frames[0]
    assert index_length(m, 4, width=5).lengths.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (4, StreamIndexError),
        (-5, StreamIndexError),
        ([0, 4], StreamIndexError),
        ([-5], StreamIndexError),
        ([1, 0], StreamIndexError),
        ([0, -4, 1, -4], StreamIndexError),
        ([True, False], StreamIndexError),
        ([[0, 1]], StreamIndexError),
        ([0.5], StreamIndexError),
        (slice(None, None, -1), StreamIndexError),
        (slice(None, None, 0), StreamIndexError),
        (slice(0.0, None), DTypeError),
        (slice(None, None, "2"), DTypeError),
        ("L", DTypeError),
        (False, DTypeError),
        (1.0, DTypeError),
    ],
)
def test_index_length_refuses(index, error):
    with pytest.raises(error):
        index_length(StreamMetadata(["a", "b"], True, False, [4, 2]), index)


def test_split_length_refuses():
    m = StreamMetadata(["a"], True, True, 4)
    for sizes in (0, -2, [], [1, 2], [5, -1]):
        with pytest.raises(ShapeError):
            split_length(m, sizes)
    with pytest.raises(DTypeError):
        split_length(m, [2.0, 2.0])


def chunk(ids, sos, eos, lengths):
    return StreamMetadata(ids, sos, eos, lengths)


def test_cat_length():
    a = chunk(["a", "b"], [True, False], [False, True], [3, 2])
    b = chunk(["a", "b"], False, [True, False], [4, 0])
    assert cat_length([a, b]) == chunk(["a", "b"], [True, False], True, [7, 2])
    assert cat_length([a]) is a
    with pytest.raises(ShapeError):
        cat_length([])
    for later, ids in (
        (b.replace(sos=[True, False]), ("a",)),
        (b.replace(eos=True), ("b",)),
        (b.replace(lengths=[4, 1]), ("b",)),
    ):
        with pytest.raises(StreamMismatchError) as caught:
            cat_length([a, later])
        assert caught.value.ids == ids
    with pytest.raises(StreamIdError) as caught:
        cat_length([a, b.replace(ids=["a", "c"])])
    assert caught.value.ids == ("b", "c")
    with pytest.raises(StreamIdError, match="another order"):
        cat_length([a, b[[1, 0]]])
