"""The engine: capture, compile, step."""

from .compile import Report, compile, verify
from .engine import Engine, OutputInfo, Stream
from .spec import InputSpec

__all__ = ["Engine", "InputSpec", "OutputInfo", "Report", "Stream", "compile", "verify"]
