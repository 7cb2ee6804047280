"""Layers of torch whose own forwards do not stream: what runs in their place, and what can't stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from ... import nn as native
from ...errors import NotStreamableError
from ...online.registered import registered_for
from ..private import recurrent_weights
from .arguments import as_stream
from .constants import Constant
from .mode import Forward
from .names import HANDLERS, enter
from .places import repeated
from .running import current

Reason = tuple[str, str]

#: By the forward of a class: what streams in its place, ``(module, *inputs)``.
_STREAMING: dict[Any, Callable[..., Any]] = {}

#: Those of them that stand for layers with circular padding alone; the forwards of recurrent layers and cells.
_CIRCULAR: set[Any] = set()
_RECURRENT: set[Any] = set()


def streaming_forward(module: torch.nn.Module) -> Callable[..., Any] | None:
    """Return what runs in a streaming call in place of the forward of a module's class, if anything does."""
    kind: Any = type(module)
    own = registered_for(kind) or _STREAMING.get(kind.forward)
    return None if own in _CIRCULAR and getattr(module, "padding_mode", None) != "circular" else own


# ---------------------------------------------------------------------- recurrence
def is_recurrence(module: torch.nn.Module) -> bool:
    """Whether a layer or cell draws nothing, and streams as its native twin with its weights."""
    options, kind = module.__dict__, type(module)
    return kind.forward in _RECURRENT and not options.get("dropout")


def _recurrent(kind: Any, twin: type[native.Module]) -> None:
    """Let a recurrent layer or cell stream as the native one with its weights."""

    def stream(module: Any, input: Any, hx: Any = None) -> Any:
        forward = current()
        if isinstance(input, PackedSequence):  # its data is the stream, batch first
            turned = not module.batch_first
            out, end = stream(module, input.data.transpose(0, 1) if turned else input.data, hx)
            return input._replace(data=out.transpose(0, 1) if turned else out), end
        if getattr(module, "num_layers", 1) > 1 and getattr(module, "dropout", 0) > 0:
            return _layer_by_layer(module, twin, forward, input, hx)
        options = [getattr(module, name, None) for name in _OPTIONS]
        own = module._parameters
        names = (name for group in _names_of(module) for name in group)
        weights = [own[name] if name in own else getattr(module, name) for name in names]
        given = (as_stream(input), hx, *options, *weights)
        return repeated(forward, twin, given, {}, lambda: _run(_twin(module, twin, forward), forward, input, hx))

    _STREAMING[kind.forward] = stream
    _RECURRENT.add(kind.forward)


_OPTIONS = (
    "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size",
    "nonlinearity",
)  # fmt: skip
_OF_CELLS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _names_of(module: Any) -> Sequence[Sequence[str]]:
    """Return the names of a layer's or cell's weights, cell by cell."""
    return recurrent_weights(module) if isinstance(module, torch.nn.RNNBase) else [_OF_CELLS]


def _native(
    kind: type[native.Module], options: dict[str, Any], names: Sequence[Sequence[str]], weights: Any
) -> Any:
    """Return a native layer with these options, and weights by the names of its parameters, cell by cell."""
    out: Any = object.__new__(kind)
    native.Module.__init__(out)
    out.__dict__.update(options, training=False, _names=names)  # dropout is ours
    out._parameters.update(zip((name for group in names for name in group), weights))
    return out


def _twin(module: Any, kind: type[native.Module], forward: Forward, layer: int | None = None) -> Any:
    """Return a native layer with a module's options and weights, all or those of one of its layers."""
    options = {name: getattr(module, name) for name in _OPTIONS if hasattr(module, name)}
    names = _names_of(module)
    if layer is not None:
        per = 2 if module.bidirectional else 1
        names = names[layer * per : (layer + 1) * per]
        options["num_layers"] = 1
    values = (getattr(module, name) for group in names for name in group)
    return _native(kind, options, names, [None if x is None else _weight(x, forward) for x in values])


def _weight(value: torch.Tensor, forward: Forward) -> Constant:
    if forward.drawn is not None:
        forward.drawn.require_none(value)
    return Constant(value, forward.arrays)


def _run(layer: Any, forward: Forward, input: Any, hx: Any) -> Any:
    return forward._wrapped(layer.forward(forward.unwrap(as_stream(input)), forward.unwrap(hx)))


def _layer_by_layer(module: Any, kind: Any, forward: Forward, input: Any, hx: Any) -> Any:
    """Run stacked layers one by one, with dropout between them in training, as torch does."""
    directions = 2 if module.bidirectional else 1
    ends: list[Any] = []
    for layer in range(module.num_layers):
        part = _part(forward, hx, slice(layer * directions, (layer + 1) * directions))
        input, end = _run(_twin(module, kind, forward, layer), forward, input, part)
        ends.append(end)
        if layer + 1 < module.num_layers:
            input = torch.nn.functional.dropout(input, module.dropout, module.training)
    if isinstance(module, torch.nn.LSTM):
        return input, tuple(torch.cat(parts, 0) for parts in zip(*ends))
    return input, torch.cat(ends, 0)


def _part(forward: Forward, hx: Any, rows: slice) -> Any:
    """Return the initial states of one layer."""
    if hx is None:
        return None
    if isinstance(hx, (tuple, list)):
        return tuple(_part(forward, h, rows) for h in hx)
    return hx[rows]


for _name in ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell"):
    _recurrent(getattr(torch.nn, _name), getattr(native, _name))


def _by_function(name: str, kind: Any) -> None:
    """Let torch's function behind a recurrent layer, such as ``torch.lstm``, stream as that layer."""

    def run(
        input: Any, hx: Any, params: Any, has_biases: Any, num_layers: Any = 1, dropout: float = 0.0,
        train: bool = False, bidirectional: bool = False, batch_first: bool | None = None,
    ) -> Any:  # fmt: skip
        if batch_first is None or (train and dropout > 0 and num_layers > 1):
            raise NotStreamableError.here(
                f"torch.{name} of packed sequences, or with dropout between layers",
                ": call its layer, nn.LSTM or so",
            )
        cells = num_layers * (2 if bidirectional else 1)
        per = len(params) // cells
        parts = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if has_biases else [])]
        parts += ["weight_hr"] * (per - len(parts))
        width = params[1].shape[1]
        gates = {"lstm": 4, "gru": 3}.get(name, 1)
        options = {
            "input_size": params[0].shape[1], "hidden_size": params[0].shape[0] // gates, "num_layers": num_layers,
            "bias": has_biases, "batch_first": batch_first, "dropout": 0.0, "bidirectional": bidirectional,
            "proj_size": width if "weight_hr" in parts else 0, "nonlinearity": name.removeprefix("rnn_"),
        }  # fmt: skip
        layer = _native(kind, options, [[f"{part}_{cell}" for part in parts] for cell in range(cells)], params)
        y, ends = layer.forward(input, tuple(hx) if name == "lstm" else hx)
        return (y, *ends) if name == "lstm" else (y, ends)

    enter(HANDLERS, {name: run})


for _name, _kind in (("lstm", "LSTM"), ("gru", "GRU"), ("rnn_tanh", "RNN"), ("rnn_relu", "RNN")):
    _by_function(_name, getattr(native, _kind))


# ---------------------------------------------------------------------- padding
def _padded(kind: Any, convolve: Callable[..., Any]) -> None:
    """Let circular padding be part of the convolution, which can wait for the end; a stream by itself can't."""

    def stream(module: Any, input: Any) -> Any:
        forward = current()
        given = [forward.unwrap(x) for x in (input, module.weight, module.bias)]
        options = (module.stride, module.padding, module.dilation, module.groups)
        return forward._wrapped(convolve(*given, *options, padding_mode=module.padding_mode))

    _STREAMING[kind.forward] = stream
    _CIRCULAR.add(stream)


_padded(torch.nn.Conv1d, native.functional.conv1d)
_padded(torch.nn.Conv2d, native.functional.conv2d)


# ---------------------------------------------------------------------- what can't stream
def unstreamable(module: torch.nn.Module) -> Reason | None:
    """Return why a layer can't stream, and what would work; None if it can."""
    kind: Any = type(module)
    if registered_for(kind) is not None:
        return None
    if isinstance(module, torch.nn.Conv2d):
        return None  # its padding says at the first call which axis is the stream's
    for cls in type(module).__mro__:
        twin = getattr(native, cls.__name__, None)
        if cls.__module__.startswith("torch.nn.") and isinstance(twin, type) and hasattr(twin, "unstreamable"):
            found: Reason | None = twin.unstreamable(module)
            return found
    return None
