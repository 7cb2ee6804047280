"""Which errors a raise statement raised, told by their places in the source."""

import sys

import pytest

from dreamstream.stream import where


def plain():
    raise ValueError("x")


def of_several_lines():
    raise ValueError(
        "one"
        "two"
    )  # fmt: skip


def of_a_class():
    raise ValueError


def beside_another():
    x = 1; raise KeyError(x) if x else 2  # noqa: E702  # fmt: skip


def of_letters_wider_than_a_byte():
    ü = "ü"; raise ValueError("ü" + ü)  # noqa: E702  # fmt: skip


def for_another():
    try:
        int("x")
    except ValueError as error:
        raise TypeError("y") from error


def again():
    try:
        plain()
    except ValueError:
        raise


def asserted():
    assert "x" == "y", "no"


def called():
    int("x")


def indexed():
    [][1]


def within_an_assertion():
    assert int("x")


def within_a_function():
    (lambda: int("x"))()


def within_a_raise():
    raise ValueError(int("x"))


RAISED = [
    plain,
    of_several_lines,
    of_a_class,
    beside_another,
    of_letters_wider_than_a_byte,
    for_another,
    again,
    asserted,
]
OTHERS = [called, indexed, within_an_assertion, within_a_function]
if sys.version_info >= (3, 11):  # Python 3.10 knows lines alone
    OTHERS.append(within_a_raise)


@pytest.mark.parametrize("function", [*RAISED, *OTHERS])
def test_what_a_statement_raises(function):
    with pytest.raises(Exception) as caught:
        function()
    assert where._is_raised(caught.value) == (function in RAISED)


def test_code_without_source():
    namespace = {}
    exec("def raises():\n    raise ValueError('x')", namespace)
    with pytest.raises(ValueError) as caught:
        namespace["raises"]()
    assert not where._is_raised(caught.value)
