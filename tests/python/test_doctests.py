"""The examples in docstrings run and print what they say."""

import doctest
import importlib
import pkgutil

import pytest

import dreamstream

MODULES = sorted(
    m.name
    for m in pkgutil.walk_packages(dreamstream.__path__, "dreamstream.")
    if not m.name.endswith(("__main__", "_core"))
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_some_examples_exist():
    finder = doctest.DocTestFinder()
    found = [t for n in MODULES for t in finder.find(importlib.import_module(n)) if t.examples]
    assert len(found) > 10
