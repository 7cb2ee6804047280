"""The engine: capture, compile, step."""

from .._core import Stream
from .compare import Comparison, compare
from .compile import compile
from .engine import Engine
from .load import load
from .patched import OnEngine
from .spec import InputSpec, OutputInfo
from .verify import Report, verify

__all__ = [
    "Comparison",
    "Engine",
    "InputSpec",
    "OnEngine",
    "OutputInfo",
    "Report",
    "Stream",
    "compare",
    "compile",
    "load",
    "verify",
]
