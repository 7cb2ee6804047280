"""Axes joined with B, as dual-path networks and networks of bands, microphones and speakers write them."""

from collections.abc import Callable
from typing import Any

from .case import Given
from .tables import case, net

#: Spectra: channels, frames, bins.
PLANES = (Given(("B", 6, "L", 4)),)
Forward = Callable[[Any, Any], Any]


def _joined(name: str, forward: Forward, layers: Callable[..., dict[str, Any]], **more: Any) -> None:
    inputs = more.pop("inputs", PLANES)
    case(f"joined-{name}", inputs, lambda nn, F, ds: net(nn, forward, **layers(nn)), **more)


# ---------------------------------------------------------------- over time, a state for every bin
def _per_bin(shape: Callable[[Any, Any], Any], back: Callable[[Any, Any, Any], Any]) -> Forward:
    """Run ``self.run`` on ``(B * F, L, C)``, joined in one way and taken apart in another."""

    def forward(self: Any, x: Any) -> Any:
        y = self.run(shape(self, x))
        y = y[0] if isinstance(y, tuple) else y
        return back(self, x, y) + x

    return forward


_JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "product": lambda self, x: x.permute(0, 3, 2, 1).reshape(x.size(0) * x.size(3), x.size(2), x.size(1)),
    "inferred": lambda self, x: x.permute(0, 3, 2, 1).contiguous().view(-1, x.size(2), 6),
    "flatten": lambda self, x: x.permute(0, 3, 2, 1).flatten(0, 1),
}
_PARTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "product": lambda self, x, y: y.view(x.size(0), x.size(3), x.size(2), -1).permute(0, 3, 2, 1),
    "inferred": lambda self, x, y: y.reshape(-1, 4, x.size(2), 6).permute(0, 3, 2, 1),
    "flatten": lambda self, x, y: y.unflatten(0, (x.size(0), -1)).permute(0, 3, 2, 1),
}
for _name, _join in _JOINS.items():
    _joined(
        f"lstm-per-bin-by-{_name}",
        _per_bin(_join, _PARTS[_name]),
        lambda nn: {"run": nn.LSTM(6, 6, batch_first=True)},
    )
for _name in ("GRU", "RNN"):
    _joined(
        f"{_name.lower()}-per-bin",
        _per_bin(_JOINS["product"], _PARTS["flatten"]),
        lambda nn, kind=_name: {"run": getattr(nn, kind)(6, 6, num_layers=2, batch_first=True)},
    )


def _sequence_first(self: Any, x: Any) -> Any:
    """Layers that take (L, B, C), and (F, B, C) within frames."""
    b, c, n, f = x.shape
    y, _ = self.along(x.permute(2, 0, 3, 1).reshape(n, b * f, c))
    z = y.reshape(n, b, f, 5).permute(2, 1, 0, 3).reshape(f, b * n, 5)
    z, _ = self.within(z)
    return z.view(f, b, n, 6).permute(1, 3, 2, 0)


_joined(
    "sequence-first",
    _sequence_first,
    lambda nn: {"along": nn.GRU(6, 5), "within": nn.LSTM(5, 3, bidirectional=True)},
)


def _initial_states(self: Any, x: Any) -> Any:
    b, c, n, f = x.shape
    y = x.permute(0, 3, 2, 1).reshape(b * f, n, c)
    y, _ = self.along(y, x.new_zeros(1, b * f, 5))
    z = y.view(b, f, n, 5).transpose(1, 2).reshape(b * n, f, 5)
    z, (h, _) = self.within(z, (x.new_zeros(2, z.size(0), 3), x.new_zeros(2, b * n, 3)))
    return z.view(b, n, f, 6) * h.transpose(0, 1).reshape(b, n, 1, 6)


_joined(
    "initial-states",
    _initial_states,
    lambda nn: {
        "along": nn.GRU(6, 5, batch_first=True),
        "within": nn.LSTM(5, 3, batch_first=True, bidirectional=True),
    },
)


def _convolutions_per_bin(self: Any, x: Any) -> Any:
    b, c, n, f = x.shape
    y = x.permute(0, 3, 1, 2).reshape(b * f, c, n)
    y = self.act(self.norm(self.conv(y)))
    y = self.up(self.down(y))[..., : y.size(2)]
    return y.view(b, f, c, n).permute(0, 2, 3, 1) + x


_joined(
    "convolutions-per-bin",
    _convolutions_per_bin,
    lambda nn: {
        "conv": nn.Conv1d(6, 6, 3, padding=1, groups=2),
        "norm": nn.BatchNorm1d(6),
        "act": nn.PReLU(6),
        "down": nn.Conv1d(6, 8, 4, stride=2, padding=2),
        "up": nn.ConvTranspose1d(8, 6, 4, stride=2, padding=1),
    },
    reach=12,
)


def _pools_per_bin(self: Any, x: Any) -> Any:
    b, _, n, f = x.shape
    y = x.permute(0, 3, 1, 2).flatten(0, 1)
    y = self.mean(y).cumsum(2)
    y = y - y.mean(1, keepdim=True)
    return y.softmax(1).unflatten(0, (b, f))


_joined("pools-per-bin", _pools_per_bin, lambda nn: {"mean": nn.AvgPool1d(3, 1, 1)})


def _order_per_bin(self: Any, x: Any) -> Any:
    b, c, n, f = x.shape
    y = x.permute(0, 3, 1, 2).reshape(b * f, c, n)
    best, at = y.topk(3, 1)
    y = best + y.sort(1)[0].flip(1)[:, :3] + y.gather(1, at // 2) + y.roll(1, 1)[:, ::2]
    return self.pad(y, (0, -n % 2)).reshape(b * f, 3, -1, 2).sum(3).view(b, f, 3, -1)


case("joined-order-per-bin", PLANES, lambda nn, F, ds: net(nn, _order_per_bin, pad=F.pad), onnx=False)


def _statistics_per_bin(self: Any, x: Any) -> Any:
    b, c, n, f = x.shape
    y = x.permute(0, 3, 1, 2).reshape(b * f, c, n)
    w = y.softmax(2)
    return y.var((1, 2)).view(b, f), y.std(2, unbiased=False).view(b, f, c), (w * y).sum(2).view(b, f, c)


case("joined-statistics-per-bin", PLANES, lambda nn, F, ds: net(nn, _statistics_per_bin))


def _norm_per_bin(self: Any, x: Any) -> Any:
    """Global norms of dual-path networks."""
    b, c, n, f = x.shape
    y = x.permute(0, 3, 1, 2).reshape(b * f, c, n)
    y = (y - y.mean((1, 2), keepdim=True)) / (y.var((1, 2), keepdim=True, unbiased=False) + 1e-8).sqrt()
    y = self.norm(y.flip(2)) + y.median(2, keepdim=True)[0]
    return y.view(b, f, c, n)


_joined("norm-per-bin", _norm_per_bin, lambda nn: {"norm": nn.GroupNorm(2, 6)}, whole=True, exports=False)


# ---------------------------------------------------------------- over frequency, within each frame
def _within(self: Any, x: Any) -> Any:
    b, c, n, f = x.shape
    y = x.permute(0, 2, 3, 1).reshape(b * n, f, c)
    y, h = self.run(y)
    y = self.conv(y.transpose(1, 2)).transpose(1, 2)
    return y.view(b, n, f, 6).permute(0, 3, 1, 2) + h.transpose(0, 1).reshape(b, n, -1).transpose(1, 2).unsqueeze(
        3
    )


_joined(
    "both-ways-within-frames",
    _within,
    lambda nn: {"run": nn.GRU(6, 3, batch_first=True, bidirectional=True), "conv": nn.Conv1d(6, 6, 3, padding=1)},
)


def _attention_within(self: Any, x: Any) -> Any:
    b, c, n, f = x.shape
    q, k, v = self.project(x.permute(0, 2, 3, 1).reshape(b * n, f, c)).chunk(3, -1)
    y = (q @ k.transpose(1, 2) * 0.4).softmax(-1) @ v
    return y.view(b, n, f, c).permute(0, 3, 1, 2)


_joined("attention-within-frames", _attention_within, lambda nn: {"project": nn.Linear(6, 18)})


def _attention_in_windows(self: Any, x: Any) -> Any:
    """Local attention: windows of frames, each of which attends to itself, heads before them."""
    b, c, n, f = x.shape
    y = self.pad(x.permute(0, 1, 3, 2).reshape(b, c * f, n), (0, -n % 4))
    y = y.reshape(b, 3, 8, -1, 4).permute(0, 1, 3, 4, 2)
    return self.attend(y, y * 0.5, y).permute(0, 1, 4, 2, 3).reshape(b, 24, -1)[..., :n]


_joined(
    "attention-in-windows",
    _attention_in_windows,
    lambda nn: {"pad": nn.functional.pad, "attend": nn.functional.scaled_dot_product_attention},
    exports=False,
)


def _merged(self: Any, x: Any) -> Any:
    """Features and frames as one dimension: taken apart again, summed over, and as blocks of the whole stream."""
    b, c, n, f = x.shape
    y = (x.permute(0, 3, 1, 2).flatten(2) * 2 - 1).abs().view(b, f, c, n)
    bands = self.unfold(x.permute(0, 1, 3, 2), (3, n)).view(b, c, 3, n, f - 2)
    return y, bands.permute(0, 4, 1, 2, 3), x.reshape(b, -1).mean(1)


_joined("features-with-frames", _merged, lambda nn: {"unfold": nn.functional.unfold})


def _flat(self: Any, x: Any) -> Any:
    """A linear layer on rows, whatever lies in them."""
    b, c, n, f = x.shape
    y = self.first(x.permute(0, 2, 3, 1).reshape(-1, c)).view(b, n, f, 5)
    z = self.first(x.permute(0, 3, 2, 1).reshape(b * f * n, c)).view(b, f, n, 5)
    return y.permute(0, 3, 1, 2) * z.permute(0, 3, 2, 1)


_joined("flat-rows", _flat, lambda nn: {"first": nn.Linear(6, 5)})


# ---------------------------------------------------------------- networks
def _dual_path(self: Any, x: Any) -> Any:
    """DPRNN on spectra, DPCRN: both ways over bins, forward over frames."""
    b, c, n, f = x.shape
    for block in self.blocks:
        y, _ = block["intra"](x.permute(0, 2, 3, 1).reshape(b * n, f, c))
        y = block["norm1"](block["fc1"](y)).view(b, n, f, c).permute(0, 3, 1, 2)
        x = x + y
        y, _ = block["inter"](x.permute(0, 3, 2, 1).reshape(b * f, n, c))
        y = block["norm2"](block["fc2"](y)).view(b, f, n, c).permute(0, 3, 2, 1)
        x = x + y
    return x


def _blocks(nn: Any) -> dict[str, Any]:
    def block() -> Any:
        parts = {
            "intra": nn.LSTM(6, 4, batch_first=True, bidirectional=True),
            "fc1": nn.Linear(8, 6),
            "norm1": nn.LayerNorm(6),
            "inter": nn.LSTM(6, 5, batch_first=True),
            "fc2": nn.Linear(5, 6),
            "norm2": nn.LayerNorm(6),
        }
        return nn.ModuleDict(parts)

    return {"blocks": nn.ModuleList([block(), block()])}


_joined("dual-path", _dual_path, _blocks)


def _bands(self: Any, x: Any) -> Any:
    """BSRNN: a layer per band, LSTMs over time per band and over bands per frame."""
    b, _, n, _ = x.shape
    parts = [
        layer(x[:, :, :, 2 * i : 2 * i + 2].permute(0, 1, 3, 2).reshape(b, -1, n))
        for i, layer in enumerate(self.split)
    ]
    y = self.stack(parts)
    bands, c = y.size(1), y.size(2)
    z, _ = self.time(y.view(b * bands, c, n).transpose(1, 2))
    z = self.back(z.reshape(-1, 5)).view(b * bands, n, c).transpose(1, 2)
    y = y + z.view(b, bands, c, n)
    z, _ = self.band(y.permute(0, 3, 1, 2).reshape(b * n, bands, c))
    return y + z.reshape(b, n, bands, c).permute(0, 2, 3, 1)


case(
    "joined-bands",
    PLANES,
    lambda nn, F, ds: net(
        nn,
        _bands,
        split=nn.ModuleList([nn.Conv1d(12, 8, 1), nn.Conv1d(12, 8, 1)]),
        stack=lambda parts: ds.stack(parts, 1),
        time=nn.LSTM(8, 5, batch_first=True),
        back=nn.Linear(5, 8),
        band=nn.LSTM(8, 4, batch_first=True, bidirectional=True),
    ),
)


def _grouped(self: Any, x: Any) -> Any:
    """GTCRN: grouped GRUs within frames, convolutions over planes of channel pairs."""
    b, c, n, f = x.shape
    y = x.permute(0, 2, 3, 1)
    low, high = y.reshape(b * n, f, c).chunk(2, dim=-1)
    low, high = self.low(low)[0], self.high(high)[0]
    y = y + self.fc(self.join(low, high)).view(b, n, f, -1)
    z = y.permute(0, 3, 1, 2).reshape(b * 2, 3, n, f)
    return self.planes(z).view(b, -1, n, f)


case(
    "joined-groups",
    PLANES,
    lambda nn, F, ds: net(
        nn,
        _grouped,
        low=nn.GRU(3, 2, batch_first=True, bidirectional=True),
        high=nn.GRU(3, 2, batch_first=True, bidirectional=True),
        join=lambda a, b: ds.cat([a, b], -1),
        fc=nn.Linear(8, 6),
        planes=nn.Conv2d(3, 3, 3, padding=1),
    ),
    reach=10,
)


def _microphones(self: Any, x: Any) -> Any:
    b, m, n = x.shape
    y = self.conv(x.reshape(b * m, 1, n)).relu()
    y = self.gates(self.more(y))
    return y.reshape(b, m, y.size(1), y.size(2)).mean(1)


_joined(
    "microphones",
    _microphones,
    lambda nn: {
        "conv": nn.Conv1d(1, 4, 5, stride=2, padding=2),
        "more": nn.Conv1d(4, 6, 3, padding=1),
        "gates": nn.GLU(1),
    },
    inputs=(Given(("B", 3, "L")),),
    reach=14,
)


def _speakers(self: Any, x: Any) -> Any:
    """Conv-TasNet's masks, and its decoder on every source."""
    b, c, n = x.shape
    masks = self.mask(x).sigmoid().view(b, 2, c, n)
    sources = (masks * x.unsqueeze(1)).view(b * 2, c, n)
    y = self.decoder(sources)
    return y.view(b, 2, y.size(-1))


_joined(
    "speakers",
    _speakers,
    lambda nn: {"mask": nn.Conv1d(6, 12, 3, padding=1), "decoder": nn.ConvTranspose1d(6, 1, 4, stride=2)},
    inputs=(Given(("B", 6, "L")),),
)


def _speakers_within(self: Any, x: Any) -> Any:
    """Per speaker and frame, over bins; per speaker and bin, over frames."""
    b, _, n, f = x.shape
    y = x.view(b * 2, 3, n, f)
    z, _ = self.within(y.permute(0, 2, 3, 1).reshape(b * 2 * n, f, 3))
    y = y + z.view(b * 2, n, f, 3).permute(0, 3, 1, 2)
    z, _ = self.along(y.permute(0, 3, 2, 1).reshape(b * 2 * f, n, 3))
    y = y + z.view(b * 2, f, n, 3).permute(0, 3, 2, 1)
    return self.conv(y.permute(0, 2, 1, 3).reshape(b * 2 * n, 3, f)).view(b, 2, n, 3, f)


_joined(
    "speakers-within-frames",
    _speakers_within,
    lambda nn: {
        "within": nn.GRU(3, 3, batch_first=True),
        "along": nn.GRU(3, 3, batch_first=True),
        "conv": nn.Conv1d(3, 3, 3, padding=1),
    },
)


def _waits(self: Any, x: Any) -> Any:
    b, c, n, f = x.shape
    y, _ = self.run(x.permute(0, 3, 2, 1).reshape(b * f, n, c))
    return y.view(b, f, n, 6).permute(0, 3, 2, 1)


_joined(
    "both-ways-over-time",
    _waits,
    lambda nn: {"run": nn.LSTM(6, 3, batch_first=True, bidirectional=True)},
    whole=True,
    exports=False,
)
