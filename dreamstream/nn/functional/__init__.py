"""Functions on tensors with torch's names and arguments.

All go through the door, so that each means the same offline, inside an online forward (where a call
keeps its own state, like a layer) and in a captured graph. Tensors are float32 or float64, plain or
streams; weights are plain tensors of the same type, else `DTypeError` is raised. Shapes are those of
plain tensors: B rows, L frames, C, F features; a stream's dimensions must mean the same.

Source: torch.nn.functional, the function of the same name.
"""

from .activation import (
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
from .distance import cosine_similarity, normalize
from .dropout import alpha_dropout, dropout, dropout1d, dropout2d, dropout3d, feature_alpha_dropout
from .frames import cumulative_mean, cumulative_sum, overlap_add, running_mean
from .lookup import embedding, one_hot
from .loss import l1_loss, mse_loss
from .normalization import layer_norm, rms_norm
from .padding import pad, pad_to_multiple
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
from .products import bilinear, linear
from .rectifiers import (
    celu,
    elu,
    hardshrink,
    hardsigmoid,
    hardswish,
    leaky_relu,
    mish,
    prelu,
    relu6,
    rrelu,
    selu,
    softmin,
    softshrink,
    softsign,
    tanhshrink,
    threshold,
)
from .resampling import resample
from .statistics import batch_norm, group_norm, instance_norm
from .upsampling import interpolate

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "alpha_dropout",
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "bilinear",
    "celu",
    "conv1d",
    "conv2d",
    "conv_transpose1d",
    "conv_transpose2d",
    "cosine_similarity",
    "cumulative_mean",
    "cumulative_sum",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "embedding",
    "feature_alpha_dropout",
    "gelu",
    "glu",
    "group_norm",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "instance_norm",
    "interpolate",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "lp_pool1d",
    "max_pool1d",
    "max_pool2d",
    "mish",
    "mse_loss",
    "normalize",
    "one_hot",
    "overlap_add",
    "pad",
    "pad_to_multiple",
    "prelu",
    "relu",
    "relu6",
    "resample",
    "rms_norm",
    "rrelu",
    "running_mean",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
]
