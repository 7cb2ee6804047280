"""Random bodies of loops over frames."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..case import Array, Case, Input, Rng, normal, pick
from ..reference import Arrays, sigmoid
from .drawing import along, make

#: What the nodes of a body compute, of their operands and weights.
NODES: dict[str, Any] = {
    "linear": lambda x, w, b: x @ w.T + (0 if b is None else b),
    "add": lambda *xs: xs[0] + xs[1],
    "sub": lambda *xs: xs[0] - xs[1],
    "mul": lambda *xs: xs[0] * xs[1],
    "maximum": lambda *xs: np.maximum(xs[0], xs[1]),
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "reduce_features": lambda x: x.sum(-1),
}


def plain_loop(a: dict[str, Any], w: Arrays, *xs: Array) -> Any:
    """The plain loop."""
    told = json.loads(a["body"])
    bodies = told["bodies"]
    state = [
        np.zeros(c["shape"]) if first is None else np.asarray(first, np.float64)
        for c, first in zip(told["carried"], w)
    ]
    out: list[list[Array]] = [[] for _ in bodies[0]["outputs"]]
    for t in range(len(xs[0])):
        body = bodies[min(t, len(bodies) - 1)]
        values = [np.asarray(x[t], np.float64) for x in xs] + state
        for node in body["nodes"]:
            given = [values[i] for i in node["inputs"]] + [None if i is None else w[i] for i in node["weights"]]
            operands = given[::-1] if node["attributes"].get("order") == [1, 0] else given
            values.append(NODES[node["op"]](*operands))
        state = [values[i] for i in body["carried"]]
        for ys, i in zip(out, body["outputs"]):
            ys.append(values[i])
    n = told["carried"][0]["shape"] if told["carried"] else xs[0].shape[1:]
    first = len(xs) + len(told["carried"])
    ops = ["" if v < first else bodies[0]["nodes"][v - first]["op"] for v in bodies[0]["outputs"]]
    empty = [np.zeros((0, *(n[:-1] if op == "reduce_features" else n))) for op in ops]
    return [np.array(ys) if ys else none for ys, none in zip(out, empty)]


def _body(rng: Rng, n: int, n_known: int, carried: int, weights: list[Array | None], dtype: str) -> dict[str, Any]:
    """Draw nodes on n features each, whose last ones bound what is carried."""
    nodes: list[dict[str, Any]] = []
    count = n_known

    def node(op: str, inputs: list[int], own: list[int | None], **attributes: Any) -> int:
        nonlocal count
        nodes.append({"op": op, "attributes": attributes, "inputs": inputs, "weights": own})
        count += 1
        return count - 1

    def weight(array: Array) -> int:
        weights.append(array)
        return len(weights) - 1

    for _ in range(int(rng.integers(1, 6))):
        x = int(rng.integers(count))
        op = str(pick(rng, "linear", "add", "sub", "mul", "maximum", "tanh", "sigmoid", "mul by a constant"))
        if op == "linear":
            bias = weight(normal(rng, (n,), dtype)) if rng.random() < 0.5 else None
            node(op, [x], [weight((normal(rng, (n, n), dtype) * 0.4).astype(dtype)), bias])
        elif op in ("tanh", "sigmoid"):
            node(op, [x], [])
        elif op == "mul by a constant":
            node("mul", [x], [weight(normal(rng, (n,), dtype))], order=[0, 1])
        else:
            node(op, [x, int(rng.integers(count))], [])
    kept = [node("tanh", [int(rng.integers(count))], []) for _ in range(carried)]
    return {"nodes": nodes, "carried": kept, "outputs": [int(rng.integers(n_known, count)) for _ in range(2)]}


def _loop(rng: Rng, dtype: str) -> Case:
    n, inputs, carried = int(rng.integers(1, 6)), int(rng.integers(1, 3)), int(rng.integers(0, 4))
    weights: list[Array | None] = [
        normal(rng, (n,), dtype) if rng.random() < 0.5 else None for _ in range(carried)
    ]
    kinds = int(rng.integers(1, 4))
    bodies = [_body(rng, n, inputs + carried, carried, weights, dtype) for _ in range(kinds)]
    names = [{"name": f"h{i}", "dtype": dtype, "shape": [n]} for i in range(carried)]
    body = json.dumps({"carried": names, "bodies": bodies})
    return make(rng, "scan", [Input((n,), dtype) for _ in range(inputs)], {"body": body}, weights=weights)


def by_elements(rng: Rng, dtype: str) -> Case:
    """Draw a body whose steps work by elements, on few features or many, with what is broadcast and sums."""
    d, n = ((3, 2), (1, 7), (33, 8), (20, 16), (5, 200))[int(rng.integers(5))]
    shapes = [(d, n), (d, 1), (1, n)]
    inputs = [(d, n), *(shapes[int(i)] for i in rng.integers(0, 3, 2))]
    carried = int(rng.integers(1, 4))
    begins = rng.random(carried) < 0.5
    weights: list[Array | None] = [normal(rng, (d, n), dtype) if begin else None for begin in begins]
    nodes: list[dict[str, Any]] = []
    whole = [0, *range(len(inputs), len(inputs) + carried)]

    def node(op: str, given: list[int], own: list[int], **attributes: Any) -> int:
        nodes.append({"op": op, "attributes": attributes, "inputs": given, "weights": own})
        return len(inputs) + carried + len(nodes) - 1

    for _ in range(int(rng.integers(2, 9))):
        op = str(pick(rng, "add", "sub", "mul", "maximum", "tanh", "sigmoid", "constant"))
        x = int(pick(rng, *whole))
        if op in ("tanh", "sigmoid"):
            whole.append(node(op, [x], []))
        elif op == "constant":
            shape = [*shapes, (n,), (1,)][int(rng.integers(5))]
            weights.append(normal(rng, shape, dtype))
            order = [0, 1] if rng.random() < 0.5 else [1, 0]
            whole.append(node(str(pick(rng, "mul", "sub")), [x], [len(weights) - 1], order=order))
        else:
            other = int(pick(rng, *whole, *range(len(inputs))))
            whole.append(node(op, [x, other] if rng.random() < 0.5 else [other, x], []))
    bounded = [node("tanh", [int(pick(rng, *whole))], []) for _ in range(carried)]
    kept = [int(pick(rng, *whole[: 1 + carried], *bounded, *bounded)) for _ in range(carried)]
    sums = node("reduce_features", [int(pick(rng, *whole))], [], kind="sum", axes=[1])
    body = {"nodes": nodes, "carried": kept, "outputs": [int(pick(rng, *whole)), sums]}
    names = [{"name": f"h{i}", "dtype": dtype, "shape": [d, n]} for i in range(carried)]
    text = json.dumps({"carried": names, "bodies": [body]})
    return make(rng, "scan", [Input(s, dtype) for s in inputs], {"body": text}, weights=weights)


def _scan(rng: Rng, dtype: str) -> Case:
    return _loop(rng, dtype) if rng.random() < 0.5 else by_elements(rng, dtype)


REFERENCES: dict[str, Any] = {"scan": plain_loop}
GENERATORS: dict[str, Any] = {"scan": along(_scan)}
