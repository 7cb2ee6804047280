"""Layers and small stacks, each written once: for dreamstream and, where torch has all of it, for torch.

An entry of `MODELS` makes a model from a namespace (`nn`) and its functions (`F`); `case` turns it into a case
with fixed weights. What a model says of a whole sequence is checked against torch; how it streams, against
what it says offline.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from nets import net

import dreamstream as ds
from dreamstream import nn
from dreamstream.nn import functional as F

from . import networks, recurrent_models
from .case import Array, Case, Input, Refused
from .drive import Eager, alone, offline

BCL, BLC = ("B", 0, "L"), ("B", "L", 0)


@dataclass(frozen=True)
class Entry:
    """A model and what to feed it.

    Attributes
    ----------
    make : function (nn, F) -> module
    inputs : tuple of (features, rate)
    torch : bool
        Whether torch has all that it is made of.
    """

    make: Callable[[Any, Any], Any]
    layout: tuple[Any, ...]
    inputs: tuple[tuple[tuple[int, ...], Fraction], ...]
    reach: int = 4
    whole: bool = False
    late: str = ""
    torch: bool = True
    multiple: int = 1  # lengths are multiples of it


MODELS: dict[str, Entry] = {}


def image(*features: int) -> tuple[tuple[int, ...], Fraction]:
    """An input of several dimensions of features."""
    return (features, Fraction(1))


def _layer(name: str, make: Callable[[Any, Any], Any], layout: Any, features: Any, **more: Any) -> None:
    _stack(layout, features, name=name, **more)(make)


def _stack(layout: Any, *features: Any, name: str = "", **more: Any) -> Callable[[Callable[[Any, Any], Any]], Any]:
    inputs = tuple(f if isinstance(f, tuple) else image(f) for f in features)

    def add(make: Callable[[Any, Any], Any]) -> Any:
        MODELS[name or make.__name__.strip("_").replace("_", "-")] = Entry(make, layout, inputs, **more)
        return make

    return add


# ---------------------------------------------------------------- layers
_layer("linear-layer", lambda nn, F: nn.Linear(3, 5), BLC, 3)
_layer("linear-without-bias", lambda nn, F: nn.Linear(3, 5, bias=False), BLC, 3)
for _mode in ("zeros", "replicate", "reflect", "circular"):
    _layer(
        f"conv-{_mode}",
        lambda nn, F, m=_mode: nn.Conv1d(3, 4, 5, stride=2, padding=3, dilation=2, padding_mode=m),
        BCL,
        3,
        reach=16,
        whole=_mode == "circular",
    )
_layer("conv-valid", lambda nn, F: nn.Conv1d(3, 4, 3, padding="valid"), BCL, 3)
_layer("conv-same", lambda nn, F: nn.Conv1d(3, 4, 4, padding="same", dilation=2), BCL, 3, reach=8)
_layer("conv-causal", lambda nn, F: nn.Conv1d(3, 4, 3, padding="causal", dilation=2), BCL, 3, reach=6, torch=False)
_layer(
    "conv-uneven",
    lambda nn, F: nn.Conv1d(3, 4, 4, padding=(1, 4), padding_mode="reflect"),
    BCL,
    3,
    reach=10,
    torch=False,
)
_layer("conv-stride-above-span", lambda nn, F: nn.Conv1d(3, 4, 2, stride=5, padding=1), BCL, 3, reach=9)
_layer("conv-depthwise", lambda nn, F: nn.Conv1d(4, 4, 5, padding=2, groups=4), BCL, 4, reach=6)
_layer("conv-grouped", lambda nn, F: nn.Conv1d(4, 6, 3, padding=1, groups=2, bias=False), BCL, 4)
_layer("conv-transpose", lambda nn, F: nn.ConvTranspose1d(3, 4, 4, stride=2, padding=1), BCL, 3)
_layer(
    "conv-transpose-gaps",
    lambda nn, F: nn.ConvTranspose1d(4, 4, 3, stride=5, padding=2, output_padding=4, dilation=3, groups=2),
    BCL,
    4,
    reach=6,
)
_layer("layer-norm", lambda nn, F: nn.LayerNorm(7), BLC, 7)
_layer("glu-layer", lambda nn, F: nn.GLU(dim=1), BCL, 6)
_layer("softmax-layer", lambda nn, F: nn.Softmax(dim=1), BCL, 6)
_layer("log-softmax", lambda nn, F: nn.LogSoftmax(dim=-1), BLC, 6)
_layer("gelu-layer", lambda nn, F: nn.GELU(), BCL, 3)
_layer("constant-pad", lambda nn, F: nn.ConstantPad1d((2, 3), -1.5), BCL, 2, reach=6)
_layer("negative-pad", lambda nn, F: nn.ConstantPad1d((-2, -3), 0.0), BCL, 2, reach=7)
_layer("reflection-pad", lambda nn, F: nn.ReflectionPad1d((3, 2)), BCL, 2, reach=7)
_layer("replication-pad", lambda nn, F: nn.ReplicationPad1d((2, 4)), BCL, 2, reach=7)
_layer("resample-up", lambda nn, F: nn.Resample(2, 3, 2), BCL, 2, reach=8, torch=False)
_layer("resample-down", lambda nn, F: nn.Resample(5, 2, 1, 0.9), BCL, 2, reach=10, torch=False)
_layer("delay-layer", lambda nn, F: nn.Delay(3), BCL, 2, reach=5, torch=False)
_layer("look-ahead", lambda nn, F: nn.LookAhead(3), BCL, 2, reach=5, torch=False)
_layer("look-ahead-weighed", lambda nn, F: nn.LookAhead(2, 3, dim=1), BLC, 3, reach=5, torch=False)


for _name, (_make, _more) in recurrent_models.MAKERS.items():
    _layer(_name, _make, BLC, 3, **_more)


# ---------------------------------------------------------------- stacks
@_stack(BCL, 3, reach=10)
def _tagger(nn: Any, F: Any) -> Any:
    """Strided convolutions that look ahead, a recurrence, a classifier."""

    def forward(self: Any, x: Any) -> Any:
        x = F.silu(self.second(F.gelu(self.first(x)))).transpose(1, 2)
        x, _ = self.rnn(self.norm(x))
        return F.log_softmax(self.head(x), dim=-1)

    return net(
        nn,
        forward,
        first=nn.Conv1d(3, 6, 5, stride=2, padding=2),
        second=nn.Conv1d(6, 8, 3, padding=1),
        norm=nn.LayerNorm(8),
        rnn=nn.LSTM(8, 5, batch_first=True),
        head=nn.Linear(5, 4),
    )


@_stack(BCL, 4, reach=14)
def _residual(nn: Any, F: Any) -> Any:
    """Branches with different delays meet: aligned by position, the parts cut to their common length."""

    def forward(self: Any, x: Any) -> Any:
        y = x + self.wide(self.narrow(x)) * 0.5
        y = F.glu(self.gate(y), dim=1)
        return y + self.narrow(x), y[..., 2:] - x[..., :-2]

    return net(
        nn,
        forward,
        wide=nn.Conv1d(4, 4, 7, padding=3),
        narrow=nn.Conv1d(4, 4, 3, padding=1),
        gate=nn.Conv1d(4, 8, 1),
    )


@_stack(BCL, 2, reach=12, late="what follows a transposed convolution waits at its structural zeros")
def _hourglass(nn: Any, F: Any) -> Any:
    """Down, up again, and cut to the length of what came in."""

    def forward(self: Any, x: Any) -> Any:
        y = self.up(F.tanh(self.down(x)))
        return y[..., : x.size(2)] + x

    return net(
        nn,
        forward,
        down=nn.Conv1d(2, 4, 3, stride=2, padding=1),
        up=nn.ConvTranspose1d(4, 2, 4, stride=2, padding=1),
    )


@_stack(BLC, 3, reach=6)
def _every_second_position(nn: Any, F: Any) -> Any:
    """A table by absolute position, and every second frame of the sum."""

    def forward(self: Any, x: Any) -> Any:
        return (x + self.table.weight[: x.size(1)])[:, 1::2]

    return net(nn, forward, table=nn.Linear(3, 60))


@_stack(BLC, 3, reach=6, multiple=2)
def _stacking(nn: Any, F: Any) -> Any:
    """Two frames become one; a network per frame on B and L joined; and back."""

    def forward(self: Any, x: Any) -> Any:
        half = x.reshape(x.size(0), x.size(1) // 2, 6)
        n, length, features = half.shape
        flat = F.sigmoid(self.inner(half.reshape(n * length, features)))
        back = self.outer(flat).reshape(n, length, 6)
        return half + back, back.reshape(n, length * 2, 3) * x

    return net(nn, forward, inner=nn.Linear(6, 4), outer=nn.Linear(4, 6))


@_stack(BLC, 3, reach=6)
def _twice(nn: Any, F: Any) -> Any:
    """One layer called twice has two states; a pooled vector at the end."""

    def forward(self: Any, x: Any) -> Any:
        a, _ = self.rnn(x)
        b, (h, _) = self.rnn(a)
        c = self.conv(self.conv(b.transpose(1, 2))).transpose(1, 2)
        return {"frames": c, "end": (h, c.mean(1))}

    return net(nn, forward, rnn=nn.LSTM(3, 3, batch_first=True), conv=nn.Conv1d(3, 3, 3, padding=1))


@_stack(BCL, ((2,), Fraction(2)), ((3,), Fraction(1)), reach=8)
def _two_rates(nn: Any, F: Any) -> Any:
    """Inputs of different rates are brought to one."""

    def forward(self: Any, x: Any, y: Any) -> Any:
        return self.down(x) + self.mix(y), x[..., 1:]

    return net(nn, forward, down=nn.Conv1d(2, 3, 2, stride=2), mix=nn.Conv1d(3, 3, 3, padding=1))


@_stack(BCL, 2, reach=12)
def _windows(nn: Any, F: Any) -> Any:
    """Overlapping windows become features; pads and crops around them."""

    def forward(self: Any, x: Any) -> Any:
        x = F.pad(x, (3, 1), mode="replicate")
        framed = x.unfold(2, 4, 3)  # (B, 2, L, 4)
        y = self.read(framed.permute(0, 2, 1, 3).flatten(2))
        return F.softmax(y, dim=-1)[:, :, 1:]

    return net(nn, forward, read=nn.Linear(8, 5))


for _name, _make in networks.MAKERS.items():
    _layer(_name, lambda nn, F, make=_make: make(), BLC, networks.BANDS, reach=16, torch=False)


# ---------------------------------------------------------------- as cases
def build(name: str, double: bool = False) -> nn.Module:
    """A model with weights that depend on its name only."""
    model = MODELS[name].make(nn, F).eval()
    rng = np.random.default_rng(len(name))
    for _, parameter in sorted(model.named_parameters()):
        parameter.numpy()[...] = rng.standard_normal(parameter.shape) * 0.5
    for _, buffer in sorted(model.named_buffers()):
        if buffer.is_floating_point():
            buffer.numpy()[...] = rng.random(buffer.shape) + 0.1
    return model.double() if double else model


def case(name: str, dtype: str = "float32") -> Case:
    """The model as a case."""
    entry = MODELS[name]
    inputs = [Input(features, dtype, rate) for features, rate in entry.inputs]
    made = Case(
        name,
        inputs,
        layout=entry.layout,
        reach=entry.reach,
        whole=entry.whole,
        module=lambda: build(name, dtype == "float64"),
        late=entry.late or ("it waits for the stream's end" if entry.whole else ""),
    )

    def lengths(rng: Any, n: int) -> list[int]:
        n = n // entry.multiple * entry.multiple
        return [int(n * rate) + int(rng.integers(rate)) for _, rate in entry.inputs]

    made.depends = _dependence(name)
    made.lengths = lengths if entry.multiple > 1 or len(inputs) > 1 else None
    return made


def _dependence(name: str) -> Callable[..., list[Array]]:
    """What the model says offline in float64; NaN goes through all that these models are made of."""
    known: list[Any] = []

    def depends(*arrays: Array) -> list[Array]:
        if not known:
            fine, rng = case(name, "float64"), np.random.default_rng(0)
            dims = alone(Eager(fine, rng), {"s": fine.data(rng, [2 * int(i.rate) for i in fine.inputs])}, rng).dims
            known.extend((fine, dims, fine.model()))
        fine, dims, model = known
        try:
            outputs = offline(fine, [arrays], dims, model)[0]
        except ds.ShapeError:
            raise Refused from None
        if all(map(len, arrays)):
            return outputs
        return [y if {"L", "B_L"} & set(roles) else y[:0] for y, roles in zip(outputs, dims)]

    return depends
