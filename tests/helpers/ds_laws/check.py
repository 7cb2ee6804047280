"""Holding a law against seeded random cases of an operator, or against a model."""

from __future__ import annotations

import os
import zlib

import numpy as np

import dreamstream as ds

from . import laws_state, models  # noqa: F401  (laws register themselves)
from .case import Case, Rng
from .laws import LAWS
from .operators import GENERATORS

__all__ = ["Broken", "check", "made", "n_cases"]


class Broken(AssertionError):
    """A law does not hold."""


def n_cases(usual: int) -> int:
    """How many cases of each: what DREAMSTREAM_LAW_CASES says, else the usual number."""
    return int(os.environ.get("DREAMSTREAM_LAW_CASES", usual))


def made(law: str, name: str, index: int) -> tuple[Case, Rng]:
    """Case `index` of an operator or model, and the random numbers that the law goes on with."""
    rng = np.random.default_rng([zlib.crc32(f"{law} {name}".encode()), index])
    dtype = "float64" if index % 4 == 3 else "float32"
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
