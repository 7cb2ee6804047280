"""Layers and stacks over planes of time and frequency, and networks within frames; they join `MODELS`."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from .models import MODELS, Entry

__all__: list[str] = []

BCLF, BCFL = ("B", 0, "L", 1), ("B", 0, 1, "L")


def _add(name: str, layout: Any, features: tuple[int, ...], make: Callable[[Any, Any], Any], **more: Any) -> None:
    MODELS[name] = Entry(make, layout, ((features, Fraction(1)),), **more)


def _stack(layout: Any, *features: int, **more: Any) -> Callable[[Callable[[Any, Any], Any]], Any]:
    def add(make: Callable[[Any, Any], Any]) -> Any:
        _add(make.__name__.strip("_").replace("_", "-"), layout, features, make, **more)
        return make

    return add


# ---------------------------------------------------------------- layers
for _layout, _where in ((BCLF, "rows"), (BCFL, "columns")):
    _add(
        f"conv2d-{_where}",
        _layout,
        (2, 5),
        lambda nn, F: nn.Conv2d(2, 3, (3, 2), stride=2, padding=1, dilation=(1, 2)),
        reach=9,
    )
    _add(
        f"conv2d-{_where}-reflect",
        _layout,
        (2, 5),
        lambda nn, F: nn.Conv2d(2, 3, 3, padding=(2, 1), padding_mode="reflect"),
        reach=9,
    )
    _add(
        f"conv-transpose2d-{_where}",
        _layout,
        (4, 3),
        lambda nn, F: nn.ConvTranspose2d(4, 6, (3, 4), stride=(2, 3), padding=1, output_padding=(1, 0), groups=2),
        reach=6,
    )
_add(
    "conv2d-causal",
    BCLF,
    (2, 4),
    lambda nn, F: nn.Conv2d(2, 3, 3, padding=("causal", "same"), dilation=2),
    reach=8,
    torch=False,
)
_add(
    "conv2d-circular-within",
    BCLF,
    (2, 4),
    lambda nn, F: nn.Conv2d(2, 3, 3, padding=(0, 2), padding_mode="circular"),
    reach=6,
)
_add(
    "conv2d-depthwise",
    BCFL,
    (3, 6),
    lambda nn, F: nn.Conv2d(3, 3, 3, stride=(2, 1), padding=1, groups=3),
    reach=6,
)
_add("replication-pad2d", BCLF, (2, 3), lambda nn, F: nn.ReplicationPad2d((1, 2, 3, 2)), reach=7)
_add("reflection-pad2d", BCFL, (2, 4), lambda nn, F: nn.ReflectionPad2d((2, 1, 3, 2)), reach=7)
_add("constant-pad2d", BCLF, (2, 4), lambda nn, F: nn.ConstantPad2d((-1, 2, 1, -2), 0.5), reach=7)


# ---------------------------------------------------------------- stacks
@_stack(BCLF, 1, 8, reach=16)
def _front_end(nn: Any, F: Any) -> Any:
    """Two strided convolutions over time and frequency, then vectors: what many recognisers begin with."""

    class FrontEnd(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(1, 3, 3, stride=2, padding=1)
            self.second = nn.Conv2d(3, 4, 3, stride=2)
            self.out = nn.Linear(4, 5)

        def forward(self, x: Any) -> Any:
            x = F.relu(self.second(F.relu(self.first(x))))
            n, _, length, _ = x.shape
            return self.out(x.transpose(1, 2).reshape(n, length, 4))

    return FrontEnd()


@_stack(BCFL, 2, 4, reach=10)
def _residual_planes(nn: Any, F: Any) -> Any:
    """Branches over planes with different delays, and back up again."""

    class ResidualPlanes(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.Conv2d(2, 2, (3, 5), padding=(1, 2), groups=2)
            self.narrow = nn.Conv2d(2, 2, (1, 3), padding=(0, 1))
            self.up = nn.ConvTranspose2d(2, 1, (4, 2), stride=(2, 1))

        def forward(self, x: Any) -> Any:
            y = x + self.wide(x) * self.narrow(x)
            return y, self.up(F.pad(y, (1, 0, 1, 1), mode="replicate"))

    return ResidualPlanes()


@_stack(("B", "L"), reach=14)
def _within_windows(nn: Any, F: Any) -> Any:
    """Overlapping windows of samples, each gone through by convolutions of its own."""

    class WithinWindows(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.pad = nn.ReflectionPad1d((0, 2))
            self.first = nn.Conv1d(1, 6, 3, stride=2)
            self.second = nn.Conv1d(6, 4, 2, padding=1, groups=2)
            self.up = nn.ConvTranspose1d(4, 3, 3, stride=2, padding=1)

        def forward(self, x: Any) -> Any:
            frames = x.unfold(-1, 6, 4)
            n, length = x.size(0), frames.size(1)
            y = self.pad(frames.reshape(n * length, 1, 6))
            y = self.up(F.relu(self.second(F.relu(self.first(y)))))
            return y.reshape(n, length, 3 * y.size(-1))

    return WithinWindows()


@_stack(("B", 0, "L"), 12, reach=4)
def _images(nn: Any, F: Any) -> Any:
    """Every frame is an image of its own."""

    class Images(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 4, 2, padding=1, padding_mode="replicate")
            self.up = nn.ConvTranspose2d(4, 1, (2, 3), stride=2)

        def forward(self, x: Any) -> Any:
            n, length = x.size(0), x.size(2)
            y = x.transpose(1, 2).reshape(n * length, 2, 3, 2)
            y = self.up(F.relu(self.conv(y)))
            return y.reshape(n, length, 8 * 7)

    return Images()
