"""Random torch models: 5 to 15 layers in branches that join, held to what torch says offline.

Patched and compiled they refuse the same streams, give the same frames at the same calls, and these are torch's.
How models are made: tests/helpers/random_graphs; they are the random models of tests/laws, read as torch. A
failure names its seed. One seed again, or a range::

    DREAMSTREAM_SEEDS=123 pytest tests/torch/test_random_torch_models.py

Many (DREAMSTREAM_MODELS of them, 2000 by default; half an hour)::

    pytest -m slow tests/torch/test_random_torch_models.py
"""

import os
from collections import Counter

import pytest
import torch
from random_graphs.drafts import build, draft
from random_graphs.torch_twin import NAMESPACE, PLAIN
from shared_cases import Case, Given
from shared_cases.checks import hold

#: What torch lacks and has a buffer: `Resample`, whose kernel cases draw anew.
LACKING = {"rate"}


def drawn(seed):
    return draft(seed, 5, 15, LACKING)


def case_of(seed):
    """The random model of a seed as a case: torch's module, its twin, and what it must say offline."""
    made = drawn(seed)
    return Case(
        f"random {seed}",
        lambda nn, F, ds: build(made, PLAIN if ds is torch else None),
        tuple(Given(x.spec, x.rate) for x in made.inputs),
        reach=12,
        whole=made.buffered,
        buffer_limit=made.buffer_limit,
        skew=made.skew,
        offline=lambda nn, F, ds: build(made, NAMESPACE),
    )


def check(seed, ways, stats):
    case = case_of(seed)
    stats.update(hold(case, [*ways, *(["native-compiled"] if case.native else [])], seed), models=1)


def each(seeds, ways=("torch-compiled", "torch-patched")):
    stats = Counter()
    for seed in seeds:
        try:
            check(seed, ways, stats)
        except Exception as error:
            again = f"DREAMSTREAM_SEEDS={seed} pytest {__file__}"
            raise AssertionError(f"{type(error).__name__}: {error}\nagain: {again}\n{drawn(seed)}") from error
    print(dict(stats))
    return stats


def quick():
    """DREAMSTREAM_SEEDS, as in ``7`` or ``0:500``, or 16 seeds in two parts."""
    given = os.environ.get("DREAMSTREAM_SEEDS")
    if not given:
        return [range(first, first + 8) for first in (0, 8)]
    first, _, end = given.partition(":")
    return [range(int(first), int(end or int(first) + 1))]


@pytest.mark.parametrize("seeds", quick(), ids=str)
def test_models(seeds):
    assert each(seeds)["frames"]


@pytest.mark.slow
def test_many_models():
    each(range(1000, 1000 + int(os.environ.get("DREAMSTREAM_MODELS", "2000"))))
