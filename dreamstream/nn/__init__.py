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
from .frames import CumulativeMean, CumulativeSum, OverlapAdd, RunningMean, Upsample
from .linear import Identity, Linear
from .module import Module
from .normalization import LayerNorm
from .parameter import Parameter
from .pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AvgPool1d,
    AvgPool2d,
    LPPool1d,
    MaxPool1d,
    MaxPool2d,
)
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
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "ConstantPad1d",
    "Conv1d",
    "ConvTranspose1d",
    "CumulativeMean",
    "CumulativeSum",
    "Delay",
    "Dropout",
    "Flatten",
    "Identity",
    "LPPool1d",
    "LayerNorm",
    "Linear",
    "LogSigmoid",
    "LogSoftmax",
    "MaxPool1d",
    "MaxPool2d",
    "Module",
    "ModuleDict",
    "ModuleList",
    "OverlapAdd",
    "Parameter",
    "ParameterList",
    "ReLU",
    "ReflectionPad1d",
    "ReplicationPad1d",
    "RunningMean",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
    "Unflatten",
    "Upsample",
    "ZeroPad1d",
    "functional",
    "init",
]
