"""Counts of a call's inputs, against the rule in plain Python: a stream begins with a first frame, or its end."""

import numpy as np
import pytest

from dreamstream import _core


def plain(frames, lengths, ended):
    rows, out = len(ended), []
    before = [[0] * len(lengths) if f is None else list(f) for f in frames]
    now = [[n + int(k[r]) for n, k in zip(before[r], lengths)] for r in range(rows)]
    for i in range(len(lengths)):
        own = []
        for r in range(rows):
            begun, begins = any(before[r]), any(now[r]) or ended[r]
            own.append([before[r][i], before[r][i] if begun else -1, now[r][i], now[r][i] if begins else -1])
        out.append(own)
    return np.array(out, np.int64).reshape(len(lengths), rows, 4)


@pytest.mark.parametrize("n_inputs", [1, 2, 3])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_counts_are_those_of_the_rule(rows, n_inputs):
    random = np.random.default_rng(rows)
    for _ in range(20):
        frames = [None if random.random() < 0.3 else tuple(random.integers(0, 3, n_inputs)) for _ in range(rows)]
        lengths = [random.integers(0, 2, rows) for _ in range(n_inputs)]
        ended = random.random(rows) < 0.3
        assert np.array_equal(_core.input_counts(frames, lengths, ended), plain(frames, lengths, ended))


@pytest.mark.parametrize("n_inputs", [1, 2])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_counts_go_on_from_those_of_the_call_before(rows, n_inputs):
    random = np.random.default_rng(rows)
    frames, going_on = [None] * rows, np.zeros(rows, bool)
    before = None
    for _ in range(6):
        lengths = [random.integers(0, 3, rows) for _ in range(n_inputs)]
        want = plain(frames, lengths, going_on)
        given = frames if before is None else before
        before = _core.input_counts(given, lengths, going_on)
        assert np.array_equal(before, want)
        frames = list(zip(*want[:, :, 2].tolist()))


WRONG = {
    "counts of other rows": (np.zeros((1, 2, 4), np.int64), [np.ones(1, np.int64)], [False]),
    "counts of other inputs": (np.zeros((2, 1, 4), np.int64), [np.ones(1, np.int64)], [False]),
    "counts that are no integers": (np.zeros((1, 1, 4)), [np.ones(1, np.int64)], [False]),
    "counts of one row alone": (np.zeros(4, np.int64), [np.ones(1, np.int64)], [False]),
    "frames of another number of inputs": ([(1, 2)], [np.ones(1, np.int64)], [False]),
    "lengths of other rows": ([(1,)], [np.ones(2, np.int64)], [False]),
    "frames that are no numbers": ([("one",)], [np.ones(1, np.int64)], [False]),
    "ends of other rows": ([(1,)], [np.ones(1, np.int64)], [False, True]),
    "rows that are no list": ("a", [np.ones(1, np.int64)], [False]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused(name):
    frames, lengths, ended = WRONG[name]
    with pytest.raises((TypeError, ValueError)):
        _core.input_counts(frames, lengths, np.array(ended))
