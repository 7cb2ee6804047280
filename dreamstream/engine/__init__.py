"""The engine: capture, compile, step."""

from .compile import compile
from .engine import Engine, OutputInfo, Stream
from .spec import InputSpec
from .verify import Report, verify

__all__ = ["Engine", "InputSpec", "OutputInfo", "Report", "Stream", "compile", "verify"]
