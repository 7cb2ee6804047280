"""The laws of streaming, and cases to hold them against; see docs/internals/testing.md."""

from . import models_pointwise  # noqa: F401  (adds to MODELS)
from .check import ALONG, Broken, check, first_broken, made, n_cases
from .fast import FAMILIES, MEMBERS, is_default, is_fast, of_fast, usual_cases
from .laws import LAWS
from .models import MODELS
from .operators import GENERATORS

__all__ = [
    "ALONG",
    "FAMILIES",
    "GENERATORS",
    "LAWS",
    "MEMBERS",
    "MODELS",
    "Broken",
    "check",
    "first_broken",
    "is_default",
    "is_fast",
    "made",
    "n_cases",
    "of_fast",
    "usual_cases",
]
