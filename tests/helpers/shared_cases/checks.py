"""What is asked of a run: that it says what torch says offline, and call by call what other front ends say."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from .case import Case, expected, offline, require_close
from .front_ends import FRONT_ENDS
from .streaming import Run, Schedule, planned, streams

HASTY = ("whole", "random")


def require_offline(case: Case, plan: Schedule, run: Run, way: str) -> int:
    """Compare outputs laid end to end with torch offline; return how many frames were compared."""
    compared = 0
    for i, arrays in plan.data.items():
        got = run.frames[i]
        wanted = expected(case, arrays, run.names, [y.shape[1:] for y in got])
        if wanted is None:  # too short for some output
            continue
        for k, (y, single, double) in enumerate(zip(got, *wanted, strict=True)):
            if not len(y) and y.shape[1:] != single.shape[1:]:
                continue  # of fewer frames than an output is made of, torch makes a smaller one
            what = f"{way}: output {k} of stream {i!r} of {[len(a) for a in arrays]} frames"
            require_close(case, y, single, double, what)
            compared += len(y)
    return compared


def hold(case: Case, ways: Sequence[str], seed: int) -> Counter[str]:
    """Stream a case's random streams by all ways, which must refuse the same ones and agree on the others.

    What is refused, torch refuses offline, or it is so short that torch broadcasts its one frame, or it is longer
    than what may wait.
    """
    rng, stats = np.random.default_rng(seed), Counter[str]()
    whole = {str(k): arrays for k, arrays in enumerate(streams(case, rng))}
    refused = FRONT_ENDS[ways[0]].refused(case, whole)
    for way in ways[1:]:
        other = FRONT_ENDS[way].refused(case, whole)
        assert other == refused, f"{ways[0]} refuses {sorted(refused)}, {way} {sorted(other)}"
    kept = {i: arrays for i, arrays in whole.items() if i not in refused}
    plan = planned(case, rng, kept, HASTY)
    runs = {way: FRONT_ENDS[way].run(case, plan) for way in ways}
    first = runs[ways[0]]
    for way, run in runs.items():
        assert run.counts == first.counts, f"{way} and {ways[0]} differ in counts"
        stats["frames"] += require_offline(case, plan, run, way)
    for i in refused:
        n = [len(a) for a in whole[i]]
        waits = case.buffer_limit is not None and 4 * max(n) > case.buffer_limit  # rates go up to 4
        excused = waits or max(n) <= case.reach
        assert excused or offline(case, whole[i]) is None, f"torch takes {n} frames"
    stats.update(refused=len(refused), streams=len(whole))
    return stats
