"""A graph of ONNX whose sizes are all known, made small: constants are computed, what does nothing goes.

Arithmetic on values stays as it is, in its order, so that no bit of a result changes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from ..torch.export.integers import UNENDED

MOVES = {"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"}
"""Operators whose result is their input in another shape."""

KEPT = {"If", "Loop", "Scan", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike"}
"""Operators that are never computed beforehand."""
POINTWISE = {
    *("Add", "Sub", "Mul", "Div", "Pow", "Where", "Cast", "PRelu", "LeakyRelu", "Relu", "Elu", "Clip", "Erf"),
    *("Tanh", "Sigmoid", "Sqrt", "Exp", "Log", "Abs", "Neg", "Sin", "Cos", "Max", "Min", "And", "Or", "Not"),
    *("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"),
}
"""Operators on single elements: what they compute may be transposed before them or behind."""

NEUTRAL = {"And": True, "Or": False, "Mul": 1, "Div": 1, "Add": 0, "Sub": 0}
"""What leaves the other operand as it is; zeros do of integers only: a float of -0 becomes 0."""

MONOTONE = {
    *("Add", "Sub", "Min", "Max", "Clip", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
    *("Expand", "Gather", *MOVES),
}
"""Operators whose results only grow, or only fall, with a count that they are given."""


def fold(model: Any, last: bool, counter: str) -> Any:
    """Return a model that computes the same with fewer nodes.

    Transpositions sink, so that one meets another that undoes it. At last, what is left of them becomes reshapes,
    where it moves dimensions of 1 only. `counter` names the input that counts each row's frames so far.
    """
    before = len(model.graph.node) + 1
    while len(model.graph.node) < before:  # constants of one pass show the next one more shapes
        before = len(model.graph.node)
        model = _Folding(onnx.shape_inference.infer_shapes(model), last, counter).made()
    return model


def order_of_state(graphs: Sequence[Any], name: str, after: str) -> list[int] | None:
    """Return the order of dimensions in which all graphs read a state and give it back, if it is another."""
    orders = set()
    for graph in graphs:
        readers = [node for node in graph.node if name in _read(node)]
        maker = next(node for node in graph.node if after in node.output)
        if maker.op_type == "Identity" and readers == [maker]:
            continue  # it is handed on
        if maker.op_type != "Transpose" or any(node.op_type != "Transpose" for node in readers):
            return None
        orders.update({tuple(_back(_order(maker))), *(tuple(_order(node)) for node in readers)})
    if len(orders) != 1:
        return None
    order = list(orders.pop())
    return order if order[0] == 0 else None  # B stays first


def reorder_state(graph: Any, name: str, after: str, order: Sequence[int]) -> None:
    """Let a graph take a state, and give it back, in another order of its dimensions."""
    for node in graph.node:
        if name in node.input or after in node.output:
            node.op_type = "Identity"
            del node.attribute[:]
    for value in (*graph.input, *graph.output):
        if value.name in (name, after):
            sizes = [d.dim_value for d in value.type.tensor_type.shape.dim]
            for d, i in zip(value.type.tensor_type.shape.dim, order):
                d.dim_value = sizes[i]


class _Folding:
    """One pass from the first node to the last."""

    def __init__(self, model: Any, last: bool, counter: str) -> None:
        self.model, self.last, graph = model, last, model.graph
        self.opset = next(o.version for o in model.opset_import if not o.domain)
        self.constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        self.given = {value.name for value in graph.input}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.types: dict[str, int] = {}
        for value in (*graph.input, *graph.value_info, *graph.output):
            kind = value.type.tensor_type
            self.types[value.name] = kind.elem_type
            if kind.HasField("shape") and all(d.HasField("dim_value") for d in kind.shape.dim):
                self.shapes[value.name] = tuple(d.dim_value for d in kind.shape.dim)
        #: Of integers that are the counter and a constant, the constants; their first axis is the rows.
        self.ahead: dict[str, Any] = {counter: np.zeros(self.shapes.get(counter, 0), np.int64)}
        #: What stands in the place of a name; the node that made one; the nodes so far by what they compute.
        self.instead: dict[str, str] = {}
        self.makers: dict[str, Any] = {}
        self.known: dict[Any, Any] = {}
        self.nodes: list[Any] = []
        for node in graph.node:
            self._take(node)

    def made(self) -> Any:
        """Return the model of the nodes that are left."""
        graph = self.model.graph
        self._name_outputs()
        ends = {o.name: self._now(o.name) for o in graph.output}
        kept = [helper.make_node("Identity", [now], [name]) for name, now in ends.items() if now != name]
        wanted = set(ends.values())
        for node in reversed(self.nodes):
            if any(o in wanted for o in node.output):
                kept.append(node)
                wanted.update(_read(node))
        kept.reverse()
        del graph.node[:], graph.initializer[:], graph.value_info[:]
        graph.node.extend(kept)
        ready = {
            name: numpy_helper.from_array(np.array(a, order="C"), name)
            for name, a in self.constants.items()
            if name in wanted
        }
        graph.initializer.extend(ready.values())
        return self.model

    def _name_outputs(self) -> None:
        """Let nodes give outputs their names, in place of copies of what they make."""
        ends = {o.name: self._now(o.name) for o in self.model.graph.output}
        names = {now: name for name, now in ends.items() if now in self.makers and now not in ends}
        for now, name in names.items():
            self.instead.pop(name, None)
            self.instead[now] = name
        for node in self.nodes:
            node.output[:] = [names.get(o, o) for o in node.output]
            self._rename(node)

    # ---------------------------------------------------------------- one node
    def _now(self, name: str) -> str:
        while name in self.instead:
            name = self.instead[name]
        return name

    def _rename(self, node: Any) -> None:
        """Let a node, and the graphs in it, read what stands in the place of names."""
        for i, name in enumerate(node.input):
            node.input[i] = self._now(name)
        for inner in _graphs(node):
            for each in inner.node:
                self._rename(each)
            for value in inner.output:
                value.name = self._now(value.name)

    def _take_branch(self, node: Any) -> None:
        """Take the nodes of the branch that a constant chooses."""
        name = "then_branch" if self.constants[node.input[0]] else "else_branch"
        branch = next(a.g for a in node.attribute if a.name == name)
        self.constants.update({t.name: numpy_helper.to_array(t) for t in branch.initializer})
        for each in branch.node:
            self._take(each)
        self.instead.update({o: v.name for o, v in zip(node.output, branch.output)})

    def _take(self, node: Any, sinks: bool = True) -> None:
        """Take a node; `sinks`: transpositions before it may go behind it."""
        self._rename(node)
        if node.op_type == "If" and node.input[0] in self.constants:
            self._take_branch(node)
            return
        if node.op_type == "Constant":
            self.constants[node.output[0]] = _value(node)
            return
        if node.op_type == "Shape" and node.input[0] in self.shapes and not node.attribute:
            self.constants[node.output[0]] = np.array(self.shapes[node.input[0]], np.int64)
            return
        results = self._constants_made(node)
        if results is not None:
            for name, result in zip(node.output, results):
                self.constants[name] = np.asarray(result)
                self.shapes[name] = self.constants[name].shape
            return
        same = self._nothing_done(node)
        if same is None:
            node = self._simpler(node, sinks)
            key = (node.op_type, *node.input, *sorted(a.SerializeToString() for a in node.attribute))
            twin = self.known.get(key)
            if twin is not None and len(twin.output) == len(node.output):
                self.instead.update(zip(node.output, twin.output))
                return
            self.known[key] = node
            self.nodes.append(node)
            self.makers.update(dict.fromkeys(node.output, node))
        elif same != node.output[0]:
            self.instead[node.output[0]] = same

    def _constants_made(self, node: Any) -> Any:
        """Return a node's results where they are constants; note one that is the counter and a constant.

        What is monotone needs a look only at no frames and at very many, of each row another number.
        """
        given = {i: self.constants[i] for i in node.input if i in self.constants}
        counts = {i: self.ahead[i] for i in node.input if i in self.ahead}
        if node.op_type in KEPT or any(i and i not in given and i not in counts for i in node.input):
            return None
        if counts and (node.op_type not in MONOTONE or (node.op_type == "Gather" and node.input[1] in counts)):
            return None
        run = ReferenceEvaluator(node, opsets={"": self.opset}).run
        none: Any = run(None, {**given, **counts})
        many: Any = run(None, {**given, **{i: n + _many(n) for i, n in counts.items()}}) if counts else none
        if none is many or np.array_equal(none[0], many[0]):
            return none
        if none[0].dtype == np.int64 and none[0].ndim and (many[0] == none[0] + _many(none[0])).all():
            self.ahead[node.output[0]] = none[0]
        return None

    def _nothing_done(self, node: Any) -> str | None:
        """Return the name of what a node's result equals; None where it does something."""
        if not node.input:
            return None
        x, y = str(node.input[0]), str(node.output[0])
        alike = y in self.shapes and self.shapes.get(x) == self.shapes[y]
        if node.op_type == "Identity" or (node.op_type in MOVES | {"Expand", "Slice", "Concat"} and alike):
            if node.op_type == "Slice" and not self._forward(node):
                return None
            return x
        if node.op_type == "Cast" and self.types.get(x) == helper.get_attribute_value(node.attribute[0]):
            return x
        if node.op_type == "Transpose" and _order(node) == list(range(len(_order(node)))):
            return x
        if node.op_type == "Where" and x in self.constants:
            condition = self.constants[x]
            chosen = str(node.input[1 if condition.all() else 2])
            if condition.all() == condition.any() and y in self.shapes and self._shape(chosen) == self.shapes[y]:
                return chosen
        neutral = NEUTRAL.get(node.op_type)
        exact = node.op_type not in ("Add", "Sub") or self.types.get(y) == onnx.TensorProto.INT64
        both = (list(node.input), list(node.input)[::-1])[: 1 if node.op_type in ("Div", "Sub") else 2]
        for a, b in both if neutral is not None and exact else ():
            c = self.constants.get(b)
            if c is not None and (c == neutral).all() and self._shape(a) == self.shapes.get(y, ()):
                return str(a)
        if node.op_type == "Gather" and alike and node.input[1] in self.constants:
            axis = next((helper.get_attribute_value(a) for a in node.attribute), 0)
            return x if np.array_equal(self.constants[node.input[1]], np.arange(self.shapes[x][axis])) else None
        return None

    def _shape(self, name: str) -> tuple[int, ...] | None:
        return self.constants[name].shape if name in self.constants else self.shapes.get(name)

    def _forward(self, node: Any) -> bool:
        """Return whether a slice goes forward: backwards it turns what it takes."""
        steps = self.constants.get(node.input[4]) if len(node.input) > 4 else np.ones(1)
        return steps is not None and bool((steps == 1).all())

    def _simpler(self, node: Any, sinks: bool) -> Any:
        """Return a node for another, such as one reshape for several in a row."""
        if not node.input:
            return node
        y, source = node.output[0], self.makers.get(node.input[0])
        if node.op_type == "Transpose":
            order = _order(node)
            if source is not None and source.op_type == "Transpose":
                first = _order(source)
                order = [first[i] for i in order]
                node = helper.make_node("Transpose", [source.input[0]], [y], perm=order)
            if self.last and y in self.shapes and self._in_order(node.input[0], order):
                return self._reshape(node.input[0], y)
            return node
        if node.op_type == "Where":
            node = self._prelu(node) or node
        if node.op_type in MOVES and y in self.shapes:
            return self._reshape(node.input[0], y)
        if sinks and node.op_type in POINTWISE | {"Concat", "Slice"} and y in self.shapes:
            # of Transpose, Cast, and products in double, in this order, ONNX Runtime 1.32 crashes: Cast goes first
            behind = self._transposed_behind(node)
            if behind is not None:
                return behind
        if node.op_type == "Gather" and node.input[1] in self.constants and y in self.shapes:
            axis = next((helper.get_attribute_value(a) for a in node.attribute), 0)
            if self.constants[node.input[1]].ndim == 0 and self.shapes.get(node.input[0], (0,) * 9)[axis] == 1:
                return self._reshape(node.input[0], y)
        if node.op_type == "Pow" and node.input[1] in self.constants:
            power = self.constants[node.input[1]]
            if power.size and (power == 2).all() and self.shapes.get(node.input[0]) == self.shapes.get(y, ()):
                return helper.make_node("Mul", [node.input[0]] * 2, [y])
        if node.op_type in ("LSTM", "GRU", "RNN") and len(node.input) > 4 and node.input[4] in self.constants:
            frames = self.shapes.get(node.input[0])
            if frames is not None and (self.constants[node.input[4]] == frames[0]).all():
                node.input[4] = ""
        return node

    def _prelu(self, node: Any) -> Any:
        """Return PRelu for a choice between values and multiples of them, by their signs; None for others."""
        condition, x, other = node.input
        above, times = self.makers.get(condition), self.makers.get(other)
        if above is None or times is None or (above.op_type, times.op_type) != ("Greater", "Mul"):
            return None
        slope = next((self.constants[i] for i in times.input if i in self.constants), None)
        limit, shape = self.constants.get(above.input[1]), self.shapes.get(x)
        if slope is None or limit is None or shape is None or limit.any() or not (slope >= 0).all():
            return None
        if above.input[0] != x or x not in times.input or np.broadcast_shapes(slope.shape, shape) != shape:
            return None
        if slope.size == 1 and slope.dtype == np.float32:  # several times faster than PRelu
            return helper.make_node("LeakyRelu", [x], [node.output[0]], alpha=float(slope.item()))
        name = next(i for i in times.input if i in self.constants)
        return helper.make_node("PRelu", [x, name], [node.output[0]])

    def _in_order(self, x: str, order: Sequence[int]) -> bool:
        """Return whether a transposition moves dimensions of 1 only."""
        shape = self._shape(x)
        moved = [i for i in order if shape is None or shape[i] != 1]
        return moved == sorted(moved)

    def _transposed_behind(self, node: Any) -> Any:
        """Return the transposition of what a node makes of inputs before they were transposed; None for others."""
        y, kind = node.output[0], node.op_type
        values = node.input[:1] if kind == "Slice" else node.input
        turned = (i for i in values if self._is_transposed(i))
        fit = (i for i in turned if kind not in POINTWISE or self.shapes.get(i) == self.shapes[y])
        order = next((_order(self.makers[i]) for i in fit), None)
        if order is None:
            return None
        before = [name for i in values if (name := self._before(i, order, node)) is not None]
        if len(before) < len(values):
            return None
        inner = helper.make_node(kind, [*before, *node.input[len(before) :]], [self._fresh(y)])
        inner.attribute.extend(node.attribute)
        if kind == "Slice":
            inner.input[3] = self._fresh(node.input[3])
            axes = self.constants[node.input[3]]
            self.constants[inner.input[3]] = np.array([order[i] for i in axes], np.int64)
        elif kind == "Concat":
            inner.attribute[0].i = order[inner.attribute[0].i]
        self._note(inner.output[0], y, _back(order))
        self._take(inner, sinks=False)
        return helper.make_node("Transpose", [self._now(inner.output[0])], [y], perm=order)

    def _is_transposed(self, x: str) -> bool:
        return x in self.makers and self.makers[x].op_type == "Transpose"

    def _before(self, x: str, order: list[int], node: Any) -> str | None:
        """Return the name of what an input was before it was transposed, if it is so or may be transposed back."""
        own, back, pointwise = self._shape(x), _back(order), node.op_type in POINTWISE
        if self._is_transposed(x) and _order(self.makers[x]) == order:
            return str(self.makers[x].input[0])
        if not x or (pointwise and own is not None and math.prod(own) == 1):
            return x
        if x in self.constants:
            name, array = self._fresh(x), self.constants[x]
            array = array.reshape((1,) * (len(order) - array.ndim) + array.shape)
            self.constants[name] = np.ascontiguousarray(array.transpose(back))
            return name
        if own is None or len(own) != len(order):
            return None
        small = pointwise and own != self.shapes[node.output[0]] and self._in_order(x, back)
        if not small and (pointwise or x not in self.given):
            return None
        name = self._fresh(x)
        self._note(name, x, back)
        self._take(helper.make_node("Transpose", [x], [name], perm=back))
        return self._now(name)

    def _fresh(self, name: str) -> str:
        """Return a name that nothing has yet, made of another."""
        n = 0
        while f"{name}.{n}" in self.types or f"{name}.{n}" in self.constants:
            n += 1
        return f"{name}.{n}"

    def _note(self, name: str, of: str, order: Sequence[int]) -> None:
        """Note type and shape of a value, those of another's transposition."""
        self.types[name] = self.types.get(of, 0)
        self.shapes[name] = tuple(self.shapes[of][i] for i in order)

    def _reshape(self, x: str, y: str) -> Any:
        """Return a reshape of what x is a reshape of."""
        source = self.makers.get(x)
        if source is not None and source.op_type == "Reshape":
            x = source.input[0]
        shape = np.array(self.shapes[y], np.int64)
        name = f"shape_{'_'.join(map(str, self.shapes[y]))}"
        self.constants[name] = shape
        return helper.make_node("Reshape", [x, name], [y], allowzero=int(0 in self.shapes[y]))


def _graphs(node: Any) -> list[Any]:
    return [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]


def _read(node: Any) -> set[str]:
    """Return the names that a node reads, the graphs in it too."""
    inner = [
        name
        for g in _graphs(node)
        for name in (*(o.name for o in g.output), *(n for x in g.node for n in _read(x)))
    ]
    return {*node.input, *inner}


def _many(counts: Any) -> Any:
    """Return very many frames of each row, to be added to counts whose first axis is the rows."""
    return (UNENDED + np.arange(len(counts))).reshape((-1,) + (1,) * (counts.ndim - 1))


def _order(node: Any) -> list[int]:
    return list(helper.get_attribute_value(node.attribute[0]))


def _back(order: Sequence[int]) -> list[int]:
    """Return the order of dimensions that undoes another."""
    return [order.index(i) for i in range(len(order))]


def _value(node: Any) -> np.ndarray[Any, Any]:
    value = helper.get_attribute_value(node.attribute[0])
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.array(value)
