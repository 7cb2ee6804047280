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
from .distance import cosine_similarity, normalize
from .loss import l1_loss, mse_loss
from .normalization import layer_norm, rms_norm
from .padding import pad
from .products import bilinear, linear
from .statistics import batch_norm, group_norm, instance_norm

__all__ = [
    "batch_norm",
    "bilinear",
    "conv1d",
    "conv_transpose1d",
    "cosine_similarity",
    "dropout",
    "gelu",
    "glu",
    "group_norm",
    "hardtanh",
    "instance_norm",
    "l1_loss",
    "layer_norm",
    "linear",
    "log_softmax",
    "logsigmoid",
    "mse_loss",
    "normalize",
    "pad",
    "relu",
    "rms_norm",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
]
