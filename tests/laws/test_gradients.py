"""Which operators have slopes, and records that are used wrongly; the laws of slopes: `ds_laws.laws_slopes`."""

from __future__ import annotations

from dreamstream import _core

#: Operators that could be differentiated and have no backward yet: this list only gets shorter.
MISSING: set[str] = set()


def test_every_operator_has_a_backward_or_says_that_calculus_ends():
    missing = {o["name"] for o in _core.operators() if not (o["backward"] or o["constant"])}
    assert missing == MISSING
