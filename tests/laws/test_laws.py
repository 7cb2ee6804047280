"""Every operator of the registry, layers and small stacks, held against every law.

Which cases of each: `ds_laws/fast.py`; the first so many, where DREAMSTREAM_LAW_CASES says a number. What layers
and stacks say is torch's, as of all shared cases: tests/torch/test_shared_cases.py.
"""

import pytest
from ds_laws import FAMILIES, GENERATORS, LAWS, MODELS, check, is_default, is_fast, n_cases, usual_cases

NAMES = [*GENERATORS, *MODELS]


def marks(law, name):
    return [pytest.mark.fast] * is_fast(law, name) + [pytest.mark.slow] * (not is_default(law, name))


def test_families_have_their_members():
    assert all(name in members <= GENERATORS.keys() for name, members in FAMILIES.items())
    assert len(set().union(*FAMILIES.values())) == sum(map(len, FAMILIES.values())) >= 60


@pytest.mark.parametrize(
    ("law", "name"), [pytest.param(law, name, marks=marks(law, name)) for law in LAWS for name in NAMES]
)
def test_law(law, name):
    for index in usual_cases(law, name):
        check(law, name, 1, index)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_cases(name):
    for index in range(n_cases(name, 10_000)):
        check(list(LAWS)[index % len(LAWS)], name, 1, first=10_000 + index)
