"""Single layers that the models of `ds_laws` don't have."""

from typing import Any

from .case import Given
from .tables import BCL, BLC, case, net

# ---------------------------------------------------------------- convolutions
for _name, _reach, _delay, _arguments, _options in [
    ("conv-of-one-frame", 3, 0, (3, 4, 1), {}),
    ("conv-even-padded", 6, 1, (3, 4, 4), {"padding": 2}),
    ("conv-even-same", 6, 1, (3, 4, 2), {"padding": "same"}),
    ("conv-same-reflect", 9, 3, (3, 4, 4), {"padding": "same", "dilation": 2, "padding_mode": "reflect"}),
    ("conv-same-replicate", 9, 2, (3, 4, 5), {"padding": "same", "padding_mode": "replicate"}),
    ("conv-padding-above-kernel", 9, None, (3, 4, 2), {"padding": 4, "stride": 3}),
    ("conv-one-of-three", 9, None, (3, 4, 1), {"stride": 3}),
    (
        "conv-stride-above-kernel-replicate",
        9,
        None,
        (2, 3, 2),
        {"stride": 4, "padding": 3, "padding_mode": "replicate"},
    ),
    ("conv-reflect-wide", 12, 4, (2, 3, 9), {"padding": 4, "padding_mode": "reflect"}),
    ("conv-depth-multiplied", 6, 2, (3, 6, 5), {"padding": 2, "groups": 3, "dilation": 1}),
    ("conv-dilated-grouped", 15, None, (4, 6, 4), {"padding": 3, "groups": 2, "dilation": 3, "stride": 2}),
    ("conv-valid-strided", 9, None, (3, 4, 5), {"padding": "valid", "stride": 3, "bias": False}),
]:
    case(
        _name,
        BCL(_arguments[0]),
        lambda nn, F, ds, a=_arguments, o=_options: nn.Conv1d(*a, **o),
        reach=_reach,
        delay=_delay,
    )
for _name, _arguments, _options in [
    ("conv-transpose-of-stride-one", (3, 4, 3), {"padding": 1}),
    ("conv-transpose-depthwise", (4, 4, 2), {"stride": 3, "groups": 4, "bias": False}),
    ("conv-transpose-extra", (3, 2, 5), {"stride": 3, "padding": 2, "output_padding": 2}),
    ("conv-transpose-dilated", (3, 2, 3), {"stride": 2, "dilation": 2, "padding": 3}),
]:
    case(_name, BCL(_arguments[0]), lambda nn, F, ds, a=_arguments, o=_options: nn.ConvTranspose1d(*a, **o))
ROWS, COLUMNS = (Given(("B", 2, "L", 5)),), (Given(("B", 2, 5, "L")),)
ONE = (Given(("B", 1, "L", 2)),)  # of which a window and a stride make one position
case("conv2d-of-one-channel", ONE, lambda nn, F, ds: nn.Conv2d(1, 1, (2, 3), (1, 2), (0, 1)), delay=1)
case("conv2d-same-rows", ROWS, lambda nn, F, ds: nn.Conv2d(2, 3, (3, 2), padding="same"), delay=1)
case("conv2d-of-one-column", COLUMNS, lambda nn, F, ds: nn.Conv2d(2, 3, (5, 1)), delay=0)
case("conv2d-strided-columns", COLUMNS, lambda nn, F, ds: nn.Conv2d(2, 3, 3, (1, 4), (1, 2)), reach=9)
case("conv2d-replicate", COLUMNS, lambda nn, F, ds: nn.Conv2d(2, 2, 3, padding=1, padding_mode="replicate"))
for _layer, _reach, _arguments, _options in [
    ("Conv2d", 4, (2, 1, (3, 2)), {}),
    ("Conv2d", 8, (2, 2, 3), {"groups": 2, "dilation": (1, 2), "stride": (1, 2), "padding": 1}),
    ("Conv2d", 8, (4, 6, (2, 3)), {"groups": 2, "stride": (3, 1), "padding": (0, 2)}),
    ("Conv2d", 9, (2, 3, 2), {"stride": 5}),
    ("Conv2d", 6, (2, 3, (2, 3)), {"padding": (1, 2), "padding_mode": "reflect", "stride": 2}),
    ("Conv2d", 3, (3, 4, 1), {}),
    ("Conv2d", 8, (2, 3, 3), {"padding": 1, "padding_mode": "circular"}),
    ("ConvTranspose2d", 6, (2, 3, (3, 2)), {"stride": 2, "padding": 1, "output_padding": (1, 0)}),
    ("ConvTranspose2d", 5, (4, 6, 2), {"stride": (3, 2), "groups": 2}),
    ("ConvTranspose2d", 6, (3, 3, 3), {"dilation": (2, 1), "groups": 3, "stride": 2}),
]:
    _wraps = _options.get("padding_mode") == "circular"
    for _where, _dims in (("rows", ("B", _arguments[0], "L", 8)), ("columns", ("B", _arguments[0], 8, "L"))):
        case(
            f"{_layer.lower()}-{_where}-{'-'.join(map(str, _arguments))}-{'-'.join(_options) or 'plain'}",
            (Given(_dims),),
            lambda nn, F, ds, n=_layer, a=_arguments, o=_options: getattr(nn, n)(*a, **o),
            reach=_reach,
            whole=_wraps,
            exports=not _wraps,
        )

# ---------------------------------------------------------------- pooling and repeating
case("max-pool-of-two", BCL(3), lambda nn, F, ds: nn.MaxPool1d(2))
case("max-pool-same", BCL(3), lambda nn, F, ds: nn.MaxPool1d(5, 1, 2), delay=2)
case("avg-pool-of-three", BCL(3), lambda nn, F, ds: nn.AvgPool1d(3))
case("avg-pool-stride-above-kernel", BCL(3), lambda nn, F, ds: nn.AvgPool1d(2, 5, 1), reach=9)
case("avg-pool-ceil-with-padding", BCL(3), lambda nn, F, ds: nn.AvgPool1d(4, 3, 1, ceil_mode=True), reach=9)
case("avg-pool-without-padding", BCL(3), lambda nn, F, ds: nn.AvgPool1d(3, 2, 1, count_include_pad=False))
case("max-pool2d", COLUMNS, lambda nn, F, ds: nn.MaxPool2d((2, 3), (2, 2), (1, 1)), reach=8)
case("avg-pool2d", ROWS, lambda nn, F, ds: nn.AvgPool2d((3, 2), stride=(2, 1), padding=(1, 0)), reach=8)
case("max-pool-of-ten-at-nine", BCL(2), lambda nn, F, ds: nn.MaxPool1d(10, 9, 5), reach=24)
case("avg-pool-of-nine-at-ten", BCL(2), lambda nn, F, ds: nn.AvgPool1d(9, 10, 4), reach=24)
case("max-pool-dilated-ceil", BCL(2), lambda nn, F, ds: nn.MaxPool1d(5, 4, 2, 3, ceil_mode=True), reach=20)
case("lp-pool-of-the-largest", BCL(2), lambda nn, F, ds: nn.LPPool1d(float("inf"), 2), onnx=False)
case("adaptive-max-pool-of-features", ROWS, lambda nn, F, ds: nn.AdaptiveMaxPool2d((None, 3)))
for _name, _factor in (("5", 5), ("a-third", 1 / 3), ("a-seventh", 1 / 7)):
    case(f"upsample-by-{_name}", BCL(2), lambda nn, F, ds, s=_factor: nn.Upsample(scale_factor=s), reach=8)
case("upsample-nearest", BCL(3), lambda nn, F, ds: nn.Upsample(scale_factor=2, mode="nearest"), delay=0)

# ---------------------------------------------------------------- padding
case("zero-pad", BCL(2), lambda nn, F, ds: nn.ZeroPad1d((3, 0)), delay=0)
case("constant-pad-of-one-side", BCL(2), lambda nn, F, ds: nn.ConstantPad1d((0, 3), 1.5), delay=0)
case("reflection-pad-of-one-side", BCL(2), lambda nn, F, ds: nn.ReflectionPad1d((4, 0)), reach=8)
case("replication-pad-negative", BCL(2), lambda nn, F, ds: nn.ReplicationPad1d((3, -2)), reach=8)
case("zero-pad2d", ROWS, lambda nn, F, ds: nn.ZeroPad2d((1, 0, 2, 3)), reach=7)


# ---------------------------------------------------------------- windows of samples, each by itself
for _name, _inner in [
    ("conv-strided", lambda F, x, w: F.conv1d(x, w, stride=2, padding=1)),
    ("conv-dilated", lambda F, x, w: F.conv1d(x, w, dilation=3)),
    ("conv-same-of-two", lambda F, x, w: F.conv1d(x, w[:, :, :2], padding="same")),
    ("conv-twice", lambda F, x, w: F.conv1d(F.conv1d(x, w), w[:, :1].reshape(1, 4, 3), padding=2)),
    ("up", lambda F, x, w: F.conv_transpose1d(x, w.reshape(1, 4, 3), stride=2, padding=1, output_padding=1)),
    ("reflected", lambda F, x, w: F.pad(x, (3, 2), "reflect")),
    ("constant", lambda F, x, w: F.pad(F.conv1d(x, w), (3, -2, 1, 1), "constant", 0.5)),
    ("circular", lambda F, x, w: F.pad(x, (8, 5), "circular")),
    ("replicated", lambda F, x, w: F.pad(x, (2, 5), "replicate")),
]:

    def _within(nn: Any, F: Any, ds: Any, inner: Any = _inner) -> Any:
        def forward(self: Any, x: Any) -> Any:
            windows = x.unfold(-1, 8, 5)
            n, length = x.size(0), windows.size(1)
            y = inner(F, windows.reshape(n * length, 1, 8), self.weight)
            return y.reshape(n, length, y.size(1) * y.size(2))

        return net(nn, forward, weight=nn.Parameter(ds.randn(4, 1, 3)))

    case(f"within-windows-{_name}", (Given(("B", "L")),), _within, reach=14)


# ---------------------------------------------------------------- recurrent layers
def _first(kind: str, *arguments: Any, **options: Any) -> Any:
    """The outputs of a recurrent layer without its last state."""
    return lambda nn, F, ds: net(nn, lambda self, x: self.rnn(x)[0], rnn=getattr(nn, kind)(*arguments, **options))


LBC = (Given(("L", "B", 3)),)
for _kind in ("LSTM", "GRU", "RNN"):
    case(f"{_kind.lower()}-frames-first", LBC, _first(_kind, 3, 4), delay=0)
    case(f"{_kind.lower()}-two-layers", BLC(3), _first(_kind, 3, 4, num_layers=2, batch_first=True), delay=0)
case("gru-without-bias", BLC(3), _first("GRU", 3, 4, bias=False, batch_first=True), delay=0)
case("rnn-relu", BLC(3), _first("RNN", 3, 4, nonlinearity="relu", batch_first=True), delay=0)
case("lstm-projected-frames-first", LBC, _first("LSTM", 3, 4, 2, proj_size=2), delay=0, onnx=False)

# ---------------------------------------------------------------- products, norms, tables, shapes
case("layer-norm-of-two", (Given(("B", "L", 2, 3)),), lambda nn, F, ds: nn.LayerNorm((2, 3)), delay=0)
case("layer-norm-plain", BLC(5), lambda nn, F, ds: nn.LayerNorm(5, elementwise_affine=False), delay=0)
case("batch-norm-plain", BCL(4), lambda nn, F, ds: nn.BatchNorm1d(4, affine=False), delay=0)
case("batch-norm2d", COLUMNS, lambda nn, F, ds: nn.BatchNorm2d(2), delay=0)
case(
    "bilinear",
    BLC(3),
    lambda nn, F, ds: net(nn, lambda self, x: self.pair(x, x.tanh()), pair=nn.Bilinear(3, 3, 2)),
)
case("embedding", (Given(("B", "L"), below=7),), lambda nn, F, ds: nn.Embedding(7, 3), delay=0)
case("flatten", ROWS, lambda nn, F, ds: nn.Sequential(nn.Flatten(1, 1), nn.Identity()), delay=0)
case("flatten-features", (Given(("B", "L", 2, 3)),), lambda nn, F, ds: nn.Flatten(2), delay=0)
case("unflatten", BCL(6), lambda nn, F, ds: nn.Unflatten(1, (2, 3)), delay=0)
case("linear-on-two-axes", (Given(("B", 2, "L", 3)),), lambda nn, F, ds: nn.Linear(3, 4), delay=0)

# ---------------------------------------------------------------- activations
for _layer, _options in [
    ("CELU", {"alpha": 0.5}), ("ELU", {}), ("GELU", {}), ("Hardshrink", {}), ("Hardsigmoid", {}),
    ("Hardswish", {}), ("Hardtanh", {}), ("LeakyReLU", {}), ("LogSigmoid", {}), ("Mish", {}),
    ("ReLU", {"inplace": True}), ("ReLU6", {}), ("SELU", {}), ("SiLU", {}), ("Sigmoid", {}),
    ("Softplus", {"beta": 2.0}), ("Softshrink", {}), ("Softsign", {}),
    ("Tanh", {}), ("Tanhshrink", {}), ("Threshold", {"threshold": 0.1, "value": -2.0}),
]:  # fmt: skip
    case(f"{_layer.lower()}-alone", BCL(3), lambda nn, F, ds, n=_layer, o=_options: getattr(nn, n)(**o), delay=0)
case("dropout-that-rests", BCL(3), lambda nn, F, ds: nn.Dropout(), delay=0)
case("gelu-by-tanh", BCL(3), lambda nn, F, ds: nn.GELU(approximate="tanh"), delay=0)
case("softmin", BCL(4), lambda nn, F, ds: nn.Softmin(dim=1), delay=0)
