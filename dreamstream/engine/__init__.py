"""The engine: capture, compile, step."""

from .._core import Stream
from .audit import Audit, audit
from .compare import Comparison, compare
from .compile import compile
from .engine import Engine
from .load import load
from .patched import OnEngine
from .spec import InputSpec, OutputInfo
from .verify import Report, verify

__all__ = [
    "Audit", "Comparison", "Engine", "InputSpec", "OnEngine", "OutputInfo", "Report", "Stream", "audit", "compare",
    "compile", "load", "verify",
]  # fmt: skip
