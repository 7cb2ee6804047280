"""Every operator of the registry, held against every law; how many cases of each: DREAMSTREAM_LAW_CASES."""

from __future__ import annotations

import pytest
from ds_laws import ALONG, GENERATORS, LAWS, check, n_cases

FIRST = {"values", "chunking", "finality", "snapshots"}
LONG = {"reset", "batching"}


def marks(law, name):
    """The quick subset: the first laws for all operators, most for those along the stream."""
    return [pytest.mark.quick] if law in FIRST or (name in ALONG and law not in LONG) else []


@pytest.mark.parametrize(
    ("law", "name"),
    [pytest.param(law, name, marks=marks(law, name)) for law in LAWS for name in GENERATORS],
)
def test_law(law, name):
    check(law, name, n_cases(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", GENERATORS)
def test_many_cases(name):
    for index in range(n_cases(name, 10_000)):
        check(list(LAWS)[index % len(LAWS)], name, 1, first=10_000 + index)
