"""Lengths, batch sizes and slices inside a forward."""

import math
import operator
import random
from fractions import Fraction

import numpy as np
import pytest
from edges import Edge
from turns import in_blocks

from dreamstream.errors import DTypeError, ModeError, NotStreamableError
from dreamstream.source_line import user_line
from dreamstream.stream.rules import BatchLength, BatchSize, Length, stream_slice


def length(*fn, **edge):
    return Length(Edge(**edge), fn)


STEPS = [
    lambda v, c: v + c, lambda v, c: c + v, lambda v, c: v - c, lambda v, c: v * c, lambda v, c: c * v,
    lambda v, c: v // c, lambda v, c: v + 0, lambda v, c: v * 1, lambda v, c: v // 1,
    lambda v, c: v + np.int64(c), lambda v, c: np.int32(c) * v,
]  # fmt: skip


def test_arithmetic_is_that_of_integers():
    numbers = random.Random(5)
    for _ in range(300):
        token, reference = length(), [operator.index(n) for n in range(25)]
        for _ in range(numbers.randint(0, 6)):
            c = numbers.randint(1, 5)
            step = numbers.choice(STEPS)
            token, reference = step(token, c), [step(v, c) for v in reference]
        assert [token.apply(n) for n in range(25)] == reference
        assert all(a[0] != "+" or b[0] != "+" for a, b in zip(token.fn, token.fn[1:]))
        codes = {0: operator.add, 1: operator.mul, 2: operator.floordiv}
        steps = token.steps()
        values = list(range(25))
        for code, c in zip(steps[::2], steps[1::2]):
            values = [codes[code](v, c) for v in values]
        assert values == reference and all(type(s) is int for s in steps)


def test_canonical_steps():
    n = length()
    assert (n + 3 - 3).fn == () and (n * 1 // 1 + 0).fn == ()
    assert (n + 3 + 4).fn == (("+", 7),) and (2 * n - 5 + 4).fn == (("*", 2), ("+", -1))
    assert ((n + 2 - 2) // 3).fn == (("//", 3),)
    assert (n * 2 // 3 - 1).steps() == [1, 2, 2, 3, 0, -1]
    assert length(("+", 1), ("+", -1), ("*", 1)).fn == ()


def test_rate():
    n = length(rate=Fraction(1, 2))
    assert n.rate == Fraction(1, 2) and (n * 3).rate == Fraction(3, 2)
    assert ((n + 5) // 4).rate == Fraction(1, 8) and (n * 2 // 3 - 7).rate == Fraction(1, 3)


def test_equality():
    assert length() == length() and operator.ne(length(), length()) is False
    assert length() // 2 == length() // 2 and length() + 1 == length() + 3 - 2
    assert (length(), 3) == (length(), 3)
    assert length() + 1 != length() and length() * 2 > length() > 0 and length() and length() // 2 <= length()
    for other in (length(cid=("op", 1)), 3, None, 1.5, "L", BatchSize(Edge())):
        for compare in (operator.eq, operator.ne):
            with pytest.raises(ModeError, match="can't be compared"):
                bool(compare(length(), other))
            with pytest.raises(ModeError, match="can't be compared"):
                bool(compare(other, length()))


NUMBER_USES = {
    "lt": lambda t: bool(t < 3), "gt": lambda t: bool(t > 10), "ge": lambda t: t >= 1.5,
    "bool": lambda t: bool(t - 1) if isinstance(t, Length) else bool(t), "int": int, "float": float,
    "complex": complex,
    "index": operator.index, "range": range, "getitem": lambda t: [1, 2][t], "slice": lambda t: [1, 2][:t],
    "len": len, "iter": iter,
    "unpack": lambda t: [*t], "in": lambda t: 3 in t, "item": lambda t: t[0], "hash": hash, "set": lambda t: {t},
    "invert": operator.invert, "rtruediv": lambda t: 2 / t, "rmod": lambda t: 5 % t,
    "rdivmod": lambda t: divmod(2, t), "pow": lambda t: t**t,
    "rpow": lambda t: 2**t, "rfloordiv": lambda t: 7 // t, "matmul": lambda t: t @ t,
    "and": lambda t: t & 6, "ror": lambda t: 1 | t, "shift": lambda t: t << 64, "rshift": lambda t: 8 >> t,
    "format": lambda t: f"{t:d}", "percent": lambda t: f"{t:5}", "asarray": np.asarray, "zeros": np.zeros,
    "nparray": lambda t: np.arange(3) * t, "sum": lambda t: sum([1.0, t]), "max": lambda t: max(t, 3),
    "range2": lambda t: range(0, t, 2), "add_float": lambda t: t + 1.5,
    "mul_float": lambda t: 0.1 * t, "add_bool": lambda t: t + True, "add_none": lambda t: t + None,
    "array_index": lambda t: np.zeros(3)[:t], "math": math.sqrt,
}  # fmt: skip


TOKENS = (length(), length() // 2, BatchSize(Edge()), BatchSize(Edge()) * length())


@in_blocks(
    ("use", "token"),
    [(u, t) for u in NUMBER_USES for t in TOKENS if type(t) is not BatchSize or u not in ("lt", "gt", "max")],
    60,
)
def test_refuses_to_be_a_number(use, token):
    with pytest.raises(ModeError, match=r"can't be .* at test_rules_length.py:\d+ in "):
        NUMBER_USES[use](token)


@pytest.mark.parametrize(
    "function",
    [
        lambda n: math.ceil(n * 0.75), lambda n: math.floor(1.5 * n + 3), lambda n: math.trunc((n + 1) / 2 + 0.5),
        lambda n: round(n / 2), lambda n: round(n / 4), lambda n: round((n + 3) / 6),
        lambda n: round((2 * n + 1) / 5), lambda n: math.floor(n / 6 - 0.25 + 4),
        lambda n: math.ceil(n / 100 * 64), lambda n: math.floor(3.5 - -n / 4.0), lambda n: np.ceil(n / 4) * 2.0,
    ],
)  # fmt: skip
def test_quotients_are_rounded_as_numbers_are(function):
    rounded = function(length())
    assert [rounded.apply(n) for n in range(1, 400)] == [function(n) for n in range(1, 400)]


@pytest.mark.parametrize(
    "function", [lambda n: round(n / 4, 1), lambda n: n / 100 * 25, lambda n: n * 0.3, lambda n: n / 3 + 0.1]
)
def test_refuses_what_numbers_would_round(function):
    with pytest.raises(ModeError, match=r"rounded|multiply first"):
        function(length())


def test_unhashable_sizes():
    """Callers go on where a size can't be hashed, which Python says by a TypeError."""

    class Refusing(Edge):
        misuse = staticmethod(NotStreamableError.here)

    for token in (Length(Refusing()), BatchSize(Refusing())):
        with pytest.raises(TypeError, match="can't be hashed"):
            hash(token)


def test_the_number_of_frames_of_all_streams_over_that_of_streams():
    batch, frames = BatchSize(Edge()), length(("*", 2))
    assert batch * 1 is batch and 1 * batch is batch
    assert (1 * batch * frames) // batch is frames
    with pytest.raises(ModeError, match="can't be divided by int"):
        batch * frames // 2


def test_refused_arithmetic():
    n = length()
    for wrong in (
        lambda: n // 0, lambda: n // -2, lambda: n % 0, lambda: n / 0, lambda: n * n, lambda: n // n,
        lambda: n + 2**63, lambda: n + (2**63 - 1) + 1, lambda: n * 2**63, lambda: n // 1.0,
    ):  # fmt: skip
        with pytest.raises(ModeError):
            wrong()
    assert (n + (2**63 - 1) - (2**63 - 1)).fn == ()
    b = BatchSize(Edge())
    for wrong in (
        lambda: b * 0, lambda: -2 * b, lambda: b * b, lambda: b + 1, lambda: b // 2, lambda: b * (b * n),
        lambda: (b * n) * 0, lambda: 2.0 * (b * n), lambda: (b * n) // 2, lambda: (b * n) * n,
        lambda: n * (b * n), lambda: (b * 6) // 4, lambda: (b * 6) % 4, lambda: (b * 6 * n) // 4,
        lambda: b == 1.5, lambda: b < "2", lambda: (b * n) == 2, lambda: bool((b * n) == (b * length(cid=1))),
        lambda: b == n, lambda: b - 1,
    ):  # fmt: skip
        with pytest.raises(ModeError):
            wrong()


def test_message_names_the_line():
    n = length()
    with pytest.raises(ModeError) as caught:
        if n > 10:
            pass
    text = str(caught.value)
    assert "the length of a stream is not a number" in text
    assert "in test_message_names_the_line: `if n > 10:`" in text
    assert "in an assert" in text


def test_batch_size():
    b, n = BatchSize(Edge()), length()
    for product in (b * n, n * b, b * (n // 2), (n // 2) * b):
        assert isinstance(product, BatchLength)
    assert (b * (n // 2)).length == n // 2
    assert b == BatchSize(Edge(cid=("op", 3))) and operator.ne(b, b) is False
    assert b * n == n * b and operator.ne(b * n, n * b) is False


def test_multiples_of_the_number_of_streams():
    b, n = BatchSize(Edge()), length()
    assert b * 6 == 2 * b * 3 and b * 6 != b * 3 and (b * 6) // 3 == b * 2 and (b * 6) // b == 6
    assert (b * 6) // (b * 2) == 3 and b * 6 % 3 == 0 and repr(b * 6) == "<number of streams * 6>"
    assert b * 6 * n == n * b * 6 == 6 * n * b and b * 6 * n != b * n
    assert (b * n * 6) // 3 == b * n * 2 and (b * n * 6) // (b * 2) == n * 3


def test_repr():
    n = length()
    assert repr(n) == f"{n}" == str(n) == "<length L of input 0>"
    assert repr((n - 3) // 2 * 4 + 1) == "<length (L - 3) // 2 * 4 + 1 of input 0>"
    assert repr(n % 3) == "<length L - L // 3 * 3 of input 0>" and repr(-n / 2) == "<<length -L of input 0> / 2>"
    assert repr(n > 3) == "<<length L - 3 of input 0> gt 0>"
    assert repr(BatchSize(Edge())) == "<number of streams>"
    assert repr(BatchSize(Edge()) * n) == "<number of streams * <length L of input 0>>"


def test_unknown_step():
    with pytest.raises(ValueError, match="no step"):
        length(("-", 1))


def test_numbers_of_streams_compare_as_each_stream_by_itself():
    b = BatchSize(Edge())
    assert b == 1 and b != 2 and b < 3 and b >= 1 and not b > 1 and max(b, 3) == 3
    assert b * 4 == 4 and b * 4 > b and not b * 4 <= 3


def test_user_line():
    def forward():
        return user_line()

    assert forward().startswith("test_rules_length.py:")
    assert forward().endswith("in forward: `return user_line()`")
    scope = {"user_line": user_line}
    exec(compile("def f():\n    return user_line()", "<made up>", "exec"), scope)
    assert scope["f"]() == "<made up>:2 in f"
    scope = {"user_line": user_line, "__name__": "torch.nn.modules.module"}
    exec(compile("def call(f):\n    return f()", "<plumbing>", "exec"), scope)
    assert "in test_user_line:" in scope["call"](user_line)


# ---------------------------------------------------------------- slices


@pytest.mark.parametrize("start", [None, 0, 3, np.int64(2)])
@in_blocks("stop", [None, -1, -4, np.int32(-2), length(), length() // 2 + 1], 6)
@pytest.mark.parametrize("step", [None, 1, 3, np.uint8(2)])
def test_stream_slices(start, stop, step):
    got = stream_slice(slice(start, stop, step))
    assert got.start == (start or 0) and got.step == (step or 1)
    assert [type(v) for v in got[:3]] == [int, int, int]
    if isinstance(stop, Length):
        assert got.stop_length is stop and got.crop == 0
    else:
        assert got.stop_length is None and got.crop == (0 if stop is None else -stop)


def test_stream_slices_are_those_of_numpy():
    for n in range(9):
        x = np.arange(n)
        for index in (slice(2, None), slice(None, -3), slice(1, -2, 2), slice(None, None, 3), slice(4, -4)):
            s = stream_slice(index)
            assert x[s.start : max(0, n - s.crop) : s.step].tolist() == x[index].tolist()


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (slice(-3, None), "start counted from the end"),
        (slice(length(), None), "starts where the stream's end"),
        (slice(None, 9), "constant position 9"),
        (slice(None, 0), "constant position 0"),
        (slice(2, 5), "constant position 5"),
        (slice(None, None, -1), "backwards"),
        (slice(None, None, 0), "backwards or stand still"),
        (slice(None, None, length()), "step is no number"),
        (slice(None, BatchSize(Edge())), "no position"),
        (slice(BatchSize(Edge()), None), "starts where"),
        (3, "a frame at a constant position"),
        (np.int64(-1), "a frame at a constant position"),
        ([0, 1], "position in a chunk"),
        (np.array([True]), "position in a chunk"),
        (True, "position in a chunk"),
        (length(), "a frame at a constant position"),
    ],
)
def test_refused_slices(index, reason):
    with pytest.raises(NotStreamableError, match=reason) as caught:
        stream_slice(index)
    assert "test_rules_length.py" in str(caught.value) and "; " in str(caught.value)


def test_slices_of_other_things():
    for index in (slice(1.0, None), slice(None, "a"), slice(None, None, 2.0), slice(True, None)):
        with pytest.raises(DTypeError):
            stream_slice(index)
