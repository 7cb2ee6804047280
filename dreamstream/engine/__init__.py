"""The engine: capture, compile, step."""

from .compile import compile
from .engine import Engine, Stream
from .load import load
from .spec import InputSpec, OutputInfo
from .verify import Report, verify

__all__ = ["Engine", "InputSpec", "OutputInfo", "Report", "Stream", "compile", "load", "verify"]
