"""What does not stream, with the reason and what would work, as `docs/howto/refused.md` lists it.

Layers and functions take their words from here; those of indices, sizes and whole dimensions stand where these are
read, and a test holds the rows against what is raised.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ADAPTIVE",
    "BACKWARDS",
    "BATCH_STATISTICS",
    "CIRCULAR",
    "CIRCULAR_BOTH",
    "MASKED",
    "OVER_STREAM",
    "REFUSALS",
    "RESIZED",
    "SEES_ALL",
    "Refusal",
]


@dataclass(frozen=True)
class Refusal:
    """Something that is refused.

    Attributes
    ----------
    what : str
        As users write it; code stands in backticks, here and in the others.
    reason, remedy : str
        Why, and what would work: part of the message.
    waits : bool
        Whether ``unstreamable="buffer"`` lets it wait for the end of each stream.
    """

    what: str
    reason: str
    remedy: str
    waits: bool = False

    @property
    def words(self) -> tuple[str, str]:
        """Reason and remedy as messages have them."""
        return self.reason.replace("`", ""), self.remedy.replace("`", "")


BACKWARDS = Refusal(
    "bidirectional LSTM, GRU, RNN",
    "its backward direction begins at the stream's end",
    "use `bidirectional=False`",
    waits=True,
)
OVER_STREAM = Refusal(
    "GroupNorm, InstanceNorm over L",
    "takes its statistics over the whole stream, which its frames then use",
    "use `batch_norm` with running statistics, `layer_norm`, or `group_norm` on independent frames "
    "(B and L joined)",
    waits=True,
)
BATCH_STATISTICS = Refusal(
    "BatchNorm without running statistics",
    "its statistics are the batch's, over all streams and frames",
    "use `track_running_stats=True`, and `bn.eval()`",
)
CIRCULAR = Refusal(
    "circular padding of a convolution along L",
    "circular padding lays the stream's end before its start",
    'use `padding_mode="zeros"`, `"replicate"` or `"reflect"`',
    waits=True,
)
CIRCULAR_BOTH = Refusal(
    "circular padding of both axes of a Conv2d",
    CIRCULAR.reason,
    f"{CIRCULAR.remedy}, or circular padding of the other axis only",
    waits=True,
)
ADAPTIVE = Refusal(
    "adaptive pooling along L",
    "each of its parts depends on the stream's length",
    "pool with a fixed `kernel_size`, take `x.mean(dim)` for one vector per stream",
    waits=True,
)
RESIZED = Refusal(
    "`F.interpolate` along L by 1.5, or to a size",
    "its frames would not come at a fixed whole rate, or depend on the length",
    "use a whole `scale_factor`, 1 / k, or `nn.Resample`",
)
SEES_ALL = Refusal(
    "attention over whole streams",
    "every query sees the whole stream",
    "say what it sees: `is_causal=True`, or `context=` with a `ds.Context`",
    waits=True,
)
MASKED = Refusal(
    "`attn_mask=`, `key_padding_mask=` of attention",
    "a mask of a chunk's size says nothing of a stream",
    SEES_ALL.remedy,
)

REFUSALS = (
    SEES_ALL,
    MASKED,
    BACKWARDS,
    OVER_STREAM,
    BATCH_STATISTICS,
    CIRCULAR,
    CIRCULAR_BOTH,
    ADAPTIVE,
    RESIZED,
    Refusal("`F.pad` along L, circular", "a stream can't be padded with its own end", "use replicate or reflect"),
    Refusal(
        "softmax, flip, roll along L",
        "it is not among the operations that stream",
        "do it outside the forward",
    ),
    Refusal(
        "`x.cumsum(2)` along L",
        "it is not among the operations that stream",
        "`nn.CumulativeSum()` sums along the stream",
    ),
    Refusal(
        "`x[..., -1]`, any index of one frame",
        "one frame of a stream is neither its first nor its last for ever",
        "use a slice (`x[..., a:]`, `x[..., :-b]`, `x[..., ::k]`), or pick the frame outside the forward",
    ),
    Refusal(
        "`x[..., -9:]`",
        "a start counted from the end needs the whole stream",
        "give a start of 0 or more, or take the last frames outside the forward",
    ),
    Refusal(
        "`x[..., :9]`",
        "it ends at the constant position 9, after which the output would go on without frames",
        "use a stop counted from the end (`x[..., :-b]`) or another tensor's length (`x[..., :y.size(L)]`)",
    ),
    Refusal(
        "`if x.size(2) > 10`",
        "it can't be compared where streams answer differently",
        "in an assert, or an if whose body only raises, a comparison is checked when each stream ends",
    ),
    Refusal(
        "`int(x.size(2))`, `range(x.size(2))`, …",
        "the length of a stream is not a number while streams are open",
        "It serves in reshape, view, expand, slices and to index a table",
    ),
    Refusal(
        "`np.asarray(x)`, `x.numpy()`",
        "a NumPy array of a stream inside a forward",
        "read its frames outside the forward, where a call's frames are at hand",
    ),
    Refusal(
        "`x - x.mean(2, keepdim=True)`",
        "it would be known at the stream's end, when its frames have left",
        "use a statistic of each frame or of the frames so far; as an output, reduce the stream alone",
    ),
    Refusal(
        "`x.std(2)`, other reductions of L",
        "std over the stream",
        "`sum`, `mean`, `amax` and `amin` over it are available",
    ),
    Refusal("`x.sum(0)`, all reductions of B", "sum over the batch", "combine streams outside the forward"),
    Refusal(
        "`x + x[..., ::2]`",
        "operands of different rates",
        "bring them to one rate first (stride, `x[..., ::k]`, stacking, upsampling)",
    ),
    Refusal(
        "a constant with an extent along L",
        "has extent 9 where the stream has L",
        "it must be 1 there (`x.size(L)` indexes a table by position)",
    ),
    Refusal("`cat` along L", "cat along L", "`F.pad` adds frames; `cat` works along features"),
    Refusal(
        "`x @ y` of two streams",
        "this matrix product of two streams",
        "`x @ W` and `W @ x` mix features by a constant matrix W",
    ),
)
