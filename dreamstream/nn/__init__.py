"""Layers with the names, arguments, initial values and state dict keys of torch.nn."""

from . import functional, init
from .activation import (
    GELU,
    GLU,
    Dropout,
    LogSigmoid,
    LogSoftmax,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from .containers import ModuleDict, ModuleList, ParameterList, Sequential
from .conv import Conv1d, ConvTranspose1d
from .conv2d import Conv2d, ConvTranspose2d
from .linear import Identity, Linear
from .module import Module
from .normalization import LayerNorm
from .padding import (
    CircularPad1d,
    CircularPad2d,
    ConstantPad1d,
    ConstantPad2d,
    ReflectionPad1d,
    ReflectionPad2d,
    ReplicationPad1d,
    ReplicationPad2d,
    ZeroPad1d,
    ZeroPad2d,
)
from .parameter import Parameter
from .recurrent import LSTM
from .shape import Delay, Flatten, Unflatten

__all__ = [
    "GELU",
    "GLU",
    "LSTM",
    "CircularPad1d",
    "CircularPad2d",
    "ConstantPad1d",
    "ConstantPad2d",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "Delay",
    "Dropout",
    "Flatten",
    "Identity",
    "LayerNorm",
    "Linear",
    "LogSigmoid",
    "LogSoftmax",
    "Module",
    "ModuleDict",
    "ModuleList",
    "Parameter",
    "ParameterList",
    "ReLU",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
    "Unflatten",
    "ZeroPad1d",
    "ZeroPad2d",
    "functional",
    "init",
]
