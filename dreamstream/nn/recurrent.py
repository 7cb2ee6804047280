"""Recurrent layers along the stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, ClassVar

import numpy as np

from ..array import Tensor, stack
from ..array.batch_constants import is_constant
from ..array.draws import dropping
from ..array.forward import hold_for, is_static
from ..dispatch import apply
from ..errors import DTypeError, NotStreamableError, ShapeError
from ..operations.refusals import BACKWARDS
from ..stream.rules import holds
from .functional.arguments import checked, require_positive
from .functional.texts import described
from .linear import new_parameter
from .module import Module
from .recurrent_cell import RECURRENT, Cell, Plain, of_one_state

__all__ = ["GRU", "LSTM", "RNN"]

State = tuple[Any, Any]

_ERRORS = {
    "ShapeError": "For arguments, an input or a state that don't fit.",
    "DTypeError": "Where types differ.",
    "NotStreamableError": "For a stream, where the initial state is not a constant that all streams share, "
    "and where the layer is bidirectional (unless it may wait for the end).",
}
_described = described(
    "",
    _ERRORS,
    **RECURRENT,
    num_layers="Layers on top of each other.",
    batch_first="Whether inputs are ``(B, L, F)`` rather than ``(L, B, F)``.",
    dropout="Probability with which outputs between layers are dropped, in training only.",
    bidirectional="Whether every layer also runs backwards.",
    proj_size="Features to which h is projected, less than hidden_size; with 0 it is not.",
)
_ONE_STATE = """Attributes
----------
weight_ih_l[k], weight_hh_l[k] : Parameter
    ``({sizes}, inputs)`` and ``({sizes}, hidden_size)`` of layer k{order}; with ``_reverse`` those
    of the other direction.
bias_ih_l[k], bias_hh_l[k] : Parameter
    ``({sizes},)``.

Notes
-----
Input ``(L, B, input_size)``, ``(B, L, input_size)`` or ``(L, input_size)``. Returns ``output, h_n``:
output with D * hidden_size features (D = 2 if bidirectional, else 1), h_n
``(D * num_layers, B, hidden_size)``, without B for an input without it. `hx` is h_0 of that shape;
for a stream, ``zeros(D * num_layers, x.size(B), hidden_size)`` or an expanded parameter, which
applies where a stream starts. h_n of a stream exists at its end.

{more}`load_state_dict` of one layer in one direction also takes a `{layer}Cell`'s weights, without ``_l0``.

**Streaming.** Delay 0; state 4 * num_layers * hidden_size bytes. Bidirectional layers need the whole
stream.

Source: torch.nn.{layer}."""


class Recurrence(Module):
    """What `LSTM`, `GRU` and `RNN` share: weights, states, and how rows run.

    Notes
    -----
    **Streaming.** Delay 0. Source: torch.nn.RNNBase.
    """

    _shown = "{input_size}, {hidden_size}"
    _usual: ClassVar = {
        "proj_size": 0,
        "num_layers": 1,
        "bias": True,
        "batch_first": False,
        "dropout": 0.0,
        "bidirectional": False,
    }

    _operator: ClassVar[str]
    _gates: ClassVar[int]
    _states: ClassVar[tuple[str, ...]] = ("h_0",)
    proj_size: int = 0

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        require_positive(name, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        if not 0 <= dropout <= 1:
            raise ShapeError(f"{name}: a probability lies in [0, 1], got dropout={dropout}")
        if not 0 <= self.proj_size < hidden_size:
            sizes = f"{self.proj_size} and hidden_size={hidden_size}"
            raise ShapeError(f"{name}: proj_size must lie in [0, hidden_size), got {sizes}")
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self._names: list[list[str]] = []
        for layer in range(num_layers):
            for end in [f"_l{layer}", f"_l{layer}_reverse"][: self._directions]:
                shapes = self._shapes(layer, end)
                for key, shape in shapes.items():
                    self.register_parameter(key, new_parameter(*shape, device=device, dtype=dtype))
                self._names.append(list(shapes))
        self.reset_parameters()

    def _shapes(self, layer: int, end: str) -> dict[str, tuple[int, ...]]:
        """Return the weights of a layer in one direction, in torch's order."""
        gates, out = self._gates * self.hidden_size, self._out
        shapes: dict[str, tuple[int, ...]] = {
            f"weight_ih{end}": (gates, self.input_size if layer == 0 else self._directions * out),
            f"weight_hh{end}": (gates, out),
        }
        if self.bias:
            shapes.update({f"bias_ih{end}": (gates,), f"bias_hh{end}": (gates,)})
        if self.proj_size:
            shapes[f"weight_hr{end}"] = (out, self.hidden_size)
        return shapes

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _out(self) -> int:
        """Features of h."""
        return self.proj_size or self.hidden_size

    def _attributes(self) -> dict[str, Any]:
        """Return the operator's attributes."""
        return {"layers": self.num_layers, "bias": int(self.bias), "bidirectional": int(self.bidirectional)}

    reset_parameters = Cell.reset_parameters

    def flatten_parameters(self) -> None:
        """Do nothing: weights lie as they should."""

    @property
    def all_weights(self) -> list[list[Any]]:
        """Parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._names]

    def _by_own_names(self, state: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
        """Take a cell's weights, without ``_l0``, where there is one layer in one direction."""
        if len(self._names) > 1:
            return state
        own = {prefix + name.removesuffix("_l0"): prefix + name for name in self._names[0]}
        return {k if own.get(k, k) in state else own[k]: value for k, value in state.items()}

    # ------------------------------------------------------------------ running
    def _forward(self, input: Any, hx: Sequence[Any] | None) -> tuple[Tensor, list[Tensor]]:
        """Return outputs and last states; `hx` holds the initial ones."""
        name = type(self).__name__
        x = checked(name, input)
        weight = self._parameters[self._names[0][0]]
        if weight is not None and x.dtype != weight.dtype:
            raise DTypeError(f"{name}: input is {x.dtype} but the weights are {weight.dtype}; convert one of them")
        if x.ndim not in (2, 3):
            raise ShapeError(f"{name}: expected 2 or 3 dimensions, got {x.ndim}")
        dims: tuple[Any, ...] = ("L", 0)
        if x.ndim == 3:
            dims = ("B", "L", 0) if self.batch_first else ("L", "B", 0)
        if x.is_stream:
            dims = self._of_stream(x, dims)
        if hx is None:
            return self._run(x, dims, ())
        if x.is_stream and any(getattr(h, "is_stream", False) and (is_static(h) or "L" not in dims) for h in hx):
            return self._run(x, dims, (), self._given(x, dims, hx))
        constants = [self._initial(state, h, x) for state, h in zip(self._states, hx)]
        if x.is_stream or x.ndim == 2:
            return self._run(x, dims, constants)
        return self._run_rows(x, dims, constants)

    def _of_stream(self, x: Any, dims: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return what the dimensions are: each frame is a sequence where B and L are joined, and in a loop."""
        rows = x.dims[dims.index("B")] if "B" in dims else None
        if isinstance(rows, str) and (holds(rows, "L") or "L" not in x.dims):
            return (rows, 0, 1) if self.batch_first else (0, rows, 1)
        if self.bidirectional and x.edge is not None and not x.edge.may_wait:
            raise NotStreamableError.here(
                type(self).__name__,
                f' can\'t stream: {BACKWARDS.text}, or unstreamable="buffer" to wait for the end of each stream',
            )
        return dims

    def _run(
        self, x: Tensor, dims: tuple[Any, ...], state: Sequence[Tensor], given: Sequence[Tensor] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """Run all rows from one state ``(D * num_layers, features)`` each of h and c, or from zeros.

        `given` are those of streams that have their own.
        """
        weights = [w for cell in self.all_weights for w in cell]
        name = self._operator if "L" in dims else f"{self._operator}_within"
        with dropping(self.dropout) if self.training and self.dropout > 0 else nullcontext():
            y, *ends = apply(name, self._attributes(), (x, *given), (*weights, *state), dims)
        behind = {"B", "L"} <= {*dims} or dims[-2:] == (0, 1)  # the rows' dimension stands before the cells'
        return y, [end.transpose(0, 1) for end in ends] if behind else ends

    def _run_rows(self, x: Tensor, dims: tuple[Any, ...], state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Run plain rows from a state ``(D * num_layers, B, features)``: by themselves if it differs."""
        rows = [[h.select(1, b) for h in state] for b in range(state[0].shape[1])]
        if not rows:
            return self._run(x, dims, ())
        if all(np.array_equal(h, first) for row in rows for h, first in zip(row, rows[0])):
            return self._run(x, dims, rows[0])
        batch = dims.index("B")
        results = [self._run(x.select(batch, b), ("L", 0), row) for b, row in enumerate(rows)]
        ends = [stack([e[i] for _, e in results], 1) for i in range(len(state))]
        return stack([y for y, _ in results], batch), ends

    def _given(self, x: Any, dims: tuple[Any, ...], hx: Sequence[Any]) -> list[Tensor]:
        """Return initial states of which one is a stream, for each frame.

        Along the stream it follows from inputs given once, and the first is read.
        """
        own: Any = next(h for h in hx if getattr(h, "is_stream", False))
        along, rows = "L" in dims, x.roles[0 if self.batch_first else 1]
        given: list[Tensor] = []
        for name, h in zip(self._states, hx):
            if not getattr(h, "is_stream", False):
                h = own * 0 + self._initial(name, h, x).unsqueeze(1)
            lead, features = self.num_layers * self._directions, self.hidden_size if name == "c_0" else self._out
            if is_static(h) < along or h.roles != (str(lead), rows, str(features)):
                raise ShapeError(
                    f"{type(self).__name__}: expected {name} ({lead}, {rows}, {features}), got {h.roles}"
                )
            frames = h.transpose(0, 1).flatten(1)
            if along:
                frames = hold_for(frames, x.edge, -1)
                given.append(frames.permute(*[frames.dims.index(d) for d in x.in_order().dims]))
            else:
                given.append(frames.unsqueeze(1 if self.batch_first else 0))
        return given

    def _initial(self, name: str, h: Any, x: Tensor) -> Tensor:
        """Return an initial state, checked; for a stream without its batch dimension."""
        layer = type(self).__name__
        if x.is_stream and not is_constant(h):
            what = "computed from a stream" if getattr(h, "is_stream", False) else "given per row"
            raise NotStreamableError(
                f"{layer}: the initial state {name} must be a constant that all streams share, not one {what}; "
                "use zeros(n, x.size(B), H), or parameter.expand(-1, x.size(B), -1)"
            )
        lead = self.num_layers * self._directions
        features = self.hidden_size if name == "c_0" else self._out
        if is_constant(h):
            if not x.is_stream or h.batch_axis != 1:
                raise ShapeError(f"{layer}: {name} must have the dimensions (layers, B, features)")
            constant = h.constant
            expected: tuple[int, ...] = (lead, features)
        else:
            constant = checked(layer, h)
            batch = () if x.ndim == 2 else (x.shape[0 if self.batch_first else 1],)
            expected = (lead, *batch, features)
        if constant.shape != expected:
            raise ShapeError(f"{layer}: expected {name} of shape {expected}, got {constant.shape}")
        if constant.dtype != x.dtype:
            raise DTypeError(f"{layer}: input is {x.dtype} but {name} is {constant.dtype}; convert one of them")
        return constant

    def unstreamable(self) -> tuple[str, str] | None:
        """Return why a bidirectional layer can't stream, and what would work."""
        return BACKWARDS.words if self.bidirectional else None


@_described
class LSTM(Recurrence):
    """Long short-term memory along the stream.

    Attributes
    ----------
    weight_ih_l[k], weight_hh_l[k] : Parameter
        ``(4 * hidden_size, inputs)`` and ``(4 * hidden_size, P)`` of layer k, gates in the order input,
        forget, cell, output; P is proj_size, or hidden_size without a projection. With ``_reverse``
        those of the other direction.
    bias_ih_l[k], bias_hh_l[k] : Parameter
        ``(4 * hidden_size,)``.
    weight_hr_l[k] : Parameter
        ``(proj_size, hidden_size)``.

    Notes
    -----
    Input ``(L, B, input_size)``, ``(B, L, input_size)`` or ``(L, input_size)``. Returns
    ``output, (h_n, c_n)``: output with D * P features (D = 2 if bidirectional, else 1), h_n
    ``(D * num_layers, B, P)`` and c_n ``(D * num_layers, B, hidden_size)``, without B for an input
    without it. `hx` is ``(h_0, c_0)`` of their shape; for a stream,
    ``zeros(D * num_layers, x.size(B), P)`` or an expanded parameter, which applies where a stream
    starts. h_n and c_n of a stream exist at its end.

    `load_state_dict` of one layer in one direction also takes an `LSTMCell`'s weights: ``weight_ih``,
    ``weight_hh``, ``bias_ih`` and ``bias_hh`` in the place of ``weight_ih_l0``, ...

    **Streaming.** Delay 0; state 4 * num_layers * (P + hidden_size) bytes. Bidirectional layers need the
    whole stream.

    Source: torch.nn.LSTM.
    """

    _operator = "lstm"
    _gates = 4
    _states = ("h_0", "c_0")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        self.proj_size = proj_size
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype
        )

    def _attributes(self) -> dict[str, Any]:
        return {**super()._attributes(), "projection": self.proj_size}

    def forward(self, input: Tensor, hx: State | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return ``output, (h_n, c_n)`` for frames and, if need be, an initial state ``(h_0, c_0)``."""
        if hx is not None and (not isinstance(hx, (tuple, list)) or len(hx) != 2):
            raise ShapeError(f"LSTM: expected hx as (h_0, c_0), got {type(hx).__name__}")
        y, (h_n, c_n) = self._forward(input, hx)
        return y, (h_n, c_n)


class _OfOneState(Recurrence):
    """A layer whose state is h alone."""

    def forward(self, input: Tensor, hx: Any = None) -> tuple[Tensor, Tensor]:
        """Return ``output, h_n`` for frames and, if need be, an initial state."""
        y, (h_n,) = self._forward(input, None if hx is None else (hx,))
        return y, h_n


@of_one_state(
    _described,
    _ONE_STATE,
    "3 * hidden_size",
    ", gates in the order reset, update, new",
    "The reset gate applies after the product with h, as in torch. ",
)
class GRU(_OfOneState):
    """Gated recurrent units along the stream."""

    _operator = "gru"
    _gates = 3


@of_one_state(_described, _ONE_STATE, "hidden_size")
class RNN(Plain, _OfOneState):
    """Plain recurrent layers along the stream: tanh or relu of a sum of two products."""

    _operator = "rnn"
    _gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype
        )
        self._choose(nonlinearity)
