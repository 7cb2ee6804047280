"""Layers and small stacks that pool, repeat, overlap and sum up; entries of `MODELS`."""

from typing import Any

from nets import net

from .models import BCL, BLC, _layer, _stack, image

IMAGE, TURNED = ("B", 0, "L", 1), ("B", 0, 1, "L")  # (channels, time, frequency) and its transpose


# ---------------------------------------------------------------- layers
_layer("max-pool", lambda nn, F: nn.MaxPool1d(3, 2, 1), BCL, 3, reach=6)
_layer("max-pool-dilated", lambda nn, F: nn.MaxPool1d(4, 1, 2, dilation=3), BCL, 3, reach=14)
_layer("max-pool-ceil", lambda nn, F: nn.MaxPool1d(3, 4, 1, ceil_mode=True), BCL, 3, reach=9)
_layer("max-pool-stride-above-kernel", lambda nn, F: nn.MaxPool1d(2, 5, 1), BCL, 3, reach=9)
_layer("avg-pool", lambda nn, F: nn.AvgPool1d(3, 1, 1), BCL, 3, reach=5)
_layer(
    "avg-pool-ceil", lambda nn, F: nn.AvgPool1d(4, 3, 2, ceil_mode=True, count_include_pad=False), BCL, 3, reach=10
)
_layer("lp-pool", lambda nn, F: nn.LPPool1d(2, 3, 2, ceil_mode=True), BCL, 2, reach=7)
_layer("upsample", lambda nn, F: nn.Upsample(scale_factor=3), BCL, 2)
_layer("every-second", lambda nn, F: nn.Upsample(scale_factor=0.5), BCL, 2, reach=6)
_layer("adaptive-avg-pool", lambda nn, F: nn.AdaptiveAvgPool1d(3), BCL, 2, reach=7, whole=True)
_layer("adaptive-max-pool", lambda nn, F: nn.AdaptiveMaxPool1d(4), BCL, 2, reach=7, whole=True)
_layer("overlap-add", lambda nn, F: nn.OverlapAdd(2), BLC, 5, reach=5, torch=False)
_layer("overlap-add-gaps", lambda nn, F: nn.OverlapAdd(5), BLC, 3, reach=4, torch=False)
_layer("cumulative-mean", lambda nn, F: nn.CumulativeMean(), BCL, 3, torch=False)
_layer("cumulative-sum", lambda nn, F: nn.CumulativeSum(), BCL, 3, torch=False)
_layer("running-mean", lambda nn, F: nn.RunningMean(4), BCL, 3, reach=6, torch=False)


# ---------------------------------------------------------------- stacks
@_stack(BCL, 3, reach=14)
def _pooled_convolutions(nn: Any, F: Any) -> Any:
    """Convolution, pooling, convolution: a stride of 4, a field of 8."""
    return nn.Sequential(
        nn.Conv1d(3, 4, 3, padding=1), nn.MaxPool1d(2, 2), nn.Conv1d(4, 3, 3, stride=2, padding=1)
    )


@_stack(IMAGE, image(2, 7), reach=8)
def _pooled_images(nn: Any, F: Any) -> Any:
    """Windows over time and frequency; frequency in a given number of parts."""

    def forward(self: Any, x: Any) -> Any:
        y = F.max_pool2d(x, (3, 2), (2, 1), (1, 1))
        return F.avg_pool2d(y, (3, 2), 1, 1, ceil_mode=True), F.adaptive_avg_pool2d(x, (None, 3))

    return net(nn, forward)


@_stack(TURNED, image(2, 7), reach=9)
def _pooled_turned_images(nn: Any, F: Any) -> Any:
    """The same with time last."""

    def forward(self: Any, x: Any) -> Any:
        y = F.avg_pool2d(x, (2, 3), (1, 2), (1, 1), count_include_pad=False, divisor_override=5)
        z = F.interpolate(F.max_pool2d(x, (3, 1), ceil_mode=True), scale_factor=(1.7, 2))
        return y, z

    return net(nn, forward)


@_stack(BLC, 12, reach=6)
def _pooled_frames(nn: Any, F: Any) -> Any:
    """A network per frame on B and L joined, which pools and repeats within frames."""

    def forward(self: Any, x: Any) -> Any:
        n, length, _ = x.shape
        flat = x.reshape(n * length, 2, 6)
        y = F.max_pool1d(flat, 3, 2, 1).repeat_interleave(2, 2) - flat
        z = F.avg_pool2d(flat.unsqueeze(1), (1, 3), divisor_override=2).flatten(1)
        out = y.reshape(n, length, 12), z.reshape(n, length, 4)
        return (*out, F.max_pool1d(x, 4))

    return net(nn, forward)


@_stack(BCL, 3, reach=12)
def _pyramid(nn: Any, F: Any) -> Any:
    """Down by pooling, up by repeating, and back onto what came in."""

    def forward(self: Any, x: Any) -> Any:
        low = F.avg_pool1d(x, 2, ceil_mode=True)
        high = self.up(self.mix(low))[..., : x.size(2)]
        return high + x, low.repeat_interleave(3, 2)

    return net(nn, forward, up=nn.Upsample(scale_factor=2), mix=nn.Conv1d(3, 3, 3, padding=1))


@_stack(BCL, 1, reach=16, torch=False)
def _windowed(nn: Any, F: Any) -> Any:
    """Samples in windows that add up to one, and back; what is slow taken off."""

    def forward(self: Any, x: Any) -> Any:
        y = F.overlap_add(x.unfold(2, 4, 2) * self.weight, 2)  # (B, 1, L)
        return y - F.cumulative_mean(y), x - F.running_mean(x, 5)

    return net(nn, forward, weight=nn.Linear(4, 1).weight)
