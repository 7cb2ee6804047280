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
from .linear import Identity, Linear
from .module import Module
from .normalization import LayerNorm
from .parameter import Parameter
from .recurrent import LSTM
from .resampling import Resample
from .shape import (
    ConstantPad1d,
    Delay,
    Flatten,
    ReflectionPad1d,
    ReplicationPad1d,
    Unflatten,
    ZeroPad1d,
)

__all__ = [
    "GELU",
    "GLU",
    "LSTM",
    "ConstantPad1d",
    "Conv1d",
    "ConvTranspose1d",
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
    "ReplicationPad1d",
    "Resample",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
    "Unflatten",
    "ZeroPad1d",
    "functional",
    "init",
]
