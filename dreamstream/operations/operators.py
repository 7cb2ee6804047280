"""The operators of the C registry, a row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .elementwise import ELEMENTWISE
from .operator import Kind, Lanes, Operation, Operator, Rule, each
from .refusals import ADAPTIVE, AT_THE_END, BACKWARDS, CIRCULAR, IN_ORDER, OVER_STREAM, SEES_ALL


def _all(
    kind: Kind, *names: str, lanes: Lanes = "as they come", outside: Rule = "", **more: Any
) -> tuple[Operator, ...]:
    """Return rows of operators of which there is no more to say than what torch's of their name mean `outside`."""
    named = {name: each(outside, name, **more) if outside else () for name in names}
    return tuple(Operator(name, kind=kind, lanes=lanes, named=named[name]) for name in names)


def _of_kernels(a: Mapping[str, Any], shapes: Sequence[Any]) -> tuple[int, int, int]:
    return a.get("dilation", 1) * (a["kernel"] - 1) + 1, a["left"], a["right"]


_ROWS = (
    # products and recurrences
    Operator("router", kind="frame", written="the gates of `nn.gates`"),
    Operator("expert_linear", kind="frame", written="`nn.FMoELinear`, `nn.FMoE`"),
    Operator("combine", kind="frame", written="`nn.FMoE`"),
    Operator("scan", kind="carried", written="a loop over frames in a forward"),
    *_all("frame", "lstm_cell", "gru_cell", "rnn_cell"),
    *_all("frame", "linear", outside="linear"),
    *_all("frame", "embedding", outside="rows of tables"),
    *_all("frame", "matmul", lanes=""),
    Operator("bmm", kind="frame", written="`x @ y`, both streams", lanes="as they come"),
    *_all("window", "conv_transpose1d", outside="whole streams"),
    *_all("window", "conv_transpose2d", lanes="", outside="whole streams"),
    Operator(
        "conv1d", kind="window", lanes="as they come", whole=CIRCULAR, instead='padding_mode="zeros"',
        window=lambda a, shapes: (a["dilation"] * (shapes[0][2] - 1) + 1, a["left"], a["right"]),
        named=each("whole streams", "conv1d"),
    ),
    Operator(
        "conv2d", kind="window", whole=CIRCULAR, instead='padding_mode="zeros"',
        window=lambda a, shapes: (a["dilation"][0] * (shapes[0][2 + a["axis"]] - 1) + 1, *a["padding"][:2]),
        named=each("whole streams", "conv2d"),
    ),
    *(
        Operator(
            name, kind="carried", lanes="as they come", whole=BACKWARDS,
            instead="one direction behind nn.LookAhead(right, features), right frames late",
            named=each("whole streams", called),
        )
        for name, called in (("lstm", "lstm"), ("gru", "gru"), ("rnn", "rnn_tanh rnn_relu"))
    ),
    Operator(
        "attention", kind="window", written="`F.scaled_dot_product_attention`, `nn.MultiheadAttention`",
        named=each("whole streams", "multi_head_attention_forward scaled_dot_product_attention"),
        whole=SEES_ALL, instead="chunked attention, ds.Context(chunk=16, left=64), is 15 frames late",
    ),
    Operator(
        "cross_attention", kind="window",
        written="`F.scaled_dot_product_attention` with keys and values that are given once, or plain",
    ),
    Operator(
        "rotary", kind="window", written="`F.rotary_embedding`, `nn.RotaryEmbedding`", alone="not torch's",
        by_position=True,
    ),
    *(
        Operator(
            f"{name}_within",
            kind="frame",
            written=f"`nn.{name.upper()}` on `x.reshape(B * L, steps, features)`",
            lanes="as they come",
        )
        for name in ("lstm", "gru", "rnn")
    ),
    *_all("frame", "layer_norm", "rms_norm", outside="last dimensions"),
    *_all("frame", "batch_norm", outside="running statistics"),
    Operator(
        "group_norm", kind="window", whole=OVER_STREAM,
        instead="a cumulative norm, of nn.CumulativeMean of x and of x * x",
        named=each("whole streams", "group_norm"),
    ),
    # along the stream
    *_all("window", "pad", outside="pad"),
    *_all("window", "repeat_frames"),
    *_all("window", "frame", "resample", lanes=""),
    *_all("window", "overlap_add", lanes="behind"),
    Operator(
        "max_pool", kind="window", lanes="behind", window=_of_kernels,
        named=each(
            "whole streams", "max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices "
            "max_pool3d_with_indices",
        ),
    ),
    Operator(
        "avg_pool", kind="window", lanes="behind", window=_of_kernels,
        named=each("whole streams", "avg_pool1d avg_pool2d avg_pool3d"),
    ),
    Operator(
        "adaptive_pool", kind="window", lanes="behind", whole=ADAPTIVE,
        instead="pooling with a fixed kernel_size, or nn.CumulativeMean",
        named=each(
            "whole streams", "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d "
            "adaptive_max_pool2d",
        ),
    ),
    Operator(
        "cumulative", kind="carried", written="`x.cumsum(L)`, `x.cumprod(L)`, `x.cummax(L)`, `x.logcumsumexp(L)`, "
        "`nn.CumulativeMean`", lanes="as they come", by_position=True,
    ),
    Operator("slice", kind="window", written="`x[..., a:-b:k]` along L", lanes="as they come"),
    Operator(
        "pad_to_multiple", kind="window", alone="adds frames at the end of a stream only", lanes="as they come"
    ),
    Operator(
        "pad_to", kind="window", written="`F.pad(x, (0, n))` with an `n` computed of lengths",
        alone="adds frames until another stream's length; a pad, which has a row",
    ),
    Operator(
        "put", kind="window", written="`x[..., a:-b:k] = y` along L",
        alone="frames of two streams side by side; their values stay",
    ),
    Operator("delay", kind="window", alone="lets frames come late; their values stay", lanes="as they come"),
    Operator(
        "unstack", kind="window", alone="a stack of frames, one after the other: the same bytes", lanes="behind"
    ),
    Operator(
        "cut", kind="window", written="`x[..., : y.size(L)]`",
        alone="gives a stream the length of another one; a slice, which has a row",
    ),
    Operator(
        "table", kind="window", written="`table[: x.size(L)]`, with a `table` that is no stream",
        alone="a constant by position; ends with its table, so that no step of it can be repeated",
    ),
    Operator(
        "positions", kind="window", written="`arange(x.size(L))`, where it meets frames",
        alone="numbers by position; an arange, which is no operator of torch's on streams", by_position=True,
    ),
    Operator(
        "reduce_frames", kind="carried", written="`x.sum(L)`, `x.mean(L)`, `x.prod(L)`, `x.max(L)`, "
        "`x.argmax(L)`, `x.logsumexp(L)`", lanes="as they come", by_position=True, chooses="one",
    ),
    Operator(
        "var_frames", kind="carried", written="`x.var(L)`, `x.std(L)`", lanes="as they come", by_position=True,
    ),
    Operator(
        "softmax_sum", kind="carried", written="`(a.softmax(L) * x).sum(L)`, `a.softmax(L) @ x`",
        lanes="as they come",
    ),
    Operator(
        "spread", kind="window",
        written="`x - x.mean(L, keepdim=True)`, and other frames that meet what is known at the end",
        alone="a value once for every frame of another stream", whole=AT_THE_END,
        instead="a statistic of the frames so far, by nn.CumulativeMean",
    ),
    Operator(
        "flip", kind="window", written="`x.flip(L)`", alone="moves frames, all of them at the stream's end",
        lanes="as they come", whole=AT_THE_END, named=each("along", "flip", arguments=("dims",)),
    ),
    Operator(
        "sort", kind="window", written="`x.sort(L)`, `x.median(L)`, `x.quantile(q, L)`, `x.topk(k, L)`",
        lanes="as they come", by_position=True, whole=IN_ORDER, instead="extremes, and where they are",
        named=each("along", "sort", arguments=("dim",), default=-1),
    ),
    Operator(
        "sync", kind="window",
        written="nothing: the door sets one wherever streams meet that progress differently",
        alone="lets branches wait for each other; computes nothing, and rewrites take it out where none waits",
    ),
    Operator(
        "hold", kind="window",
        written="nothing: the door sets one wherever an input that is given once meets a stream's frames",
        alone="gives a value to every frame; its values stay",
    ),
    Operator(
        "limit", kind="frame",
        written="`buffer_limit=` of `ds.patch_module` and `ds.compile`: it stands before what waits",
        alone="refuses streams that are too long; computes nothing", lanes="as they come",
    ),
    Operator(
        "unless_empty", kind="frame", written="nothing: it stands where torch refuses a tensor without frames",
        alone="a stream as it is; computes nothing", lanes="as they come",
    ),
    Operator(
        "length", kind="window", written="`x.size(L)`, where a forward returns it",
        alone="one integer of a stream; no frame is read", by_position=True,
    ),
    Operator(
        "require", kind="window",
        written="`assert x.size(L) == y.size(L)`, and other comparisons of lengths that lead to an exception",
        alone="refuses streams whose lengths don't compare as they must; no frame is read", by_position=True,
    ),
    # within a frame
    *_all("frame", "rfft", "irfft", "fft", "ifft"),
    *_all("frame", "softmax", "log_softmax", outside="along", arguments=("dim",)),
    *_all("frame", "glu", outside="along", arguments=("dim",), default=-1),
    *_all("frame", "reshape", lanes="shape", outside="reshaped", shares=True),
    *_all("frame", "expand", lanes="shape", outside="repeated", shares=True),
    *_all("frame", "nearest", "pad_features", lanes="axis"),
    Operator(
        "topk", kind="frame", lanes="as they come", chooses="several",
        named=each("along", "topk", arguments=("k", "dim"), default=-1),
    ),
    *_all("frame", "gather", outside="gather"),
    *_all("frame", "permute", lanes="", outside="permuted", shares=True),
    Operator(
        "reduce_features", kind="frame", written="`x.sum(d)`, `x.mean(d)` and all other reductions along features",
        lanes="axes", chooses="one",
    ),
    Operator(
        "cumulative_within", kind="frame", written="`x.cumsum(d)`, `x.cumprod(d)`, `x.cummax(d)`, "
        "`x.logcumsumexp(d)` along features", lanes="axis",
    ),
    Operator(
        "narrow", kind="frame", written="`x[..., a:b:k]` along features", lanes="axis",
        named=each("narrow", "narrow", shares=True),
    ),
    Operator(
        "cat", kind="frame", written="`ds.cat([x, y], d)` along features", lanes="axis",
        named=(Operation("cat", "cat", ("concat", "concatenate")),),
    ),
    Operator(
        "pick", kind="frame", written="`x.index_select(d, i)`, `x.flip(d)`, `x.roll(n, d)` along features",
        lanes="axis",
    ),
    # elements of other types
    Operator("cast", lanes="as they come"),
    Operator("where", written="`ds.where(condition, a, b)`"),
)  # fmt: skip

#: By name.
OPERATORS: dict[str, Operator] = {row.name: row for row in (*_ROWS, *ELEMENTWISE.values())}


def row_of(name: str) -> Operator:
    """Return an operator's row; that of a declared operator says nothing."""
    return OPERATORS.get(name) or Operator(name)
