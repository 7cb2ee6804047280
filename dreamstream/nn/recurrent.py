"""Recurrent layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..array import BatchTensor, Tensor, stack
from ..dispatch import apply
from ..errors import DTypeError, ModeError, NotStreamableError, ShapeError
from . import init
from .functional.arguments import checked
from .linear import new_parameter
from .module import Module

__all__ = ["LSTM"]

State = tuple[Any, Any]


class LSTM(Module):
    """Long short-term memory along the stream.

    Parameters
    ----------
    input_size, hidden_size : int
        Features of an input frame, and of the state of one layer.
    num_layers : int
        Layers on top of each other.
    bias : bool
        Whether there are biases.
    batch_first : bool
        Whether inputs are ``(B, L, F)`` rather than ``(L, B, F)``.
    dropout : float
        Between layers, in training only, where it is not supported.
    bidirectional : bool
        Whether every layer also runs backwards.
    proj_size : int
        0: projections are not supported.
    device : None or "cpu"
        For torch's sake.
    dtype : dtype or str, optional
        float32 or float64.

    Attributes
    ----------
    weight_ih_l[k], weight_hh_l[k] : Parameter
        ``(4 * hidden_size, inputs)`` and ``(4 * hidden_size, hidden_size)`` of layer k, gates in the
        order input, forget, cell, output; with ``_reverse`` those of the other direction.
    bias_ih_l[k], bias_hh_l[k] : Parameter
        ``(4 * hidden_size,)``.

    Raises
    ------
    ShapeError
        For arguments, an input or a state that don't fit.
    DTypeError
        Where types differ.
    ModeError
        In training with dropout > 0.
    NotStreamableError
        For a stream, where the initial state is not a constant that all streams share, and where the
        layer is bidirectional (unless it may wait for the end).

    Notes
    -----
    Input ``(L, B, input_size)``, ``(B, L, input_size)`` or ``(L, input_size)``. Returns
    ``output, (h_n, c_n)``: output with D * hidden_size features (D = 2 if bidirectional, else 1), h_n
    and c_n ``(D * num_layers, B, hidden_size)``, without B for an input without it. `hx` is
    ``(h_0, c_0)`` of their shape; for a stream, ``zeros(D * num_layers, x.size(B), hidden_size)`` or an
    expanded parameter, which applies where a stream starts. h_n and c_n of a stream exist at its end.

    **Streaming.** Delay 0; state 8 * num_layers * hidden_size bytes. Bidirectional layers need the
    whole stream.

    Source: torch.nn.LSTM.
    """

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
        super().__init__()
        if proj_size != 0:
            raise ShapeError(f"LSTM: proj_size is not supported, got {proj_size}")
        if hidden_size < 1 or num_layers < 1 or input_size < 1:
            raise ShapeError("LSTM: input_size, hidden_size and num_layers must be at least 1")
        if not 0 <= dropout <= 1:
            raise ShapeError(f"LSTM: a probability lies in [0, 1], got dropout={dropout}")
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self._names: list[list[str]] = []
        directions = 2 if bidirectional else 1
        for layer in range(num_layers):
            columns = input_size if layer == 0 else directions * hidden_size
            for direction in range(directions):
                end = f"_l{layer}" + ("_reverse" if direction else "")
                shapes: dict[str, tuple[int, ...]] = {
                    f"weight_ih{end}": (columns,),
                    f"weight_hh{end}": (hidden_size,),
                }
                if bias:
                    shapes.update({f"bias_ih{end}": (), f"bias_hh{end}": ()})
                for name, shape in shapes.items():
                    parameter = new_parameter(4 * hidden_size, *shape, device=device, dtype=dtype)
                    self.register_parameter(name, parameter)
                self._names.append(list(shapes))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values: evenly over ± 1 / sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Do nothing: weights lie as they should."""

    @property
    def all_weights(self) -> list[list[Any]]:
        """Parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._names]

    def forward(self, input: Tensor, hx: State | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return ``output, (h_n, c_n)`` for frames and, if need be, an initial state ``(h_0, c_0)``."""
        x = checked("LSTM", input)
        if self.training and self.dropout > 0 and self.num_layers > 1:
            raise ModeError("LSTM: dropout between layers can't train; call .eval(), or set dropout=0")
        weight = self._parameters[self._names[0][0]]
        if weight is not None and x.dtype != weight.dtype:
            raise DTypeError(
                f"LSTM: input is {x.dtype} but the weights are {weight.dtype}; convert one of them"
            )
        if x.ndim not in (2, 3):
            raise ShapeError(f"LSTM: expected 2 or 3 dimensions, got {x.ndim}")
        dims: tuple[Any, ...] = ("L", 0)
        if x.ndim == 3:
            dims = ("B", "L", 0) if self.batch_first else ("L", "B", 0)
        if hx is None:
            return self._run(x, dims, ())
        constants = [self._initial(name, h, x) for name, h in zip(("h_0", "c_0"), hx)]
        if x.is_stream or x.ndim == 2:
            return self._run(x, dims, constants)
        return self._run_rows(x, dims, constants)

    def _run(self, x: Tensor, dims: tuple[Any, ...], state: Any) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run all rows from one state ``(D * num_layers, hidden_size)`` each of h and c, or from zeros."""
        attributes = {
            "layers": self.num_layers,
            "bias": int(self.bias),
            "bidirectional": int(self.bidirectional),
        }
        weights = [w for cell in self.all_weights for w in cell]
        y, h_n, c_n = apply("lstm", attributes, (x,), (*weights, *state), dims)
        if "B" in dims:
            h_n, c_n = h_n.transpose(0, 1), c_n.transpose(0, 1)
        return y, (h_n, c_n)

    def _run_rows(
        self, x: Tensor, dims: tuple[Any, ...], state: list[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run plain rows from a state ``(D * num_layers, B, hidden_size)``: by themselves if it differs."""
        rows = [[h.select(1, b) for h in state] for b in range(state[0].shape[1])]
        if not rows:
            return self._run(x, dims, ())
        if all(np.array_equal(h, first) for row in rows for h, first in zip(row, rows[0])):
            return self._run(x, dims, rows[0])
        batch = dims.index("B")
        results = [self._run(x.select(batch, b), ("L", 0), row) for b, row in enumerate(rows)]
        h_n, c_n = (stack([ends[i] for _, ends in results], 1) for i in range(2))
        return stack([y for y, _ in results], batch), (h_n, c_n)

    def _initial(self, name: str, h: Any, x: Tensor) -> Tensor:
        """Return an initial state, checked; for a stream without its batch dimension."""
        if x.is_stream and not isinstance(h, BatchTensor):
            what = "computed from a stream" if getattr(h, "is_stream", False) else "given per row"
            raise NotStreamableError(
                f"LSTM: the initial state {name} must be a constant that all streams share, not one {what}; "
                "use zeros(n, x.size(B), H), or parameter.expand(-1, x.size(B), -1)"
            )
        lead = self.num_layers * (2 if self.bidirectional else 1)
        if isinstance(h, BatchTensor):
            if not x.is_stream or h.batch_axis != 1:
                raise ShapeError(f"LSTM: {name} must have the dimensions (layers, B, hidden_size)")
            constant = h.constant
            expected: tuple[int, ...] = (lead, self.hidden_size)
        else:
            constant = checked("LSTM", h)
            batch = () if x.ndim == 2 else (x.shape[0 if self.batch_first else 1],)
            expected = (lead, *batch, self.hidden_size)
        if constant.shape != expected:
            raise ShapeError(f"LSTM: expected {name} of shape {expected}, got {constant.shape}")
        if constant.dtype != x.dtype:
            raise DTypeError(
                f"LSTM: input is {x.dtype} but {name} is {constant.dtype}; convert one of them"
            )
        return constant

    def unstreamable(self) -> tuple[str, str] | None:
        """Return why a bidirectional LSTM can't stream, and what would work."""
        if not self.bidirectional:
            return None
        return "its backward direction begins at the stream's end", "use bidirectional=False"

    def extra_repr(self) -> str:
        """Return the constructor's arguments that are not the usual ones."""
        parts = [f"{self.input_size}, {self.hidden_size}"]
        usual = {
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
        }
        return ", ".join(
            parts + [f"{k}={getattr(self, k)}" for k, v in usual.items() if getattr(self, k) != v]
        )
