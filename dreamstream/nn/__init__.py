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
from .batch_norm import BatchNorm1d, BatchNorm2d
from .containers import ModuleDict, ModuleList, ParameterList, Sequential
from .conv import Conv1d, ConvTranspose1d
from .group_norm import GroupNorm, InstanceNorm1d, InstanceNorm2d
from .linear import Bilinear, Identity, Linear
from .module import Module
from .normalization import LayerNorm, RMSNorm
from .parameter import Parameter
from .recurrent import LSTM
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
    "BatchNorm1d",
    "BatchNorm2d",
    "Bilinear",
    "ConstantPad1d",
    "Conv1d",
    "ConvTranspose1d",
    "Delay",
    "Dropout",
    "Flatten",
    "GroupNorm",
    "Identity",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "LayerNorm",
    "Linear",
    "LogSigmoid",
    "LogSoftmax",
    "Module",
    "ModuleDict",
    "ModuleList",
    "Parameter",
    "ParameterList",
    "RMSNorm",
    "ReLU",
    "ReflectionPad1d",
    "ReplicationPad1d",
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
