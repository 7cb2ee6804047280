"""Numbers, and streams of them, at which functions have edges: zeros, ties, limits, infinities."""

from itertools import product
from typing import Any

import numpy as np

_SIZES = (0, 1, 0.5, 2, 3, 0.25, 0.1, 1.5, 2.5, 6, 20, 100, 1e-8, 1e20, 2.0**24 + 1, np.inf)
_FLOAT32 = (1e-45, 1e-40, 1.1754944e-38, 3.4028235e38)

#: float32, of either sign, and NaN.
NUMBERS: Any = np.array([s * x for x in (*_SIZES, *_FLOAT32) for s in (1, -1)] + [np.nan], np.float32)
NUMBERS[1] = -0.0
#: All pairs of them, ``(n, 2)``.
PAIRS: Any = np.array([*product(NUMBERS, NUMBERS)], np.float32)


def _streams() -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def drawn(n: int = 6) -> Any:
        return rng.standard_normal((4, n))

    limits = [
        0,
        -0.0,
        1,
        -1,
        0.5,
        -0.5,
        3,
        -3,
        6,
        -6,
        20,
        -20,
        0.25,
        2,
        -2,
        1.5,
        1e-7,
        -1e-7,
        10,
        100,
        -100,
        -1000,
    ]
    made = {
        "zeros": np.zeros((4, 6)),
        "negative zeros": -np.zeros((4, 6)),
        "constant": np.full((4, 6), 0.75),
        "ones": np.ones((4, 5)),
        "minus ones": -np.ones((4, 5)),
        "ties": rng.integers(-1, 2, (4, 7)).astype(float),
        "limits": np.array([*limits, 1000, 0.125]).reshape(4, 6),
        "some zeros": np.where(rng.random((4, 6)) < 0.5, 0, drawn()),
        "huge": np.tile([1e200, -1e200, 1e300, 1e160, -1e155, 1], (4, 1)),
        "tiny": np.tile([5e-324, -5e-324, 1e-310, -1e-200, 1e-160, 1e-17], (4, 1)),
        "some inf": np.where(rng.random((4, 6)) < 0.2, np.inf, drawn()),
        "some -inf": np.where(rng.random((4, 6)) < 0.2, -np.inf, drawn()),
        "all inf": np.full((4, 5), np.inf),
        "all -inf": np.full((4, 5), -np.inf),
        "infinite": np.where(np.arange(20).reshape(4, 5) % 2, np.inf, -np.inf),
        "one frame": drawn(1),
        "one zero": np.zeros((4, 1)),
        "ordinary": drawn(9),
        "empty": drawn(0),
    }
    return made


#: float64 ``(4, frames)`` by what they are.
STREAMS: dict[str, Any] = _streams()
