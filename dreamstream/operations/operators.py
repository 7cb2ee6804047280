"""The operators of the C registry, a row each."""

from __future__ import annotations

from .elementwise import ELEMENTWISE
from .operator import Kind, Operator

__all__ = ["OPERATORS", "Operator"]


def _all(kind: Kind, *names: str) -> tuple[Operator, ...]:
    """Return rows of operators of which there is no more to say."""
    return tuple(Operator(name, kind=kind) for name in names)


_ROWS = (
    # products and recurrences
    Operator("router", kind="frame", written="the gates of `nn.gates`"),
    Operator("expert_linear", kind="frame", written="`nn.FMoELinear`, `nn.FMoE`"),
    Operator("combine", kind="frame", written="`nn.FMoE`"),
    *_all("frame", "linear", "matmul", "embedding", "lstm_cell", "gru_cell", "rnn_cell"),
    *_all("window", "conv1d", "conv_transpose1d", "conv2d", "conv_transpose2d"),
    *_all("carried", "lstm", "gru", "rnn"),
    Operator("attention", kind="window", written="`F.scaled_dot_product_attention`, `nn.MultiheadAttention`"),
    Operator(
        "cross_attention",
        kind="window",
        written="`F.scaled_dot_product_attention` with keys and values that are given once, or plain",
    ),
    Operator("rotary", kind="window", written="`F.rotary_embedding`, `nn.RotaryEmbedding`", alone="not torch's"),
    *(
        Operator(
            f"{name}_within", kind="frame", written=f"`nn.{name.upper()}` on `x.reshape(B * L, steps, features)`"
        )
        for name in ("lstm", "gru", "rnn")
    ),
    *_all("frame", "layer_norm", "rms_norm", "batch_norm"),
    *_all("window", "group_norm"),
    # along the stream
    *_all("window", "pad", "frame", "repeat_frames", "overlap_add", "resample"),
    *_all("window", "max_pool", "avg_pool", "adaptive_pool"),
    *_all("carried", "cumulative"),
    Operator("slice", kind="window", written="`x[..., a:-b:k]` along L"),
    Operator("pad_to_multiple", kind="window", alone="adds frames at the end of a stream only"),
    Operator(
        "pad_to",
        kind="window",
        written="`F.pad(x, (0, n))` with an `n` computed of lengths",
        alone="adds frames until another stream's length; a pad, which has a row",
    ),
    Operator(
        "put",
        kind="window",
        written="`x[..., a:-b:k] = y` along L",
        alone="frames of two streams side by side; their values stay",
    ),
    Operator("delay", kind="window", alone="lets frames come late; their values stay"),
    Operator("unstack", kind="window", alone="a stack of frames, one after the other: the same bytes"),
    Operator(
        "cut",
        kind="window",
        written="`x[..., : y.size(L)]`",
        alone="gives a stream the length of another one; a slice, which has a row",
    ),
    Operator(
        "table",
        kind="window",
        written="`table[: x.size(L)]`, with a `table` that is no stream",
        alone="a constant by position; ends with its table, so that no step of it can be repeated",
    ),
    Operator(
        "positions",
        kind="window",
        written="`arange(x.size(L))`, where it meets frames",
        alone="numbers by position; an arange, which is no operator of torch's on streams",
    ),
    Operator("reduce_frames", kind="carried", written="`x.sum(L)`, `x.mean(L)`, `x.amax(L)`, `x.amin(L)`"),
    Operator("var_frames", kind="carried", written="`x.var(L)`, `x.std(L)`"),
    Operator("softmax_sum", kind="carried", written="`(a.softmax(L) * x).sum(L)`, `a.softmax(L) @ x`"),
    Operator(
        "spread",
        kind="window",
        written="`x - x.mean(L, keepdim=True)`, and other frames that meet what is known at the end",
        alone="a value once for every frame of another stream",
    ),
    Operator("flip", kind="window", written="`x.flip(L)`", alone="moves frames, all of them at the stream's end"),
    Operator(
        "sync",
        kind="window",
        written="nothing: the door sets one wherever streams meet that progress differently",
        alone="lets branches wait for each other; computes nothing, and rewrites take it out where none waits",
    ),
    Operator(
        "hold",
        kind="window",
        written="nothing: the door sets one wherever an input that is given once meets a stream's frames",
        alone="gives a value to every frame; its values stay",
    ),
    Operator(
        "limit",
        kind="frame",
        written="`buffer_limit=` of `ds.patch_module` and `ds.compile`: it stands before what waits",
        alone="refuses streams that are too long; computes nothing",
    ),
    Operator(
        "length",
        kind="window",
        written="`x.size(L)`, where a forward returns it",
        alone="one integer of a stream; no frame is read",
    ),
    Operator(
        "require",
        kind="window",
        written="`assert x.size(L) == y.size(L)`, and other comparisons of lengths that lead to an exception",
        alone="refuses streams whose lengths don't compare as they must; no frame is read",
    ),
    # within a frame
    *_all("frame", "rfft", "irfft", "fft", "ifft"),
    *_all("frame", "softmax", "log_softmax", "glu", "permute", "reshape", "expand", "nearest", "pad_features"),
    Operator(
        "reduce_features",
        kind="frame",
        written="`x.sum(d)`, `x.mean(d)` and all other reductions along features",
    ),
    *_all("frame", "topk", "gather"),
    Operator("narrow", kind="frame", written="`x[..., a:b:k]` along features"),
    Operator("cat", kind="frame", written="`ds.cat([x, y], d)` along features"),
    Operator("pick", kind="frame", written="`x.index_select(d, i)`, `x.flip(d)`, `x.roll(n, d)` along features"),
    # elements, with arguments or of other types
    Operator("gelu", torch="nn.functional.gelu", takes=("approximate",)),
    Operator("clamp", torch="clamp", takes=("min", "max")),
    Operator("softplus", torch="nn.functional.softplus", takes=("beta", "threshold")),
    Operator("elu"),
    Operator("cast"),
    Operator("where", written="`ds.where(condition, a, b)`"),
    Operator("logical_not", torch="logical_not", written="`x.logical_not()`"),
    Operator("logical_and"),
    Operator("logical_or"),
)

#: By name.
OPERATORS: dict[str, Operator] = {row.name: row for row in (*_ROWS, *ELEMENTWISE.values())}
