"""The engine as Python callers see it: streams by id, arrays in, arrays out."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import cycle
from typing import Any

import numpy as np

from .. import _core
from .._core import Stream
from ..array.chunk_values import Naming, RowNames, Wanted, read_chunk, read_each
from ..array.stream_tensor import StreamTensor
from ..errors import ModeError, ShapeError, StreamIdError
from ..online.given import Given, Static
from ..stream.metadata import StreamMetadata
from ..stream.rules import require_same_streams
from ..stream.tree import leaves, map_leaves
from .differences import whole_snapshot
from .files import Write, check_format, write_file
from .interface import Interface, cast
from .routing import Routes
from .spec import InputSpec


class Engine(_core.Stepper):
    """A compiled model with its streams; see :func:`dreamstream.compile`.

    One engine may be stepped by several threads at the same time, on different streams.

    `save` writes the model to a file, of which :func:`dreamstream.load` makes an engine again, with the same
    bits. ``copy.copy`` and ``copy.deepcopy`` give an engine of the same plan and weights, which are not copied;
    a pickle holds the path of the file that the engine was loaded from, as long as that is unchanged, or the
    file's bytes. None of them takes live streams along: `snapshot` and `restore` do.
    """

    def __init__(
        self,
        core: Any,
        interface: Any = None,
        max_streams: int = 0,
        origin: tuple[str, tuple[int, ...]] | None = None,
        max_bytes: int = 0,
    ) -> None:
        if not isinstance(core, _core.Engine) or not isinstance(interface, Interface):
            raise TypeError("an Engine is what ds.compile(model, spec) and ds.load(path) return")
        self._casts = any(o.computed not in (o.dtype, "") for o in interface.outputs)
        super().__init__(
            core,
            tuple(s.name for s in interface.inputs),
            interface.structure,
            [_roles(s.dims) for s in interface.inputs],
            [_roles(dims) for dims in interface.dims],
            self._casts,
        )
        self._interface = interface
        self.lengths: dict[
            str, Any
        ] = {}  # the model's arguments that are lengths of inputs; a file has no word of them
        self._max_streams = max_streams  # 0: no limit
        self._max_bytes = max_bytes  # 0: the default
        self._origin = origin  # the path that it was loaded from, and that file's state
        self.inputs = list(interface.inputs)
        self._wanted = [
            Wanted(s.dtype, int(s.rate != 0 and not s.features), f"input {s.name}", s.shape_text())
            for s in self.inputs
        ]
        self.by_name = interface.by_name  # whether the forward takes its inputs by name
        self.outputs = list(interface.outputs)
        self._structure = interface.structure  # what forward returned, with output numbers for tensors
        self._dims = list(interface.dims)
        self._name = interface.name

    # ---------------------------------------------------------------- stepping
    # step and step_batch are in C (csrc/python/stepper.c); what they ask of Python:
    def _rows_of(self, chunks: Any) -> dict[str, Any]:
        """Return a dict by plain ids of whatever mapping `step` was given."""
        if not isinstance(chunks, Mapping):
            raise TypeError(
                "step takes a dict of arrays by id, as in engine.step({'anna': chunk}, sos='anna'), got "
                f"{type(chunks).__name__}"
            )
        rows: dict[str, Any] = {}
        twice = []
        for given in list(chunks):
            if not isinstance(given, str):
                raise StreamIdError(f"a stream's id must be str, got {repr(given)[:100]}")
            stream_id = str.__str__(given)  # of a subclass: its text
            if stream_id in rows:
                twice.append(stream_id)
            else:
                rows[stream_id] = chunks[given]
        if twice:
            raise StreamIdError("ids must be unique within a batch", twice)
        return rows

    def _arrays_of(self, stream_id: str, given: Any) -> list[Any]:
        """Return a stream's array per input, of whatever it was given that C doesn't read."""
        ids = (stream_id,)
        names = [s.name for s in self.inputs]
        moving = [s.name for s in self.inputs if not s.once]
        with Naming(f"input{'s' * (len(names) > 1)} {', '.join(names)}", ids):
            items = dict(given.items()) if isinstance(given, Mapping) else None
        if items is None and len(moving) == 1:
            items = {moving[0]: given}
        if items is None:
            raise ShapeError(f"expected a dict with the inputs {', '.join(names)}", ids)
        unknown = sorted(str(name) for name in items if name not in names)
        if unknown:
            raise ShapeError(f"there is no input {unknown[0]!r}; inputs are {', '.join(names)}", ids)
        return [
            None if items.get(name) is None else read_chunk(items[name], wanted, ids)
            for name, wanted in zip(names, self._wanted)
        ]

    def _array_of(self, k: int, given: Any, ids: Sequence[str]) -> Any:
        """Return the padded array of input `k`, of whatever was given; a list may hold each row's chunk."""
        spec, wanted = self.inputs[k], self._wanted[k]
        whole = wanted._replace(samples=2 * wanted.samples, shape=spec.shape_text(len(ids)))
        if not (isinstance(given, (list, tuple)) and spec.dimensions[0] == "B" and len(given) == len(ids) > 0):
            return read_chunk(given, whole, ids if len(ids) == 1 else ())
        rows = read_each(lambda row, row_ids: read_chunk(row, wanted, row_ids), given, [(i,) for i in ids])
        shapes = [row.shape for row in rows]
        if len(set(shapes)) > 1:
            odd = [i for i, shape in zip(ids, shapes) if not spec.fits(shape)]
            found = ", ".join(map(str, sorted(set(shapes))))
            raise ShapeError(
                f"{whole.name}: expected an array of shape {whole.shape}, got rows of {found}",
                odd or RowNames(ids, False).odd(shapes),
            )
        return np.stack(rows)

    def _out_of(self, given: Any) -> tuple[Any, ...]:
        """Return the array per output of a caller's `out`; None for what forward does not return."""
        found: list[Any] = [None] * len(self.outputs)

        def find(structure: Any, out: Any) -> None:
            if isinstance(structure, int):
                found[structure] = out
                return
            named = isinstance(structure, dict)
            keys = list(structure) if named else list(range(len(structure)))
            kind: Any = Mapping if named else (list, tuple)
            if not isinstance(out, kind) or set(out if named else range(len(out))) != set(keys):
                form = f"a dict with the keys {keys}" if named else f"a tuple of {len(keys)}"
                raise ShapeError(f"out: expected arrays in the form of what forward returns, {form}")
            for key in keys:
                find(structure[key], out[key])

        find(self._structure, given)
        return tuple(found)

    def _given(self, made: Any) -> Any:
        """Return what a step made, or several rows of it, with the types that callers are given."""
        types = cycle(self.outputs[k].dtype for k in leaves(self._structure))
        return map_leaves(made, lambda array: cast(array, next(types)))

    def _given_batch(self, made: tuple[Any, Any]) -> tuple[Any, Any]:
        return self._given(made[0]), made[1]

    def __call__(self, *tensors: Any, **named: Any) -> Any:
        """Advance the streams of StreamTensors and return StreamTensors, as the patched module would."""
        tensors = tuple(sorted(tensors, key=lambda x: x is None or isinstance(x, Static)))  # as inputs are
        given = dict(zip((s.name for s in self.inputs), tensors)) | named
        needed = {s.name for s in self.inputs if not s.once}
        known = {s.name for s in self.inputs}
        if not needed <= set(given) <= known or len(given) < len(tensors) + len(named):
            raise ShapeError(f"expected the inputs {', '.join(s.name for s in self.inputs)}")
        xs, values = [], []
        for s, wanted in zip(self.inputs, self._wanted):
            if s.once:
                continue
            x = given[s.name]
            if not isinstance(x, StreamTensor):
                raise ModeError(
                    f"input {s.name}: an engine takes StreamTensors of NumPy arrays, or arrays by step(); "
                    "t.numpy() is the array of a torch tensor"
                )
            if tuple(d if isinstance(d, str) else "F" for d in x.dims) != tuple(
                d if isinstance(d, str) else "F" for d in s.dims
            ):
                raise ShapeError(f"input {s.name}: expected dimensions {s.dimensions}, got {x.roles}")
            xs.append(x)
            value = x.in_order().value
            if value.dtype != s.dtype:
                value = read_chunk(value, wanted._replace(samples=0, shape=""), x.ids if len(x.ids) == 1 else ())
            values.append((value, x.lengths))
        meta = require_same_streams([x.meta for x in xs])
        moving = iter(values)
        pairs = [self._given_once(s, given.get(s.name), meta) if s.once else next(moving) for s in self.inputs]
        outputs, counts = self._core.step(
            meta.ids,
            meta.sos,
            meta.eos,
            [value for value, _ in pairs],
            [lengths for _, lengths in pairs],
            any(x.restart for x in xs),
        )
        made = []
        for value, dims, own, o in zip(outputs, self._dims, counts, self.outputs):
            value, dims = cast(value, o.dtype), dims[: len(o.dimensions)]
            now = meta.with_lengths(own[0])
            made.append(StreamTensor._make(value, dims, None, now, own[1].tolist(), o.rate, None))
        return map_leaves(self._structure, lambda k: made[k])

    def _given_once(self, spec: InputSpec, given: Any, meta: StreamMetadata) -> tuple[Any, Any]:
        """Return the values of an input that is given once, ``[rows that start][features]``, and who has one."""
        if given is not None and not isinstance(given, Static):
            raise ModeError(f"input {spec.name} is given once: expected ds.static({{id: value}}) or None")
        roles = tuple(d for d in spec.dimensions if d != "B")
        once = Given(spec.name, given, (spec.dtype, roles), spec.dtype)
        once.check(meta.ids, meta.sos.tolist())
        return once.stacked(meta.ids), once.lengths(meta.ids)

    # ---------------------------------------------------------------- streams
    def stream(self, stream_id: str) -> Stream:
        """Return one stream to be stepped by hand, as a context manager."""
        return Stream(self, stream_id)

    @property
    def ids(self) -> list[str]:
        """Live streams."""
        return list(self._core.ids)

    def reset(self, ids: Collection[str] | str | None = None) -> None:
        """Forget streams, or all."""
        named = [ids] if isinstance(ids, str) else self.ids if ids is None else ids
        self._core.drop(list(dict.fromkeys(named)))

    def snapshot(self, stream_id: str, since: Any = None) -> bytes:
        """Return what a stream remembers, to be restored in any engine of the same model.

        On whatever machine, with any kernels and number of threads; the format is in docs/snapshot_format.md.

        Parameters
        ----------
        stream_id : str
        since : int or dict, optional
            What `position` said at an earlier snapshot of this stream: frames that were kept then are left out.
            The earlier bytes and these, one after the other, are what `restore` takes. So a stream whose state
            grows, as under attention without a context, is kept at the cost of what is new.

        Raises
        ------
        ValueError
            For a position that the stream has not been at.
        """
        if isinstance(since, dict):
            since = [since[s.name] for s in self.inputs]
        return self._core.snapshot(stream_id, since if since is None or isinstance(since, list) else [since])

    def position(self, stream_id: str) -> Any:
        """Return how many frames a live stream has taken; a dict by input where there are several.

        After a call that an exception cut short, from a signal handler say, it tells whether the stream has
        advanced.

        Raises
        ------
        StreamIdError
            Where no such stream is live, after its end among others.
        """
        frames = self._core.position(stream_id)
        return frames[0] if len(frames) == 1 else {s.name: n for s, n in zip(self.inputs, frames)}

    def restore(self, data: bytes, id: str | None = None) -> str:
        """Add a stream with the state of a snapshot; return its id (made up where None).

        `data` may be a snapshot with differences behind it, each taken `since` the one before.

        Raises
        ------
        FormatError
            For bytes that are no snapshot, damaged, of another version or of another model's streams.
        StreamIdError
            Where the id is live.
        StreamLimitError
            Where `max_streams` are live; all three leave every stream as it was.
        """
        return self._core.restore(whole_snapshot(data), id)

    def fork(self, stream_id: str, new_id: str) -> None:
        """Add a stream that goes on independently from where another is."""
        self._core.fork(stream_id, new_id)

    def idle(self, seconds: float) -> list[str]:
        """Return the streams that nobody has stepped for so long, the longest silent first.

        A server that has room for some streams only puts them away, and brings them back when their callers
        speak again:

        >>> import dreamstream as ds
        >>> engine = ds.compile(ds.nn.Conv1d(1, 1, 3), ("B", 1, "L"), max_streams=1)
        >>> _ = engine.step({"anna": np.zeros((1, 2), np.float32)}, sos="anna")
        >>> shelf = {i: engine.snapshot(i) for i in engine.idle(0)}
        >>> engine.reset(list(shelf))
        >>> _ = engine.step({"bob": np.zeros((1, 2), np.float32)}, sos="bob", eos="bob")
        >>> engine.restore(shelf.pop("anna"), "anna")
        'anna'
        >>> engine.step({"anna": np.zeros((1, 2), np.float32)})["anna"].shape
        (1, 2)

        Parameters
        ----------
        seconds : float
            0 or more; restoring and forking wake a stream, taking a snapshot doesn't.
        """
        seconds = float(seconds)
        if not seconds >= 0:
            raise ValueError(f"idle: expected 0 or more seconds, got {seconds}")
        ages = sorted(self._core.ages(), key=lambda age: -age[1])
        return [stream_id for stream_id, age in ages if age >= seconds]

    def warmup(self, n_streams: int, n_frames: int) -> None:
        """Step `n_streams` streams of `n_frames` once and drop them, so that later steps allocate nothing."""
        if n_streams < 0 or n_frames < 0:
            raise ShapeError(f"warmup: numbers must be 0 or more, got {n_streams} and {n_frames}")
        ids = [f"\0warm-up {i}" for i in range(n_streams)]
        chunk = {
            s.name: np.broadcast_to(
                np.zeros((), s.dtype), s.shape_of(1 if s.once else int(n_frames * s.rate / self.rate))
            )
            for s in self.inputs
        }
        given = chunk if len(self.inputs) > 1 else chunk[self.inputs[0].name]
        self.step(dict.fromkeys(ids, given), sos=ids, eos=ids)

    def close(self) -> None:
        """Release all streams; the engine can't be used afterwards."""
        self._core.close()

    def __enter__(self) -> Engine:
        return self

    # ---------------------------------------------------------------- experts
    _routes: Routes | None = None

    def keep_statistics(self, keep: bool = True, history: bool = False) -> None:
        """Gather from now on how steps route tokens among experts; or stop, and forget it.

        Parameters
        ----------
        keep : bool
        history : bool
            Whether `statistics` also has every choice of each stream, ``"experts"``, which grows with the stream.
        """
        self._core.watch(None)
        self._routes = Routes(self._core, history) if keep else None

    def reset_statistics(self) -> None:
        """Begin anew."""
        if self._routes is not None:
            self.keep_statistics(history=self._routes.history)

    def statistics(self) -> dict[str, Any]:
        """Return what was gathered since `keep_statistics`, and under "layers" that of each mixture by its path.

        Of all tokens, and under "streams" of each stream by id: ``tokens``; ``counts``, ``load`` (its shares) and
        ``probability`` (its mean) by expert; ``dead`` experts, ``cv`` (unbiased deviation of the counts by their
        mean) and ``balance`` (1 at best); ``entropy`` of the load and mean ``token_entropy`` of a token's
        probabilities, in nats; mean ``margin``, ``least_margin``, and the shares of ``near_ties`` (below 1e-4), of
        ``dropped`` choices, and of ``switches`` of the first expert from a stream's frame to its next; of a layer
        its ``rate``, and with ``history`` the ``experts`` ``(frames, k)`` of each stream.

        Raises
        ------
        ModeError
            Before `keep_statistics`.
        """
        if self._routes is None:
            raise ModeError("no statistics are kept; call engine.keep_statistics() first")
        return self._routes.as_dict()

    # ---------------------------------------------------------------- files
    def save(self, file: Any, format: str | None = None) -> None:
        """Write the model to a file, without streams; the same model gives the same bytes.

        Parameters
        ----------
        file : str, path or file object
            A path, which is written beside its place and then renamed over it: a failure leaves what was
            there. Or an object with ``write(bytes)``.
        format : {"dsm", "json", "xml"}, optional
            "dsm" is a safetensors container, which is mapped when it is loaded; the others are text that holds
            the whole model, weights in base64. By default what the path's suffix says, else "dsm".

        Raises
        ------
        FormatError
            Where forward returns dicts with keys that are no str, or names are not what a file can hold.
        OSError
            Where the file can't be written.
        ClosedError
        """
        write_file(file, check_format(file, format), self._write)

    def _write(self, write: Write) -> None:
        types = ",".join(o.dtype for o in self.outputs) if self._casts else None
        _core.write_model(self._core, self._interface.text(), write, types)

    @property
    def fingerprint(self) -> str:
        """What models have in common that give the same bits: of graph, weights and interface."""
        text = replace(self._interface, blas=False).text()
        return f"{self._core.fingerprint}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def as_computed(self) -> Engine:
        """Return an engine of the same plan, without streams, whose outputs have the types that are computed."""
        shapes = [(*o.dimensions, 2)[: len(dims)] for o, dims in zip(self.outputs, self._dims)]
        own = [replace(o, dtype=o.computed or o.dtype, dimensions=d) for o, d in zip(self.outputs, shapes)]
        return self.__copy__(replace(self._interface, outputs=tuple(own))) if self._casts else self

    def __copy__(self, interface: Interface | None = None) -> Engine:
        core = self._core.copy(self._max_streams)
        interface = interface or self._interface
        other = Engine(core, interface, self._max_streams, self._origin, self._max_bytes)
        other.lengths = self.lengths
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Engine:
        return self.__copy__()

    def __exit__(self, *_: Any) -> None:
        self.close()

    # ---------------------------------------------------------------- facts
    def stream_axis(self, output: int) -> int:
        """Return the axis of an output's arrays along which frames are laid end to end."""
        kept = [d for d in self._dims[output] if d != "B"]
        return next((i for i, d in enumerate(kept) if d in ("L", "B_L")), 0)

    @property
    def delay(self) -> float:
        """Frames of the first input that an output frame waits for at most; infinite at the end only."""
        return max(o.delay for o in self.outputs)

    @property
    def receptive_field(self) -> float:
        """Frames of the first input that one output frame depends on; infinite with recurrence."""
        return max(math.inf if f is None else f for f in self._core.fields)

    @property
    def rate(self) -> Fraction:
        """The first input's rate."""
        return self.inputs[0].rate

    @property
    def state_size(self) -> int:
        """Bytes of state per stream, exactly (what grows with the stream apart)."""
        return self._core.state_size

    @property
    def kept_bytes(self) -> int:
        """What of `state_size` must be kept; the rest is room in which kept frames stay in place."""
        return self._core.kept_bytes

    @property
    def state_bytes_per_frame(self) -> float:
        """Bytes by which a stream's state grows per frame of the first input."""
        return self._core.state_bytes_per_frame

    @property
    def weights_size(self) -> int:
        """Bytes of weights that the engine holds: as stored, and in their kernels' layout."""
        return self._core.weights_size

    @property
    def threads(self) -> int:
        """Threads per step."""
        return self._core.threads

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._core.closed

    def summary(self) -> str:
        """Return the engine's plan as text: nodes, state, delay, and whether answers are bitwise."""
        lines = [f"{_core.shown(self._name)}: kernels {self._core.kernels}, {self.threads} thread(s)"]
        lines += [
            f"  input  {_core.shown(s.name)}: {s.dimensions} {s.dtype}, rate {s.rate}, {n} bytes kept"
            for s, n in zip(self.inputs, self._core.input_bytes)
        ]
        lines += [_node_line(n) for n in self._core.nodes]
        lines += [
            f"  output {_core.shown(o.name)}: {o.dimensions} {o.dtype}, rate {o.rate}, delay {o.delay}"
            for o in self.outputs
        ]
        grows = f", and {self.state_bytes_per_frame:g} per frame" if self.state_bytes_per_frame else ""
        lines.append(f"  state per stream: {self.state_size} bytes{grows}")
        bitwise = (
            "no: products go to OpenBLAS" if self._core.blas else "yes, on any chunking, batch and thread count"
        )
        lines.append(f"  the same bits: {bitwise}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Engine({_core.shown(self._name)}, {len(self.ids)} streams live)"


def _node_line(node: Mapping[str, Any]) -> str:
    _, shape, num, den = node["outputs"][0]
    rate = "at the end" if num == 0 else f"rate {Fraction(num, den)}"
    kept = node["kept_bytes"] + node["carried_bytes"]
    grows = " (grows)" if node["grows"] else ""
    what = "weights" if node["products"] == "fp32" else "products"
    form = node["stored" if what == "weights" else "products"]
    narrow = "" if form == "fp32" else f", {what} in {form}"
    return f"  {node['id']:4} {node['name']:18} {shape!s:16} {rate:12} {kept} bytes kept{grows}{narrow}"


def _roles(dims: Sequence[Any]) -> list[int]:
    """Return what each axis of an array is: -1 rows, 0 frames, 1 and on those of a frame's features."""
    return [-1 if d == "B" else 0 if isinstance(d, str) else d + 1 for d in dims]
