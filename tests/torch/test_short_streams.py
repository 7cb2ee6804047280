"""Random forwards of slices, pads, limits of lengths, fades, casts and masks on streams of few frames: offline's.

More of them::

    pytest -m "slow or not slow" tests/torch/test_short_streams.py
"""

import pytest
from random_graphs.short_streams import differences

N, MORE = 40, 2000


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(N, MORE, 2 * N))])
def test_they_are_offline(first):
    n_compared = 0
    for seed in range(first, first + (N if not first else 2 * N)):
        found, n = differences(seed)
        assert not found, found[0]
        n_compared += n
    assert n_compared > 10 * N
