"""Operators declared in Python on torch's values, and layers that wait for the whole stream.

Both run row by row, in eager mode: `ds.Op` calls its forward on each stream's window, and a buffered layer is run
on each stream that has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ... import _core
from ...array.hook import run as run_native
from ...array.stream_tensor import StreamTensor as Native
from ...errors import ModeError, NotStreamableError, ShapeError
from ...online.declared import Op, Window, set_foreign
from ...stream.edge import Request
from ...stream.rules import same_lineage
from ...stream.where import user_line
from ..forward.mode import current
from ..private import pytree
from ..tensor import StreamTensor
from ..tensor.padding import as_rows
from .kernels import Kernel, Step
from .windows import EagerWindow

__all__ = ["buffered"]

Tensor = torch.Tensor


class _Bound:
    """A declared operator for given inputs: what a call runs."""

    whole = lockstep = carries = same_counts = False
    in_python = True
    attributes: dict[str, Any] = {}  # noqa: RUF012  (never written to)

    def __init__(self, name: str, core: _core.Op, forward: Callable[..., Any]) -> None:
        self.name, self.forward = name, forward
        self.outputs, self.n_values = core.outputs, core.n_values
        self.counts, self.kept = core.counts, core.kept
        self.kernel = Kernel(self._run, False)

    def _run(
        self, step: Step, windows: Sequence[EagerWindow], weights: Sequence[Any], state: Any
    ) -> tuple[tuple[Tensor, ...], Any]:
        assert step.ended is not None
        lengths = np.zeros(len(step.ended), np.int64)
        parts = []
        first, now = step.first[0].tolist(), step.last[0].tolist()
        for r, (m0, m1) in enumerate(zip(first, now)):
            lengths[r] = m1 - m0
            if m1 > m0:
                seen = [w.row(r, bool(step.ended[r])) for w in windows]
                parts.append(
                    self._checked(self.forward(*(Window(*s) for s in seen), m0, m1), step, m0, m1)
                )
        return (as_rows(torch.cat(parts), lengths),), state

    def _checked(self, made: Any, step: Step, m0: int, m1: int) -> Tensor:
        expected = (m1 - m0, *step.features[0])
        if not isinstance(made, Tensor) or tuple(made.shape) != expected:
            got = tuple(made.shape) if hasattr(made, "shape") else type(made).__name__
            raise ShapeError(
                f"{self.name}: forward returned {got} for frames {m0} to {m1}, expected {expected}"
            )
        return made


def _apply(op: Op, inputs: Sequence[Any]) -> Any:
    """Apply a declared operator to torch tensors: streams inside a forward, or plain ones ``(B, ..., L)``."""
    streams = [x for x in inputs if isinstance(x, StreamTensor)]
    if not streams:
        return _offline(op, inputs)
    if len(streams) != len(inputs) or any(x._inner is None for x in streams):
        raise ModeError(f"{op.name} works on streams inside an online module, or on plain tensors")
    forward = current()
    natives = [forward.unwrap(x).in_order() for x in streams]
    return StreamTensor.shell(_inside(op, natives))


def _inside(op: Op, natives: Sequence[Native]) -> Native:
    edges = [x.edge for x in natives if x.edge is not None]
    bound = _Bound(op.name, op.core([e.signature for e in edges]), op.forward)
    ((value, edge),) = edges[0].entry.run(
        Request(op.name, {}, edges, [x.value for x in natives], op=bound)
    )
    return natives[0].made(value, edge)


def _offline(op: Op, inputs: Sequence[Tensor]) -> Tensor:
    frames = [x.movedim(-1, 1) for x in inputs]
    if any(x.ndim < 2 for x in frames):
        raise ShapeError(f"{op.name}: expected (B, ..., L), got {[tuple(x.shape) for x in inputs]}")
    core = op.core([("float32", tuple(x.shape[2:]), 1, 1) for x in frames])
    counts = [np.array([[0, 0, x.shape[1], x.shape[1]]], np.int64) for x in frames]
    (out,) = core.counts(counts, np.ones(1, bool))
    n = int(out[0, 2])
    rows = [
        op.forward(*(Window(x[r], 0, x.shape[1]) for x in frames), 0, n) for r in range(len(frames[0]))
    ]
    return (
        torch.stack(rows).movedim(1, -1) if n else inputs[0].new_zeros(len(rows), *core.outputs[0][1], 0)
    )


set_foreign(torch.Tensor, _apply)


# ---------------------------------------------------------------------- layers that wait
def buffered(
    module: Any, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run a layer on each whole stream once it has ended; its output has the input's frames.

    Parameters
    ----------
    module : torch.nn.Module
    forward : callable
        The layer's own call.
    args, kwargs
        Its arguments; all streams among them advance together.
    """
    leaves, form = pytree.tree_flatten((args, kwargs))
    mode = current()
    shells = [x for x in leaves if isinstance(x, StreamTensor)]
    natives = {id(x._inner): mode.unwrap(x).in_order() for x in shells}
    first = next(iter(natives.values()))
    alike = all(x.dims == first.dims for x in natives.values())
    if not alike or not same_lineage(x.edge.cid for x in natives.values()):
        raise NotStreamableError(
            f"{type(module).__name__} at {user_line()} waits for streams that progress differently; give it "
            "streams of one length and one order of dimensions"
        )
    limit = mode.entry.buffer_limit
    waiting = [_limited(x, limit) for x in natives.values()]
    number = {key: i for i, key in enumerate(natives)}

    def call(rows: Sequence[Tensor]) -> Tensor:
        """Run the layer on one stream's frames per input, and return its frames."""
        seen = [
            _seen(rows[number[id(x._inner)]], first.dims) if isinstance(x, StreamTensor) else x
            for x in leaves
        ]
        own_args, own_kwargs = pytree.tree_unflatten(seen, form)
        made = forward(*own_args, **own_kwargs)
        made = made[0] if isinstance(made, tuple) else made
        return _frames(made, first.dims)

    like = [torch.zeros(3, *x.features, dtype=_type(x), device=mode.device) for x in waiting]
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        training, module.training = module.training, False
        try:
            probe = call(like)
        finally:
            module.training = training
    if len(probe) != 3:
        raise NotStreamableError(
            f"{type(module).__name__} can't wait for the end: it gives {len(probe)} frames for 3"
        )
    op = Op(
        type(module).__name__,
        counts=lambda *xs: (0, xs[0].total),
        need=lambda m: tuple(0 * m for _ in waiting),
        forward=lambda *given: call([w.frames for w in given[:-2]]),
        features=tuple(probe.shape[1:]),
    )
    out = StreamTensor.shell(_inside(op, waiting).with_dims(first.dims))
    return (out, None) if isinstance(module, torch.nn.MultiheadAttention) else out


def _limited(x: Native, limit: int | None) -> Native:
    """Return a stream that refuses to be longer than a limit."""
    if limit is None:
        return x
    edges: list[Any] = [x.edge]
    ((value, edge),) = run_native(Request("limit", {"frames": limit}, edges, [x.value]))
    return x.made(value, edge)


def _type(x: Native) -> torch.dtype:
    value: Any = x.value
    return torch.float32 if value is None else value.dtype


def _order(dims: tuple[Any, ...]) -> list[int]:
    """Return the place in ``(B, L, *features)`` of each visible dimension."""
    return [("B", "L").index(d) if isinstance(d, str) else d + 2 for d in dims]


def _seen(frames: Tensor, dims: tuple[Any, ...]) -> Tensor:
    """Return one stream's frames ``(n, *features)`` as a layer sees them, with a batch of one."""
    return frames.unsqueeze(0).permute(_order(dims))


def _frames(seen: Tensor, dims: tuple[Any, ...]) -> Tensor:
    """Return the frames of what a layer made of one stream."""
    order = _order(dims)
    return seen.permute([order.index(i) for i in range(len(order))])[0]
