"""Small stacks: layers whose strides, trims and kernels don't fit each other, one after another; recurrences."""

from typing import Any

from .tables import BCL, BLC, case, net


def _chain(*layers: tuple[Any, ...]) -> Any:
    """Return what makes a Sequential of layers, each given as (name, arguments..., options)."""
    return lambda nn, F, ds: nn.Sequential(*(getattr(nn, name)(*a, **options) for name, *a, options in layers))


CONV, UP = "Conv1d", "ConvTranspose1d"
ZIGZAG = (
    (UP, 2, 3, 3, {"stride": 2}),
    (UP, 3, 3, 1, {}),
    ("ReLU", {}),
    (CONV, 3, 3, 3, {"dilation": 2}),
    (CONV, 3, 3, 2, {}),
    (CONV, 3, 2, 1, {"stride": 2}),
)
for _name, _reach, _layers in [
    (
        "down-and-up",
        12,
        [(CONV, 2, 3, 5, {"stride": 2, "padding": 1}), (UP, 3, 2, 4, {"stride": 3, "padding": 2})],
    ),
    ("wide-up", 10, [(CONV, 2, 3, 7, {"padding": 3}), (UP, 3, 2, 16, {"stride": 8, "padding": 4})]),
    ("31-at-17", 48, [(CONV, 2, 3, 31, {"stride": 17})]),
    ("10-of-2-at-17", 40, [(CONV, 2, 3, 10, {"stride": 17, "dilation": 2, "padding": 4})]),
    ("17-of-3", 52, [(CONV, 2, 3, 17, {"dilation": 3, "padding": 8})]),
    ("33-at-17-behind-padding", 50, [("ZeroPad1d", (2, 0), {}), (CONV, 2, 3, 33, {"stride": 17})]),
    ("19-at-10-within-padding", 32, [("ZeroPad1d", (1, 4), {}), (CONV, 2, 3, 19, {"stride": 10})]),
    (
        "down-by-4-up-by-7",
        24,
        [("ZeroPad1d", (1, 2), {}), (CONV, 2, 3, 5, {"stride": 4}), (UP, 3, 2, 7, {"stride": 7, "padding": 3})],
    ),
    ("up-trimmed-by-8", 12, [(UP, 2, 3, 10, {"stride": 3, "padding": 8})]),
    ("up-17-of-2", 10, [(UP, 2, 3, 17, {"stride": 10, "dilation": 2, "padding": 9, "output_padding": 9})]),
    ("up-1-at-17", 6, [(UP, 2, 3, 1, {"stride": 17})]),
    ("31-at-17-and-up", 56, [(CONV, 2, 3, 31, {"stride": 17}), (UP, 3, 2, 10, {"stride": 3, "padding": 8})]),
    ("end-through-nothing", 12, [(CONV, 2, 3, 3, {"stride": 2}), (UP, 3, 2, 4, {"stride": 2})]),
    ("zigzag", 12, ZIGZAG),
    ("zigzag-pooled", 20, (*ZIGZAG, ("AvgPool1d", 3, 2, {}), ("MaxPool1d", 3, 2, {}), ("ReLU", {}))),
]:
    case(f"stack-{_name}", BCL(2), _chain(*_layers), reach=_reach)


def _trimmed(left: int, right: int) -> Any:
    """Convolutions of 1, 3 by 2, and 2 frames and what came in, cut by so many frames at both ends."""

    def make(nn: Any, F: Any, ds: Any) -> Any:
        body = nn.Sequential(nn.Conv1d(3, 3, 1), nn.Conv1d(3, 3, 3, dilation=2), nn.Conv1d(3, 3, 2))

        def forward(self: Any, x: Any) -> Any:
            y = x[..., left:]
            return self.body(x) + (y[..., :-right] if right else y)

        return net(nn, forward, body=body)

    return make


for _left, _right in ((5, 0), (2, 3), (0, 5)):
    case(f"stack-residual-cut-{_left}-{_right}", BCL(3), _trimmed(_left, _right), reach=16, delay=5)


def _cropped(nn: Any, F: Any, ds: Any) -> Any:
    """More is cut from one end than padding and output padding could."""
    return net(nn, lambda self, x: self.up(x)[..., 9:-6], up=nn.ConvTranspose1d(2, 3, 10, stride=3, dilation=2))


case("stack-up-cropped", BCL(2), _cropped, reach=16)


def _recurrences(first: str, hidden: int, second: str, **options: Any) -> Any:
    """Four recurrent layers, a convolution, and four others."""

    def make(nn: Any, F: Any, ds: Any) -> Any:
        def forward(self: Any, x: Any) -> Any:
            y = self.conv(self.first(x)[0].transpose(1, 2)).transpose(1, 2)
            return self.second(y)[0]

        return net(
            nn,
            forward,
            first=getattr(nn, first)(2, hidden, 4, batch_first=True, **options),
            conv=nn.Conv1d(options.get("proj_size", hidden), 2, 3),
            second=getattr(nn, second)(2, 1, 4, batch_first=True),
        )

    return make


for _first, _second, _options in [
    ("RNN", "LSTM", {}),
    ("RNN", "GRU", {"nonlinearity": "relu"}),
    ("GRU", "RNN", {}),
    ("LSTM", "GRU", {"proj_size": 2}),
]:
    _make = _recurrences(_first, 3, _second, **_options)
    case(f"stack-{_first}-{_second}".lower(), BLC(2), _make, delay=2, onnx=not _options.get("proj_size"))
