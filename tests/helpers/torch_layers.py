"""Layers and functions that torch has too: what they are made from, and what goes into them."""

from typing import Any

import numpy as np
import torch
from stream_methods import FUNCTIONS as OF_ELEMENTS

from dreamstream import nn
from dreamstream.operations import UNARY
from dreamstream.stream.tree import leaves

Row = tuple[str, tuple[Any, ...], dict[str, Any], list[tuple[int, ...]]]


# ---------------------------------------------------------------- one of each library
def close(ours: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    """Compare with torch: shapes, element types, what is not finite, and |a - b| <= tolerance * max(1, |b|)."""
    for got, want in zip(leaves(ours), leaves(theirs), strict=True):
        got, want = got.numpy(), want.detach().numpy()
        assert got.shape == want.shape and got.dtype == want.dtype
        finite = np.isfinite(want)
        np.testing.assert_array_equal(got[~finite], want[~finite])
        assert (np.abs(got[finite] - want[finite]) <= tolerance * np.maximum(1.0, np.abs(want[finite]))).all()


def twins(name: str, *args: Any, **options: Any) -> tuple[Any, Any]:
    """Return a layer of ours and torch's with the same weights; text, keys, shapes and types must be equal."""
    ours, theirs = (getattr(library, name)(*args, **options) for library in (nn, torch.nn))
    assert repr(ours) == repr(theirs)
    state = {k: torch.tensor(v.numpy()) for k, v in ours.state_dict().items()}
    kinds = [[(k, v.shape, v.dtype) for k, v in each.items()] for each in (state, theirs.state_dict())]
    assert kinds[0] == kinds[1]
    if "Norm" in name or name == "PReLU":  # whose first values are not drawn
        assert all(torch.equal(v, state[k]) for k, v in theirs.state_dict().items())
    share(ours, theirs)
    return ours.eval(), theirs.eval()


def draw(ours: Any) -> None:
    """Give a module of ours random parameters and statistics."""
    rng = np.random.default_rng(1)
    for p in ours.parameters():
        p.numpy()[...] = rng.standard_normal(p.shape)
    for b in ours.buffers():
        if b.is_floating_point():
            b.numpy()[...] = rng.random(b.shape) + 0.1


def share(ours: Any, theirs: Any) -> None:
    """Give a module of torch's the weights of ours."""
    theirs.load_state_dict({k: torch.tensor(v.numpy()) for k, v in ours.state_dict().items()})


# ---------------------------------------------------------------- layers: name, arguments, options, shapes
#: Single elements, each a function of its own.
RECTIFIERS: list[Row] = [
    ("ELU", (), {}, [(2, 3)]),
    ("ELU", (2.5,), {"inplace": True}, [(2, 3)]),
    ("CELU", (), {}, [(2, 3)]),
    ("CELU", (0.3,), {}, [(2, 3)]),
    ("SELU", (), {}, [(2, 3)]),
    ("SELU", (), {"inplace": True}, [(2, 3)]),
    ("LeakyReLU", (), {}, [(2, 3)]),
    ("LeakyReLU", (0.3,), {"inplace": True}, [(2, 3)]),
    ("PReLU", (), {}, [(2, 3)]),
    ("PReLU", (), {"init": 0.5}, [()]),
    ("PReLU", (4,), {}, [(2, 4)]),
    ("PReLU", (4,), {}, [(2, 4, 5)]),
    ("PReLU", (4,), {"init": -0.5}, [(2, 4, 5, 3)]),
    ("ReLU6", (), {}, [(2, 3)]),
    ("ReLU6", (), {"inplace": True}, [(2, 3)]),
    ("Hardtanh", (), {}, [(2, 3)]),
    ("Hardtanh", (-0.25, 0.5), {"inplace": True}, [(2, 3)]),
    ("Hardsigmoid", (), {}, [(2, 3)]),
    ("Hardsigmoid", (True,), {}, [(2, 3)]),
    ("Hardswish", (), {}, [(2, 3)]),
    ("Hardshrink", (), {}, [(2, 3)]),
    ("Hardshrink", (0.1,), {}, [(2, 3)]),
    ("Softshrink", (), {}, [(2, 3)]),
    ("Softshrink", (0.1,), {}, [(2, 3)]),
    ("Tanhshrink", (), {}, [(2, 3)]),
    ("Softsign", (), {}, [(2, 3)]),
    ("Mish", (), {}, [(2, 3)]),
    ("Mish", (), {"inplace": True}, [(2, 3)]),
    ("Threshold", (0.1, 20), {}, [(2, 3)]),
    ("Threshold", (-0.5, 3.0), {"inplace": True}, [(2, 3)]),
    ("RReLU", (), {}, [(2, 3)]),
    ("RReLU", (0.1, 0.4), {"inplace": True}, [(2, 3)]),
    ("Softmin", (), {"dim": 1}, [(2, 3)]),
    ("Softmin", (-2,), {}, [(2, 3, 4)]),
    ("Softmax2d", (), {}, [(2, 3, 4, 5)]),
    ("Softmax2d", (), {}, [(3, 4, 5)]),
    ("Dropout", (0.3,), {}, [(2, 3)]),
    ("Dropout1d", (), {}, [(2, 3, 4)]),
    ("Dropout2d", (0.2, True), {}, [(2, 3, 4, 5)]),
    ("Dropout3d", (), {}, [(2, 3, 4, 5, 1)]),
    ("AlphaDropout", (), {}, [(2, 3)]),
    ("FeatureAlphaDropout", (0.1,), {}, [(2, 3, 4)]),
]
ODD = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e-30, 0.5, -0.5, 3, -3, 6, 20.5, -100, 1e30, -1e30]
OTHERS: list[Row] = [
    ("Identity", (), {}, [(2, 3)]),
    ("Linear", (4, 3), {}, [(2, 4), (4,), (2, 5, 4), (0, 4)]),
    ("Linear", (4, 3), {"bias": False}, [(2, 4)]),
    ("LayerNorm", (4,), {}, [(2, 4), (3, 2, 4), (4,)]),
    ("LayerNorm", ([3, 4],), {"eps": 1e-3}, [(2, 3, 4)]),
    ("LayerNorm", (4,), {"elementwise_affine": False}, [(2, 4)]),
    ("LayerNorm", (4,), {"bias": False}, [(2, 4)]),
    ("ReLU", (), {}, [(2, 3)]),
    ("ReLU", (), {"inplace": True}, [(2, 3)]),
    ("GELU", (), {}, [(2, 3)]),
    ("GELU", ("tanh",), {}, [(2, 3)]),
    ("SiLU", (), {}, [(2, 3)]),
    ("Sigmoid", (), {}, [(2, 3)]),
    ("Tanh", (), {}, [(2, 3)]),
    ("LogSigmoid", (), {}, [(2, 3)]),
    ("Softplus", (), {}, [(2, 3)]),
    ("Softplus", (), {"beta": 3.0, "threshold": 1.0}, [(2, 3)]),
    ("Softmax", (), {"dim": -1}, [(2, 3), (3,)]),
    ("Softmax", (), {"dim": 1}, [(2, 3, 4)]),
    ("LogSoftmax", (), {"dim": 0}, [(2, 3)]),
    ("GLU", (), {}, [(2, 6)]),
    ("GLU", (), {"dim": 1}, [(2, 4, 3)]),
    ("GLU", (0,), {}, [(4, 6, 8)]),
    *((name, (dim,), {}, [(3, 5, 4)]) for name in ("Softmax", "LogSoftmax") for dim in (0, 1, -1)),
    ("Dropout", (0.3,), {}, [(2, 3)]),
    ("Flatten", (), {}, [(2, 3, 4)]),
    ("Flatten", (0, 1), {}, [(2, 3, 4)]),
    ("Unflatten", (1, (2, -1)), {}, [(3, 6)]),
    ("ConstantPad1d", (2, 1.5), {}, [(2, 3, 5), (3, 5)]),
    ("ConstantPad1d", ((-1, 3), 0.5), {}, [(2, 3, 5)]),
    ("ConstantPad1d", ((2, -3), 0.5), {}, [(2, 3, 5)]),
    ("ZeroPad1d", ((0, 3),), {}, [(2, 3, 5)]),
    ("ReplicationPad1d", ((1, 3),), {}, [(2, 3, 5), (3, 5)]),
    ("ReflectionPad1d", ((3, 2),), {}, [(2, 3, 5)]),
]
CONVOLUTIONS = [
    {"kernel_size": 3},
    {"kernel_size": (5,), "padding": 2},
    {"kernel_size": 4, "padding": "same"},
    {"kernel_size": 3, "padding": "valid", "stride": 2},
    {"kernel_size": 3, "stride": 3, "padding": 4, "dilation": 2},
    {"kernel_size": 1, "stride": 2},
    {"kernel_size": 2, "stride": 5},
    {"kernel_size": 3, "groups": 2, "bias": False},
    {"kernel_size": 3, "groups": 4, "padding": 1},
    {"kernel_size": 5, "padding": 3, "padding_mode": "reflect"},
    {"kernel_size": 4, "padding": "same", "dilation": 2, "padding_mode": "replicate"},
    {"kernel_size": 3, "padding": (1,), "padding_mode": "circular"},
]
WINDOWS = [  # kernel, padding, stride, dilation, groups, bias
    (3, 1, 1, 1, 1, True),
    (5, 4, 2, 2, 2, True),
    (4, 3, 3, 1, 1, False),
    (3, "same", 1, 3, 1, True),
    (4, "same", 1, 1, 2, True),
    (3, "valid", 2, 1, 1, True),
]
TRANSPOSED = [
    {"kernel_size": 3},
    {"kernel_size": 4, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1},
    {"kernel_size": 2, "stride": 3, "bias": False},
    {"kernel_size": 3, "stride": 2, "dilation": 3, "groups": 2},
    {"kernel_size": 4, "stride": 3, "padding": 2, "output_padding": 1, "groups": 2, "bias": False},
    {"kernel_size": 3, "stride": 2, "padding": 3, "output_padding": 2, "dilation": 3},
    {"kernel_size": 2, "stride": 5, "output_padding": 4, "groups": 2},
]
PLANES = [
    {"kernel_size": 3},
    {"kernel_size": (3, 2), "padding": (2, 1)},
    {"kernel_size": (4, 3), "padding": "same", "dilation": (1, 2)},
    {"kernel_size": 3, "padding": "valid", "stride": 2},
    {"kernel_size": 1, "stride": (2, 3)},
    {"kernel_size": 2, "stride": 5, "dilation": (2, 1)},
    {"kernel_size": 3, "groups": 2, "bias": False},
    {"kernel_size": 3, "groups": 4, "padding": 1},
    {"kernel_size": 3, "padding": (2, 1), "padding_mode": "reflect"},
    {"kernel_size": 4, "padding": "same", "padding_mode": "replicate"},
    {"kernel_size": 3, "padding": 1, "padding_mode": "circular"},
]
PLANES_TRANSPOSED = [
    {"kernel_size": 3},
    {"kernel_size": (4, 3), "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": (2, 3), "padding": (0, 1), "output_padding": (1, 2)},
    {"kernel_size": 2, "stride": 3, "bias": False},
    {"kernel_size": (3, 2), "stride": 2, "dilation": (3, 1), "groups": 2},
]
PADS: list[Row] = [
    ("CircularPad1d", ((3, 2),), {}, [(2, 3, 5), (3, 5)]),
    ("ConstantPad2d", (2, 1.5), {}, [(2, 3, 6, 5), (3, 6, 5)]),
    ("ConstantPad2d", ((-1, 3, 2, -2), 0.5), {}, [(2, 3, 6, 5), (3, 6, 5)]),
    ("ZeroPad2d", ((0, 3, 1, 0),), {}, [(2, 3, 6, 5), (3, 6, 5)]),
    ("ReplicationPad2d", ((1, 3, 0, 2),), {}, [(2, 3, 6, 5), (3, 6, 5)]),
    ("ReflectionPad2d", ((3, 2, 1, 4),), {}, [(2, 3, 6, 5), (3, 6, 5)]),
    ("CircularPad2d", ((3, 2, 1, 4),), {}, [(2, 3, 6, 5), (3, 6, 5)]),
]
NORMS: list[Row] = [
    ("RMSNorm", (4,), {}, [(2, 4), (3, 2, 4), (4,)]),
    ("RMSNorm", ([3, 4],), {"eps": 1e-3}, [(2, 3, 4)]),
    ("RMSNorm", (4,), {"elementwise_affine": False}, [(2, 4)]),
    ("BatchNorm1d", (4,), {}, [(3, 4), (2, 4, 5), (1, 4, 1)]),
    ("BatchNorm1d", (4,), {"affine": False, "eps": 0.1, "momentum": None}, [(2, 4, 5)]),
    ("BatchNorm1d", (4,), {"bias": False}, [(2, 4, 5)]),
    ("BatchNorm1d", (4,), {"track_running_stats": False}, [(3, 4), (2, 4, 5)]),
    ("BatchNorm2d", (4,), {}, [(2, 4, 5, 3)]),
    ("BatchNorm2d", (4,), {"track_running_stats": False, "affine": False}, [(2, 4, 5, 3)]),
    ("GroupNorm", (2, 4), {}, [(3, 4), (2, 4, 5), (2, 4, 5, 3), (2, 4, 5, 3, 2)]),
    ("GroupNorm", (1, 4), {"affine": False, "eps": 0.1}, [(2, 4, 5)]),
    ("GroupNorm", (4, 4), {"bias": False}, [(2, 4, 5)]),
    ("InstanceNorm1d", (4,), {}, [(2, 4, 5), (4, 5)]),
    ("InstanceNorm1d", (4,), {"affine": True, "eps": 0.1}, [(2, 4, 5)]),
    ("InstanceNorm1d", (4,), {"affine": True, "track_running_stats": True}, [(2, 4, 5), (4, 5)]),
    ("InstanceNorm2d", (4,), {"affine": True, "bias": False}, [(2, 4, 5, 3), (4, 5, 3)]),
    ("InstanceNorm2d", (4,), {"track_running_stats": True}, [(2, 4, 5, 3)]),
]
ALONG, IMAGES = [(2, 3, 13), (0, 3, 13), (3, 13)], [(2, 3, 11, 13), (0, 3, 11, 13), (3, 11, 13)]
POOLS: list[Row] = [
    ("MaxPool1d", (3,), {}, ALONG),
    ("MaxPool1d", (3, 2, 1), {"dilation": 2, "ceil_mode": True}, ALONG),
    ("MaxPool2d", ((3, 2),), {"stride": (2, 1), "padding": 1}, IMAGES),
    ("AvgPool1d", (3,), {}, ALONG),
    ("AvgPool1d", (4, 3, 2), {"ceil_mode": True, "count_include_pad": False}, ALONG),
    ("AvgPool2d", ((3, 2),), {"divisor_override": 4}, IMAGES),
    ("LPPool1d", (2, 3), {}, ALONG),
    ("LPPool1d", (1.5, 3, 2), {"ceil_mode": True}, ALONG),
    ("LPPool1d", (float("inf"), 2), {}, ALONG),
    ("AdaptiveAvgPool1d", (4,), {}, ALONG),
    ("AdaptiveMaxPool1d", (5,), {}, ALONG),
    ("AdaptiveAvgPool2d", ((None, 3),), {}, IMAGES),
    ("AdaptiveMaxPool2d", (3,), {}, IMAGES),
    ("Upsample", (), {"scale_factor": 2}, ALONG[:2]),
    ("Upsample", (), {"scale_factor": (1.7, 0.5)}, IMAGES[:2]),
    ("Upsample", (), {"size": (5, 30)}, IMAGES[:2]),
    ("Upsample", (7,), {}, ALONG[:2]),
    ("Upsample", (), {"scale_factor": 0.7, "recompute_scale_factor": True}, ALONG[:2]),
]
LAYERS: dict[str, list[Row]] = {
    "rectifiers": RECTIFIERS,
    "others": OTHERS,
    "convolutions": [
        *(("Conv1d", (4, 8), k, [(2, 4, 13), (4, 13)]) for k in CONVOLUTIONS),
        *(
            ("Conv1d", (4, 6, k, stride, padding, dilation, groups, bias, mode), {}, [(2, 4, 30)])
            for mode in ("zeros", "reflect", "replicate", "circular")
            for k, padding, stride, dilation, groups, bias in WINDOWS
        ),
        *(("ConvTranspose1d", (4, 6), k, [(2, 4, 13), (4, 13)]) for k in TRANSPOSED),
        *(("Conv2d", (4, 8), k, [(2, 4, 9, 7), (4, 6, 8), (0, 4, 9, 7)]) for k in PLANES),
        *(("ConvTranspose2d", (4, 6), k, [(2, 4, 5, 4), (4, 1, 3)]) for k in PLANES_TRANSPOSED),
    ],
    "pads": PADS,
    "norms": NORMS,
    "pools": POOLS,
}


# ---------------------------------------------------------------- functions of (3, 4, 5)
def _rectifier(name: str, **options: Any) -> Any:
    return lambda f, x: getattr(f, name)(x * 3, **options)


FUNCTIONS: list[Any] = [
    *map(_rectifier, OF_ELEMENTS),
    *(
        _rectifier(row.name, **{n: v[1] for n, v in row.tries.items()})
        for row in UNARY
        if "functional" in row.torch
    ),
    lambda f, x: f.relu(x, inplace=False),
    lambda f, x: f.hardtanh(x, -0.5, 0.7),
    lambda f, x: f.softmax(x, dim=1),
    lambda f, x: f.log_softmax(x, -1),
    lambda f, x: f.glu(x[:, :2], 1),
    lambda f, x: f.layer_norm(x, x.shape[-1:]),
    lambda f, x: f.layer_norm(x, tuple(x.shape[1:]), x[0], x[1], 0.1),
    lambda f, x: f.linear(x, x[0]),
    lambda f, x: f.linear(x, x[0], x[0, :, 0]),
    lambda f, x: f.dropout(x, 0.5, training=False),
    lambda f, x: f.mse_loss(x, x + 1),
    lambda f, x: f.mse_loss(x, x.exp(), reduction="sum"),
    lambda f, x: f.l1_loss(x, x[:1].exp().expand_as(x), reduction="none"),
    lambda f, x: f.pad(x, (1, 2)),
    lambda f, x: f.pad(x, (1, 2), value=3.0),
    lambda f, x: f.pad(x, (-1, 2, 0, 1, 2, -1), "constant", -1.0),
    lambda f, x: f.pad(x, (2, 1), "reflect"),
    lambda f, x: f.pad(x, (3, 0), "replicate"),
    lambda f, x: f.pad(x, (2, 3), "circular"),
    lambda f, x: f.pad(x[0, 0], (2, 3)),
    lambda f, x: f.pad(x, ()),
    lambda f, x: f.rms_norm(x, x.shape[-1:]),
    lambda f, x: f.rms_norm(x, tuple(x.shape[1:]), x[0], 0.1),
    lambda f, x: f.batch_norm(x, x[0, :, 0], x[0, :, 1].exp(), x[0, :, 2], x[0, :, 3], eps=0.1),
    lambda f, x: f.batch_norm(x, None, None, x[0, :, 2], x[0, :, 3], training=True),
    lambda f, x: f.group_norm(x, 2),
    lambda f, x: f.group_norm(x, 4, x[0, :, 2], x[0, :, 3], 0.1),
    lambda f, x: f.instance_norm(x),
    lambda f, x: f.instance_norm(x, x[0, :, 0], x[0, :, 1].exp(), use_input_stats=False),
    lambda f, x: f.normalize(x),
    lambda f, x: f.normalize(x, 1, -1),
    lambda f, x: f.normalize(x, float("inf"), 0, 2.0),
    lambda f, x: f.cosine_similarity(x, x.exp()),
    lambda f, x: f.cosine_similarity(x, x[0], -1, 0.5),
    lambda f, x: f.cosine_similarity(x, x[0], 2),
    lambda f, x: f.cosine_similarity(x, x[:, :1]),
    lambda f, x: f.cosine_similarity(x[1], x, 0),
    lambda f, x: f.bilinear(x, x.exp()[..., :3], x[:, :, :3].expand(3, 4, 3)[:, [0, 1, 2, 3, 3]]),
    lambda f, x: f.bilinear(x, x, x[:, [0, 1, 2, 3, 3]], x[0, :3, 0]),
    lambda f, x: f.conv1d(x, x[:, :, :2], x[:, 0, 0], padding=1, dilation=2),
    lambda f, x: f.conv1d(x, x[:2, :2, :3], stride=2, padding="valid", groups=2),
    lambda f, x: f.conv1d(x, x[:, :, :4], padding="same"),
    lambda f, x: f.conv2d(x[None], x[:, :3, :2].reshape(2, 3, 3, 1), x[0, :2, 0], 2, (1, 0), (2, 1)),
    lambda f, x: f.conv2d(x[None], x[:, :1, :2].reshape(3, 1, 2, 1), padding="same", groups=3),
    _rectifier("elu", alpha=2.0, inplace=False),
    _rectifier("celu", alpha=0.5),
    _rectifier("leaky_relu", negative_slope=-0.2),
    _rectifier("rrelu", lower=0.1, upper=0.7),
    _rectifier("hardtanh", min_val=-2.0),
    _rectifier("hardshrink", lambd=1.0),
    _rectifier("softshrink", lambd=1.0),
    _rectifier("threshold", threshold=0.5, value=-1.0),
    _rectifier("softmin", dim=1),
    _rectifier("dropout1d", training=False),
    _rectifier("alpha_dropout"),
    _rectifier("feature_alpha_dropout"),
    lambda f, x: f.prelu(x, x[0, :, 0]),
    lambda f, x: f.prelu(x, x[0, 0, :1]),
]
