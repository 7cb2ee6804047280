"""Recurrent layers and cells, as `models` lists them: frames ``(B, L, 3)`` go in."""

from collections.abc import Callable
from typing import Any

import numpy as np
from nets import net

Make = Callable[[Any, Any], Any]


def _recurrent(kind: str, layers: int, start: bool, **options: Any) -> Make:
    """One layer, its outputs and its last state; from learnt states if they `start` it."""

    def make(nn: Any, F: Any) -> Any:
        class Recurrent(nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.rnn = getattr(nn, kind)(3, 4, num_layers=layers, batch_first=True, **options)
                n = layers * (2 if options.get("bidirectional") else 1)
                sizes = [options.get("proj_size", 4), 4][: 2 if kind == "LSTM" else 1]
                for name, size in zip(("h0", "c0"), sizes if start else ()):
                    setattr(self, name, nn.Parameter(_pattern(nn, n, 1, size)))

            def forward(self, x: Any) -> Any:
                n = x.size(0)
                if not start:
                    y, state = self.rnn(x)
                elif kind == "LSTM":
                    y, state = self.rnn(x, (self.h0.expand(-1, n, -1), self.c0.expand(-1, n, -1)))
                else:
                    y, state = self.rnn(x, self.h0.expand(-1, n, -1))
                return {"y": y, "state": state}

        return Recurrent()

    return make


def _pattern(nn: Any, *shape: int) -> Any:
    """A parameter's first values, in dreamstream's or torch's own tensor."""
    return nn.Linear(int(np.prod(shape)), 1).weight.reshape(shape).detach()


def _cells(nn: Any, F: Any) -> Any:
    """Cells on frames: one after another, from zeros, and from states that come later than the frames."""

    def forward(self: Any, x: Any) -> Any:
        state = self.conv(x.transpose(1, 2)).transpose(1, 2)
        state = state.reshape(state.size(0) * state.size(1), 4)
        frames = x.reshape(x.size(0) * x.size(1), 3)
        first = self.long(frames)
        h, c = self.long(frames, (state, first[1]))
        y = self.plain(self.gated(c, h))
        return y.reshape(x.size(0), -1, 4), first[0].reshape(x.size(0), x.size(1), 4)

    return net(
        nn,
        forward,
        conv=nn.Conv1d(3, 4, 3, padding=1),
        long=nn.LSTMCell(3, 4),
        gated=nn.GRUCell(4, 4, bias=False),
        plain=nn.RNNCell(4, 4, nonlinearity="relu"),
    )


#: By the name of the model: what makes it, and what else its entry says.
MAKERS: dict[str, tuple[Make, dict[str, Any]]] = {
    **{f"lstm-{n}": (_recurrent("LSTM", n, False), {}) for n in (1, 2, 3)},
    **{f"lstm-{n}-from-a-state": (_recurrent("LSTM", n, True), {}) for n in (1, 2, 3)},
    "lstm-bidirectional": (_recurrent("LSTM", 2, True, bidirectional=True), {"whole": True}),
    "lstm-without-bias": (_recurrent("LSTM", 2, False, bias=False), {}),
    "lstm-projected": (_recurrent("LSTM", 3, True, proj_size=2), {}),
    "lstm-projected-bidirectional": (
        _recurrent("LSTM", 2, True, proj_size=2, bidirectional=True),
        {"whole": True},
    ),
    "gru-1": (_recurrent("GRU", 1, False), {}),
    "gru-from-a-state": (_recurrent("GRU", 3, True), {}),
    "gru-bidirectional": (_recurrent("GRU", 2, True, bidirectional=True, bias=False), {"whole": True}),
    "rnn-2": (_recurrent("RNN", 2, False), {}),
    "rnn-relu-from-a-state": (_recurrent("RNN", 2, True, nonlinearity="relu"), {}),
    "rnn-bidirectional": (_recurrent("RNN", 2, False, bidirectional=True), {"whole": True}),
    "recurrent-cells": (_cells, {}),
}
