"""Lines that many forwards have: the first frame, positions within limits, rolls, questions to the batch."""

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
    "first-frame-times-positions": lambda ds, F, x: x - x[:, :1] * ds.arange(x.shape[1])[:, None] * 0.1,
    "first-frame-where-a-mask-holds": lambda ds, F, x: ds.where(
        (ds.arange(x.shape[1]) < 3)[None, :, None], x[:, :1], x
    ),
    "first-frame-s-statistics": lambda ds, F, x: (
        x / (1 + x[:, 0].abs().mean(1)[:, None, None]) - x[:, :1].softmax(-1) * x[:, :1].amax(-1, keepdim=True)
    ),
    "first-frame-compared": lambda ds, F, x: x * (x > x[:, :1]) + ds.where(x[:, :1] > 0, x[:, :1], 0.0),
    "first-frame-through-a-product": lambda ds, F, x: x - x[:, :1] @ _kernel(ds, x, 4, 4),
    "first-frame-beside-fewer": lambda ds, F, x: x[:, 1:] - x[:, :1],
    "first-frame-by-a-list": lambda ds, F, x: x - x[:, [0]] + x.index_select(1, ds.arange(1)),
    "first-frame-as-zeros": lambda ds, F, x: ds.cat([ds.zeros_like(x[:, :1]), x[:, 1:] - x[:, :-1]], 1),
    "first-frame-added-up": lambda ds, F, x: x - x[:, :1].sum(1, keepdim=True),
    "windows-before-frames": lambda ds, F, x: x[
        :, (ds.arange(x.shape[1])[None] + ds.arange(-2, 1)[:, None]).clamp(min=0)
    ].sum(1),
    "first-frames-before-others": lambda ds, F, x: ds.cat([x[:, :2] * 0.5, x[:, 2:] - 0.9 * x[:, :-2]], 1),
    "first-frames-joined-again": lambda ds, F, x: (
        ds.cat([ds.zeros_like(x[:, :3]), x[:, 3:]], 1)
        + ds.cat([(x[:, :4] @ _kernel(ds, x, 4, 4)).relu() - x[:, :4], x[:, 4:]], 1)
    ),
    "first-frames-summed-up": lambda ds, F, x: (
        (x - x[:, :3].mean(1, keepdim=True)) / (0.1 + x[:, :4].abs().amax(1)[:, None])
        + x[:, :5].mean(dim=1).unsqueeze(1) * x[:, :2].sum(1, True)
    ),
    "first-frames-written": lambda ds, F, x: _first_ones_written(x),
    "a-frame-taken-off": lambda ds, F, x: x - x[:, 2:3] * x[:, 1].unsqueeze(1),
    "frames-side-by-side": lambda ds, F, x: x - ds.stack([x[:, 0], x[:, 1]], 1).mean(1, keepdim=True),
    "padded-up-to-a-least-length": lambda ds, F, x: (
        F.pad(x, (0, 0, 0, max(0, 4 - x.shape[1]))),
        F.pad(x, (0, 0, 3, 4 - x.shape[1] if x.shape[1] < 4 else 0))[:, : x.shape[1]],
        F.avg_pool1d(F.pad(x.transpose(1, 2), (0, max(x.size(1), 5) - x.size(1)), mode="replicate"), 4),
        F.pad(x, (0, 0, 0, max(8, -(-x.shape[1] // 4) * 4) - x.shape[1])),
    ),
    "joined-with-zeros-up-to-a-least-length": lambda ds, F, x: (
        ds.cat([x, x.new_zeros(x.size(0), max(0, 4 - x.size(1)), 4)], 1),
        ds.cat([x, ds.ones(x.size(0), -x.size(1) % 4, 4)], 1),
    ),
    "cut-but-for-a-least-length": lambda ds, F, x: (
        x[:, : max(x.shape[1] - 3, 1)],
        x[:, : max(0, x.shape[1] - 3)],
        x[:, : max(x.shape[1] // 4 * 4, 4)],
    ),
    "positions-up-to-a-limit": lambda ds, F, x: x / ds.arange(1, x.shape[1] + 1).clamp(max=10)[None, :, None],
    "positions-from-a-limit-on": lambda ds, F, x: x / ds.arange(1, x.shape[1] + 1).clamp(3, 7)[None, :, None],
    "real-positions-up-to-a-limit": lambda ds, F, x: (
        x * ds.arange(x.shape[1]).to(ds.float32).clamp(max=5.0)[None, :, None]
    ),
    "positions-halved": lambda ds, F, x: x * ((ds.arange(x.shape[1]) >> 1) & 3)[None, :, None],
    "masks-as-integers": lambda ds, F, x: (
        x * (ds.arange(x.shape[1]) < 3).long()[:, None]
        - (1 - (ds.arange(x.shape[1]) % 2 == 0).long())[None, :, None]
    ),
    "positions-counted-down": lambda ds, F, x: x * (7 - ds.arange(x.shape[1]))[None, :, None],
    "positions-and-ones-negated": lambda ds, F, x: (
        x * (-ds.arange(x.shape[1]))[None, :, None] - -abs(ds.ones(x.shape[0], x.shape[1], 1))
    ),
    "ones-from-the-first-on": lambda ds, F, x: x * ds.ones(x.size(0), x.size(1))[0:, 0:, None],
    "rolled-and-zeroed": lambda ds, F, x: x + _zeroed(x.roll(1, 1), 1),
    "rolled-further-and-zeroed": lambda ds, F, x: x - _zeroed(x.roll(3, 1), 3),
    "rolled-without-the-first": lambda ds, F, x: ds.cat([ds.zeros(x.shape[0], 1, 4), x.roll(1, 1)[:, 1:]], 1),
    "rolled-without-more-than-the-first": lambda ds, F, x: x.roll(1, 1).narrow(1, 3, x.shape[1] - 3) - x[:, 3:],
    "rolled-back-without-the-last": lambda ds, F, x: x.roll(-2, 1)[:, :-2] * x[:, :-2],
    "rolled-back-and-filled": lambda ds, F, x: _filled_behind(x.roll(-1, 1), 1.5),
    "rolled-both-ways": lambda ds, F, x: (x.roll(1, 1) + x.roll(-1, 1) / 2)[:, 1:-1] - x[:, 1:-1],
    "rolled-and-taken-off-before-the-first": lambda ds, F, x: ds.cat(
        [x[:, :1], (x - 0.97 * x.roll(1, 1))[:, 1:]], 1
    ),
    "rolled-by-differences-and-zeroed": lambda ds, F, x: _zeroed((x - x.roll(2, 1)).tanh(), 2),
    "rolled-under-a-mask": lambda ds, F, x: x + x.roll(1, 1) * (ds.arange(x.shape[1]) > 0)[:, None],
    "rolled-and-filled-by-a-mask": lambda ds, F, x: (x - x.roll(2, 1)).masked_fill(
        (ds.arange(x.shape[1]) < 3)[None, :, None], 1.5
    ),
    "rolled-beside-the-first-frame": lambda ds, F, x: ds.where(
        (ds.arange(x.shape[1]) == 0)[None, :, None], x[:, :1], x.roll(1, 1) * 2
    ),
    "rolled-and-zeroed-in-a-part": lambda ds, F, x: _in_parts(x.roll(2, 1)) - x,
    "rolled-by-cat": lambda ds, F, x: _zeroed(ds.cat([x[:, -1:], x[:, :-1]], 1), 1) + x,
    "rolled-and-written-further": lambda ds, F, x: _zeroed(x.roll(1, 1), 3) * x,
    "frames-in-parts": lambda ds, F, x: (parts := x.split([1, x.shape[1] - 1], 1))[1] - parts[0],
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
    "positions-in-parts": lambda ds, F, x: (
        x
        + (i := _turned(ds, x)).max(-1)[0][:, None]
        - i.split(1, -1)[1] * i.unbind(-1)[0][:, None]
        + i.chunk(2, -1)[0]
    ),
    "positions-in-parts-by-functions": lambda ds, F, x: (
        x * ds.unbind(_turned(ds, x), -1)[1][:, None] + ds.min(_turned(ds, x), -1, keepdim=True).values
    ),
    "positions-in-parts-that-are-written": lambda ds, F, x: _written_in_parts(ds, x),
    "zeros-beside-ones": lambda ds, F, x: (
        x
        + ds.stack([ds.zeros(x.shape[1]), ds.ones(x.shape[1])], -1)[:, 1:] * 2
        - ds.cat([ds.ones(x.shape[0], x.shape[1], 3), ds.zeros(x.shape[0], x.shape[1], 1)], -1)
    ),
    "ones-seen-as-themselves": lambda ds, F, x: (
        x + ds.ones(x.shape[1], 4).expand_as(ds.ones(x.shape[1], 4)).unbind(-1)[1][:, None]
    ),
    "a-table-at-positions-in-turn": lambda ds, F, x: (
        x
        + ds.arange(800).to(x.dtype).view(200, 4).index_select(0, ds.arange(x.shape[1]) + 2) * 0.01
        - ds.arange(200).to(x.dtype)[ds.arange(x.shape[1])][:, None] * 0.01
    ),
    "on-the-way-by-positions": lambda ds, F, x: (
        x.lerp(x * 2, _turned(ds, x)[:, :1]) + x.xlogy(_turned(ds, x)[:, :1] + 2)
    ),
    "chosen-of-constants": lambda ds, F, x: (
        x * ds.where(ds.ones(len(x), 1, 4) > 0, ds.full((len(x), 1, 4), 3.0), 1.0)
    ),
    "one-number-for-each-stream": lambda ds, F, x: (
        x * (ds.ones(len(x), 1, 1) * 3 - 1).relu() + ds.zeros(len(x), 1, 4)
    ),
}


def _turned(ds: Any, x: Any) -> Any:
    """Return two functions of positions, side by side."""
    i = ds.arange(x.shape[1]).to(x.dtype)
    return ds.stack([i * 0.3, 1 - i * 0.1], -1)


def _written_in_parts(ds: Any, x: Any) -> Any:
    """Write into positions of which there are parts, and into the parts."""
    i = ds.zeros(x.shape[0], x.shape[1], 2).to(x.dtype) + ds.arange(x.shape[1]).to(x.dtype)[None, :, None] * 0.5
    seen, (first, second) = i.unbind(-1)[1], i.split(1, -1)
    second.mul_(3)
    first.copy_(second * 2)
    i += x[..., :2]
    return x * seen[..., None] + first - second


def _masked(ds: Any, x: Any) -> tuple[Any, Any]:
    """Return scores of frames, and where the later ones are."""
    length = x.shape[1]
    return x @ x.transpose(1, 2) * 0.5, ds.ones(length, length).triu(1) > 0


def _over(e: Any, x: Any) -> Any:
    return (e / e.sum(-1, keepdim=True)) @ x


def _lowered(ds: Any, x: Any) -> Any:
    scores, later = _masked(ds, x)
    scores = scores.masked_fill(later, -math.inf)
    return scores - scores.amax(-1, keepdim=True)


def _hidden_behind_exp(ds: Any, x: Any) -> Any:
    scores, later = _masked(ds, x)
    return (scores - scores.amax(-1, keepdim=True)).exp().masked_fill(later, 0.0)


def _times_ones(ds: Any, x: Any) -> Any:
    scores, later = _masked(ds, x)
    return ds.exp(scores - scores.max(-1, keepdim=True)[0]) * ~later


def _by_logarithm(ds: Any, x: Any) -> Any:
    scores, later = _masked(ds, x)
    scores = scores.masked_fill(later, -math.inf)
    return (scores - scores.logsumexp(-1, keepdim=True)).exp() @ x


def _by_inverse(ds: Any, x: Any) -> Any:
    e = _lowered(ds, x).exp()
    return (e * e.sum(-1)[..., None].reciprocal()) @ x


def _beside_little(ds: Any, x: Any) -> Any:
    e = _lowered(ds, x).exp()
    return (e / (e.sum(-1, keepdim=True) + 1e-9)) @ x


def _divided_behind_values(ds: Any, x: Any) -> Any:
    e = _lowered(ds, x).exp()
    return (e @ x) / e.sum(-1, keepdim=True) + (e @ x) * e.sum(-1)[..., None].reciprocal()


def _below_all(ds: Any, x: Any) -> Any:
    scores, later = _masked(ds, x)
    return _over((scores.masked_fill(later, -math.inf) - scores.amax()).exp(), x)


def _blocks(ds: Any, F: Any, x: Any, heads: int = 0, **options: Any) -> Any:
    """Let positions of blocks of four frames attend to each other."""
    size = x.shape
    y = F.pad(x, (0, 0, 0, -size[1] % 4)).reshape(size[0], -1, 4, 4)
    y = y.view(size[0], -1, 4, heads, 4 // heads).transpose(2, 3) if heads else y
    y = F.scaled_dot_product_attention(y, y * 0.5, y + 1, **options)
    return (y.transpose(2, 3) if heads else y).reshape(size[0], -1, 4)


def _over_each_other(ds: Any, x: Any, step: int = 2) -> Any:
    """Add frames of four to zeros, each at its place."""
    length = x.shape[1]
    out = x.new_zeros(x.shape[0], (length - 1) * step + 4)
    places = (ds.arange(length)[:, None] * step + ds.arange(4)[None]).reshape(-1)
    return out.index_add_(1, places, x.reshape(x.shape[0], -1))[..., None]


def _channels_over_each_other(ds: Any, x: Any) -> Any:
    length = x.shape[1]
    out = x.new_zeros(x.shape[0], 2, length + 3)
    places = (ds.arange(length)[:, None] + ds.arange(4)).flatten()
    both = ds.stack([x, -2 * x], 1).reshape(x.shape[0], 2, -1)
    return out.index_add(2, places, both, alpha=0.5).transpose(1, 2)


LINES |= {
    "frames-over-each-other": lambda ds, F, x: _over_each_other(ds, x),
    "frames-beside-each-other": lambda ds, F, x: _over_each_other(ds, x, 4),
    "channels-over-each-other": lambda ds, F, x: _channels_over_each_other(ds, x),
    "blocks": lambda ds, F, x: _blocks(ds, F, x),
    "blocks-causal": lambda ds, F, x: _blocks(ds, F, x, is_causal=True),
    "blocks-of-heads-causal": lambda ds, F, x: _blocks(ds, F, x, 2, is_causal=True),
    "blocks-under-a-mask": lambda ds, F, x: _blocks(ds, F, x, attn_mask=ds.ones(4, 4).triu(-1) > 0, scale=0.3),
    "blocks-of-heads-with-terms": lambda ds, F, x: _blocks(
        ds, F, x, 2, attn_mask=ds.ones(4, 4).tril().to(x.dtype)
    ),
    "blocks-that-see-nothing": lambda ds, F, x: _blocks(ds, F, x, attn_mask=ds.ones(4, 4).tril(-1) > 0),
    "softmax-by-hand": lambda ds, F, x: _over(_lowered(ds, x).exp(), x),
    "softmax-by-hand-hidden-behind-exp": lambda ds, F, x: _over(_hidden_behind_exp(ds, x), x),
    "softmax-by-hand-times-ones": lambda ds, F, x: _over(_times_ones(ds, x), x),
    "softmax-by-hand-by-a-logarithm": lambda ds, F, x: _by_logarithm(ds, x),
    "softmax-by-hand-by-an-inverse": lambda ds, F, x: _by_inverse(ds, x),
    "softmax-by-hand-beside-little": lambda ds, F, x: _beside_little(ds, x),
    "softmax-by-hand-divided-behind-values": lambda ds, F, x: _divided_behind_values(ds, x),
    "softmax-by-hand-below-all": lambda ds, F, x: _below_all(ds, x),
}


def _kernel(ds: Any, x: Any, *size: int) -> Any:
    return (ds.arange(math.prod(size)) % 7).to(x.dtype).reshape(size) * 0.1 - 0.2


def _packed(convolution: Any, x: Any, weight: Any, groups: Any, *bias: Any, **options: Any) -> Any:
    """Convolve the channels of all streams at once, as those of one."""
    planes = x.transpose(-1, -2)
    y = convolution(planes.reshape(1, -1, *planes.shape[2:]), weight, *bias, groups=groups, **options)
    channels = y.shape[1] // x.shape[0]
    return y.reshape(x.shape[0], channels, *y.shape[2:]).transpose(-1, -2)


def _first_ones_written(x: Any) -> Any:
    """Write into the first frames, which others are taken off, in place and by what was computed of them."""
    y, z = x * 1, x * 1
    first = y[:, :1]
    y.mul_(2)
    y[:, :3] *= 3
    y[:, :2] = y[:, :2] + 1
    z[:, :1] = z[:, :1] * 3
    first += 1
    return y - first - z


#: Of streams that are looked at when they have ended.
WHOLE: dict[str, Callable[[Any, Any, Any], Any]] = {
    "flipped-by-positions": lambda ds, F, x: (
        x[:, x.shape[1] - 1 - ds.arange(x.shape[1])] - x.index_select(1, ds.arange(x.shape[1]).flip(0)) * 0.5
    )
}

#: Of streams that have all of the frames.
LONG: dict[str, Callable[[Any, Any, Any], Any]] = {
    "first-frames-mirrored": lambda ds, F, x: (
        ds.cat([x[:, :3].flip(1), x], 1),
        ds.cat([ds.flip(x[:, 1:4], (1,)) * -2, x], 1),
        ds.cat([x[:, 1:2], x[:, :1], x[:, 2:]], 1),
        ds.cat([x[:, 1:3], x], 1),
    ),
    "first-frames-together": lambda ds, F, x: (
        (x - x[:, :4].median(1, keepdim=True)[0]) / (x[:, :4].std(1, keepdim=True) + 0.1),
        ds.cat([x[:, :4].softmax(1), x[:, 4:].cumsum(1)], 1),
        x * x[:, :4].argmax(1, keepdim=True) / x[:, :4].norm(dim=1, keepdim=True),
        x - x[:, :4].mean((1, 2), keepdim=True) - x[:, :4].mean(1).mean(1, keepdim=True)[:, None],
    ),
}

#: Of which the first frame is carried on to all others, which exports can't have yet.
HELD = {
    f"first-frame-{name}" for name in (
        "taken-off", "without-l", "by-none", "of-some-features", "gates", "times-positions", "where-a-mask-holds",
        "s-statistics", "compared", "through-a-product", "beside-fewer", "by-a-list", "added-up",
    )
} | {
    "rolled-beside-the-first-frame", "frames-in-parts", "first-frames-summed-up", "first-frames-written",
    "a-frame-taken-off", "frames-side-by-side", "first-frames-together", "first-frames-mirrored",
}  # fmt: skip


def _zeroed(y: Any, n: int) -> Any:
    y[:, :n] = 0
    return y


def _in_parts(y: Any) -> Any:
    z = y + 1
    y[:, :2].zero_()
    z[:, :2] *= 0
    return y * z


def _filled_behind(y: Any, number: float) -> Any:
    before = y[:, :-1] * 2
    y[:, -1] = number
    return y[:, :-1] - before


for _name, _line in (LINES | LONG | WHOLE).items():

    def _make(nn: Any, F: Any, ds: Any, line: Callable[[Any, Any, Any], Any] = _line) -> Any:
        return net(nn, lambda self, x: line(ds, F, x))

    more: dict[str, Any] = {"multiple": 8, "reach": 20} if _name in LONG else {"whole": _name in WHOLE}
    case(
        f"line-{_name}",
        BLC(4),
        _make,
        **more,
        exports=_name not in HELD | {*WHOLE} and not _name.startswith("softmax"),
    )
