"""Counts of a call's inputs, against the rule in plain Python: a stream begins with a first frame, or its end."""

import numpy as np
import pytest

from dreamstream import _core


def plain(frames, lengths, ended):
    rows, out, before = len(ended), [], frames.T
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
        frames = random.integers(0, 3, (rows, n_inputs)).T * (random.random(rows) > 0.3)
        lengths = [random.integers(0, 2, rows) for _ in range(n_inputs)]
        ended = random.random(rows) < 0.3
        assert np.array_equal(_core.input_counts(frames, lengths, ended), plain(frames, lengths, ended))


ONE = np.ones(1, np.int64)
WRONG = {
    "frames of another number of inputs": (np.ones((2, 1), np.int64), [ONE], [False]),
    "frames of other rows": (np.ones((1, 2), np.int64), [ONE], [False]),
    "frames of one input without a dimension": (ONE, [ONE], [False]),
    "frames that are no numbers": (np.array([["one"]]), [ONE], [False]),
    "lengths of other rows": (ONE[None], [np.ones(2, np.int64)], [False]),
    "ends of other rows": (ONE[None], [ONE], [False, True]),
    "frames that are no array": ([(1,)], [ONE], [False]),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused(name):
    frames, lengths, ended = WRONG[name]
    with pytest.raises((TypeError, ValueError)):
        _core.input_counts(frames, lengths, np.array(ended))
