"""How torch computes an operator: what a kernel is given, and the table of all kernels.

A kernel does arithmetic on values and nothing else: which frames there are, which are kept and when they
leave come from the operator's C integers. There are two kinds.

A *framewise* kernel sees every frame by itself: ``fn(step, *values, *weights)``, where a value has any
leading dimensions and then its features, and gives a value (or a tuple) with the same leading dimensions.

A *windowed* kernel sees the frames that each row may read: ``fn(step, *windows, *weights)``, and gives an output
(or a tuple): new frames ``(B, n, *features)``, of which each row's first ``counts`` are valid, or in eager mode
the valid ones alone, ``(frames of all rows, *features)``. One that *carries* something from call to call, a tuple
of tensors ``(B, ...)``, is ``fn(step, windows, weights, state)`` and gives ``(outputs, state)``; `carries` makes
what is carried, for one row that starts. Where no row has new frames of any output, only such ones are called.

Kernels use torch's functions alone, no Python loop over rows and no number read from a tensor, so that they run
on any device, under autograd and in an exported graph. Positions are int64 tensors on the host in eager mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor


class Window(Protocol):
    """The frames of one input that an operator may read, for every row by absolute position."""

    #: (B,) int64: known and total of the input after this call, its frames known before it.
    known: Tensor
    total: Tensor
    before: Tensor
    #: Whether all rows have equally many new frames.
    even: bool

    def run(self, first: Tensor | int, n: int, fill: float = 0.0) -> Tensor:
        """Return n consecutive frames ``(B, n, *features)`` from the absolute position ``first (B,)`` on.

        A number is the position of all rows.

        Positions of which the row has no frame hold `fill`: before 0, before the first that is kept, and
        from known on.
        """

    def take(self, positions: Tensor, fill: float = 0.0) -> Tensor:
        """Return the frames at absolute ``positions (B, n)``, likewise."""

    def joined(self, first: Tensor, lengths: Tensor, fill: float = 0.0) -> Tensor:
        """Return runs of all rows ``(frames, *features)``, one behind the other; in eager mode only."""

    def new(self) -> tuple[Tensor, Tensor]:
        """Return this call's frames ``(B, most, *features)``, zeros behind each row's, and how many ``(B,)``."""


@dataclass
class Step:
    """One operation on all rows of a call."""

    name: str  #: The operator.
    attributes: dict[str, Any]  #: As the operator's C definition names them, defaults filled in.
    frames: tuple[tuple[int, ...], ...]  #: Shape of one frame of each value input.
    features: tuple[tuple[int, ...], ...]  #: Shape of one frame of each output.
    #: ``(B,)`` int64 per output: absolute position of its first new frame. A number holds for all rows; kernels
    #: that take those (`windowed`) are given nothing else of rows.
    first: list[Any] = field(default_factory=list)
    last: list[Tensor] = field(default_factory=list)  #: ``(B,)`` int64 per output: where its new frames end.
    n: list[int] = field(default_factory=list)  #: Per output: the most new frames of any row.
    #: Gives ``(B,)`` int64: how many frames the first input, which may only be counted, would have in all now.
    total: Callable[[], Tensor] | None = None
    ended: Tensor | None = None  #: ``(B,)`` bool: whether the stream ends with this call.
    training: bool = False  #: Whether a gradient may be wanted.
    device: Any = None  #: Where values are; None where positions are there too.
    #: ``(B,)`` uint64: what follows of rows that draw as their frames say, and not as torch's generator does.
    keys: Any = None
    live: bool = False  #: Whether this is a call at whose numbers a kernel may look, not a graph for any.

    #: The number of feature axes of each value input.
    ranks: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.ranks = tuple(map(len, self.frames))


def as_they_are(frames: Tensor, *_: Any) -> Tensor:
    """Return frames; the arithmetic of what only moves them."""
    return frames


State = tuple[Tensor, ...]
#: What a windowed kernel of one input reads: from which position on, how many frames, what stands where there is
#: none; and its arithmetic, ``fn(frames, *weights)``. Where that has methods `windows` and `of_windows`, as with
#: convolutions, an evaluation may lay windows side by side for it.
Seen = tuple[Any, int, float, Callable[..., Tensor]]
Sees = Callable[[Step, Sequence[Any]], Seen]
#: ``fn(frames (B, n, *features), lengths (B,), weights, state) -> (values of output 0, state)``; the lengths are
#: None where all rows have n frames. With `Kernel.all_outputs` frames and values are lists, and all rows have n.
Onwards = Callable[[Any, "Tensor | None", Sequence[Any], Sequence[Tensor]], tuple[Any, Sequence[Tensor]]]


@dataclass(frozen=True)
class Kernel:
    """A kernel and, where it carries tensors from call to call, what makes those of a row that starts."""

    run: Callable[..., Any]  #: What computes it; see the module.
    framewise: bool
    #: Whether, or by ``fn(step)``, it takes Python numbers for ``step.first`` where rows stand at the same place.
    numbers: bool | Callable[[Step], bool] = False
    #: ``fn(step, weights, like) -> tuple of (1, ...)`` tensors on `like`'s device; those that hold frames' values
    #: have its dtype.
    carries: Callable[[Step, Sequence[Tensor | None], Tensor], State] | None = None
    #: After how many frames of its output it does the same again, if frames that aren't there are zeros; 0 where
    #: it looks at positions. ``fn(step, weights) -> int`` where attributes decide.
    repeats: int | Callable[[Step, Sequence[Tensor | None]], int] = 0
    #: ``fn(step, weights)`` gives a framewise kernel that serves in a call, where windows are of one frame.
    alone: Callable[[Step, Sequence[Any]], Callable[..., Any] | None] | None = None
    #: ``fn(step, weights)`` gives what a kernel that carries does where no stream begins or ends, if it sees new
    #: frames alone, else None; see `Onwards`.
    onwards: Callable[[Step, Sequence[Any]], Onwards | None] | None = None
    #: Whether `onwards` takes all inputs, and gives all outputs, which have equally many frames.
    all_outputs: bool = False
    sees: Sees | None = None  #: ``fn(step, weights)`` says what a windowed kernel of one input does; see `Seen`.
    #: Whether a windowed kernel reads no values, and makes each frame of its position and of weights.
    of_positions: bool = False
    #: ``fn(attributes)`` says by how many frames the output's count is greater than the input's (padding in front
    #: adds some, a slice from a start on drops some), where its frames are the input's own; else None.
    shift: Callable[[dict[str, Any]], int | None] | None = None

    def period(self, step: Step, weights: Sequence[Any]) -> int:
        """Return after how many frames of its output it does the same again; see `repeats`."""
        return self.repeats if isinstance(self.repeats, int) else self.repeats(step, weights)


KERNELS: dict[str, Kernel] = {}


def framewise(*names: str, **kind: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a framewise kernel under the names of its operators; `kind` has what else `Kernel` says of it."""
    return _enter(names, framewise=True, **kind)


def each_frame(rows: Mapping[str, Callable[..., Any]]) -> None:
    """Enter framewise kernels of one line, by the names of their operators."""
    for name, fn in rows.items():
        framewise(name)(fn)


def windowed(*names: str, **kind: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a windowed kernel under the names of its operators; `kind` has what else `Kernel` says of it."""
    return _enter(names, framewise=False, **kind)


def _enter(names: Sequence[str], **kind: Any) -> Callable[..., Any]:
    def keep(fn: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            if name in KERNELS:
                raise ValueError(f"two kernels for {name}")
            KERNELS[name] = Kernel(fn, **kind)
        return fn

    return keep
