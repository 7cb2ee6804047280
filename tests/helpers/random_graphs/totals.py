"""Frame counts of a forward for many lengths at once, without values.

`Totals` is an entry like an eager call or a capture: tensors made by it pass through the forward as it is
written, and each of its edges carries the counts of all rows. Every row is a stream that has got some
frames of each input, and may have ended with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dreamstream.array.library import NATIVE
from dreamstream.array.stream_tensor import StreamTensor
from dreamstream.errors import DreamStreamError
from dreamstream.stream.edge import Edge, Line, Request, lines_of
from dreamstream.stream.rules import entry

LAYOUTS = {"BFL": ("B", 0, "L"), "BLF": ("B", "L", 0), "LBF": ("L", "B", 0)}


@dataclass(frozen=True)
class Input:
    """One input of a model: name, rate, features, and the order of its dimensions."""

    name: str
    rate: Fraction
    size: int
    layout: str

    @property
    def dims(self) -> tuple[Any, ...]:
        """The dimensions, features numbered."""
        return LAYOUTS[self.layout]

    @property
    def spec(self) -> tuple[Any, ...]:
        """The dimensions as `compile` takes them."""
        return tuple(self.size if isinstance(d, int) else d for d in self.dims)


class Totals:
    """An entry that counts.

    Parameters
    ----------
    inputs : sequence of Input
    frames : (rows, inputs) array_like of int
        Frames of each input so far.
    ended : bool
        Whether the streams end with these frames.
    """

    meta = None
    places = None
    library = NATIVE
    guard = None
    buffers = True

    def __init__(
        self, inputs: Sequence[Input], frames: Any, ended: bool = False, buffer_limit: int | None = None
    ) -> None:
        self.frames = np.array(frames, np.int64).reshape(-1, len(inputs))
        self.ended = np.full(len(self.frames), ended)
        self.buffer_limit = buffer_limit
        self.ids = [str(r) for r in range(len(self.frames))]
        self.n_operations = 0
        self.operators: set[str] = set()
        self.refused: set[int] = set()  # rows that a check refuses
        self.met: list[Any] = []  # per sync, the totals that met there: (rows, inputs)
        self.pooled: list[
            Any
        ] = []  # per operation that makes one frame of all, the totals of its input and output
        self.tensors = []
        for i, x in enumerate(inputs):
            counts = np.zeros((len(self.frames), 4), np.int64)
            counts[:, 2:] = self.frames[:, i : i + 1]
            counts[:, 1] = -1
            counts[~self.frames.any(1) & ~self.ended, 3] = -1  # these streams have not begun
            edge = Edge(self, Line(entry(i), x.rate, "float32", (x.size,)), counts)
            self.tensors.append(StreamTensor.inside(None, x.dims, edge))

    def run(self, request: Request) -> list[tuple[Any, Edge]]:
        """Count the frames of one operation's outputs."""
        op, edges = request.op, request.edges
        inputs = [e.counts for e in edges]
        if request.name == "sync":
            self.met.append(np.stack([c[:, 3] for c in inputs], 1))
        try:
            outputs = op.counts(inputs, self.ended, self.ids)
        except DreamStreamError as error:
            rows = [int(i) for i in error.ids]
            self.refused.update(rows)
            inputs = [c.copy() for c in inputs]
            for c in inputs:
                c[rows] = 0, -1, 0, -1
            outputs = op.counts(inputs, self.ended, self.ids)
        if any(num == 0 for _, _, num, _ in op.outputs) and edges[0].rate:
            self.pooled.append((inputs[0][:, 3], outputs[-1][:, 3]))
        lines = lines_of(op, edges, self.n_operations, request.cid)
        self.n_operations += 1
        self.operators.add(request.name)
        return [(None, Edge(self, line, counts)) for line, counts in zip(lines, outputs)]

    def misuse(self, message: str, rest: str | None = None) -> Exception:
        """Return the exception for a use that streams can't have."""
        return AssertionError(f"the model misuses a size: {message}{rest}")

    def cut_short(self) -> set[int]:
        """Rows in which a stream of no frames met one with some: then nothing comes out."""
        return {int(r) for m in self.met for r in np.flatnonzero((m.min(1) <= 0) & (m.max(1) > 0))}

    def pooled_nothing(self) -> set[int]:
        """Rows in which one frame was to be made of none, and can't be: there is none."""
        return {int(r) for _, made in self.pooled for r in np.flatnonzero(made < 0)}

    def pooled_of_nothing(self) -> set[int]:
        """Rows in which one frame was made of none: a mean is NaN."""
        return {int(r) for n, _ in self.pooled for r in np.flatnonzero(n <= 0)}

    def would_broadcast(self) -> set[int]:
        """Rows in which a stream of one frame met longer ones: plain tensors broadcast, streams don't."""
        return {int(r) for m in self.met for r in np.flatnonzero((m == 1).any(1) & (m.max(1) > 1))}
