"""Forwards that write into tensors, take features in another order, and put constants beside a stream."""

from collections.abc import Callable
from typing import Any

from .tables import BCL, BLC, case, net

#: What is written where: functions of the library, its functional one, and x (B, 4, L).
WRITES: dict[str, Callable[[Any, Any, Any], Any]] = {}
#: Likewise, what writes nothing.
ORDERS: dict[str, Callable[[Any, Any, Any], Any]] = {}


def _write(forward: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    WRITES[forward.__name__.strip("_").replace("_", "-")] = forward
    return forward


def _order(forward: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    ORDERS[forward.__name__.strip("_").replace("_", "-")] = forward
    return forward


# ---------------------------------------------------------------- features
@_write
def _some_features(ds: Any, F: Any, x: Any) -> Any:
    y = x.clone()
    y[:, ::2] = x[:, 1::2] * 2
    y[:, -1] = 3
    return y


@_write
def _features_by_indices(ds: Any, F: Any, x: Any) -> Any:
    y = x * 2
    y[:, [0, 2]] = x[:, [3, 1]]
    y[:, 1] = x[:, 0] + x[:, 3]
    return y


@_write
def _features_that_look_ahead(ds: Any, F: Any, x: Any) -> Any:
    y = x.clone()
    y[:, :2] = F.avg_pool1d(x, 3, 1, 1)[:, 2:]
    return y


@_write
def _features_where_a_mask_holds(ds: Any, F: Any, x: Any) -> Any:
    y = x.clone()
    y[y < 0] = 0.5
    y[:, 1] = y[:, 1].masked_fill(y[:, 0] > 1, -1.0)
    return y


@_write
def _wider_than_x(ds: Any, F: Any, x: Any) -> Any:
    y = ds.zeros_like(ds.cat([x, x[:, :2]], 1))
    y[:, :4] = x
    y[:, 4:] += x[:, :2]
    return y


# ---------------------------------------------------------------- frames
@_write
def _shifted(ds: Any, F: Any, x: Any) -> Any:
    """The temporal shift of some channels."""
    y = ds.zeros_like(x)
    y[:, :1, :-1] = x[:, :1, 1:]
    y[:, 1:2, 1:] = x[:, 1:2, :-1]
    y[:, 2:] = x[:, 2:]
    return y


@_write
def _every_other_frame(ds: Any, F: Any, x: Any) -> Any:
    y = x.clone()
    y[:, :, 1::2] = 0
    y[:, 2:, ::2] *= 2
    return y


@_write
def _the_ends(ds: Any, F: Any, x: Any) -> Any:
    y = x.clone()
    y[..., :2] = 1
    y[..., -3:] = -1
    y[:, 0, 1:-1] = 2
    return y


@_write
def _up_to_a_length(ds: Any, F: Any, x: Any) -> Any:
    n = x.size(2)
    y = ds.zeros_like(x)
    y[:, :, 2:n] = x[:, :, : n - 2]
    return y


# ---------------------------------------------------------------- what else holds the memory
@_write
def _through_views(ds: Any, F: Any, x: Any) -> Any:
    y = x.clone()
    v = y[:, :2]
    w = v.transpose(1, 2)
    v += 1
    w[:, :, 0] = 4
    y.unsqueeze(1)[:, :, 3] = v[:, 1].unsqueeze(1)
    return ds.cat([y, v], 1)


@_write
def _what_was_read_before(ds: Any, F: Any, x: Any) -> Any:
    y = x * 1
    first, copied = y[:, 0], y[:, 0].clone()
    y[:, 0] = 5
    y *= 2
    return ds.stack([first, copied], 1)


@_write
def _parts_in_a_loop(ds: Any, F: Any, x: Any) -> Any:
    y = x.clone()
    for i, part in enumerate(y.unbind(1)):
        part += i
    a, b = y.chunk(2, 1)
    a *= b
    return y


@_write
def _methods_that_write(ds: Any, F: Any, x: Any) -> Any:
    y = ds.empty_like(x).fill_(2)
    y[:, 1].zero_()
    y[:, 2:].copy_(x[:, :2])
    return y.mul_(3).add_(x)


@_write
def _in_place_by_name(ds: Any, F: Any, x: Any) -> Any:
    y = x.clone()
    first, mask = y[:, 0], x > 1
    y.abs_().sqrt_().neg_()
    y[:, 1:].clamp_(-0.8, -0.1).pow_(2).mul_(3)
    y.masked_fill_(mask, 0.5).sub_(0.25).div_(2)
    F.relu(y, inplace=True)
    y[:, 2:].lerp_(x[:, 2:], 0.5).addcmul_(x[:, :2], x[:, 1:3], value=2)
    return ds.cat([y, first.unsqueeze(1).tanh_()], 1)


@_write
def _at_places(ds: Any, F: Any, x: Any) -> Any:
    i, j = (ds.tensor(p, dtype=ds.int64) for p in ([2, 0, 2], [1, 3]))
    y = x.clone()
    part = y[:, 2]
    y.index_add_(1, i, x[:, 1:], alpha=2)
    return x.index_copy(1, j, x[:, :2]).index_fill(1, j[:1], 0.5) + y + part.unsqueeze(1)


@_write
def _at_places_of_each_frame(ds: Any, F: Any, x: Any) -> Any:
    order = x.argsort(1)
    y = x.scatter(1, order[:, :2], x[:, 2:]).scatter_add(1, order // 2, x)
    return y + ds.zeros_like(x).scatter_(1, x.argmax(1, keepdim=True), 1.0)


@_write
def _frames_where_a_mask_holds(ds: Any, F: Any, x: Any) -> Any:
    y = x.transpose(1, 2).clone()
    y[y[..., 0] > 1] = 0.5
    y[y[..., 1] < -1] = x.new_tensor([1.0, 2.0, 3.0, 4.0])
    return y


@_write
def _what_a_mask_picks(ds: Any, F: Any, x: Any) -> Any:
    y, small, big = x.clone(), x.abs() < 0.5, x > 1
    y[small] = y[small] ** 2 + x[small].sin()
    y[big] -= 1
    y[~big] *= 0.5
    y[y < -1] = y[y < -1].exp() - 2
    return y


@_write
def _frames_that_a_mask_picks(ds: Any, F: Any, x: Any) -> Any:
    y = x.transpose(1, 2).clone()
    loud = y[..., 0] > 0.5
    before = y[loud]
    y[loud] = 0.0
    y[loud] += F.linear(before, x.new_ones(4, 4)).softmax(-1) * x.new_tensor([1.0, 2.0, 3.0, 4.0])
    return y


@_write
def _bools(ds: Any, F: Any, x: Any) -> Any:
    y = ds.where(x > 0, x > 1, x < -1)
    y[:, 0] = False
    y[..., :2] = True
    y[x > 2] = False
    return (y + (x > 0.5) * y.masked_fill(x < -0.5, False)).float()


# ---------------------------------------------------------------- what is made of sizes
@_write
def _zeros_that_are_filled(ds: Any, F: Any, x: Any) -> Any:
    B, C, L = x.shape
    y = ds.zeros(B, 2 * C, L)
    y[:, ::2] = x
    y[:, 1::2] = -x
    y[:, 0] += 1
    return y


@_write
def _zeros_around_the_frames(ds: Any, F: Any, x: Any) -> Any:
    y = x.new_zeros(x.size(0), 4, x.size(2) + 2)
    y[:, :, 1:-1] = x
    return F.max_pool1d(y, 3, 1)


@_write
def _zeros_between_the_frames(ds: Any, F: Any, x: Any) -> Any:
    y = ds.zeros(x.size(0), 4, 2 * x.size(2), dtype=x.dtype)
    y[..., ::2] = x
    return y


@_write
def _ones_by_their_views(ds: Any, F: Any, x: Any) -> Any:
    y = ds.ones(x.size(0), x.size(2), 4)
    first, turned, copy = y[..., :2], y.transpose(1, 2), y.clone()
    first *= x.transpose(1, 2)[..., 1:3]
    turned[:, 3] = x[:, 0]
    return y + copy


@_write
def _zeros_read_by_other_views(ds: Any, F: Any, x: Any) -> Any:
    B, C, L = x.shape
    y = ds.zeros(B, C, L)
    seen = y.narrow(1, 0, 2), y.select(1, 3).unsqueeze(1), y.unflatten(1, (2, 2))[:, 1], y.movedim(1, 2).mT
    halves = y.split(2, 1)
    y[:, 1:] = x[:, 1:]
    halves[1][:, 0] += 1
    return ds.cat([*seen, *halves], 1) + y.repeat(1, 4, 1)[:, :13]


@_write
def _functions_of_positions(ds: Any, F: Any, x: Any) -> Any:
    B, C, L = x.shape
    rests = (ds.arange(L) % 3).to(x.dtype)
    rests[rests > 1] = 0
    seen = rests[None]
    seen += 1
    waves = ds.ones(B, 1, L).sin()
    waves.add_(x[:, :1])
    return x * rests + waves


@_write
def _numbers_that_have_features(ds: Any, F: Any, x: Any) -> Any:
    B, C, L = x.shape
    none = ds.arange(L).to(x.dtype).sin() * ds.zeros(B, C, 1)
    ones = ds.maximum(ds.ones(B, 1, L), ds.zeros(B, C, L))
    return x[:, :1] / (none + 1) + ds.cat([x[:, :2], ones], 1)[:, 2:]


@_write
def _zeros_that_add_up(ds: Any, F: Any, x: Any) -> Any:
    y = x.new_zeros(x.shape)
    for i in range(4):
        y[:, i] += x[:, : i + 1].sum(1)
    return ds.cat([y, ds.ones(x.size(0), 1, x.size(2))], 1)


@_write
def _shifted_into_zeros(ds: Any, F: Any, x: Any) -> Any:
    y = ds.full(tuple(x.shape), 0.5)
    y[:, :, 2:] = x[:, :, :-2]
    return y


# ---------------------------------------------------------------- another order
@_order
def _turned(ds: Any, F: Any, x: Any) -> Any:
    return x.flip(1) + x.roll(1, 1) * 2 + x.index_select(1, ds.tensor([3, 3, 0, 1]).long())


@_order
def _running(ds: Any, F: Any, x: Any) -> Any:
    return x.cumsum(1) + x.cumprod(1)


@_order
def _sorted(ds: Any, F: Any, x: Any) -> Any:
    values, indices = x.sort(1)
    return values + indices.float() + x.argsort(1, descending=True).float()


@_order
def _largest(ds: Any, F: Any, x: Any) -> Any:
    values, indices = x.topk(3, 1)
    return values * 2 + indices.float()


# ---------------------------------------------------------------- constants along L, and other rates
@_order
def _constants_before_and_behind(ds: Any, F: Any, x: Any) -> Any:
    before, behind = ds.zeros(x.size(0), 4, 2), ds.zeros(x.size(0), 4, 1)
    return F.max_pool1d(ds.cat([before, x, behind], 2), 4, 1)


@_order
def _ones_of_all_streams(ds: Any, F: Any, x: Any) -> Any:
    taps = x.new_tensor([0.5, 1.0, 2.0]).view(1, 1, 3)
    window = x.new_tensor([1.0, 3.0]).view(1, 2, 1).repeat(1, 1, x.size(2))
    return x / F.conv1d(x.new_ones(1, 1, x.size(2)), taps, padding=1) + F.conv1d(
        window**2, taps.repeat(1, 2, 1), padding=1
    )


@_order
def _the_last_frame(ds: Any, F: Any, x: Any) -> Any:
    return x[:, :, -1], x[:, 1:, -3:-1], F.avg_pool1d(x, x.size(2))


@_order
def _many_joined(ds: Any, F: Any, x: Any) -> Any:
    return ds.cat([x[:, :1] * i for i in range(20)], 1)


@_order
def _twice_the_frames(ds: Any, F: Any, x: Any) -> Any:
    return F.interpolate(x, scale_factor=2, mode="linear")


@_order
def _half_the_frames(ds: Any, F: Any, x: Any) -> Any:
    return F.interpolate(x, scale_factor=0.5, mode="linear")


@_order
def _windows_of_features(ds: Any, F: Any, x: Any) -> Any:
    return x.unfold(1, 2, 1).sum(3)


@_order
def _blocks_of_planes(ds: Any, F: Any, x: Any) -> Any:
    return F.unfold(x.unsqueeze(1), (4, 3), padding=(0, 1))


@_order
def _blocks_laid_over_each_other(ds: Any, F: Any, x: Any) -> Any:
    blocks = F.unfold(x.unsqueeze(3), (6, 1), padding=(6, 0), stride=(3, 1))
    return F.fold(blocks, (x.size(2), 1), (6, 1), padding=(6, 0), stride=(3, 1)).squeeze(3)


def _enter(kind: str, forwards: dict[str, Callable[[Any, Any, Any], Any]]) -> None:
    for name, forward in forwards.items():

        def make(nn: Any, F: Any, ds: Any, forward: Any = forward) -> Any:
            return net(nn, lambda self, x: forward(ds, F, x))

        case(f"{kind}-{name}", BCL(4), make, reach=8, onnx=name not in ("sorted", "largest"))


_enter("writes", WRITES)
_enter("orders", ORDERS)

case("writes-frames-last", BLC(3), lambda nn, F, ds: net(nn, _last), reach=6)


def _last(self: Any, x: Any) -> Any:
    y = x.clone()
    y[:, 1:, :2] -= x[:, :-1, :2]
    y[..., 2] /= 2
    return y
