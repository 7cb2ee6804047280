"""OutputCollector."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dreamstream.errors import DTypeError, ShapeError, StreamIdError, StreamMismatchError
from dreamstream.stream import OutputCollector, StreamMetadata, collectors, register_arrays


class Output:
    """The least that a collector reads."""

    def __init__(self, arrays, sos=(), eos=(), starts=None, axis=0, kind=np.asarray):
        ids = list(arrays)
        lengths = [np.shape(a)[axis] for a in arrays.values()]
        self.arrays = {i: kind(a) for i, a in arrays.items()}
        self.meta = StreamMetadata(ids, [i in sos for i in ids], [i in eos for i in ids], lengths)
        self.starts = starts
        self.stream_axis = axis

    def __getitem__(self, stream_id):
        return self.arrays[stream_id]


def frames(n, *features, seed=0):
    return np.random.default_rng(seed).standard_normal((n, *features)).astype(np.float32)


def contents(c):
    return {i: np.array(c[i]) for i in c}, c.finished


@given(st.data(), st.sampled_from([0, 1, -1]), st.booleans())
def test_any_cuts_of_any_streams(data, axis, with_starts):
    n_streams = data.draw(st.integers(1, 4))
    whole, cuts, at = {}, {}, {}
    for k in range(n_streams):
        n = data.draw(st.integers(0, 9))
        whole[f"s{k}"] = np.moveaxis(frames(n, 3, seed=k), 0, axis)
        inner = data.draw(st.lists(st.integers(0, n), max_size=4))
        cuts[f"s{k}"] = [0, *sorted(inner), n]
        at[f"s{k}"] = 0
    c, order = OutputCollector(), []
    while at:
        ids = data.draw(st.lists(st.sampled_from(sorted(at)), min_size=1, unique=True))
        arrays = {i: np.take(whole[i], range(cuts[i][at[i]], cuts[i][at[i] + 1]), axis) for i in ids}
        ended = [i for i in ids if at[i] == len(cuts[i]) - 2]
        starts = [cuts[i][at[i]] for i in ids] if with_starts else None
        c.update(Output(arrays, [i for i in ids if at[i] == 0], ended, starts, axis % 2))
        for array in arrays.values():
            array[...] = np.nan  # the caller goes on with its own
        order += ended
        for i in ids:
            at[i] += 1
            done = np.take(whole[i], range(cuts[i][at[i]]), axis)
            if data.draw(st.booleans()):
                np.testing.assert_array_equal(c[i], done)
            if i in ended:
                del at[i]
    assert c.finished == order and sorted(c.ids) == sorted(whole)
    for i, array in whole.items():
        assert i in c
        got = c.pop(i)
        assert got.shape == array.shape and got.dtype == np.float32
        np.testing.assert_array_equal(got, array)
        assert i not in c and i not in c.finished
    assert len(c) == 0 and list(c) == []


def test_flags_of_empty_rows_open_and_close():
    c = OutputCollector()
    c.update(Output({"a": frames(0, 5)}, sos="a"))
    assert c.ids == ["a"] and c.finished == [] and c["a"].shape == (0, 5)
    c.update(Output({"a": frames(3, 5)}))
    c.update(Output({"a": frames(0, 5)}, eos="a"))
    assert c.finished == ["a"] and c["a"].shape == (3, 5)
    c.update(Output({"b": np.zeros((0, 2), np.float64)}, sos="b", eos="b"))
    assert c.finished == ["a", "b"] and c["b"].shape == (0, 2) and c["b"].dtype == np.float64
    assert len(c) == 2 and list(c) == ["a", "b"] and repr(c) == "OutputCollector({'a': 3 (ended), 'b': 0 (ended)})"


def test_joined_once():
    c = OutputCollector()
    c.update(Output({"a": frames(2, 2)}, sos="a"))
    c.update(Output({"a": frames(2, 2)}))
    first = c["a"]
    assert c["a"] is first
    c.update(Output({"a": frames(0, 2)}))
    assert c["a"] is first
    c.update(Output({"a": frames(1, 2)}, eos="a"))
    assert c["a"].shape == (5, 2) and first.shape == (4, 2)


@pytest.mark.parametrize(
    ("output", "error", "ids"),
    [
        (Output({"new": frames(1, 2), "a": frames(2, 2)}, sos=["new", "a"]), StreamIdError, ("a",)),
        (Output({"a": frames(1, 2), "x": frames(2, 2), "y": frames(0, 2)}), StreamIdError, ("x", "y")),
        (Output({"a": frames(1, 2), "done": frames(0, 2)}), StreamIdError, ("done",)),
        (Output({"a": frames(1, 2), "done": frames(1, 2)}, sos=["done"]), StreamIdError, ("done",)),
        (Output({"a": frames(1, 2), "done": frames(0, 2)}, eos=["done"]), StreamIdError, ("done",)),
        (Output({"b": frames(1, 2), "a": frames(1, 2)}, starts=[4, 4]), StreamMismatchError, ("a",)),
        (Output({"b": frames(1, 2), "a": frames(1, 2)}, starts=[3, 2]), StreamMismatchError, ("b", "a")),
        (Output({"new": frames(1, 2)}, sos=["new"], starts=[1]), StreamMismatchError, ("new",)),
        (Output({"a": frames(1, 2)}, starts=[3, 4]), StreamMismatchError, ()),
        (Output({"b": frames(1, 2), "a": frames(1, 3)}), ShapeError, ("a",)),
        (Output({"b": frames(1, 2), "a": frames(1)}), ShapeError, ("a",)),
        (Output({"b": frames(4, 2)}, axis=1), ShapeError, ("b",)),
        (frames(3, 2), DTypeError, ()),
        (None, DTypeError, ()),
    ],
)
def test_a_failing_update_changes_nothing(output, error, ids):
    c = OutputCollector()
    c.update(
        Output({"a": frames(3, 2), "b": frames(4, 2), "done": frames(1, 2)}, sos=["a", "b", "done"], eos=["done"])
    )
    before, ended = contents(c)
    with pytest.raises(error) as caught:
        c.update(output)
    assert caught.value.ids == ids
    after, ended_after = contents(c)
    assert list(after) == list(before) and ended_after == ended == ["done"]
    assert all(np.array_equal(after[i], before[i]) for i in before)
    c.update(Output({"a": frames(1, 2), "b": frames(0, 2)}, starts=[3, 4]))


def test_an_output_that_fails_changes_nothing():
    class Broken(Output):
        def __getitem__(self, stream_id):
            if stream_id == "b":
                raise KeyboardInterrupt
            return super().__getitem__(stream_id)

    c = OutputCollector()
    with pytest.raises(KeyboardInterrupt):
        c.update(Broken({"a": frames(1, 2), "b": frames(1, 2)}, sos="ab"))
    assert len(c) == 0


def test_unknown_starts_and_no_starts():
    c = OutputCollector()
    c.update(Output({"a": frames(3, 2), "b": frames(1, 2)}, sos="ab", starts=[None, 0]))
    c.update(Output({"a": frames(3, 2), "b": frames(1, 2)}, starts=[3, None]))
    y = Output({"a": frames(1, 2)})
    del y.starts
    c.update(y)
    assert (len(c["a"]), len(c["b"])) == (7, 2)


def test_pop_and_unknown_ids():
    c = OutputCollector()
    for use in (c.pop, c.__getitem__):
        with pytest.raises(StreamIdError) as caught:
            use("zoe")
        assert caught.value.ids == ("zoe",)
    c.update(Output({"a": frames(3, 2)}, sos="a"))
    assert c.pop("a").shape == (3, 2)  # unfinished: forgotten
    with pytest.raises(StreamIdError, match="not begun"):
        c.update(Output({"a": frames(3, 2)}))
    c.update(Output({"a": frames(1, 2)}, sos="a", eos="a"))
    c.pop("a")
    c.update(Output({"a": frames(2, 2)}, sos="a"))  # the id is free again
    assert len(c["a"]) == 2 and c.finished == []


def test_own_kinds_of_arrays(monkeypatch):
    class Own:
        def __init__(self, values):
            self.values = np.asarray(values)
            self.shape = self.values.shape

    monkeypatch.setattr(collectors, "_KINDS", list(collectors._KINDS))
    register_arrays(Own, lambda arrays, axis: Own(np.concatenate([a.values for a in arrays], axis)))
    c = OutputCollector()
    one, two = frames(2, 3), frames(4, 3, seed=1)
    first = Output({"a": one}, sos="a", kind=Own)
    c.update(first)
    assert c["a"] is first["a"]
    c.update(Output({"a": two}, kind=Own))
    assert isinstance(c["a"], Own) and np.array_equal(c["a"].values, np.concatenate([one, two]))


def test_lists_are_arrays():
    c = OutputCollector()
    c.update(Output({"a": [[1, 2], [3, 4]]}, sos="a", kind=lambda v: v))
    c.update(Output({"a": [[5, 6]]}, kind=lambda v: v))
    assert c["a"].tolist() == [[1, 2], [3, 4], [5, 6]]
