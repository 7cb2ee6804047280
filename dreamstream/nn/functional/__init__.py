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
from .frames import cumulative_mean, cumulative_sum, overlap_add, running_mean
from .loss import l1_loss, mse_loss
from .normalization import layer_norm
from .padding import pad
from .pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    avg_pool1d,
    avg_pool2d,
    lp_pool1d,
    max_pool1d,
    max_pool2d,
)
from .products import linear
from .upsampling import interpolate

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "avg_pool1d",
    "avg_pool2d",
    "conv1d",
    "conv_transpose1d",
    "cumulative_mean",
    "cumulative_sum",
    "dropout",
    "gelu",
    "glu",
    "hardtanh",
    "interpolate",
    "l1_loss",
    "layer_norm",
    "linear",
    "log_softmax",
    "logsigmoid",
    "lp_pool1d",
    "max_pool1d",
    "max_pool2d",
    "mse_loss",
    "overlap_add",
    "pad",
    "relu",
    "running_mean",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
]
