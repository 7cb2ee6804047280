"""Functions on tensors with torch's names and arguments.

All go through the door, so that each means the same offline, inside an online forward (where a call
keeps its own state, like a layer) and in a captured graph. Tensors are float32 or float64, plain or
streams; weights are plain tensors of the same type, else `DTypeError` is raised. Shapes are those of
plain tensors: B rows, L frames, C, F features; a stream's dimensions must mean the same.

Source: torch.nn.functional, the function of the same name.
"""

from .activation import (
    dropout,
    gelu,
    glu,
    hardtanh,
    log_softmax,
    logsigmoid,
    relu,
    sigmoid,
    silu,
    softmax,
    softplus,
    tanh,
)
from .convolution import conv1d, conv_transpose1d
from .convolution2d import conv2d, conv_transpose2d
from .loss import l1_loss, mse_loss
from .normalization import layer_norm
from .padding import pad
from .products import linear

__all__ = [
    "conv1d",
    "conv2d",
    "conv_transpose1d",
    "conv_transpose2d",
    "dropout",
    "gelu",
    "glu",
    "hardtanh",
    "l1_loss",
    "layer_norm",
    "linear",
    "log_softmax",
    "logsigmoid",
    "mse_loss",
    "pad",
    "relu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
]
