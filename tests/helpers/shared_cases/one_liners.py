"""Lines that many forwards have: the first frame, positions within limits, rolls, questions to the batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .tables import BLC, case, net

#: Functions of the library, its functional one, and x (B, L, 4).
LINES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "first-frame-before-differences": lambda ds, F, x: ds.cat([x[:, :1], x[:, 1:] - 0.97 * x[:, :-1]], 1),
    "first-frame-scaled-before-others": lambda ds, F, x: ds.cat([0.5 * x[:, :1], x[:, 1:]], 1),
    "first-frame-in-the-next-one-s-place": lambda ds, F, x: x - ds.cat([x[:, :1], x[:, :-1]], 1),
    "first-frame-three-times": lambda ds, F, x: ds.cat([x[:, :1].expand(-1, 3, -1), x], 1)[:, :-3] - x,
    "first-frame-repeated": lambda ds, F, x: ds.cat([x[:, :1].repeat(1, 2, 1), x], 1),
    "first-frame-twice": lambda ds, F, x: ds.cat([x[:, :1], -x[:, :1], x], 1),
    "first-frame-taken-off": lambda ds, F, x: x - x[:, :1],
    "first-frame-without-l": lambda ds, F, x: x * x[:, 0].abs().unsqueeze(1).clamp(0.1, 1.0),
    "first-frame-by-none": lambda ds, F, x: (x[:, 0, :] + 1)[:, None] - x,
    "first-frame-of-some-features": lambda ds, F, x: x[..., 1:] / (1 + x[:, :1, 1:] ** 2),
    "first-frame-gates": lambda ds, F, x: x * ds.sigmoid(x[:, :1]),
    "first-frame-as-zeros": lambda ds, F, x: ds.cat([ds.zeros_like(x[:, :1]), x[:, 1:] - x[:, :-1]], 1),
    "positions-up-to-a-limit": lambda ds, F, x: x / ds.arange(1, x.shape[1] + 1).clamp(max=10)[None, :, None],
    "positions-from-a-limit-on": lambda ds, F, x: x / ds.arange(1, x.shape[1] + 1).clamp(3, 7)[None, :, None],
    "real-positions-up-to-a-limit": lambda ds, F, x: (
        x * ds.arange(x.shape[1]).to(ds.float32).clamp(max=5.0)[None, :, None]
    ),
    "positions-halved": lambda ds, F, x: x * ((ds.arange(x.shape[1]) >> 1) & 3)[None, :, None],
    "positions-counted-down": lambda ds, F, x: x * (7 - ds.arange(x.shape[1]))[None, :, None],
    "rolled-and-zeroed": lambda ds, F, x: x + _zeroed(x.roll(1, 1), 1),
    "rolled-further-and-zeroed": lambda ds, F, x: x - _zeroed(x.roll(3, 1), 3),
    "one-chunk": lambda ds, F, x: x.chunk(1, 1)[0] + x.split(x.shape[1], 1)[0],
    "more-than-one-stream": lambda ds, F, x: x.relu() if x.shape[0] >= 1 else x,
    "one-batch-twice": lambda ds, F, x: x.relu() if ds.equal(x, x) else x,
    "batch-packed-into-channels": lambda ds, F, x: _packed(
        F.conv1d, x, ds.arange(-2, 3).to(x.dtype).repeat(len(x) * 4, 1, 1), len(x) * 4, padding=2
    ),
    "batch-packed-with-a-bias": lambda ds, F, x: _packed(
        F.conv1d,
        x,
        _kernel(ds, x, 3, 4, 3).repeat(x.shape[0], 1, 1),
        x.shape[0],
        ds.ones(3).to(x.dtype).repeat(x.shape[0]),
    ),
    "batch-packed-by-expand": lambda ds, F, x: _packed(
        F.conv1d, x, _kernel(ds, x, 1, 1, 3).expand(x.shape[0] * 4, 1, 3), x.shape[0] * 4, padding=1
    ),
    "batch-packed-and-spread": lambda ds, F, x: _packed(
        F.conv_transpose1d, x, _kernel(ds, x, 4, 2, 4).repeat(x.shape[0], 1, 1), x.shape[0], stride=2
    ),
    "batch-packed-in-planes": lambda ds, F, x: (
        _packed(F.conv2d, x.unsqueeze(1), _kernel(ds, x, 2, 1, 3, 3).repeat(len(x), 1, 1, 1), len(x), padding=1)
        .transpose(1, 2)
        .flatten(2)
    ),
    "offsets-of-streams": lambda ds, F, x: x * ((ds.zeros(x.shape[0], 1) + ds.arange(x.shape[1])) % 5)[..., None],
    "offsets-of-streams-behind": lambda ds, F, x: (
        x
        * ds.cos((ds.arange(x.shape[1]).view(1, -1) + ds.full((len(x),), 3).view(-1, 1)).view(len(x), -1, 1) * 0.1)
    ),
    "offsets-of-streams-compared": lambda ds, F, x: (
        x * (ds.arange(x.shape[1]) > ds.full((len(x), 1), 3))[..., None]
    ),
    "positions-counted-down-by-streams": lambda ds, F, x: (
        x * (ds.full((len(x), 1), 9) - ds.arange(x.shape[1])[None])[..., None]
    ),
    "elements-of-a-table-in-turn": lambda ds, F, x: (
        x * ds.arange(2, 6).to(x.dtype)[ds.arange(x.shape[1]) // 3 % 4][None, :, None]
    ),
    "one-number-for-each-stream": lambda ds, F, x: (
        x * (ds.ones(len(x), 1, 1) * 3 - 1).relu() + ds.zeros(len(x), 1, 4)
    ),
}


def _kernel(ds: Any, x: Any, *size: int) -> Any:
    return (ds.arange(math.prod(size)) % 7).to(x.dtype).reshape(size) * 0.1 - 0.2


def _packed(convolution: Any, x: Any, weight: Any, groups: Any, *bias: Any, **options: Any) -> Any:
    """Convolve the channels of all streams at once, as those of one."""
    planes = x.transpose(-1, -2)
    y = convolution(planes.reshape(1, -1, *planes.shape[2:]), weight, *bias, groups=groups, **options)
    channels = y.shape[1] // x.shape[0]
    return y.reshape(x.shape[0], channels, *y.shape[2:]).transpose(-1, -2)


#: Of which the first frame is carried on to all others, which exports can't have yet.
HELD = {f"first-frame-{name}" for name in ("taken-off", "without-l", "by-none", "of-some-features", "gates")}


def _zeroed(y: Any, n: int) -> Any:
    y[:, :n] = 0
    return y


for _name, _line in LINES.items():

    def _make(nn: Any, F: Any, ds: Any, line: Callable[[Any, Any, Any], Any] = _line) -> Any:
        return net(nn, lambda self, x: line(ds, F, x))

    case(f"line-{_name}", BLC(4), _make, exports=_name not in HELD)
