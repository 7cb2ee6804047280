"""Index plans, carried out on ragged rows, against indexing the padded array one axis at a time."""

import numpy as np
import pytest
from edges import Edge
from hypothesis import given, settings, strategies as st

from dreamstream.errors import DTypeError, ModeError, StreamIdError, StreamIndexError
from dreamstream.stream import StreamMetadata
from dreamstream.stream.rules import (
    BatchSize,
    Fallback,
    Length,
    index_batch,
    index_length,
    is_full_slice,
    parse_index,
    plan_index,
)

NAMES = [("B", "F", "L"), ("B", "L", "F"), ("L", "B", "F"), ("F", "B", "L", "D"), ("B", "F", "D", "L"), ("B", "L")]


def make(names, lengths, extra, seed):
    """A padded array with one number per element, and its rows [frames][features in visible order]."""
    numbers = np.random.default_rng(seed)
    width = max(lengths, default=0) + extra
    sizes = [
        {"B": len(lengths), "L": width}.get(n) or (2 + i if n not in "BL" else 0) for i, n in enumerate(names)
    ]
    padded = numbers.permutation(int(np.prod(sizes))).reshape(sizes)
    rows = np.moveaxis(padded, [names.index("B"), names.index("L")], [0, 1])
    return padded, [r[:n] for r, n in zip(rows, lengths)]


def along(array, axis, index):
    """Index one axis; an array of several dimensions puts all of them there."""
    return array[(slice(None),) * axis + (index,)]


def reference(padded, names, index, max_length):
    """Index axis by axis from behind, so that earlier axes keep their numbers."""
    items = list(index)
    used = sum(1 for i in items if i is not None and i is not Ellipsis)
    fill = [slice(None)] * (padded.ndim - used)
    at = next((k for k, i in enumerate(items) if i is Ellipsis), len(items))
    items[at : at + 1] = fill
    axis = padded.ndim
    for item in reversed(items):
        if item is None:
            padded = np.expand_dims(padded, axis)
            continue
        axis -= 1
        if names[axis] == "L" and isinstance(item, slice):
            ends = [None if b is None else max(0, b + max_length) if b < 0 else b for b in (item.start, item.stop)]
            item = slice(*ends, item.step)
        elif names[axis] == "L":
            item = np.asarray(item)
            item = np.where(item < 0, item + max_length, item) if item.dtype != bool else item
            item = int(item) if item.ndim == 0 else item
        padded = along(padded, axis, item)
    return padded


def carry_out(plan, rows):
    """Apply a plan to ragged rows."""
    for r in range(len(rows)) if plan.rows is None else plan.rows:
        frames = rows[r][plan.frames_of(len(rows[r]))][(slice(None), *plan.features)]
        if plan.take is not None:
            axis, array = plan.take
            frames = frames[(slice(None),) * (1 + axis) + (array,)]
        yield frames


def check(names, lengths, extra, index, seed=0):
    padded, rows = make(names, lengths, extra, seed)
    ids = [f"s{i}" for i in range(len(lengths))]
    meta = StreamMetadata(ids, True, True, lengths)
    plan = plan_index(index, names, meta, max(lengths, default=0) + extra)
    if isinstance(plan, Fallback):
        return plan
    items = index if isinstance(index, tuple) else (index,)
    expected = reference(padded, names, items, meta.max_length)
    assert len(plan.dims) == len(plan.names) == expected.ndim
    # bring the expectation to [rows][frames][features]; what was removed becomes an axis of 1
    dims = list(plan.dims)
    for dim in ("L", "B"):
        at = dims.index(dim) if dim in dims else None
        expected = expected[None] if at is None else np.moveaxis(expected, at, 0)
        dims = [dim, *(d for d in dims if d != dim)]
    features = [d for d in plan.dims if isinstance(d, int)]
    assert features == list(range(len(features)))
    result = list(carry_out(plan, rows))
    assert len(result) == len(plan.meta) == len(expected)
    for r, frames in enumerate(result):
        assert len(frames) == plan.meta.lengths[r]
        np.testing.assert_array_equal(frames, expected[r, : len(frames)])
    # the metadata are those of indexing frames and then rows
    frames_first = (
        meta if plan.frames is None else index_length(meta, plan.frames, max(lengths, default=0) + extra)
    )
    assert plan.meta == (frames_first if plan.rows is None else index_batch(frames_first, plan.rows))
    return plan


def entries(name, n_rows, width, size):
    whole = st.just(slice(None))
    if name == "B":
        orders = st.permutations(range(n_rows)).flatmap(
            lambda p: st.integers(1, n_rows).map(lambda k: list(p[:k]))
        )
        masks = st.lists(st.booleans(), min_size=n_rows, max_size=n_rows)
        cut = st.builds(
            slice, st.integers(-3, 3) | st.none(), st.integers(-3, 3) | st.none(), st.sampled_from([1, 2, None])
        )
        return whole | cut | st.integers(-n_rows, n_rows - 1) | orders | masks
    if name == "L":
        cut = st.builds(
            slice, st.integers(-6, 6) | st.none(), st.integers(-6, 6) | st.none(), st.sampled_from([1, 2, 3, None])
        )
        options = whole | cut
        if width:
            options |= st.lists(st.integers(0, width - 1), min_size=1, max_size=4).map(sorted)
            options |= st.integers(0, width - 1) | st.just(-1)
            options |= st.lists(st.booleans(), min_size=width, max_size=width)
        return options
    arrays = st.lists(st.integers(-size, size - 1), min_size=1, max_size=3)
    grid = st.lists(st.lists(st.integers(-size, size - 1), min_size=2, max_size=2), min_size=1, max_size=3).map(
        np.array
    )
    masks = st.lists(st.booleans(), min_size=size, max_size=size).map(np.array)
    return (
        whole
        | st.integers(-size, size - 1)
        | st.builds(slice, st.integers(-2, 2), st.none())
        | arrays
        | grid
        | masks
    )


@settings(max_examples=150)
@given(st.data(), st.sampled_from(NAMES), st.integers(0, 2), st.integers(0, 100))
def test_plans_against_the_padded_array(data, names, extra, seed):
    lengths = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    width = max(lengths)
    items = [data.draw(entries(n, len(lengths), width, 2 + i)) for i, n in enumerate(names)]
    arrays = sum(isinstance(i, (list, np.ndarray)) for i in items)
    kept = data.draw(st.integers(0, len(items)))
    if data.draw(st.booleans()):
        items[kept:] = [...] if data.draw(st.booleans()) else []
        arrays = sum(isinstance(i, (list, np.ndarray)) for i in items)
    for _ in range(data.draw(st.integers(0, 2))):
        items.insert(data.draw(st.integers(0, len(items))), None)
    items = [np.array(i) if isinstance(i, list) else i for i in items]
    # a mask over the padding has the padded extent
    for k in _on(items, names, "L"):
        if isinstance(items[k], np.ndarray) and items[k].dtype == bool:
            items[k] = np.append(items[k], np.zeros(extra, bool))
    plan = check(names, lengths, extra, tuple(items), seed)
    assert isinstance(plan, Fallback) == (arrays > 1)


def _on(items, names, dim):
    """Positions of the entries that index a dimension."""
    used = sum(1 for i in items if i is not None and i is not Ellipsis)
    found, axis = set(), 0
    for k, item in enumerate(items):
        if item is Ellipsis:
            axis += len(names) - used
        elif item is not None:
            if names[axis] == dim:
                found.add(k)
            axis += 1
    return found


def test_names_and_dims():
    meta = StreamMetadata(["a", "b"], True, True, [4, 2])
    for names, index, result, dims in (
        (("B", "F", "L"), (slice(None), 0), ("B", "L"), ("B", "L")),
        (("B", "F", "L"), 0, ("F", "L"), (0, "L")),
        (("B", "F", "L"), (..., 1), ("B", "F"), ("B", 0)),
        (("B", "F", "L"), (..., 0, slice(None)), ("B", "L"), ("B", "L")),
        (("B", "F", "L"), (None, ..., None), (None, "B", "F", "L", None), (0, "B", 1, "L", 2)),
        (("B", "F", "L"), (slice(None), [0, 1]), ("B", "F", "L"), ("B", 0, "L")),
        (("B", "F", "L"), (slice(None), [[0, 1]]), ("B", None, "F", "L"), ("B", 0, 1, "L")),
        (("B", "F", "D", "L"), (slice(None), np.ones((2, 3), bool)), ("B", "F_D", "L"), ("B", 0, "L")),
        (("F", "B", "D", "L"), (0, ..., [1, 1], slice(2)), ("B", "D", "L"), ("B", 0, "L")),
        (("B_F", "L"), (slice(None), slice(1, 3)), ("B_F", "L"), ("B_F", "L")),
        (("B", "L"), (), ("B", "L"), ("B", "L")),
        (("B", "L"), ..., ("B", "L"), ("B", "L")),
    ):
        plan = plan_index(index, names, meta)
        assert (plan.names, plan.dims) == (result, dims), index


def test_untouched_dimensions_keep_the_metadata():
    meta = StreamMetadata(["a", "b"], True, True, [4, 2])
    plan = plan_index((slice(None), slice(1, None)), ("B", "F", "L"), meta, width=6)
    assert plan.meta is meta and plan.rows is None and plan.frames is None
    assert plan.plain == (slice(None), slice(1, None), slice(None))
    assert plan.starts_of([3, 4], meta.lengths) == (3, 4)
    assert (
        is_full_slice(slice(0, None, 1))
        and is_full_slice(slice(None))
        and not is_full_slice(slice(1, None))
        and not is_full_slice(0)
    )


def test_negative_bounds_count_from_the_longest_row():
    meta = StreamMetadata(["a", "b"], True, True, [4, 2])
    plan = plan_index((..., slice(-3, -1)), ("B", "F", "L"), meta, width=9)
    assert plan.plain == (slice(None), slice(None), slice(1, 3, 1))
    assert plan.meta.lengths.tolist() == [2, 1]
    assert plan_index((..., -1), ("B", "L"), meta, width=9).plain == (slice(None), 3)


def test_starts():
    meta = StreamMetadata(["a", "b"], False, False, [4, 2])
    starts = [10, None]

    def of(*index):
        return plan_index(index, ("B", "L"), meta).starts_of(starts, meta.lengths)

    assert of([1, 0]) == (None, 10) and of(1) == (None,)
    assert of(slice(None), slice(1, None)) == (11, None) and of(0, 3) == (13,)
    assert of(slice(None), slice(9, None)) == (14, None)
    assert of(slice(None), slice(None, None, 2)) is None and of(slice(None), [0, 2]) is None
    assert plan_index(0, ("B", "L"), meta).starts_of(None, meta.lengths) is None


class Streamy:
    is_stream = True


@pytest.mark.parametrize(
    "index",
    [
        ([0, 1], [0, 1]),
        ([0, 1], slice(None), [0, 1]),
        ([True, False], slice(None), [0, 1]),
        np.ones((2, 3), bool),
        (slice(None), np.ones((3, 4), bool)),
        np.ones((2, 3, 4), bool),
        True,
        (np.False_, ...),
        np.array(True),
        Streamy(),
    ],
)
def test_fallbacks(index):
    meta = StreamMetadata(["a", "b"], True, True, [4, 2])
    plan = plan_index(index, ("B", "F", "L"), meta)
    assert isinstance(plan, Fallback) and plan.reason


def test_merged_dimensions_fall_back():
    meta = StreamMetadata(["a", "b"], True, True, [4, 2])
    assert isinstance(plan_index(0, ("B_F", "L"), meta), Fallback)
    assert isinstance(plan_index((0, slice(1, None)), ("F", "B_L"), meta), Fallback)
    assert plan_index((0,), ("F", "B_L"), meta).dims == ("B_L",)


@pytest.mark.parametrize(
    ("index", "error"),
    [
        ((0, 0, 0, 0), StreamIndexError),
        ((..., ...), StreamIndexError),
        ([[0, 1]], StreamIndexError),
        ((..., [[0, 1]]), StreamIndexError),
        ((..., 4), StreamIndexError),
        (2, StreamIndexError),
        ((..., [1, 0]), StreamIndexError),
        ([0.5], StreamIndexError),
        ((slice(None), ["a"]), StreamIndexError),
        ([0, 0], StreamIdError),
        ("B", DTypeError),
        (1.5, DTypeError),
        ({}, DTypeError),
        ((..., slice("a", None)), DTypeError),
    ],
)
def test_refusals(index, error):
    with pytest.raises(error):
        plan_index(index, ("B", "F", "L"), StreamMetadata(["a", "b"], True, True, [4, 2]))


def test_tokens_pass_through_slices_only():
    length = Length(Edge())
    parts = parse_index((..., slice(None, length)), ("B", "F", "L"))
    assert parts.length.stop is length and is_full_slice(parts.batch)
    for index in (length, (..., length), BatchSize(Edge())):
        with pytest.raises(ModeError, match="used as an integer"):
            parse_index(index, ("B", "F", "L"))
    with pytest.raises(ModeError):
        plan_index((..., slice(None, length)), ("B", "L"), StreamMetadata("a", True, True, 3))


def test_empty_lists_keep_nothing():
    meta = StreamMetadata(["a", "b"], True, True, [4, 2])
    assert len(plan_index([], ("B", "L"), meta).meta) == 0
    assert plan_index((slice(None), []), ("B", "L"), meta).meta.lengths.tolist() == [0, 0]
    assert plan_index((slice(None), []), ("B", "F", "L"), meta).take[1].dtype == np.int64
