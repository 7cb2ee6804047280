"""Layers and stacks over planes of time and frequency, and networks within frames; they join `MODELS`."""

from typing import Any

from nets import net

from .models import _layer, _stack, image

__all__: list[str] = []

BCLF, BCFL = ("B", 0, "L", 1), ("B", 0, 1, "L")


# ---------------------------------------------------------------- layers
for _layout, _where in ((BCLF, "rows"), (BCFL, "columns")):
    _layer(
        f"conv2d-{_where}",
        lambda nn, F: nn.Conv2d(2, 3, (3, 2), stride=2, padding=1, dilation=(1, 2)),
        _layout,
        image(2, 5),
        reach=9,
    )
    _layer(
        f"conv2d-{_where}-reflect",
        lambda nn, F: nn.Conv2d(2, 3, 3, padding=(2, 1), padding_mode="reflect"),
        _layout,
        image(2, 5),
        reach=9,
    )
    _layer(
        f"conv-transpose2d-{_where}",
        lambda nn, F: nn.ConvTranspose2d(4, 6, (3, 4), stride=(2, 3), padding=1, output_padding=(1, 0), groups=2),
        _layout,
        image(4, 3),
        reach=6,
    )
_layer(
    "conv2d-causal",
    lambda nn, F: nn.Conv2d(2, 3, 3, padding=("causal", "same"), dilation=2),
    BCLF,
    image(2, 4),
    reach=8,
    torch=False,
)
_layer(
    "conv2d-circular-within",
    lambda nn, F: nn.Conv2d(2, 3, 3, padding=(0, 2), padding_mode="circular"),
    BCLF,
    image(2, 4),
    reach=6,
)
_layer(
    "conv2d-depthwise",
    lambda nn, F: nn.Conv2d(3, 3, 3, stride=(2, 1), padding=1, groups=3),
    BCFL,
    image(3, 6),
    reach=6,
)
_layer("replication-pad2d", lambda nn, F: nn.ReplicationPad2d((1, 2, 3, 2)), BCLF, image(2, 3), reach=7)
_layer("reflection-pad2d", lambda nn, F: nn.ReflectionPad2d((2, 1, 3, 2)), BCFL, image(2, 4), reach=7)
_layer("constant-pad2d", lambda nn, F: nn.ConstantPad2d((-1, 2, 1, -2), 0.5), BCLF, image(2, 4), reach=7)


# ---------------------------------------------------------------- stacks
@_stack(BCLF, image(1, 8), reach=16)
def _front_end(nn: Any, F: Any) -> Any:
    """Two strided convolutions over time and frequency, then vectors: what many recognisers begin with."""

    def forward(self: Any, x: Any) -> Any:
        x = F.relu(self.second(F.relu(self.first(x))))
        n, _, length, _ = x.shape
        return self.out(x.transpose(1, 2).reshape(n, length, 4))

    return net(
        nn,
        forward,
        first=nn.Conv2d(1, 3, 3, stride=2, padding=1),
        second=nn.Conv2d(3, 4, 3, stride=2),
        out=nn.Linear(4, 5),
    )


@_stack(BCFL, image(2, 4), reach=10)
def _residual_planes(nn: Any, F: Any) -> Any:
    """Branches over planes with different delays, and back up again."""

    def forward(self: Any, x: Any) -> Any:
        y = x + self.wide(x) * self.narrow(x)
        return y, self.up(F.pad(y, (1, 0, 1, 1), mode="replicate"))

    return net(
        nn,
        forward,
        wide=nn.Conv2d(2, 2, (3, 5), padding=(1, 2), groups=2),
        narrow=nn.Conv2d(2, 2, (1, 3), padding=(0, 1)),
        up=nn.ConvTranspose2d(2, 1, (4, 2), stride=(2, 1)),
    )


@_stack(("B", "L"), image(), reach=14)
def _within_windows(nn: Any, F: Any) -> Any:
    """Overlapping windows of samples, each gone through by convolutions of its own."""

    def forward(self: Any, x: Any) -> Any:
        frames = x.unfold(-1, 6, 4)
        n, length = x.size(0), frames.size(1)
        y = self.pad(frames.reshape(n * length, 1, 6))
        y = self.up(F.relu(self.second(F.relu(self.first(y)))))
        return y.reshape(n, length, 3 * y.size(-1))

    return net(
        nn,
        forward,
        pad=nn.ReflectionPad1d((0, 2)),
        first=nn.Conv1d(1, 6, 3, stride=2),
        second=nn.Conv1d(6, 4, 2, padding=1, groups=2),
        up=nn.ConvTranspose1d(4, 3, 3, stride=2, padding=1),
    )


@_stack(("B", 0, "L"), 12, reach=4)
def _images(nn: Any, F: Any) -> Any:
    """Every frame is an image of its own."""

    def forward(self: Any, x: Any) -> Any:
        n, length = x.size(0), x.size(2)
        y = x.transpose(1, 2).reshape(n * length, 2, 3, 2)
        y = self.up(F.relu(self.conv(y)))
        return y.reshape(n, length, 8 * 7)

    return net(
        nn,
        forward,
        conv=nn.Conv2d(2, 4, 2, padding=1, padding_mode="replicate"),
        up=nn.ConvTranspose2d(4, 1, (2, 3), stride=2),
    )
