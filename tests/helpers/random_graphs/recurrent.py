"""Nodes of random models that recur: layers along the stream, cells on frames."""

from typing import Any

from .source import Node, Value


def layer(drafter: Any, a: Value, name: str, bidirectional: bool = False) -> Node:
    """An LSTM, a GRU or an RNN, from zeros or from learnt states."""
    r = drafter.random
    kind = r.choice(["LSTM", "LSTM", "GRU", "RNN"])
    layout, hidden, n_layers = r.choice(["BLF", "LBF"]), drafter.some_size(), r.choice([1, 1, 2])
    out = r.choice([hidden, hidden, hidden - 1]) if kind == "LSTM" and hidden > 1 else hidden
    text = f"{a.size}, {hidden}" + (f", num_layers={n_layers}" if n_layers > 1 else "")
    text += ", batch_first=True" if layout == "BLF" else ""
    text += ", bidirectional=True" if bidirectional else ""
    text += f", proj_size={out}" if out < hidden else ""
    lead = n_layers * (2 if bidirectional else 1)
    layers = {f"rnn{name}": f"nn.{kind}({text})"}
    x, batch = drafter.at(a, layout), f"{a.name}.size({0 if a.layout[0] == 'B' else 1})"
    way, states = r.random(), []
    for state, size in [("h", out), ("c", hidden)][: 2 if kind == "LSTM" else 1]:
        if way < 0.2:
            states.append(f"ds.zeros({lead}, {batch}, {size}, dtype={a.name}.dtype)")
        elif way < 0.5:
            layers[f"{state}{name}"] = f"nn.Parameter(ds.randn({lead}, 1, {size}))"
            shape = r.choice([f"expand(-1, {batch}, -1)", f"repeat(1, {batch}, 1)"])
            states.append(f"self.{state}{name}.{shape}")
    start = f", ({', '.join(states)})" if states else ""
    h_n, end = drafter.fresh("h"), "_"
    if r.random() < 0.3:
        drafter.extra.append(r.choice([h_n, f"{h_n}[-1]"]))
        end = f"({h_n}, _)" if kind == "LSTM" else h_n
    return Node(layers, [f"{name}, {end} = self.rnn{name}({x}{start})"], layout)


def cell(drafter: Any, a: Value, name: str) -> Node:
    """A cell on B and L joined, from zeros and then from what it gave, or from a product."""
    r = drafter.random
    kind, n = r.choice(["LSTMCell", "GRUCell", "RNNCell"]), drafter.some_size()
    x, h, c = (drafter.fresh(letter) for letter in "shc")
    layers = {f"cell{name}": f"nn.{kind}({a.size}, {n})"}
    lines = [f"{x} = {drafter.at(a, 'BLF')}", f"{x} = {x}.reshape({x}.size(0) * {x}.size(1), {a.size})"]
    if kind == "LSTMCell":
        lines += [f"{h}, {c} = self.cell{name}({x})", f"{h}, {c} = self.cell{name}({x}, ({h}, {c}))"]
    elif r.random() < 0.5:
        layers[f"lin{name}"] = f"nn.Linear({a.size}, {n})"
        lines += [f"{h} = self.cell{name}({x}, self.lin{name}({x}))"]
    else:
        lines += [f"{h} = self.cell{name}({x})"]
    result = r.choice([h, f"{h} + {c}"]) if kind == "LSTMCell" else h
    batch = f"{a.name}.size({0 if a.layout[0] == 'B' else 1})"
    return Node(layers, [*lines, f"{name} = ({result}).reshape({batch}, -1, {n})"], "BLF")
