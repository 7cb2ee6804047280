"""How an engine's steps routed tokens: which edges of its graph say so, and what is added up of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _core
from ..nn.routing_statistics import RoutingStatistics
from ..operations import row_of

Array = npt.NDArray[Any]
Node = Mapping[str, Any]


@dataclass(frozen=True)
class _Layer:
    """A mixture of experts: the edges of choices, of what was compared and of logits."""

    path: str
    n: int
    rate: Fraction
    index: int
    compared: int | None
    logits: int | None

    def edges(self) -> list[int]:
        return [e for e in (self.index, self.compared, self.logits) if e is not None]


class Routes:
    """An engine's mixtures of experts, and how tokens were routed in its steps; with `history` every choice."""

    def __init__(self, core: _core.Engine, history: bool) -> None:
        self.layers = _Graph(core.nodes).layers()
        self.rates = {layer.path: layer.rate for layer in self.layers}
        self.history = history
        self.sums = {layer.path: RoutingStatistics(layer.n, history) for layer in self.layers}
        self._edges = list(dict.fromkeys(e for layer in self.layers for e in layer.edges()))
        self._seen: list[Any] = []
        self._lock = threading.Lock()
        self.watch(core)

    def watch(self, core: _core.Engine) -> None:
        """Gather from now on what steps route."""
        if self.layers:
            core.watch(np.asarray(self._edges, np.int32).tobytes(), self._seen, self.read)

    def read(self) -> None:
        """Add up what calls have left."""
        with self._lock:
            seen = [self._seen.pop(0) for _ in range(len(self._seen))]
            for ids, counts, arrays in seen:
                held = dict(zip(self._edges, zip(counts, arrays)))
                for layer in self.layers:
                    self._add(layer, ids, held)

    def _add(self, layer: _Layer, ids: Sequence[str], held: Mapping[int, tuple[Array, Array]]) -> None:
        counts, index = held[layer.index]
        k = index.shape[-1]
        per_frame = int(np.prod(index.shape[1:-1]))
        logits, compared = (None if e is None else held[e][1] for e in (layer.logits, layer.compared))
        margin = None
        if compared is not None and layer.n > k:
            best = -np.sort(-compared.reshape(-1, layer.n), -1)
            margin = best[:, k - 1] - best[:, k]
        self.sums[layer.path].add(
            index.reshape(-1, k),
            None if logits is None else logits.reshape(-1, layer.n),
            margin,
            [(i, int(n) * per_frame) for i, n in zip(ids, counts)],
        )

    def as_dict(self) -> dict[str, Any]:
        """Return what was added up: of all layers together, and under "layers" of each."""
        self.read()
        with self._lock:
            total = RoutingStatistics.of(list(self.sums.values())).as_dict()
            layers = {path: {**sums.as_dict(), "rate": self.rates[path]} for path, sums in self.sums.items()}
            return {**total, "layers": layers}


class _Graph:
    """The nodes of a plan, and who makes what."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.maker = {n["first_output"] + i: n for n in nodes for i in range(len(n["outputs"]))}

    def layers(self) -> list[_Layer]:
        """Return the mixtures, in order: those who share choices are one, as what is combined by weights is."""
        experts: dict[int, list[Node]] = {}
        for node in self.nodes:
            if node["name"] == "expert_linear" and node["inputs"][1] in self.maker:
                experts.setdefault(node["inputs"][1], []).append(node)
        known = {self._choice(edge) for edge in experts}
        for node in self.nodes:
            if node["name"] == "combine":
                choice = self._choice(node["inputs"][1])
                if choice is not None and choice not in known:
                    experts[self._narrowed(choice + 1, self._shape(node["inputs"][1])[-1])] = [node]
        made: dict[str, _Layer] = {}
        for index, nodes in experts.items():
            layer = self._layer(index, nodes)
            if layer is not None:
                names = [layer.path, *(f"{layer.path} ({i})" for i in range(2, len(made) + 2))]
                path = next(name for name in names if name not in made)
                made[path] = replace(layer, path=path)
        return list(made.values())

    def _shape(self, edge: int) -> tuple[int, ...]:
        node = self.maker[edge]
        shape: tuple[int, ...] = node["outputs"][edge - node["first_output"]][1]
        return shape

    def _nearest(self, edge: int, wanted: Callable[[Node], bool]) -> Node | None:
        """Return the node from which an edge follows by the fewest steps."""
        at, seen = [edge], {edge}
        while at:
            found = [self.maker[e] for e in at if e in self.maker]
            for node in found:
                if wanted(node):
                    return node
            at = list(dict.fromkeys(e for node in found for e in node["inputs"] if e not in seen))
            seen.update(at)
        return None

    def _choice(self, edge: int) -> int | None:
        node = self._nearest(edge, lambda n: row_of(n["name"]).chooses == "several")
        return None if node is None else node["first_output"]

    def _narrowed(self, edge: int, k: int) -> int:
        """Return the edge of the first k choices, where somebody takes them."""
        for node in self.nodes:
            if node["name"] == "narrow" and node["inputs"] == [edge] and node["outputs"][0][1][-1] == k:
                return int(node["first_output"])
        return edge

    def _layer(self, index: int, nodes: Sequence[Node]) -> _Layer | None:
        choice = self._choice(index)
        compared = None if choice is None else self.maker[choice]["inputs"][0]
        if compared is None or compared not in self.maker:
            return None
        n = self._shape(compared)[-1]
        router = self._nearest(
            compared, lambda m: m["name"] in ("router", "linear") and m["outputs"][0][1][-1] == n
        )
        path = nodes[0]["path"].split(".")
        for node in nodes[1:] if router is None else [*nodes[1:], router]:
            other = node["path"].split(".")
            path = path[
                : next((i for i, (a, b) in enumerate(zip(path, other)) if a != b), min(len(path), len(other)))
            ]
        path = path[: path.index("experts")] if "experts" in path else path
        rate = Fraction(*nodes[0]["outputs"][0][2:])
        return _Layer(".".join(path), n, rate, index, compared, None if router is None else router["first_output"])
