"""What does not stream, with the reason and what would work, where layers and functions of several files say so.

`docs/howto/refused.md` lists these and what indices, sizes and whole dimensions are refused for.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """Something that is refused."""

    what: str  #: As users write it; code stands in backticks, here and in the others.
    #: Why, and what would work: part of the message.
    reason: str
    remedy: str
    waits: bool = False  #: Whether ``unstreamable="buffer"`` lets it wait for the end of each stream.

    @property
    def words(self) -> tuple[str, str]:
        """Reason and remedy as messages have them."""
        return self.reason.replace("`", ""), self.remedy.replace("`", "")

    @property
    def text(self) -> str:
        """Both, behind the colon of a message."""
        return "; ".join(self.words)


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
CUSTOM = Refusal(
    "the backward of a `torch.autograd.Function` of several frames, in training",
    "its values or its gradients depend on other frames than their own, of which a call has some only",
    "write a Function of single frames, leave its gradient to torch, or run in evaluation",
)
DRAWN = Refusal(
    "random numbers that all frames of a file share: `x * torch.rand(16)`, dropout of weights, "
    "layers that are skipped",
    "each chunk of a file would get others",
    "draw them outside the forward and give them with the stream's start, or give whole files in one call",
)
FREQUENCIES = Refusal(
    "`F.embedding(x, w, scale_grad_by_freq=True)` in training",
    "how often an index occurs is counted over a whole file",
    "give whole files in one call, or leave it out",
)
GRADIENTS = Refusal(
    "gradients inside a forward: `x.register_hook(f)`, `register_backward_hook`, `x.retain_grad()`, `x.grad_fn`, "
    "`torch.autograd.grad(y, x)`, `torch.func.grad`",
    "the gradient of a stream's frames is that of all their calls, which no tensor inside a forward holds",
    "ask for gradients of inputs and outputs outside the forward, or write a `torch.autograd.Function` of single "
    "frames",
)
RESIZED = Refusal(
    "`F.interpolate` along L by 1.5, or to a number of frames",
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
OF_VALUES = Refusal(
    "masks of attention that are computed of the stream", "its mask depends on the frames' values", SEES_ALL.remedy
)
AT_THE_END = Refusal(
    "what its frames use of a whole stream: `x - x.mean(2, keepdim=True)`, squeeze-excite, `x.softmax(2)`, "
    "`x.flip(2)`",
    "it is known at the stream's end, when its frames have left",
    "use a statistic of each frame or of the frames so far, or return both and combine them outside the forward",
    waits=True,
)
IN_ORDER = Refusal(
    "`x.sort(2)`, `x.median(2)`, `x.quantile(0.9, 2)`, `x.topk(5, 2)`, `x.kthvalue(3, 2)`: frames in order",
    "which frame is first in order is known at the stream's end",
    "use `x.amax(2)`, `x.argmax(2)`, or other statistics that are computed as frames come",
    waits=True,
)
PLACES = Refusal(
    "`(index == e).nonzero()`, `torch.where(mask)`, `x[mask]`, `out.index_add_(0, frames, y)`, `bincount`: frames "
    "that a loop picks, as those of an expert",
    "which frames it picks, and how many, depends on values",
    "`torch.where(mask, x, y)` streams, and a loop over experts through `@ds.register` "
    "(`dreamstream.torch.functional.expert_linear`, `combine`)",
)
LOOPS = Refusal(
    "frames that are not gone through by a `for` of the forward's own source, or given back as a list: "
    "`return [f(frame) for frame in x.unbind(1)]`, `map(f, x.unbind(1))`",
    "which frames there are is known when the stream has ended",
    "go through them by `for`, and give what the loop gathers to `torch.stack` or `torch.cat`",
)
LOOPS_LEFT = Refusal(
    "`break` and `return` in a loop over frames",
    "it leaves the loop at another frame in each stream",
    "compute on, and choose with `torch.where`",
)
LOOPS_BACKWARDS = Refusal(
    "a loop over frames that goes backwards: `reversed(range(x.size(1)))`, `range(T - 1, -1, -1)`",
    "it begins at the stream's end",
    "go forwards, or give the frames in the other order from outside",
)
LOOPS_TO_LAST = Refusal(
    "`if t == T - 1` in a loop over frames",
    "whether a frame is the last one is known when the stream has ended",
    "do behind the loop what is of the last frame alone; pad the stream where the frame after it is read",
)
LOOPS_GROW = Refusal(
    "what a loop over frames has gathered so far, in the loop: `torch.stack(ys)`, `for y in ys`",
    "it grows with every frame",
    "keep a fixed number of frames, or use attention with a context",
)
LOOPS_CHANGE = Refusal(
    "a loop over frames that carries what changes its kind or shape in every frame: "
    "`h = torch.cat([h, x[:, t]], 1)`",
    "no state of a fixed size holds it",
    "append frames to a list that is a variable, and stack it after the loop; keep a fixed number of frames, or "
    "use attention with a context",
)
LOOPS_NUMBERS = Refusal(
    "a loop over frames that carries a number of Python which differs from frame to frame: `k = t` in an if",
    "what differs from frame to frame is a tensor",
    "begin with `k = x.new_zeros(x.size(0), 1)` before the loop, and in it write `k = k * 0 + t`",
)
LOOPS_WHILE = Refusal(
    "`while t < T: h = f(x[:, t], h); t += 1`, with T a stream's length",
    "which frames it goes through is known when the stream has ended",
    "write `for t in range(T)`",
)
LOOPS_ELSEWHERE = Refusal(
    "what a loop over frames keeps in an attribute, or in a variable of another function: "
    "`self.h = self.cell(x[:, t], self.h)`",
    "what goes from frame to frame is seen in variables of the loop's own function alone",
    "carry it in a variable, and assign the attribute after the loop",
)
LOOPS_WHOLE = Refusal(
    "in a loop over frames, a layer that needs more than one frame, or a whole stream: `self.conv(x[:, t])`",
    "the loop is at one frame",
    "apply it to the whole stream before or after the loop",
)
KEPT = Refusal(
    "`self.h = h` after `self.h` was read, frames assigned to a registered buffer: a cache that a forward "
    "keeps for its next call",
    "it would hold the frames of another call, or of other streams",
    "take earlier frames from the stream itself, whose slices reach back across calls (`F.pad(x, (4, 0))`, "
    "`x[..., :-1]`); what layers need again is kept for them",
)

__all__ = ["Refusal", *(name for name, found in list(globals().items()) if isinstance(found, Refusal))]
