"""Which answer to a test leads to an exception, and to nothing else, read off the instructions behind it."""

import contextlib
import sys

import pytest
from dreamstream.stream.rules.raising import answer_that_raises

found = []


class Answer:
    """Notes what is read off where it is asked for its truth."""

    def __bool__(self):
        found.append(answer_that_raises(sys._getframe(1), self))
        return not found[-1] if found[-1] is not None else True


class Size:
    def __eq__(self, other):
        return Answer()

    __hash__ = None


def in_an_assert(t):
    assert t, f"x {t}"


def over_two_lines(t):
    assert (1 and
            t and Answer())  # fmt: skip


def in_a_tuple(t):
    assert (Size(), 1) == (Size(), 1)


def in_a_context(t):
    with contextlib.nullcontext():
        assert t


def before_a_raise(t):
    if t:
        raise ValueError(f"a {1}")
    return 1


def negated(t):
    if not t:
        raise ValueError
    else:
        return 2


def of_two(t):
    if t or Answer():
        raise KeyError


def in_a_loop(t):
    for _ in range(2):
        if not t:
            raise ValueError("x")


def in_a_tuple_that_differs(t):
    if (Size(), 1) != (Size(), 1):
        raise ValueError


def that_decides(t):
    if t:
        return 1
    return 2


def that_is_caught(t):
    try:
        assert t
    except AssertionError:
        return 3


def that_chooses(t):
    return 1 if t else 2


def or_something_else(t):
    assert t or len("a")


@pytest.mark.parametrize(
    ("run", "answer"),
    [
        *((f, False) for f in (in_an_assert, over_two_lines, in_a_tuple, in_a_context, negated, in_a_loop)),
        *((f, True) for f in (before_a_raise, of_two)),
        (in_a_tuple_that_differs, False),
        *((f, None) for f in (that_decides, that_is_caught, that_chooses, or_something_else)),
    ],
)
def test_answer(run, answer):
    found.clear()
    with contextlib.suppress(ValueError, KeyError, AssertionError):
        run(Answer())
    assert found[0] is answer


def test_without_source():
    space = {}
    exec(compile("def f(t):\n    assert t, 'no'\n", "<nowhere>", "exec"), space)
    found.clear()
    space["f"](Answer())
    assert found == [False]
