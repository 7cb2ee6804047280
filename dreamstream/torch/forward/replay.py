"""What repeats calls of torch functions: the place that one has left, and `_core.Replay`, which runs it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from ... import _core
from ...array.stream_tensor import StreamTensor as NativeStream
from ...stream.edge import Edge, Line
from ...stream.place import Operation, Replayed
from ...stream.rules import Shape
from ..private import n_modes, without_functions
from ..tensor.stream_tensor import SHELL, STAND_IN, StreamTensor
from .keys import ATOMS, key_of_size
from .names import DEVICE, DTYPE, RANK, SHAPE
from .running import RUNNING
from .sizes import TorchBatch, TorchBatchLength, TorchLength


class Place(NamedTuple):
    """What one call of a torch function did; `csrc/python/replay.c` does it again."""

    operations: tuple[Any, ...]  #: The operators that ran, each as `operation_of` gives it.
    #: Gives the operators' weights, a list, of the tensors that the function is given; None where they stay.
    weights: Callable[[Sequence[torch.Tensor]], list[Any]] | None
    #: ``(edge's number, dims, names, what notes shared memory)`` of a stream; a list of those of a tuple; what
    #: makes any other result, of all edges, their values, and the streams and sizes that were asked about.
    result: Any
    by_identity: list[Any]  #: Parameters and buffers by whose identities the place is known.


def operation_of(ran: Operation, at: tuple[int, ...], weights: Sequence[Any]) -> tuple[Any, ...]:
    """Return an operator as `_core.Replay` runs it: its kernel on frames, or what it did with windows."""
    plan, op = ran.plan, ran.op
    own = None, None, ran.lines, None, None, None
    if plan is not None and plan.of_frames:
        own = plan.run, plan.step, ran.lines, None if plan.follows else op.counts, None, None
    elif plan is not None and plan.repeats and ran.n_values < 2:
        own = None, None, ran.lines, op.counts, op, plan.done
    return (ran, ran.key, at, ran.n_values, weights, *own)


class Repeats:
    """What `_core.Replay` reads of a forward, in slots: see `dreamstream.torch.forward.mode.Forward`."""

    __slots__ = ("_parameters", "depth", "drawn", "entry", "gradients", "watching")


#: Builtin functions of torch's that were seen to do nothing but compute: of plain tensors no mode need be asked.
COMPUTES: set[Any] = set()

REPLAY = _core.Replay(
    SHELL, NativeStream, Edge, Line, Replayed, Repeats, Place,
    ATOMS, frozenset((torch.Tensor, torch.nn.Parameter)), STAND_IN.as_subclass,
    without_functions, torch.is_grad_enabled, key_of_size, RUNNING, n_modes, SHAPE, DTYPE, DEVICE,
    torch.Tensor.size, COMPUTES, TorchLength, TorchBatch, TorchBatchLength, Shape, RANK, torch.Tensor.dim,
)  # fmt: skip

#: What torch asks of a forward, a mode: what is done again runs no function of Python.
Repeats.__torch_function__ = REPLAY.method(REPLAY.mode)  # type: ignore[attr-defined]


def method(name: str) -> Any:
    """Return a method of shells for one of torch's tensors, which likewise runs no function of Python."""
    own = getattr(StreamTensor, name)

    def instead(_: Any, /, *args: Any, **kwargs: Any) -> Any:
        return own(*args, **kwargs)

    return REPLAY.method(partial(REPLAY.function, instead, getattr(torch.Tensor, name)))
