"""The rows of operators.py: every operator with a typical size, and the function of torch that does the same.

A row computes on frames `(B, L, *features)`. Ours reads them so; torch gets them in one of the layouts of the
row, made beforehand, and the fastest counts. What needs frames of the past gets `past` more offline, so that
all compute as many outputs. REASONS stand beside rows that are slower than torch.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as T

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn, operations

Function = Callable[..., Any]
FRAMES, CHANNELS = "frames", "channels"  # torch's layouts: (B, L, ...), or (B, ..., L)


class Row(NamedTuple):
    operator: str
    label: str
    ours: Function | nn.Module
    torch: dict[str, Function]  # by layout
    features: tuple[tuple[int, ...], ...] = ((128,),)  # of each input
    past: int = 0
    unit: int = 1  # frames that count as one
    kind: str = "normal"  # of the numbers: "normal", "positive", "unit" (0 to 1), "above" (1), "index", "bool"
    frames_first: bool = True  # else callers' arrays are (C, L)


class Apply(nn.Module):
    """A function, or layer, as a model of one, two or three inputs."""

    def __init__(self, function: Function | nn.Module) -> None:
        super().__init__()
        self.function = function


class Apply1(Apply):
    def forward(self, x: Any) -> Any:
        return self.function(x)


class Apply2(Apply):
    def forward(self, x: Any, y: Any) -> Any:
        return self.function(x, y)


class Apply3(Apply):
    def forward(self, x: Any, y: Any, z: Any) -> Any:
        return self.function(x, y, z)


#: By the number of inputs.
APPLY = (Apply1, Apply2, Apply3)


class Channels(nn.Module):
    """A layer of (B, C, ..., L) on (B, L, C, ...)."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        return self.layer(x.movedim(1, -1)).movedim(-1, 1)


class Planes(nn.Module):
    """A layer of (B, C, F, L) on (B, L, F, C), as it has its frames."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        return self.layer(x.permute(0, 3, 2, 1)).permute(0, 3, 2, 1)


class First(nn.Module):
    """A recurrent layer's first output."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        return self.layer(x)[0]


class Cell(nn.Module):
    """A cell's step from zeros, for each frame by itself."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        y = self.layer(x.reshape(-1, x.shape[-1]))
        y = y[0] if isinstance(y, tuple) else y
        return y.reshape(x.shape[0], -1, y.shape[-1])


def twin(layer: nn.Module, kind: type[torch.nn.Module], *args: Any, **kwargs: Any) -> torch.nn.Module:
    """torch's layer with the same weights."""
    other = kind(*args, **kwargs).eval()
    other.load_state_dict({k: torch.from_numpy(v.numpy().copy()) for k, v in layer.state_dict().items()})
    return other


# ---------------------------------------------------------------------- layers
def conv1d(label: str, a: int, b: int, kernel: int, groups: int = 1) -> Row:
    layer = nn.Conv1d(a, b, kernel, groups=groups)
    other = twin(layer, torch.nn.Conv1d, a, b, kernel, groups=groups)
    wide = other.weight[:, :, None].contiguous(memory_format=torch.channels_last)

    def last(x: torch.Tensor) -> torch.Tensor:  # as a picture of one line, channels last
        return T.conv2d(x.transpose(1, 2)[:, :, None], wide, other.bias, groups=groups)[:, :, 0].transpose(1, 2)

    return Row("conv1d", label, Channels(layer), {CHANNELS: other, FRAMES: last}, ((a,),), past=kernel - 1)


def conv_transpose1d(a: int, b: int, kernel: int, stride: int) -> Row:
    layer = nn.ConvTranspose1d(a, b, kernel, stride=stride)
    other = twin(layer, torch.nn.ConvTranspose1d, a, b, kernel, stride=stride)
    label = f"{a} → {b}, kernel {kernel}, stride {stride}"
    return Row("conv_transpose1d", label, Channels(layer), {CHANNELS: other}, ((a,),))


def planes(operator: str, ours: type[nn.Module], theirs: type[torch.nn.Module], *args: Any, **kwargs: Any) -> Row:
    """On (F, C): torch sees (B, C, F, L)."""
    layer = ours(*args, **kwargs)
    other = twin(layer, theirs, *args, **kwargs)
    last = twin(layer, theirs, *args, **kwargs).to(memory_format=torch.channels_last)
    groups = f", {kwargs['groups']} groups" if kwargs else ""
    label = f"{args[0]} → {args[1]} on 40 rows, kernel {args[2]}{groups}"
    ways = {
        name: lambda x, layer=layer: layer(x.permute(0, 3, 2, 1)).permute(0, 3, 2, 1)
        for name, layer in ((FRAMES, other), ("frames, channels last", last))
    }
    return Row(
        operator, label, Planes(layer), ways, ((40, args[0]),), past=args[2] - 1 if operator == "conv2d" else 0
    )


def recurrent(operator: str, ours: type[nn.Module], theirs: type[torch.nn.Module], c: int = 256) -> Row:
    layer = ours(c, c, batch_first=True)
    other = twin(layer, theirs, c, c, batch_first=True)

    def plain(x: torch.Tensor) -> torch.Tensor:
        with torch.backends.mkldnn.flags(enabled=False):
            return other(x)[0]

    ways = {FRAMES: lambda x: other(x)[0], "no oneDNN": plain}
    return Row(operator, f"{c}, one layer", First(layer), ways, ((c,),))


def cell(operator: str, ours: type[nn.Module], theirs: type[torch.nn.Module], c: int = 128) -> Row:
    layer = ours(c, c)
    other = twin(layer, theirs, c, c)

    def each(x: torch.Tensor) -> torch.Tensor:
        y = other(x.flatten(0, 1))
        return (y[0] if isinstance(y, tuple) else y).view(x.shape)

    return Row(operator, f"{c}", Cell(layer), {FRAMES: each}, ((c,),))


def norm(operator: str, ours: nn.Module, theirs: torch.nn.Module, layout: str, c: int = 256) -> Row:
    return Row(operator, f"{c}", Channels(ours) if layout == CHANNELS else ours, {layout: theirs.eval()}, ((c,),))


def groups(n: int, c: int) -> Row:
    """By frame: frames are a batch."""
    layer, other = nn.GroupNorm(n, c), torch.nn.GroupNorm(n, c)

    def ours(x: Any) -> Any:
        return layer(x.reshape(-1, c)).reshape(x.shape[0], -1, c)

    def theirs(x: torch.Tensor) -> torch.Tensor:
        return other(x.flatten(0, 1)).view(x.shape)

    return Row("group_norm", f"{c} in {n} groups, by frame", ours, {FRAMES: theirs}, ((c,),))


def channel_norm(x: Any) -> Any:
    """Written by hand, over channels of (B, C, L)."""
    centred = x - x.mean(1, keepdim=True)
    return centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()


def channel_norm_last(x: Any) -> Any:
    """The same on (B, L, C)."""
    return channel_norm(x.transpose(1, 2)).transpose(1, 2)


def attention(block: int = 20) -> Row:
    """Blocks that see themselves: for torch a batch of them."""

    def ours(q: Any, k: Any, v: Any) -> Any:
        heads = (x.transpose(1, 2) for x in (q, k, v))
        return F.scaled_dot_product_attention(*heads, context=ds.Context(block, 0)).transpose(1, 2)

    def other(*xs: Any) -> Any:
        B, L = xs[0].shape[:2]
        n = min(block, L)
        heads = [x.reshape(B * L // n, n, *x.shape[2:]).transpose(1, 2) for x in xs]
        return T.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(B, L, *xs[2].shape[2:])

    return Row("attention", f"8 heads of 64, blocks of {block}", ours, {FRAMES: other}, ((8, 64),) * 3)


def cross_attention() -> Row:
    """To tokens that all streams share."""
    tokens = np.random.default_rng(0).standard_normal((1, 8, 50, 64), np.float32)

    def ours(x: Any) -> Any:
        return F.scaled_dot_product_attention(x.transpose(1, 2), ds.tensor(tokens), ds.tensor(tokens)).transpose(
            1, 2
        )

    def other(x: Any) -> Any:
        kv = torch.from_numpy(tokens)
        return T.scaled_dot_product_attention(x.transpose(1, 2), kv, kv).transpose(1, 2)

    return Row("cross_attention", "8 heads of 64, 50 tokens", ours, {FRAMES: other}, ((8, 64),))


def embedding() -> Row:
    layer = nn.Embedding(1000, 256)
    other = twin(layer, torch.nn.Embedding, 1000, 256)
    return Row("embedding", "1000 × 256", layer, {FRAMES: other}, ((),), kind="index")


def experts() -> list[Row]:
    """Parts of a mixture of 8 experts, of which a frame's first features choose two."""
    router, stack = (torch.randn(*shape).numpy() * 0.1 for shape in ((32, 256), (8, 256, 256)))
    w, many = ds.tensor(router), ds.tensor(stack)
    theirs, each = torch.from_numpy(router), torch.from_numpy(stack)

    def by_loop(x: Any) -> Any:
        index = x[..., :8].topk(2, -1).indices
        out = torch.empty(*index.shape, 256)
        for e in range(8):
            hit = index == e
            out[hit] = x[hit.nonzero(as_tuple=True)[:2]] @ each[e].T
        return out.flatten(-2)

    return [
        Row("router", "256 → 32", lambda x: F.router(x, w), {FRAMES: lambda x: x @ theirs.T}, ((256,),)),
        Row("topk", "2 of 32", lambda x: F.topk(x, 2).values, {FRAMES: lambda x: x.topk(2, -1).values}, ((32,),)),
        Row("gather", "2 of 128", lambda x: x.gather(-1, F.topk(x[..., :8], 2).indices),
            {FRAMES: lambda x: x.gather(-1, x[..., :8].topk(2, -1).indices)}),
        Row("expert_linear", "2 of 8, 256 → 256",
            lambda x: F.expert_linear(x, F.topk(x[..., :8], 2).indices, many), {FRAMES: by_loop}, ((256,),)),
        Row("combine", "2 of 256", F.combine,
            {FRAMES: lambda x, y: (x.unflatten(-1, (2, 256)) * y[..., None]).sum(-2)}, ((512,), (2,))),
    ]  # fmt: skip


def matmul(n: int) -> Row:
    w = np.random.default_rng(0).standard_normal((8, n, n), dtype=np.float32)
    a, b = ds.tensor(w), torch.from_numpy(w)
    return Row("matmul", f"8 matrices of {n} × {n}", lambda x: (x[..., None, :] @ a)[..., 0, :],
               {FRAMES: lambda x: (x[..., None, :] @ b)[..., 0, :],
                "heads": lambda x: torch.bmm(x.flatten(0, 1).transpose(0, 1), b).transpose(0, 1).view(x.shape)},
               ((8, n),))  # fmt: skip


def bmm(n: int) -> Row:
    """Of two streams."""
    return same("bmm", f"{n} × {n}", lambda x, y: x @ y, ((n, n),) * 2)


def by_heads() -> Row:
    """A matrix for each head, by letters."""
    w = np.random.default_rng(0).standard_normal((8, 16, 16), dtype=np.float32)
    a, b = ds.tensor(w), torch.from_numpy(w)
    return Row("matmul", "einsum of 8 heads of 16", lambda x: ds.einsum("blhd,hdo->blho", x, a),
               {FRAMES: lambda x: torch.einsum("blhd,hdo->blho", x, b)}, ((8, 16),))  # fmt: skip


def resample() -> Row:
    """torch has none; torchaudio's way is a strided convolution, here with the same kernel."""
    layer = nn.Resample(16000, 8000)
    kernel = torch.from_numpy(np.ascontiguousarray(layer.kernel.numpy(), np.float32)).reshape(1, 1, -1)

    def convolve(x: torch.Tensor) -> torch.Tensor:
        width = kernel.shape[-1] // 2 - 1
        return T.conv1d(T.pad(x, (width, width + 2))[:, None], kernel, stride=2)[:, 0, : (x.shape[1] + 1) // 2]

    return Row("resample", "16 to 8 kHz", layer, {FRAMES: convolve}, ((),), unit=160)


def pool(layer: type[nn.Module], size: int = 2, stride: int = 2) -> Row:
    """Of windows without overlap, or of one at every frame."""
    name = layer.__name__
    operator = name.removesuffix("Pool1d").lower() + "_pool"
    theirs = {CHANNELS: getattr(torch.nn, name)(size, stride)}
    label = f"window {size}, 128" + (" at every frame" if stride == 1 else "")
    return Row(operator, label, Channels(layer(size, stride)), theirs, unit=stride, past=size - stride)


def prelu(frames_first: bool) -> Row:
    layer = nn.PReLU(64)
    other = twin(layer, torch.nn.PReLU, 64)
    label = "64 channels" if frames_first else "64 channels, arrays (64, L) in and out"
    ours = Channels(layer) if frames_first else layer
    return Row("prelu", label, ours, {CHANNELS: other}, ((64,),), frames_first=frames_first)


# ---------------------------------------------------------------------- functions that both have
#: By which numbers show them, of the functions that are methods of both.
DOMAINS = {
    "normal": ("any", "ties", "halves"), "positive": ("positive",), "unit": ("unit",), "above": ("above",),
}  # fmt: skip
UNARY = {
    kind: [row.name for row in operations.UNARY if row.doc and row.domain in domains]
    for kind, domains in DOMAINS.items()
}
#: Functions that are no methods.
FUNCTIONS = [row.name for row in operations.UNARY if not row.doc and row.name not in ("clamp", "nan_to_num")]
BINARY = [row.name for row in operations.BINARY if row.domain in ("any", "ties") and hasattr(ds.Tensor, row.name)]
BINARY_POSITIVE = [row.name for row in operations.BINARY if row.domain in ("base", "quarters")]
#: Methods that are made of operators, by the last of these.
COMPOSED = {
    "tan": "div", "sinc": "where", "deg2rad": "mul", "rad2deg": "mul", "isnan": "ne",
    "isinf": "eq", "isfinite": "lt", "signbit": "lt", "xlogy": "where",
    "logaddexp": "where", "heaviside": "where", "fmax": "where", "fmin": "where", "std": "reduce_features",
}  # fmt: skip
OF_TWO = ("xlogy", "logaddexp", "heaviside", "fmax", "fmin")


def method(name: str, kind: str = "normal", n_inputs: int = 1) -> Row:
    def call(x: Any, *more: Any) -> Any:
        return getattr(x, name)(*more)

    theirs = attrgetter(operations.OPERATORS[name].torch or name)(torch)
    return Row(name, "128", call, {FRAMES: theirs}, ((128,),) * n_inputs, kind=kind)


def function(name: str, *args: Any, **kwargs: Any) -> Row:
    ours, theirs = getattr(F, name), getattr(T, name)
    return Row(name, "128", lambda x: ours(x, *args, **kwargs), {FRAMES: lambda x: theirs(x, *args, **kwargs)})


def composed(name: str, operator: str) -> Row:
    """A method that is made of several operators."""
    if name not in OF_TWO:
        given = (-1,) if name == "std" else ()
        return same(operator, f"{name}, 128", methodcaller(name, *given), kind="positive")
    return same(operator, f"{name}, 128", lambda x, y: getattr(x, name)(y), ((128,),) * 2, kind="positive")


def transform(name: str) -> Row:
    """Of complex numbers, in two tensors."""
    ours, theirs = getattr(F, name), getattr(torch.fft, name)
    return Row(name, "400", lambda x, y: ours(x, y)[0], {FRAMES: lambda x, y: theirs(torch.complex(x, y)).real},
               ((400,),) * 2)  # fmt: skip


def same(operator: str, label: str, call: Function, features: Any = ((128,),), **more: Any) -> Row:
    """One expression for both."""
    return Row(operator, label, call, {FRAMES: call}, features, **more)


def rows() -> list[Row]:
    """All of them, operators in the order of the registry where that is easy."""
    ds.manual_seed(0)
    linear = nn.Linear(256, 256)
    return [
        Row("linear", "256 → 256", linear, {FRAMES: twin(linear, torch.nn.Linear, 256, 256)}, ((256,),)),
        conv1d("256 → 256, kernel 5", 256, 256, 5),
        conv1d("256 channels by themselves, kernel 31", 256, 256, 31, 256),
        conv1d("1 → 64, kernel 31", 1, 64, 31),
        conv_transpose1d(128, 64, 4, 2),
        conv_transpose1d(512, 1, 512, 128),
        planes("conv2d", nn.Conv2d, torch.nn.Conv2d, 16, 16, 3),
        planes("conv2d", nn.Conv2d, torch.nn.Conv2d, 1, 16, 3),
        planes("conv2d", nn.Conv2d, torch.nn.Conv2d, 16, 16, 1),
        planes("conv2d", nn.Conv2d, torch.nn.Conv2d, 32, 32, 3, groups=32),
        planes("conv_transpose2d", nn.ConvTranspose2d, torch.nn.ConvTranspose2d, 16, 16, 3),
        norm("layer_norm", nn.LayerNorm(256), torch.nn.LayerNorm(256), FRAMES),
        norm("rms_norm", nn.RMSNorm(256), torch.nn.RMSNorm(256), FRAMES),
        norm("batch_norm", nn.BatchNorm1d(256).eval(), torch.nn.BatchNorm1d(256), CHANNELS),
        groups(8, 256),
        groups(1, 1024),
        Row("reduce_features", "channel norm by hand, 128", channel_norm_last,
            {CHANNELS: channel_norm, FRAMES: channel_norm_last}),
        recurrent("lstm", nn.LSTM, torch.nn.LSTM),
        recurrent("gru", nn.GRU, torch.nn.GRU),
        recurrent("rnn", nn.RNN, torch.nn.RNN),
        cell("lstm_cell", nn.LSTMCell, torch.nn.LSTMCell),
        cell("gru_cell", nn.GRUCell, torch.nn.GRUCell),
        cell("rnn_cell", nn.RNNCell, torch.nn.RNNCell),
        attention(),
        cross_attention(),
        embedding(),
        *experts(),
        *map(matmul, (8, 16, 32, 64)),
        by_heads(),
        *map(bmm, (4, 8, 16, 64)),
        resample(),
        # frames
        Row("pad", "4 before, 128", lambda x: F.pad(x, (0, 0, 4, 0)),
            {FRAMES: lambda x: T.pad(x, (0, 0, 4, 0))}),
        same("slice", "every second frame, 128", lambda x: x[:, ::2].clone(), unit=2),
        Row("delay", "4 frames, 128", nn.Delay(4, dim=1),
            {FRAMES: lambda x: T.pad(x, (0, 0, 4, 0))[:, : x.shape[1]]}),
        same("frame", "400 samples, 160 apart", lambda x: x.unfold(1, 400, 160).clone(), ((),), past=240,
             unit=160),
        same("frame", "windows of 3 of 64", lambda x: x.unfold(1, 3, 1).contiguous(), ((64,),), past=2),
        *map(pool, (nn.MaxPool1d, nn.AvgPool1d)),
        *[pool(layer, n, 1) for layer in (nn.MaxPool1d, nn.AvgPool1d) for n in (3, 31, 401)],
        same("repeat_frames", "twice, 128", lambda x: x.repeat_interleave(2, 1)),
        Row("overlap_add", "512 samples, 128 apart", nn.OverlapAdd(128), {CHANNELS: lambda x: T.fold(
            x, (1, 128 * (x.shape[-1] - 1) + 512), (1, 512), stride=(1, 128))[:, 0, 0]}, ((512,),)),
        Row("cumulative", "sum, 128", Channels(nn.CumulativeSum()), {FRAMES: lambda x: x.cumsum(1),
                                                                    CHANNELS: lambda x: x.cumsum(2)}),
        same("reduce_frames", "mean, 128", lambda x: x.mean(1)),
        same("var_frames", "128", lambda x: x.var(1, unbiased=False)),
        same("softmax_sum", "scores of each, 128", lambda x: (x.softmax(1) * x).sum(1)),
        # element by element
        *[method(name, kind) for kind, names in UNARY.items() for name in names],
        *[method(name, n_inputs=2) for name in BINARY],
        *[method(name, "positive", 2) for name in BINARY_POSITIVE],
        prelu(True),
        prelu(False),
        Row("where", "128", lambda x, y: ds.where(x > 0, x, y), {FRAMES: lambda x, y: torch.where(x > 0, x, y)},
            ((128,), (128,))),
        *[method(row.name, "bool", row.operands) for row in operations.LOGICAL],
        same("clamp", "128", lambda x: x.clamp(-1.0, 1.0)),
        same("nan_to_num", "128", lambda x: x.nan_to_num()),
        same("cast", "to int64, 128", lambda x: x.long()),
        *map(function, FUNCTIONS),
        *[function(name, dim=-1) for name in ("softmax", "log_softmax", "glu")],
        *[composed(name, operator) for name, operator in COMPOSED.items()],
        *[Row("rfft", f"{n}", lambda x: F.rfft(x)[0], {FRAMES: lambda x: torch.fft.rfft(x).real}, ((n,),))
          for n in (400, 512)],
        Row("irfft", "400", F.irfft, {FRAMES: lambda x, y: torch.fft.irfft(torch.complex(x, y))}, ((201,),) * 2),
        *map(transform, ("fft", "ifft")),
        # shapes within a frame
        Row("cat", "128 and 128", lambda x, y: ds.cat([x, y], -1), {FRAMES: lambda x, y: torch.cat([x, y], -1)},
            ((128,), (128,))),
        same("permute", "8 × 32", lambda x: x.transpose(2, 3).contiguous(), ((8, 32),)),
        same("reshape", "8 × 32 to 256", lambda x: x.reshape(x.shape[0], -1, 256), ((8, 32),)),
        same("narrow", "128, 32 of them", lambda x: x.narrow(2, 16, 32).clone()),
        same("pick", "128, backwards", lambda x: x.flip(2).clone()),
        same("expand", "128 × 1 to 128 × 4", lambda x: x.expand(-1, -1, -1, 4).clone(), ((128, 1),)),
        Row("nearest", "16 × 40 to 16 × 60",
            lambda x: F.interpolate(x.movedim(1, -1), scale_factor=(1.5, 1)).movedim(-1, 1),
            {"rows": lambda x: T.interpolate(x.flatten(0, 1), scale_factor=1.5).unflatten(0, x.shape[:2])},
            ((16, 40),)),
        Row("pad_features", "128 and 4 on each side", lambda x: F.pad(x, (4, 4)),
            {FRAMES: lambda x: T.pad(x, (4, 4))}),
        same("reduce_features", "mean of 128", lambda x: x.mean(-1)),
        same("reduce_features", "largest of 128", lambda x: x.amax(-1)),
        same("reduce_features", "variance of 128", lambda x: x.var(-1)),
        same("reduce_features", "product of 128", lambda x: x.prod(-1)),
        same("reduce_features", "norm of 128", lambda x: x.norm(dim=-1)),
        same("reduce_features", "logsumexp of 128", lambda x: x.logsumexp(-1)),
        same("topk", "median of 128", lambda x: x.median(-1).values),
        same("topk", "sorted 128", lambda x: x.sort(-1).values),
        same("cumulative_within", "sums of 128", lambda x: x.cumsum(-1)),
        same("cumulative_within", "products of 128", lambda x: x.cumprod(-1)),
        same("cumulative_within", "largest of 128", lambda x: x.cummax(-1).values),
        same("cumulative_within", "logcumsumexp of 128", lambda x: x.logcumsumexp(-1)),
        # two axes, and integers
        same("reduce_features", "sums down 7 × 33", lambda x: x.sum(2), ((7, 33),)),
        same("reduce_features", "largest down 2 × 64", lambda x: x.amax(2), ((2, 64),)),
        same("reduce_features", "where the largest of 128 integers is", lambda x: x.argmax(-1), kind="index"),
        same("cumulative_within", "sums of 128 integers", lambda x: x.cumsum(-1), kind="index"),
        same("maximum", "sizes of 128 integers", lambda x: x.abs(), kind="index"),
        same("div", "7 × 33 by 7 × 1", lambda x, y: x / y, ((7, 33), (7, 1))),
        same("mul", "7 × 1 and 1 × 33", lambda x, y: x * y, ((7, 1), (1, 33))),
        same("softmax", "down 7 × 33", lambda x: x.softmax(2), ((7, 33),)),
        Row("glu", "first of 8 × 33", lambda x: F.glu(x, 2), {FRAMES: lambda x: T.glu(x, 2)}, ((8, 33),)),
        Row("glu", "last of 33 × 8", F.glu, {FRAMES: T.glu}, ((33, 8),)),
        same("softmax", "along the middle of 3 × 5 × 17", lambda x: x.softmax(3), ((3, 5, 17),)),
        same("mul", "16 × 1 and 1 × 16", lambda x, y: x * y, ((16, 1), (1, 16))),
        same("relu", "of 7 × 33 transposed", lambda x: x.transpose(2, 3).relu(), ((7, 33),)),
        same("mul", "64 × 1 @ 1 × 64", lambda x, y: x @ y, ((64, 1), (1, 64))),
        Row("where", "hardshrink, 128", F.hardshrink, {FRAMES: T.hardshrink}),
    ]  # fmt: skip


#: By operator and label: why it is slower than torch's function, where that is known and stays so.
REASONS = {
    ("log1p", "128"): "by doubles, which fix its bits",
    ("softplus", "128"): "by doubles, which fix its bits",
    ("logsigmoid", "128"): "by doubles, which fix its bits",
    **dict.fromkeys(
        [("log", "128"), ("log2", "128"), ("log10", "128"), ("pow", "128")],
        "by doubles, which fix its bits and keep it within 0.502 units in the last place",
    ),
    **{
        (COMPOSED[name], f"{name}, 128"): "several operators, each a pass over the frames"
        for name in ("tan", "sinc", "isinf", "isfinite", *OF_TWO)
    },
    **dict.fromkeys(
        [("where", "hardshrink, 128"), ("maximum", "sizes of 128 integers")],
        "several operators, each a pass over the frames",
    ),
    ("relu", "of 7 × 33 transposed"): "torch's result is a view: its numbers lie as the input's, ours are moved",
    **dict.fromkeys(
        [("softmax", "down 7 × 33"), ("softmax", "along the middle of 3 × 5 × 17")],
        "frames are transposed for it, and back",
    ),
    ("reduce_features", "sums down 7 × 33"): "sums are in double, torch's in float",
    ("reduce_features", "product of 128"): "in double, four factors side by side",
    ("reduce_frames", "mean, 128"): "of a single feature: each of its sums in double waits for the one before",
    ("cumulative", "sum, 128"): "sums are in double, and kept for the next call",
    **dict.fromkeys(
        [("topk", "sorted 128"), ("topk", "median of 128")],
        "comparisons of random numbers, which no processor foresees: an insertion sort alone of 16 takes 0.12 µs",
    ),
    **dict.fromkeys(
        [
            ("narrow", "128, 32 of them"),
            ("cat", "128 and 128"),
            ("max_pool", "window 2, 128"),
            ("max_pool", "window 3, 128 at every frame"),
            ("nan_to_num", "128"),
            ("slice", "every second frame, 128"),
        ],
        "MBs of frames leave the cache between the copy from the caller, the operator, and the copy to the caller",
    ),
    ("pad_features", "128 and 4 on each side"): "frames are copied one by one: 2 ns for each of a single feature",
    ("gelu", "128"): "torch's error function is coarser: errors up to 1e-6, ours 4e-7",
    ("glu", "128"): "the gate and the product are two passes over each row",
    ("reduce_features", "mean of 128"): "sums are in double, torch's in float",
    ("reduce_features", "logsumexp of 128"): "of single features: four calls of kernels for up to 64 of them",
    ("logical_not", "128"): "by vectors of 16 bytes, which every processor has",
    ("reduce_features", "norm of 128"): "sums are in double, torch's in float",
    ("log_softmax", "128"): "a frame's sum is folded from sixteen lanes: 20 ns for each, in softmax too",
    ("reduce_features", "channel norm by hand, 128"): "sums are in double, torch's in float",
    ("conv2d", "16 → 16 on 40 rows, kernel 3"): "windows of planes are copied for one product",
    ("conv_transpose2d", "16 → 16 on 40 rows, kernel 3"): "one product for every pair of phases",
    (
        "attention",
        "8 heads of 64, blocks of 20",
    ): "every score is folded from sixteen lanes, whatever else is asked",
    ("cross_attention", "8 heads of 64, 50 tokens"): "as attention",
    ("softmax_sum", "scores of each, 128"): "sums are in double, frame by frame, so that chunks leave no trace",
    **dict.fromkeys(
        [
            ("matmul", label)
            for label in (*(f"8 matrices of {n} × {n}" for n in (8, 16, 32)), "einsum of 8 heads of 16")
        ],
        "each matrix goes through all frames, which leave the cache meanwhile",
    ),
    (
        "cumulative_within",
        "logcumsumexp of 128",
    ): "each value is raised by a call of kernels where there is one frame",
    ("conv2d", "32 → 32 on 40 rows, kernel 3, 32 groups"): "windows of planes are copied for one product",
    ("cast", "to int64, 128"): "20 MB of them leave the cache before they are copied to the caller",
    ("pick", "128, backwards"): "10 MB of them leave the cache before they are copied to the caller",
    ("reshape", "8 × 32 to 256"): "torch's is a view of its input; a stream's output is the caller's own",
}

#: Operators that have no row, and why; torch has nothing to compare some others with.
NO_ROW = {
    "adaptive_pool": "its windows follow from the length: what it gives, it gives at the end",
    "sort": "its frames are there at the end",
    "scan": "a loop of the forward's own: loops.py times some",
    **dict.fromkeys(("gru_within", "lstm_within", "rnn_within"), "those of gru, lstm and rnn, within each frame"),
}
