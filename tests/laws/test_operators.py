"""Every operator of the registry, held against every law; how many cases of each: DREAMSTREAM_LAW_CASES."""

from __future__ import annotations

import pytest
from ds_laws import GENERATORS, LAWS, check, n_cases


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("law", LAWS)
def test_law(law, name):
    check(law, name, n_cases(name))


@pytest.mark.quick
@pytest.mark.parametrize("name", GENERATORS)
def test_all_laws_once(name):
    for law in LAWS:
        check(law, name, 1, first=1000)


@pytest.mark.slow
@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("law", LAWS)
def test_law_on_many_cases(law, name):
    check(law, name, n_cases(name, 10_000), first=10_000)
