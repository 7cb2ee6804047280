"""Models as files of other runtimes: ONNX and TorchScript, with their states as inputs and outputs."""

from .. import torch as _torch  # noqa: F401  (first: it says so where torch is missing)
from .onnx import onnx
from .torchscript import torchscript

__all__ = ["onnx", "torchscript"]
