"""The exception tree."""

import copy
import pickle
import re

import pytest
from turns import in_blocks

from dreamstream import errors
from dreamstream.stream.rules import stream_slice

BUILTINS = {
    "ShapeError": (ValueError,),
    "FormatError": (ValueError,),
    "CaptureError": (ValueError,),
    "StreamIndexError": (ValueError, IndexError),
    "StreamIdError": (ValueError, RuntimeError),
    "StreamMismatchError": (ValueError, RuntimeError),
    "DTypeError": (TypeError,),
    "NotStreamableError": (TypeError,),
    "SourceError": (RuntimeError,),
    "LossError": (FloatingPointError,),
    "StreamBusyError": (RuntimeError,),
    "StreamLimitError": (RuntimeError,),
    "ModeError": (RuntimeError,),
    "ClosedError": (RuntimeError,),
    "OutOfMemoryError": (MemoryError,),
}


def test_every_public_exception_is_listed_here():
    found = {n for n in errors.__all__ if n.endswith("Error")} - {"DreamStreamError"}
    assert found == set(BUILTINS)
    assert all(hasattr(errors, n) for n in errors.__all__)


@pytest.mark.parametrize("name", BUILTINS)
def test_derives_from_the_base_and_the_builtins(name):
    cls = getattr(errors, name)
    assert issubclass(cls, errors.DreamStreamError)
    for builtin in (ValueError, TypeError, RuntimeError, MemoryError, IndexError):
        assert issubclass(cls, builtin) == (builtin in BUILTINS[name])
    with pytest.raises(BUILTINS[name][0], match="what happened"):
        raise cls("what happened")


@pytest.mark.parametrize("name", [*BUILTINS, "DreamStreamError"])
@in_blocks("ids", [(), ("a",), tuple(f"s{i}" for i in range(11))], 3)
@in_blocks("protocol", range(pickle.HIGHEST_PROTOCOL + 1), 9)
def test_pickle_and_copy(name, ids, protocol):
    error = getattr(errors, name)("text", ids)
    error.note = {"more": 1}
    for other in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert other.args == error.args
        assert other.ids == ids
        assert other.note == {"more": 1}


def test_message_names_the_streams():
    assert str(errors.StreamIdError("no")) == "no"
    assert errors.StreamIdError("no").ids == ()
    assert errors.DreamStreamError.ids == ()
    assert str(errors.StreamIdError("no", ["a"])) == "no (stream: 'a')"
    assert str(errors.StreamIdError("no", ("a", "b"))) == "no (streams: 'a', 'b')"
    assert errors.StreamIdError("no", "anna").ids == ("anna",)
    assert errors.StreamIdError("no", iter(["a", "b"])).ids == ("a", "b")
    eight = errors.StreamIdError("no", [str(i) for i in range(8)])
    assert "'7')" in str(eight) and "more" not in str(eight)
    many = errors.StreamIdError("no", [str(i) for i in range(11)])
    assert str(many).endswith("'7' and 3 more)")
    assert len(many.ids) == 11
    long = errors.StreamIdError("no", ["a" * 30 + "\n" + "b" * 500 + "end", "c\nd"])
    assert str(long) == "no (streams: '" + "a" * 30 + "\\n" + "b" * 14 + "...bbbbbbend', 'c\\nd')"
    assert [len(i) for i in long.ids] == [534, 3]


def test_warnings():
    assert issubclass(errors.StreamFallbackWarning, errors.StreamWarning)
    assert issubclass(errors.StreamWarning, RuntimeWarning)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (("einsum: letters don't fit: x",), "einsum at {}: letters don't fit: x"),
        (("frames are lost",), "frames are lost, at {}"),
        (("a stream", " can't be a weight: leave it"), "a stream at {} can't be a weight: leave it"),
        (("scores are returned,", "; add them"), "scores are returned, at {}; add them"),
    ],
)
def test_the_line_is_part_of_the_message(parts, says):
    place = r"test_errors\.py:\d+ in test_the_line_is_part_of_the_message: `found = .*`"
    found = errors.ShapeError.here(*parts, ids=["a"])
    assert re.fullmatch(re.escape(says).replace(r"\{\}", place) + r" \(stream: 'a'\)", str(found))
    assert str(pickle.loads(pickle.dumps(found))) == str(found)
    assert str(errors.ShapeError.here(*parts, line="m.py:1 in f")) == says.format("m.py:1 in f")


def test_the_line_stands_behind_what_is_quoted():
    """Also where that has a colon."""
    with pytest.raises(
        errors.NotStreamableError, match=r"\{'a': 1\}, \.\.\.\] on the stream axis at test_errors\.py:\d+ in "
    ):
        stream_slice({"a": 1})
