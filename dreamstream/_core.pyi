"""The C engine as Python sees it. Private: names and shapes here may change with any version."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from threading import Lock
from types import TracebackType
from typing import Any, Literal, final, overload

import numpy as np
from numpy.typing import NDArray

Signature = tuple[str, tuple[int, ...], int, int]
"""dtype ("float32", "float64", "int64", "bool"), features of one frame, rate as num, den (0, 1: no L)."""

Program = tuple[list[tuple[int, int, int, int, int]], list[int]]
"""Integer expressions: (code, a, b, c, k) per node, and the roots (csrc/ops/expr.h)."""

Counts = NDArray[np.int64]
"""(rows, 4): known and total before the call, known and total now."""

Buffer = bytes | bytearray | memoryview

State = bytes | tuple[Any, bytes] | None
Drop = tuple[float, NDArray[np.uint64]] | None  # a probability, and a key per row
"""One row's state in eager mode: bytes, or segments (earlier, bytes) where it only grows."""

@final
class Op:
    """An operator for given attributes, inputs and weights: its integers and its forward."""

    def __new__(
        cls,
        name: str,
        attributes: Mapping[str, Any],
        inputs: Sequence[Signature],
        weights: Sequence[tuple[str, tuple[int, ...]] | None] = (),
    ) -> Op: ...
    @classmethod
    def declare(
        cls, inputs: Sequence[Signature], outputs: Sequence[Signature], counts: Program, need: Program
    ) -> Op:
        """An operator whose integers are data (code, a, b, c, k per node; roots) and that can't run."""
    def integers(self) -> tuple[Program, Program]:
        """Its counts and its need, as `declare` takes them."""
    def totals(self, inputs: tuple[Count, ...]) -> list[Count]:
        """The outputs' totals, of those of the inputs; StreamLimitError where they don't repeat soon."""
    name: str
    attributes: dict[str, Any]  # defaults included
    outputs: list[Signature]
    n_values: int  # inputs whose values are read; the rest are only counted
    framewise: bool  # an output frame is made of the inputs' in its place, and of nothing else
    same_counts: bool  # counts of output 0, and of each of its rate, are the input's, always
    checks: bool  # counts may be refused
    lockstep: bool  # value inputs must progress equally (sync)
    checked_input: int | None  # whose values `check_values` takes
    needs_frames: bool  # a stream of no frames has no outputs, not even empty ones
    whole: bool  # needs the whole stream: nothing leaves before the end
    carries: bool  # arrays are carried from call to call
    prepared_bytes: int  # of its weights as kernels want them
    differentiable: bool  # it has a backward, and outputs that have slopes
    constant: bool  # calculus ends here

    def counts(self, inputs: Sequence[Counts], ended: NDArray[np.bool_], ids: Sequence[str] = ()) -> list[Counts]:
        """Counts of every output; ShapeError with ids where a check fails."""
    def kept(self, inputs: Sequence[Counts], outputs: Sequence[Counts]) -> list[NDArray[np.int64]]:
        """Per value input (rows, 2): first frame kept before the call, and after it."""
    def columns(
        self, inputs: Sequence[Counts], outputs: Sequence[Counts], ended: NDArray[np.bool_]
    ) -> tuple[list[tuple[int, int, int, int]], list[tuple[int, int, int]], bool, bytes]:
        """The call as numbers that hold for all rows; -1 where rows differ, the first row's of positions.

        Per value input: the first frame that is kept, the frames kept before the call and after it, new frames.
        Per output: its first frame, the most new frames of any row, and by how many frames its count is greater
        than input 0's, the least integer where that differs or changes. Then whether the windows of all rows,
        which begin with what is kept, lie at the same columns; and a key without positions, equal in calls that do
        the same.
        """
    def check_values(self, values: NDArray[np.int64], counts: Counts, ids: Sequence[str]) -> None:
        """StreamIndexError, with the ids of its rows, where new frames of an input hold an index out of range."""
    @overload
    def run(
        self,
        values: Sequence[NDArray[Any]],
        inputs: Sequence[Counts],
        outputs: Sequence[Counts],
        ended: NDArray[np.bool_],
        states: Sequence[State] | None,
        weights: Sequence[NDArray[Any] | None] = (),
        blas: bool = False,
        ids: Sequence[str] = (),
        prepared: Prepared | None = None,
        record: Literal[False] = False,
        drop: Drop = None,
    ) -> tuple[list[NDArray[Any]], list[State] | None]:
        """New frames of every output, and the rows' new states (None where the operator keeps none).

        ``values``: per value input its new frames ``(frames of all rows, *features)``, C-contiguous.
        ``states`` None: every row starts here. StreamIndexError, with the ids of its rows, where new
        frames hold an index that is out of range.
        """
    @overload
    def run(
        self,
        values: Sequence[NDArray[Any]],
        inputs: Sequence[Counts],
        outputs: Sequence[Counts],
        ended: NDArray[np.bool_],
        states: Sequence[State] | None,
        weights: Sequence[NDArray[Any] | None],
        blas: bool,
        ids: Sequence[str],
        prepared: Prepared | None,
        record: Literal[True],
        drop: Drop = None,
    ) -> tuple[list[NDArray[Any]], list[State] | None, Record | None]:
        """The same, and a record of the call; None of an operator that is constant to calculus."""

@final
class Record:
    """One call of an operator, as its backward reads it; docs/internals/gradients.md."""

    op: Op
    held: tuple[Any, ...]  # tuples of arrays and bytes that it refers to, counts among them, but no weights
    reads: tuple[NDArray[Any] | None, ...]  # values, then outputs; None for those that backward does not read

    def frames(self, input: int, /) -> NDArray[np.int64]:
        """How many new frames each row has of an input."""
    def backward(
        self,
        slopes: Sequence[NDArray[Any] | None],
        inputs: Sequence[NDArray[Any] | bool | None],
        weights: Sequence[NDArray[Any] | bool | None],
        states: Sequence[State] | None,
        kept: bool,
    ) -> tuple[list[NDArray[Any] | None], list[NDArray[Any] | None], list[State]]:
        """Slopes of inputs, weights and states before, of those of outputs and states after."""

@final
class Count:
    """An integer of a stream as a function of how many frames of its input came: at first, that number."""

    def __new__(cls) -> Count: ...
    def apply(self, code: int, other: Count | int) -> Count:
        """The count of this arithmetic, by the codes of csrc/ops/expr.h."""
    def first_positive(self, where: tuple[Count, ...]) -> int | None:
        """A number of frames at which this and all of `where` are above 0; None where there is none."""
    def at(self, n: int) -> int: ...

@final
class Prepared:
    """An operator's weights as its kernels want them, kept from run to run and made anew where they changed."""

    def __new__(cls, op: Op) -> Prepared: ...
    def expect(self, version: object) -> None:
        """Say of which version the weights of the next run are: equal to the last run's, they are not compared."""
    @property
    def op(self) -> Op: ...

@final
class Graph:
    """A model as data, built front to back."""

    def __new__(cls) -> Graph: ...
    def input(self, signature: Signature) -> int: ...
    def memory(self, edge: int) -> None: ...
    def node(
        self,
        name: str,
        attributes: Mapping[str, Any],
        inputs: Sequence[int],
        weights: Sequence[NDArray[Any] | None] = (),
        path: str = "",
        weight_names: tuple[str | None, ...] | None = None,
    ) -> list[int]: ...
    def output(self, edge: int) -> None: ...
    def store(self, numbers: bytes) -> None:
        """For each node how its weights are stored from now on, 4 more where products are of rows stored so."""

    def errors(self, number: int, asked: bytes) -> list[float]:
        """The error of each node's weights, stored so, in the worst channel; 0 of nodes that are not asked."""

    def nodes(self) -> list[tuple[str, str, bool, int, int]]:
        """(operator, path, whether weights may be stored narrow, how they are, 4 more where rows are, its first
        output) of each."""

@final
class Engine:
    """A planned graph with its streams. Takes the graph: it is empty afterwards."""

    def __new__(
        cls,
        graph: Graph,
        threads: int = 1,
        blas: bool = False,
        max_streams: int = 0,
        skew: int = 0,
        backend: str | None = None,
        max_bytes: int = 0,
    ) -> Engine: ...
    def step(
        self,
        ids: Sequence[str],
        sos: Sequence[bool] | NDArray[np.bool_],
        eos: Sequence[bool] | NDArray[np.bool_],
        values: Sequence[NDArray[Any]],
        lengths: Sequence[Sequence[int] | NDArray[np.int64]],
        restart: bool,
    ) -> tuple[list[NDArray[Any]], list[NDArray[np.int64]]]:
        """Per input the rows' frames end to end, and each row's number of them → per output the same; the
        numbers, and each row's start, as ``(2, rows)``."""
    ids: list[str]
    def drop(self, ids: Sequence[str]) -> None: ...
    def snapshot(self, id: str, since: Sequence[int] | None = None) -> bytes: ...
    def position(self, id: str) -> list[int]:
        """Frames so far, per input."""
    def restore(self, data: bytes, id: str | None) -> str:
        """Return the id, made up where it is None."""
    def fork(self, id: str, new_id: str) -> None: ...
    def ages(self) -> list[tuple[str, float]]:
        """Per live stream the seconds since it was stepped."""
    def graph(self) -> dict[str, Any]:
        """The planned graph: "nodes" (name, path, attributes, inputs, first_output, weights as (name, array),
        silent), "edges" (signature, most frames kept; None: it grows), "inputs" and "outputs" (edges),
        "period" and "transient" (frames of input 0)."""
    def watch(self, edges: bytes | None, seen: list[Any] = ..., full: Callable[[], None] = ...) -> None:
        """Append (ids, counts [edges, ids], an array per edge) of each step to a list; full() is to empty it."""
    def copy(self, max_streams: int) -> Engine:
        """Another engine of the same plan, without streams."""
    def close(self) -> None: ...
    closed: bool
    threads: int
    blas: bool
    kernels: str
    state_size: int
    kept_bytes: int
    state_bytes_per_frame: float
    weights_size: int
    delays: list[int | None]  # per output, frames of input 0; None: infinite
    fields: list[int | None]
    input_bytes: list[int]  # of kept frames
    nodes: list[dict[str, Any]]  # the plan, node by node, for summaries
    fingerprint: str

class Stepper:
    """The base of dreamstream.Engine: steps from Python to Python without Python code in between.

    ``structure``: what forward returns, with the numbers of outputs; ``inputs`` and ``outputs``: what each axis
    of their arrays is, -1 rows, 0 frames, 1 and on those of a frame's features. What is no array goes to
    `_arrays_of` and `_array_of`, what is no dict by plain ids to `_rows_of`, a structure of arrays to fill to
    `_out_of`. With ``casts``, `_given` and `_given_batch` make of outputs what callers get.
    """

    def __init__(
        self,
        core: Engine,
        names: tuple[str, ...],
        structure: Any,
        inputs: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        casts: bool = False,
    ) -> None: ...
    @property
    def _core(self) -> Engine: ...
    def step(
        self,
        chunks: Mapping[str, Any] | None = None,
        sos: Collection[str] | str = (),
        eos: Collection[str] | str = (),
        restart: bool = False,
    ) -> dict[str, Any]: ...
    def step_batch(
        self,
        ids: Sequence[str] | str,
        *arrays: Any,
        lengths: Any = None,
        sos: Any = None,
        eos: Any = None,
        out: Any = None,
    ) -> tuple[Any, Any]: ...

@final
class Stream:
    """One stream of an engine, stepped by hand; leaving the context unfinished drops it."""

    def __new__(cls, engine: Stepper, id: str) -> Stream: ...
    @property
    def engine(self) -> Any: ...
    @property
    def id(self) -> str: ...
    def step(self, chunk: Any) -> Any:
        """Advance by a chunk and return this call's output frames."""
    def finish(self, chunk: Any = None) -> Any:
        """End the stream, with a last chunk or without, and return its last output frames."""
    def __enter__(self) -> Stream: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

@final
class Hold:
    """Takes a lock: StreamBusyError, with these ids, where another has it. KeyboardInterrupt can't cut in two
    taking it and giving it back."""

    def __new__(cls, lock: Lock, ids: Sequence[str], /) -> Hold: ...
    def __enter__(self) -> Hold: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

def snapshot_checksum(data: Buffer, /) -> int: ...
def checksum(data: Buffer | NDArray[Any], /) -> int: ...
def give_back() -> None: ...
def shown(text: str, whole: bool = False, /) -> str:
    """What may be shown of a name out of a file, or of the `whole` of a text that holds some.

    With \\x1b or \\u202e for what controls a terminal, begins a line or turns the direction of writing; of names
    at most 240 bytes.
    """

def ctc(
    frames: NDArray[np.float64],
    n_frames: NDArray[np.int64],
    targets: NDArray[np.int64],
    n_targets: NDArray[np.int64],
    blank: int,
    losses: NDArray[np.float64] = ...,
    alphas: NDArray[np.float64] = ...,
    scales: NDArray[np.float64] = ...,
    /,
) -> Any:
    """The rows' losses and what their slopes read (alphas); of these and scales the slopes of frames."""

def adam(
    p: NDArray[Any],
    g: NDArray[Any],
    mean: NDArray[Any],
    square: NDArray[Any],
    most: NDArray[Any] | None,
    decay: float,
    shrink: float,
    part: float,
    keep: float,
    fresh: float,
    root: float,
    eps: float,
    rate: float,
    /,
) -> None:
    """A step of Adam, in place (``ds_update`` in kernels.h); arrays of one real type, shape and C order."""

def sgd(
    p: NDArray[Any],
    g: NDArray[Any],
    mean: NDArray[Any] | None,
    first: bool,
    nesterov: bool,
    decay: float,
    keep: float,
    fresh: float,
    rate: float,
    /,
) -> None:
    """A step of SGD, in place."""

def squares(array: NDArray[Any], /) -> float:
    """The sum of squares of real numbers in C order, in double."""

def draws(
    keys: NDArray[np.uint64], first: NDArray[np.int64], n: NDArray[np.int64], width: int, /
) -> NDArray[np.float64]:
    """Random numbers in [0, 1) ``(frames of all rows, width)``: of each row, frames ``[first, first + n)``."""

@final
class Replay:
    """Repeats what a function of torch did in the call before, at the same place of a forward.

    Parameters
    ----------
    shell, stream, edge, line : type
        The tensor that a forward sees, what is in it, its edge, and what of that is the same in every call.
    call, forward, place : type
        What the calls are, and the forwards, and the tuple that a call's courses hold. Edges, lines, calls and
        forwards have slots.
    atoms, tensors : frozenset of type
        What has itself for a key; tensors that are known by type and shape.
    blank, guard, records, size : callable
        Makes a shell; keeps torch from asking modes; says whether gradients are recorded; gives the key of what
        is computed of lengths.
    running : ContextVar
        Holds the forward that is running, or None.
    modes : callable
        Says how many modes torch has.
    shape, dtype, device, takes_size : callable
        What torch asks a mode about where it is asked for a shape, the type of elements, a device, and a size.
    computes : set of callable
        Functions of torch that do nothing but compute.
    length, rows, joined, sizes : type
        Lengths, numbers of streams, both joined, and the tuple of a stream's sizes.
    rank, takes_rank : callable
        What torch asks a mode about where it is asked for the number of dimensions.
    """

    def __new__(
        cls,
        shell: type,
        stream: type,
        edge: type,
        line: type,
        call: type,
        forward: type,
        place: type,
        atoms: frozenset[type],
        tensors: frozenset[type],
        blank: Callable[[type], Any],
        guard: Callable[[], Any],
        records: Callable[[], bool],
        size: Callable[..., tuple[Any, ...] | None],
        running: ContextVar[Any],
        modes: Callable[[], int],
        shape: Any,
        dtype: Any,
        device: Any,
        takes_size: Any,
        computes: set[Any],
        length: type,
        rows: type,
        joined: type,
        sizes: type,
        rank: Any,
        takes_rank: Any,
        /,
    ) -> Replay: ...
    def call(self, forward: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any:
        """Do again what a function did when the same was asked for; NotImplemented where that is not known."""

    def mode(self, forward: Any, function: Any, types: Any, args: tuple[Any, ...], kwargs: Any = ..., /) -> Any:
        """Do it again, or return what the forward's ``asked(function, types, args, kwargs)`` does."""

    def function(self, instead: Callable[..., Any], function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Do a function again where its first argument is a stream, or return ``instead(function, ...)``."""

    def method(self, function: Callable[..., Any], /) -> Any:
        """Return what is bound to the instances of a class whose attribute it is, as a function of Python is."""

    def ask(
        self, forward: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], /
    ) -> tuple[tuple[Any, ...], list[Any], list[Any], list[Any], list[Any], list[Any]] | None:
        """Return the key of what is asked for, and streams, edges, weights, tensors and sizes in it, or None."""

    def result(self, form: Any, edges: list[Any], values: list[Any], streams: Any, tokens: Any, /) -> Any:
        """Return the result of a place, or a part of it."""

@final
class Window:
    """Columns of `rows` rows: `back` that were kept and `added` new ones; `seen` are seen from `offset` on.

    Parameters
    ----------
    tensor_type : type
        `torch.Tensor`; others are left alone.
    rows, back, added, tail, offset, seen : int
        `tail`: how many of the last columns are kept.
    taps, stride, dilation : int
        Of the windows that what is seen is laid out as, ``(rows, windows, elements, taps)``.
    """

    def __new__(
        cls,
        tensor_type: type,
        rows: int,
        back: int,
        added: int,
        tail: int,
        offset: int,
        seen: int,
        taps: int = 1,
        stride: int = 1,
        dilation: int = 1,
        /,
    ) -> Window: ...
    def take(self, table: Any, old: Any, next: Any, value: Any, counts: Any, out: Any, /) -> bool:
        """Fill the tensor `out` with the columns that are seen, and the `next` rows of a table with the last ones.

        The `old` rows hold those that were kept, `value` the new ones; `counts` say how many these are where
        `added` is -1. False, and nothing is done, where rows are no slices, where most columns would be empty, and
        where a tensor is not plain memory of the processor, of the others' type and as large as it must be. New
        frames may lie otherwise than one behind the other where each is one row of elements.
        """

def callee(
    known: dict[int, tuple[Any, ...]],
    converted: type,
    stand_ins: dict[int, Any],
    direct: dict[Any, Callable[[Any], Any]],
    builtins: dict[Any, Any],
    awaited: set[str],
    otherwise: Callable[[Any], Any],
    f: Any,
    /,
) -> Any:
    """Return what `Callees.of` does, by ``otherwise(f)`` where it isn't known yet."""

def truth(otherwise: Callable[[Any], Any], x: Any, /) -> Any:
    """Return what `Hooks.test` does, by ``otherwise(x)`` where that isn't plain."""

def differing(now: list[Any], then: list[Any], versions: bytearray = ..., /) -> list[int]:
    """Return where containers no longer hold the very objects that they held, None standing for nothing.

    Dictionaries and lists are compared; one of another kind is among them unless it is empty and was. `versions`,
    empty at first, keeps which dictionaries were right, so that they are compared again after a change alone.
    """

def finds(places: list[dict[str, Any]], names: list[str], values: list[Any], versions: bytearray, /) -> bool:
    """Return whether dictionaries hold these very objects, each under its name, None standing for nothing."""

def input_counts(
    frames: NDArray[np.int64], lengths: Sequence[NDArray[np.int64]], ended: NDArray[np.bool_], /
) -> NDArray[np.int64]:
    """Return the counts ``(inputs, rows, 4)`` of a call's inputs, known and total before and now.

    `frames` ``(inputs, rows)`` has those that there were of every input, `lengths` the new ones. A total is -1
    until the stream begins, with its first frame of any input or with its end.
    """

def joined(arrays: Sequence[NDArray[Any]], /) -> NDArray[Any]:
    """A new array of these end to end along their first axis, in C order."""

def operators() -> list[dict[str, Any]]:
    """The registry: name, doc, attributes, weights, flags of every operator."""

version: str

def check_container(content: Buffer, /) -> None:
    """Raise FormatError where the bytes are no safetensors file."""

def read_model(
    source: Buffer | str, is_path: bool, changed: bool = False
) -> tuple[Graph, str, list[Signature], list[Signature], str | None]:
    """A model file's graph, its interface as JSON, signatures of inputs and outputs, and the text of the types
    that callers are given, where there is one; a path is mapped.

    `changed`: the file was, on purpose; its fingerprint is not looked at.
    """

def write_model(engine: Engine, interface: str, write: Callable[[bytes], Any], types: str | None) -> None:
    """Write the file of an engine's graph as it was captured, piece by piece."""

def config() -> dict[str, Any]:
    """What was chosen: kernels, instruction sets, OpenBLAS, threads."""

def together(rates: tuple[tuple[int, int], ...], frames: NDArray[np.int64], skew: int) -> NDArray[np.bool_]:
    """Per row of ``(rows, inputs)`` frames so far: whether the inputs are within the skew."""

Text = str | Buffer | None
"""A file by its path or its bytes; None: there is none."""

@final
class Decoder:
    """Tokens, words, language model and phrases; shared by streams (ds_decoder_options says what each is)."""

    tokens: list[str]
    words: list[str]
    separator: int  # -1: none
    width: int  # numbers of a frame that comes in

    def __new__(
        cls,
        tokens: Text,
        lexicon: Text = None,
        lm: Text = None,
        hotwords: Text = None,
        sil: str | None = None,
        blank: int = 0,
        greedy: bool = False,
        best_alignment: bool = False,
        lm_tokens: bool = False,
        unknown_words: bool = False,
        beam_size: int = 0,
        beam_size_token: int = 0,
        max_pending: int = 0,
        max_final: int = 0,
        hotword_weight: float = 0,
        beam_threshold: float = 0,
        token_threshold: float = 0,
        blank_threshold: float = 0,
        lm_weight: float = 0,
        word_score: float = 0,
        unk_score: float = 0,
        sil_score: float = 0,
        silence_frames: int = 0,
        trailing_frames: int = 0,
        utterance_frames: int = 0,
        predictor: Engine = ...,
        joiner: Engine = ...,
        max_symbols: int = 0,
        lm_order: int = 0,
        lm_score: Callable[[bytes], float] = ...,
    ) -> Decoder: ...
    def step(self, rows: list[tuple[str, Decoding, NDArray[np.float32], int]], /) -> None:
        """Advance streams: id, stream, scores, 1 (start) | 2 (end)."""

@final
class Decoding:
    """One stream of a decoder."""

    def __new__(cls, decoder: Decoder) -> Decoding: ...
    def read(self, most: int, /) -> tuple[int, int, int, int, list[tuple[float, bytes]]]:
        """Final tokens, those that left, frames, endpoints; score and tokens of the best hypotheses."""
    def snapshot(self) -> bytes: ...
    def restore(self, data: Buffer, /) -> None: ...
