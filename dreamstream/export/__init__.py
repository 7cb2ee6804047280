"""Models as files of other runtimes: ONNX and TorchScript, with their states as inputs and outputs."""

from .onnx import onnx
from .torchscript import torchscript

__all__ = ["onnx", "torchscript"]
