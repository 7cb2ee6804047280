"""StreamMetadata: what it checks, and that nothing changes it."""

import copy
import pickle

import numpy as np
import pytest

from dreamstream.errors import DTypeError, ShapeError, StreamIdError, StreamIndexError
from dreamstream.stream import StreamMetadata
from dreamstream.stream.rules import cat_batch, cat_length


def meta3():
    return StreamMetadata(["a", "b", "c"], [True, False, True], [False, False, True], [5, 0, 2])


def test_fields():
    m = meta3()
    assert m.ids == ["a", "b", "c"]
    assert m.sos.tolist() == [True, False, True] and m.sos.dtype == np.bool_
    assert m.eos.tolist() == [False, False, True] and m.eos.dtype == np.bool_
    assert m.lengths.tolist() == [5, 0, 2] and m.lengths.dtype == np.int64
    assert len(m) == m.size() == 3
    assert (m.min_length, m.max_length) == (0, 5)
    assert (m.any_starting, m.all_starting, m.any_ending, m.all_ending) == (True, False, True, False)
    assert m.any_starting_or_ending and not m.all_starting_and_ending
    assert m.starting_lengths.tolist() == [5, 2] and m.ending_lengths.tolist() == [2]
    assert m.row_of("c") == 2
    with pytest.raises(StreamIdError) as caught:
        m.row_of("zoe")
    assert caught.value.ids == ("zoe",)


def test_scalars_and_lone_id():
    m = StreamMetadata("anna", True, np.False_, 7)
    assert m == StreamMetadata(["anna"], [True], [False], [7])
    m = StreamMetadata(("a", "b"), False, True, np.int32(3))
    assert (m.sos.tolist(), m.eos.tolist(), m.lengths.tolist()) == ([False] * 2, [True] * 2, [3, 3])
    assert StreamMetadata(np.array(["x", "y"]), True, True, np.uint8([1, 2])).ids == ["x", "y"]
    assert type(StreamMetadata(np.array(["x"]), True, True, 1).ids[0]) is str


def test_empty_batch():
    m = StreamMetadata([], [], [], [])
    assert len(m) == 0 and m.min_length == m.max_length == 0
    assert not m.any_starting and not m.any_ending
    assert m == StreamMetadata([], True, False, 4)
    assert m.split_batch(2) == [m] and m.unbind_batch() == [] and m.split_length(3) == [m]
    assert hash(m) == hash(pickle.loads(pickle.dumps(m)))


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ((["a", 1], True, True, [1, 1]), StreamIdError, "strings"),
        ((["a", None], True, True, [1, 1]), StreamIdError, "strings"),
        ((["a", "b"], [True], True, [1, 1]), ShapeError, "sos has 1"),
        ((["a", "b"], True, [True] * 3, [1, 1]), ShapeError, "eos has 3"),
        ((["a", "b"], True, True, [1]), ShapeError, "lengths has 1"),
        ((["a", "b"], True, True, []), ShapeError, "lengths has 0"),
        ((["a", "b"], [[True, True]], True, [1, 1]), ShapeError, "one dimension"),
        ((["a", "b"], True, True, [[1], [1]]), ShapeError, "one dimension"),
        ((["a", "b"], True, True, [[1], [1, 2]]), ShapeError, "lengths"),
        ((["a", "b"], [1, 0], True, [1, 1]), DTypeError, "sos must be True or False"),
        ((["a", "b"], True, None, [1, 1]), DTypeError, "eos must be True or False"),
        ((["a", "b"], True, "no", [1, 1]), DTypeError, "eos must be True or False"),
        ((["a", "b"], True, True, [1.0, 2.0]), DTypeError, "integers"),
        ((["a", "b"], True, True, np.array([1.0, 2.0])), DTypeError, "integers"),
        ((["a", "b"], True, True, [True, True]), DTypeError, "integers"),
        ((["a", "b"], True, True, None), DTypeError, "integers"),
        ((["a", "b"], True, True, ["1", "2"]), DTypeError, "integers"),
        ((["a", "b"], True, True, [1, None]), DTypeError, "integers"),
        ((["a", "b"], True, True, [3, -1]), ShapeError, "0 or more, got -1"),
        ((["a", "b"], True, True, [3, 2**62]), ShapeError, "below"),
        ((["a", "b"], True, True, [3, 2**63]), ShapeError, "below"),
        ((["a", "b"], True, True, [-3, 2**63]), ShapeError, "0 or more, got -3"),
        ((["a", "b"], True, True, [3, 10**40]), ShapeError, "below"),
        ((["a", "b"], True, True, np.uint64([3, 2**64 - 1])), ShapeError, "below"),
    ],
)
def test_refuses(fields, error, text):
    with pytest.raises(error, match=text):
        StreamMetadata(*fields)


def test_errors_name_streams():
    with pytest.raises(StreamIdError) as caught:
        StreamMetadata(["a", "b", "a", "c", "b", "a"], True, True, 1)
    assert caught.value.ids == ("a", "b")
    with pytest.raises(ShapeError) as caught:
        StreamMetadata(["a", "b"], True, True, [1, -1])
    assert caught.value.ids == ("b",)


def test_longest_row():
    m = StreamMetadata(["a"], True, True, [2**62 - 1])
    assert m.max_length == 2**62 - 1
    with pytest.raises(ShapeError, match="below"):
        cat_length([m.replace(eos=False), StreamMetadata(["a"], False, True, [1])])


def test_immutable():
    sos, lengths = np.array([True, False]), np.array([3, 4])
    m = StreamMetadata(["a", "b"], sos, False, lengths)
    sos[:], lengths[:] = False, 0
    assert m.sos.tolist() == [True, False] and m.lengths.tolist() == [3, 4]
    m.ids.append("c")
    assert m.ids == ["a", "b"]
    for array in (m.sos, m.eos, m.lengths):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
    for name in ("ids", "sos", "_lengths", "new"):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(m, name, 1)
    with pytest.raises(AttributeError):
        del m._ids
    for part in (m[0], m[:, 1:], m.split_length(2)[0], cat_batch([m[0], m[1]])):
        with pytest.raises(ValueError, match="WRITEABLE"):
            part.lengths.flags.writeable = True


def test_value_semantics():
    m = meta3()
    assert m == meta3() and hash(m) == hash(meta3()) and len({m, meta3()}) == 1
    assert m != "m" and (m == 3) is False
    for change in ({"ids": ["a", "b", "d"]}, {"sos": True}, {"eos": [True, False, True]}, {"lengths": [5, 1, 2]}):
        other = m.replace(**change)
        assert other != m and other.replace(ids=m.ids, sos=m.sos, eos=m.eos, lengths=m.lengths) == m
    with pytest.raises(TypeError, match="no field 'length'"):
        m.replace(length=3)
    assert copy.copy(m) is m and copy.deepcopy(m) is m and m.clone() is m
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(m, protocol))
        assert again == m and hash(again) == hash(m)
    assert eval(repr(m)) == m
    with pytest.raises(TypeError, match="not iterable"):
        list(m)


def test_methods_are_the_rules():
    m = meta3()
    assert m[1] == m.index(1) == m.index_batch([1]) == m.index_batch([False, True, False])
    assert m[None] is m and m[None, None] is m
    assert m[None, 1:] == m.index_length(slice(1, None))
    assert m[[2, 0], :2] == m.index_batch([2, 0]).index_length(slice(0, 2))
    assert m.split(2, "B") == m.split_batch(2) and m.split(2, "L") == m.split_length(2)
    assert StreamMetadata.cat(m.unbind_batch(), "B") == m
    assert StreamMetadata.cat(m.split_length([1, 4]), "L") == m
    assert m.drop_empty() == m[[0, 2]]
    with pytest.raises(ShapeError, match="not 'F'"):
        m.split(1, "F")
    with pytest.raises(ShapeError, match="rows and frames"):
        m[0, 0, 0]
    with pytest.raises(StreamIndexError):
        m[3]
