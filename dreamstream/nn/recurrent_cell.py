"""Recurrent cells: one step, for every frame by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from ..array import Tensor
from ..array.batch_constants import is_constant
from ..array.dtypes import require_same
from ..array.elementwise import repeated
from ..array.frame_numbers import refuse
from ..array.loop_body import Body
from ..dispatch import apply
from ..errors import NotStreamableError, ShapeError
from ..operations.refusals import LOOPS_ELSEWHERE
from . import init
from .functional.arguments import checked, require_positive
from .functional.texts import described
from .linear import new_parameter
from .module import Module

__all__ = ["GRUCell", "LSTMCell", "RNNCell"]

State = tuple[Any, Any]

_ERRORS = {
    "ShapeError": "For arguments, an input or a state that don't fit.",
    "DTypeError": "Where types differ.",
    "NotStreamableError": "For a stream with a state that is none.",
}
#: What the parameters are, of cells and of layers.
RECURRENT = {
    "input_size": "Features of an input frame.",
    "hidden_size": "Features of h, and of an LSTM's c, in one layer.",
    "bias": "Whether there are biases.",
    "nonlinearity": '"tanh" or "relu".',
}
_described = described("", _ERRORS, **RECURRENT)
_ONE_STATE = """Attributes
----------
weight_ih, weight_hh : Parameter
    ``({sizes}, input_size)`` and ``({sizes}, hidden_size)``{order}.
bias_ih, bias_hh : Parameter or None
    ``({sizes},)``.

Notes
-----
Input ``(*, input_size)``; `hx` ``(*, hidden_size)``, zeros without it. Returns h of that shape.

**Streaming.** Delay 0, no state: frames know nothing of each other, h of a stream's frames is a
stream. Along the stream `{layer}` recurs; it loads a cell's weights.

Source: torch.nn.{layer}Cell."""

Layer = TypeVar("Layer", bound=Callable[..., Any])


def of_one_state(
    described: Callable[[Layer], Layer], text: str, sizes: str, order: str = "", more: str = ""
) -> Callable[[Layer], Layer]:
    """Add to the docstring of a layer or cell whose state is h alone what all of these have."""

    def add(kind: Layer) -> Layer:
        words = {"sizes": sizes, "order": order, "more": more, "layer": kind.__name__.removesuffix("Cell")}
        kind.__doc__ = f"{kind.__doc__}\n\n{text.format(**words)}"
        return described(kind)

    return add


class Cell(Module):
    """What `LSTMCell`, `GRUCell` and `RNNCell` share.

    Notes
    -----
    **Streaming.** Delay 0, no state. Source: torch.nn.RNNCellBase.
    """

    _shown = "{input_size}, {hidden_size}"
    _usual: ClassVar = {"bias": True}

    _operator: ClassVar[str]
    _gates: ClassVar[int]

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        require_positive(type(self).__name__, input_size=input_size, hidden_size=hidden_size)
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        gates = self._gates * hidden_size
        self.weight_ih = new_parameter(gates, input_size, device=device, dtype=dtype)
        self.weight_hh = new_parameter(gates, hidden_size, device=device, dtype=dtype)
        for name in ("bias_ih", "bias_hh"):
            given = new_parameter(gates, device=device, dtype=dtype) if bias else None
            self.register_parameter(name, given)
        self.reset_parameters()

    def reset_parameters(self: Any) -> None:
        """Draw new initial values: evenly over ± 1 / sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _attributes(self) -> dict[str, Any]:
        """Return the operator's attributes."""
        return {}

    def _step(self, input: Any, state: Sequence[Any]) -> tuple[Tensor, ...]:
        """Return the next state; `state` holds h, and c if there is one, or nothing for zeros."""
        name = type(self).__name__
        x = checked(name, input)
        if isinstance(getattr(getattr(x, "edge", None), "entry", None), Body):
            state = [_of_frame(x, h) for h in state]
        if x.is_stream and not all(getattr(h, "is_stream", False) for h in state):
            raise NotStreamableError(
                f"{name}: the state of a stream's frames is one per frame, a stream like them, or None for "
                f"zeros; what goes on from frame to frame is a layer's: nn.{name.removesuffix('Cell')}"
            )
        state = [checked(name, h) for h in state]
        types = {f"hx[{i}]": h.dtype for i, h in enumerate(state)}
        require_same(name, input=x.dtype, weight=self.weight_ih.dtype, **types)
        wanted = [("input", x, self.input_size), *(("hx", h, self.hidden_size) for h in state)]
        for what, tensor, size in wanted:
            own = tensor.shape[-1] if tensor.ndim else None
            if own is None or (isinstance(own, int) and own != size):
                raise ShapeError(f"{name}: expected {what} of shape (*, {size}), got {tensor.shape}")
        if not x.is_stream and any(h.shape[:-1] != x.shape[:-1] for h in state):
            expected = (*x.shape[:-1], self.hidden_size)
            raise ShapeError(f"{name}: expected hx of shape {expected}, got {[h.shape for h in state]}")
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return apply(self._operator, self._attributes(), (x, *state), weights, (..., 0))


def _of_frame(x: Any, h: Any) -> Any:
    """Return a state that all streams have alike as one of a loop's frame; any other as it is."""
    if getattr(h, "is_stream", False):
        return h
    if not is_constant(h) or h.batch_axis or h.ndim != 2:
        refuse(LOOPS_ELSEWHERE)
    return repeated(h, x)


class Plain:
    """What a plain RNN and its cell have: the function of the sum of two products."""

    nonlinearity: str

    def _attributes(self) -> dict[str, Any]:
        own: Any = super()
        return {**own._attributes(), "nonlinearity": self.nonlinearity}

    def _choose(self, nonlinearity: str) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ShapeError(f"{type(self).__name__}: nonlinearity must be 'tanh' or 'relu', got {nonlinearity!r}")
        self.nonlinearity = nonlinearity


class _OfOneState(Cell):
    def forward(self, input: Tensor, hx: Any = None) -> Tensor:
        """Return the next h."""
        return self._step(input, () if hx is None else (hx,))[0]


@_described
class LSTMCell(Cell):
    """One step of an LSTM, for every frame by itself.

    Attributes
    ----------
    weight_ih, weight_hh : Parameter
        ``(4 * hidden_size, input_size)`` and ``(4 * hidden_size, hidden_size)``, gates in the order
        input, forget, cell, output.
    bias_ih, bias_hh : Parameter or None
        ``(4 * hidden_size,)``.

    Notes
    -----
    Input ``(*, input_size)``; `hx` is ``(h, c)``, each ``(*, hidden_size)``, zeros without it. Returns
    ``(h, c)`` of that shape.

    **Streaming.** Delay 0, no state: frames know nothing of each other, h and c of a stream's frames are
    streams. Along the stream an `LSTM` recurs; it loads a cell's weights.

    Source: torch.nn.LSTMCell.
    """

    _operator = "lstm_cell"
    _gates = 4

    def forward(self, input: Tensor, hx: State | None = None) -> tuple[Tensor, Tensor]:
        """Return the next ``(h, c)``."""
        if hx is not None and (not isinstance(hx, (tuple, list)) or len(hx) != 2):
            raise ShapeError(f"LSTMCell: expected hx as (h, c), got {type(hx).__name__}")
        h, c = self._step(input, hx or ())
        return h, c


@of_one_state(_described, _ONE_STATE, "3 * hidden_size", ", gates in the order reset, update, new")
class GRUCell(_OfOneState):
    """One step of a GRU, for every frame by itself."""

    _operator = "gru_cell"
    _gates = 3


@of_one_state(_described, _ONE_STATE, "hidden_size")
class RNNCell(Plain, _OfOneState):
    """One step of a plain RNN, for every frame by itself."""

    _usual: ClassVar = {**Cell._usual, "nonlinearity": "tanh"}

    _operator = "rnn_cell"
    _gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self._choose(nonlinearity)
