"""Holding a law against seeded random cases of an operator, or against a model."""

import os
import zlib
from collections.abc import Callable, Iterable
from itertools import product

import numpy as np

import dreamstream as ds

from . import (  # noqa: F401  (they register themselves)
    laws_far,
    laws_slopes,
    laws_state,
    models,
    models_attention,
    models_norms,
    models_planes,
    models_pooling,
)
from .case import Case, Rng
from .laws import LAWS
from .operators import GENERATORS


class Broken(AssertionError):
    """A law does not hold."""


#: Operators of which the fast tier holds more laws.
ALONG = {name for name, generator in GENERATORS.items() if getattr(generator, "along", False)}
#: How many cases of each are held against a law.
USUAL = {name: getattr(generator, "cases", 3) for name, generator in GENERATORS.items()}


def n_cases(name: str, usual: int | None = None) -> int:
    """How many cases of an operator or model: what DREAMSTREAM_LAW_CASES says, else the usual number."""
    if usual is None:
        usual = USUAL.get(name, 1)
    return int(os.environ.get("DREAMSTREAM_LAW_CASES", usual))


def made(law: str, name: str, index: int) -> tuple[Case, Rng]:
    """Case `index` of an operator or model, and the random numbers that the law goes on with."""
    rng = np.random.default_rng([zlib.crc32(f"{law} {name}".encode()), index])
    dtype = "float64" if index % 3 == 2 else "float32"
    return GENERATORS[name](rng, dtype) if name in GENERATORS else models.case(name, dtype), rng


def check(law: str, name: str, n: int, first: int = 0) -> None:
    """Hold a law against n cases.

    Raises
    ------
    Broken
        With the case, and the call that shows it again.
    """
    for index in range(first, first + n):
        case, rng = made(law, name, index)
        try:
            LAWS[law](case, rng)
        except (AssertionError, ds.DreamStreamError) as error:
            raise Broken(
                f"{law}, case {index}: {type(error).__name__}: {error}\n{case}\n"
                f"again: from ds_laws import check; check({law!r}, {name!r}, 1, {index})"
            ) from error


def first_broken(
    names: Iterable[str],
    laws: Iterable[str] = (),
    cases: Callable[[str, str], Iterable[int]] = lambda law, name: range(n_cases(name)),
) -> str | None:
    """Hold laws (all, where none is named) against operators and models, as the suite does.

    Parameters
    ----------
    names, laws : iterable of str
        What is held.
    cases : callable
        Which cases of a name are held against a law.

    Returns
    -------
    str or None
        What breaks first.
    """
    for law, name in product(list(laws) or LAWS, list(names)):
        for index in cases(law, name):
            try:
                check(law, name, 1, index)
            except Broken as broken:
                return str(broken)
    return None
