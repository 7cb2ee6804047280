"""Every operator of the registry, held against every law; how many cases of each: DREAMSTREAM_LAW_CASES."""

from __future__ import annotations

import pytest
from ds_laws import GENERATORS, LAWS, check, is_fast, n_cases


@pytest.mark.parametrize(
    ("law", "name"),
    [
        pytest.param(law, name, marks=[pytest.mark.fast] * is_fast(law, name))
        for law in LAWS
        for name in GENERATORS
    ],
)
def test_law(law, name):
    check(law, name, n_cases(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", GENERATORS)
def test_many_cases(name):
    for index in range(n_cases(name, 10_000)):
        check(list(LAWS)[index % len(LAWS)], name, 1, first=10_000 + index)
