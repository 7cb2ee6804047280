"""compare: what weights in fewer bits cost, layer by layer and in the outputs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from .. import _core
from ..array.chunk_values import Naming, as_array
from ..array.tensor import Tensor
from ..errors import ShapeError
from ..stream.tree import leaves
from .compile import compile
from .engine import Engine
from .interface import sizes_of
from .load import bytes_of, planned, tiled
from .spec import OutputInfo
from .weights import FORMATS, Narrowing, products_of, stored as stored_in

Step = tuple[Mapping[str, Any], list[str], list[str]]  # chunks by id, who starts, who ends


@dataclass(frozen=True)
class OutputError:
    """How far an output is from float32's: `error` = rms(difference) ÷ rms(float32's), `largest` difference."""

    name: str
    error: float
    largest: float


@dataclass(frozen=True)
class LayerError:
    """A layer whose weights are stored narrow, or whose products are not of floats.

    Attributes
    ----------
    path, operator, stored, products : str
        The module's path, its operator, how its weights are stored, and the rows that they are multiplied with.
    error : float
        rms(difference) ÷ rms(float32's) of what the layer gives, with all layers before it as they are stored.
    largest : float
        The largest difference there.
    kept_wide : float
        The worst output's error if this layer alone were kept in float32.
    """

    path: str
    operator: str
    stored: str
    products: str
    error: float
    largest: float
    kept_wide: float


@dataclass(frozen=True)
class Comparison:
    """What `compare` saw; ``str()`` is a table.

    Attributes
    ----------
    outputs : list of OutputError
        In the order of `Engine.outputs`.
    layers : list of LayerError
        Those that are stored narrow; first the one that is best kept wide.
    frames : int
        Output frames compared.
    """

    outputs: list[OutputError]
    layers: list[LayerError]
    frames: int

    @property
    def error(self) -> float:
        """The worst output's error."""
        return max(o.error for o in self.outputs)

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as plain dicts, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        paths = [_core.shown(row.path) for row in self.layers]
        names = [_core.shown(o.name) for o in self.outputs]
        wide = max(6, *map(len, paths), *map(len, names))
        lines = [f"{'output':{wide}}  {'':36} {'error':>9} {'largest':>9}"]
        lines += [
            f"{name:{wide}}  {'':36} {o.error:9.2e} {o.largest:9.2e}" for name, o in zip(names, self.outputs)
        ]
        lines.append(
            f"{'layer':{wide}}  {'operator':18} {'stored':6} {'products':10} {'error':>9} {'largest':>9}  "
            "output if kept wide"
        )
        lines += [
            f"{path or '-':{wide}}  {row.operator:18} {row.stored:6} {row.products:10} {row.error:9.2e} "
            f"{row.largest:9.2e}  {row.kept_wide:9.2e}"
            for path, row in zip(paths, self.layers)
        ]
        return "\n".join(lines)


def compare(model: Any, engine: Engine, chunks: Any) -> Comparison:
    """Compare an engine whose weights or products are narrow with float32: each output, and each such layer.

    Streams run in copies: those of `engine` are left alone. One engine per narrow layer is made in turn.

    Parameters
    ----------
    model : dreamstream.nn.Module, torch.nn.Module or Engine
        The model of which `engine` was made, or an engine of it in float32.
    engine : Engine
    chunks : array, dict or iterable
        One stream's whole array; whole arrays by id; or call after call an array (of one stream), a dict of chunks
        by id, as `Engine.step` takes them, or a StreamTensor. A stream starts where it is first seen and ends
        where it is last seen; StreamTensors say themselves who ends.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        Where `model` isn't the engine's, or isn't in float32.
    ShapeError
        Where no output frame comes of the chunks.
    TypeError
        Where `engine` is none, or `chunks` nothing that this page names.

    Examples
    --------
    >>> import numpy as np, dreamstream as ds
    >>> model = ds.nn.Linear(8, 4).eval()
    >>> engine = ds.compile(model, ("B", "L", 8), weights="int8")
    >>> found = ds.compare(model, engine, np.random.default_rng(0).standard_normal((50, 8)))
    >>> 0 < found.error < 0.02, [layer.stored for layer in found.layers]
    (True, ['int8'])
    """
    if not isinstance(engine, Engine):
        raise TypeError(f"engine: expected an Engine, got {type(engine).__name__}")
    reference = model if isinstance(model, Engine) else _wide(model, engine)
    content = bytes_of(reference)
    nodes, own = _nodes(content, tiled(reference)), _nodes(bytes_of(engine), tiled(engine))
    if [n[:2] for n in nodes] != [n[:2] for n in own] or reference.inputs != engine.inputs:
        made, given = _core.shown(engine._name), _core.shown(reference._name)
        raise ValueError(f"the engine, of {made}, was not made of {given} as it is given")
    if any(stored for *_, stored, _ in nodes):
        raise ValueError(
            "model: expected weights and products in fp32; compare with the model, or with an engine in fp32"
        )
    steps = list(_steps(chunks))
    runs = {node["first_output"] for node in engine._core.graph()["nodes"]}  # what nothing reads does not
    narrow = [j for j, (*_, stored, edge) in enumerate(own) if stored and edge in runs]
    stored = [how for *_, how, _ in own]
    wanted, found = _probe(reference, content, narrow), _probe(engine, bytes_of(engine), narrow, bytes(stored))
    n_outputs = len(engine.outputs)
    errors = [_Sums() for _ in range(n_outputs + len(narrow))]
    kept: list[list[Any]] = []
    for right, got in zip(_run(wanted, steps), _run(found, steps)):
        kept.append([row[:n_outputs] for row in right])
        for row, other in zip(right, got):
            for sums, a, b in zip(errors, row, other):
                sums.add(a, b)
    frames = sum(a.shape[engine.stream_axis(k)] for step in kept for row in step for k, a in enumerate(row))
    if not frames:
        raise ShapeError("nothing was compared: no output frame comes of these chunks")
    layers = []
    for sums, j in zip(errors[n_outputs:], narrow):
        wide = bytes(0 if i == j else how for i, how in enumerate(stored))
        one = [_Sums() for _ in range(n_outputs)]
        for right, got in zip(kept, _run(_probe(engine, content, (), wide), steps)):
            for row, other in zip(right, got):
                for output, a, b in zip(one, row, other):
                    output.add(a, b)
        operator, path, *_ = own[j]
        worst = max(output.error for output in one)
        how, rows = FORMATS[stored[j] & 3], products_of(stored[j])
        layers.append(LayerError(path, operator, how, rows, sums.error, sums.largest, worst))
    layers.sort(key=lambda layer: layer.kept_wide)
    outputs = [OutputError(o.name, s.error, s.largest) for o, s in zip(engine.outputs, errors)]
    return Comparison(outputs, layers, frames)


@dataclass
class _Sums:
    """Differences so far; NaN equals NaN, an infinity itself."""

    wrong: float = 0.0
    right: float = 0.0
    largest: float = field(default=0.0)

    def add(self, right: Any, got: Any) -> None:
        if right.shape != got.shape:
            raise ShapeError(f"the engine gave {got.shape} where the model gave {right.shape}")
        a, b = right.astype(np.float64), got.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        gap = np.abs(np.subtract(a, b, where=~same, out=np.zeros_like(a)))
        gap = np.where(np.isnan(gap), math.inf, gap)
        self.wrong += float((gap * gap).sum())
        self.right += float((a[np.isfinite(a)] ** 2).sum())
        self.largest = max(self.largest, float(gap.max(initial=0.0)))

    @property
    def error(self) -> float:
        if self.wrong == 0:
            return 0.0
        return math.sqrt(self.wrong / self.right) if self.right else math.inf


def _wide(model: Any, engine: Engine) -> Engine:
    """Return the model's engine in float32, for the inputs that an engine has."""
    spec: Any = {s.name: s.dimensions for s in engine.inputs} | engine.lengths
    rate = {s.name: s.rate for s in engine.inputs}
    dtype = {s.name: s.dtype for s in engine.inputs}
    if not engine.by_name:
        one = engine.inputs[0]
        return compile(model, one.dimensions, one.rate, one.dtype, verify=False, unstreamable="buffer")
    return compile(model, spec, rate, dtype, skew=engine._interface.skew, verify=False, unstreamable="buffer")


def _nodes(content: bytes, tiles: Collection[str]) -> list[tuple[str, str, bool, int, int]]:
    graph = _core.read_model(content, False)[0]
    if tiles:
        graph.store(stored_in(Narrowing(tiled=tiles), graph.nodes()))
    return graph.nodes()


def _probe(engine: Engine, content: bytes, inner: Sequence[int], stored: bytes = b"") -> Engine:
    """Return an engine of a file whose outputs are the model's, one after the other, and those of some nodes."""
    graph = _core.read_model(content, False)[0]
    if any(stored):
        graph.store(stored)
    interface = engine.as_computed()._interface
    outputs, dims = list(interface.outputs), list(interface.dims)
    nodes, edges = graph.nodes(), engine._core.graph()["edges"] if inner else []
    for j in inner:
        _, path, *_, edge = nodes[j]
        graph.output(edge)
        dtype, shape, num, den = edges[edge][0]
        rate = Fraction(num, den) if num else Fraction(0)
        dims.append(("B", *(("L",) if num else ()), *range(len(shape))))
        outputs.append(OutputInfo(path, sizes_of(dims[-1], shape), dtype, rate))
    interface = replace(interface, outputs=tuple(outputs), dims=tuple(dims), structure=list(range(len(outputs))))
    core = engine._core
    return planned(graph, interface, engine.threads, 0, core.blas, None, None if core.blas else core.kernels)


def _run(engine: Engine, steps: list[Step]) -> Iterable[list[list[Any]]]:
    """Yield call by call the outputs of each stream of it."""
    for chunks, sos, eos in steps:
        yield [leaves(row) for row in engine.step(chunks, sos, eos).values()]


def _steps(chunks: Any) -> Iterable[Step]:
    if isinstance(chunks, Mapping):
        return [(chunks, list(chunks), list(chunks))]
    if isinstance(chunks, (np.ndarray, Tensor)) or hasattr(chunks, "detach"):
        return [({"stream": _array(chunks)}, ["stream"], ["stream"])]
    if not isinstance(chunks, Iterable) or isinstance(chunks, (str, bytes)):
        raise TypeError(
            f"chunks: expected an array, a dict of arrays or chunks in turn, got {type(chunks).__name__}"
        )
    calls = [_call(c) for c in chunks]
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for n, (rows, _) in enumerate(calls):
        for name in rows:
            first.setdefault(name, n)
            last[name] = n
    return [
        (rows, [i for i in rows if first[i] == n], [i for i in rows if last[i] == n] if ends is None else ends)
        for n, (rows, ends) in enumerate(calls)
    ]


def _call(given: Any) -> tuple[Mapping[str, Any], list[str] | None]:
    """Return a call's chunks by id, and who ends in it where it says so."""
    if isinstance(given, Mapping):
        return given, None
    meta = getattr(given, "meta", None)
    if meta is None:
        return {"stream": _array(given)}, None
    ends = [i for i, end in zip(meta.ids, np.asarray(meta.eos).tolist()) if end]
    return {i: _array(given[i]) for i in meta.ids}, ends


def _array(value: Any) -> Any:
    with Naming("chunks", ()):
        return as_array(value.detach() if hasattr(value, "detach") else value)
