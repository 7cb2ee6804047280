"""compile: from a model to an engine."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from .. import _core
from ..config import default_threads
from ..errors import CaptureError, DTypeError, LocatedError, StreamLimitError
from ..online.patch import as_it_was, check_policy, front_of, patch_module, refuse_unstreamable
from ..stream.context import Context
from ..stream.tree import leaves, map_leaves
from .capture import captured
from .engine import Engine
from .explain import in_full
from .interface import Interface, names_of, output_of
from .load import MOST_BYTES
from .spec import lengths_in, number_of
from .verify import verify as verify_engine
from .weights import BOUND, Narrowing, Weights, store


def compile(
    model: Any,
    spec: Any,
    rate: Any = 1,
    dtype: Any = None,
    weights: Weights = "fp32",
    products: Weights = "fp32",
    threads: int | None = None,
    blas: bool | None = None,
    unstreamable: str = "raise",
    buffer_limit: int | None = None,
    max_streams: int | None = None,
    skew: int = 0,
    verify: bool = True,
    lengths: Sequence[int] | None = None,
    backend: str | None = None,
    context: Mapping[str, Context] | Context | None = None,
    context_limit: int | None = None,
    weights_bound: float = BOUND,
    max_bytes: int | None = None,
    explain: bool = False,
) -> Engine:
    """Compile a model into an engine: no Python per layer, batching over streams.

    The model may be in any mode; its live streams are left alone. Weights are copied.

    Parameters
    ----------
    model : dreamstream.nn.Module or torch.nn.Module
    spec : tuple or dict
        Dimensions of the input, such as ``("B", 80, "L")``, or of each input by forward's names; the lengths
        that a forward takes beside one are ``ds.lengths_of(name)``.
    rate : number, Fraction or dict
        Frames per unit of time of the inputs.
    dtype : str or dict
        Element types of the inputs, "float32" by default. Where it is given, a model of float64 is compiled as a
        copy in float32.
    weights : str or dict
        How the matrices of layers are stored: "fp32", "fp16", "bf16", or "int8" with a scale for each output
        channel; or a dict from patterns of modules' paths (``"encoder.*"``; the last that fits counts). Sums are
        of float32 inputs and the stored numbers, in float32: the engine gives the bits of a model whose weights
        were rounded so. "auto" takes for each layer the first of "int8", "bf16" and "fp32" that is within
        `weights_bound`. Biases, norms, tables and routers stay as they are.
    products : str or dict
        What the rows are that these matrices are multiplied with: "fp32" as they come, "bf16", or "int8" with a
        scale and a zero for each row, summed in integers; then the weights are stored so, whatever `weights`
        says. Bits are the same however streams are cut and batched. A row with NaN or infinite values gives NaN
        in "int8". "fp32-tiles", on processors with tile units: as exact as "fp32", each float split in three of
        bf16; no file has it. By patterns as `weights`.
    weights_bound : float
        The error that "auto" allows: the norm of w − rounded w by that of w, in the worst output channel.
        Evenly spread weights are at 0.003 to 0.008 in int8, at 0.002 in bf16; those with a few large ones
        beyond.
    threads : int, optional
        Threads per step; ``DREAMSTREAM_THREADS`` or 1 by default.
    blas : bool, optional
        Whether products go to OpenBLAS; None: only for weights that the engine's kernels don't take
        (there are none in float32), so that answers are bitwise the same however they are batched.
    unstreamable : {"raise", "buffer"}
        What to do with layers that need the whole stream.
    buffer_limit : int, optional
        The most frames that such a layer may wait for.
    max_streams : int, optional
        The most streams that may be live after a call; one that ends makes room for one that starts.
    skew : int
        Frames of the slowest input by which the inputs of one stream may be apart.
    verify : bool
        Stream random chunks through the engine and compare with the model.
    lengths : sequence of int, optional
        The streams' lengths in this comparison, where the model accepts some only; as for :func:`verify`.
    backend : str, optional
        The kernels to use whatever the environment says, one that :func:`show_config` names, such as
        ``"ref"`` or ``"x86_v3"``; then ``blas`` is not asked.
    context : Context or dict of str to Context, optional
        As for `patch_module`, which it calls: what attention sees is part of the model from then on.
    context_limit : int, optional
        The most frames of a stream, at its rate, for attention that keeps all that came before.
    max_bytes : int, optional
        The most bytes that weights, one stream and a call of one frame may take together, and the most of any
        call. By default 2 GiB and four times the weights for the former, the machine's memory for the latter.
    explain : bool
        Where the model is refused, have the error say all that stands in its way, each with its line and what
        would work, as its `refusals` list: behind a refusal the forward goes on with what has the same dimensions.

    Returns
    -------
    Engine

    Raises
    ------
    CaptureError
        For what streams, but stands in no graph, with the line; where the engine and the model differ.
    NotStreamableError
        For what can't stream, as in an online call: with its path or line, the reason and what would work.
    StreamLimitError
        For a model that takes more than `max_bytes`, with the layer that takes most.
    ValueError, DTypeError, StreamLimitError, ModeError
        For formats that there are not and patterns that fit nothing; weights beyond a format's range; products
        that are too deep for theirs; "fp32-tiles" without tile units.
    """
    given = {k: v for k, v in locals().items() if k not in ("model", "context", "explain")}
    if explain:
        try:
            return compile(model, context=context, **given)
        except (LocatedError, CaptureError) as error:
            waits = unstreamable == "buffer"
            raise in_full(error, model, spec, rate, dtype or "float32", waits, context) from None
    front_of(model, "compile")
    check_policy(unstreamable, buffer_limit, skew, context_limit)
    if context is not None:
        with as_it_was(model):
            patch_module(model, unstreamable=unstreamable, context=context)
            return compile(model, **given)
    n_threads = number_of("threads", threads, default_threads(), 1024)
    most_streams = number_of("max_streams", max_streams, 0, 2**31)
    most_bytes = number_of("max_bytes", max_bytes, 0, MOST_BYTES)
    if unstreamable == "raise":
        refuse_unstreamable(model)
    model = model if dtype is None else _in_float32(model)
    waits = unstreamable == "buffer"
    options = (spec, rate, dtype or "float32", waits, buffer_limit, context_limit)
    capture, result = captured(model, *options)
    if capture.was_written:
        capture.close()
        capture, result = captured(model, *options, False)
    tensors = leaves(result)
    for x in tensors:
        capture.add("output", x.edge.handle)
    number = iter(range(len(tensors)))
    structure = map_leaves(result, lambda _: next(number))
    names = names_of(structure)
    outputs = [
        output_of(names[k], x.dims, x.features, x.dtype.name, x.rate, kind=kind)
        for k, (x, kind) in enumerate(zip(tensors, capture.given))
    ]
    interface = Interface(
        name=type(model).__name__,
        by_name=isinstance(spec, Mapping),
        skew=skew,
        blas=bool(blas),
        inputs=tuple(capture.specs),
        outputs=tuple(outputs),
        dims=tuple(x.dims for x in tensors),
        structure=structure,
    )

    def planned(graph: _core.Graph) -> Engine:
        try:
            core = _core.Engine(graph, n_threads, bool(blas), most_streams, skew, backend, most_bytes)
        except DTypeError as error:
            if capture.widened is None:
                raise
            raise DTypeError(
                f"{error}: at {capture.widened} a stream becomes float64, of which more is computed; leave the "
                "cast out, or do it last, of what is returned"
            ) from None
        engine = Engine(core, interface.with_delays(core.delays), most_streams, max_bytes=most_bytes)
        engine.lengths = lengths_in(spec)
        return engine

    with closing(capture):
        graph, narrow = capture.graph, weights != "fp32" or products != "fp32"
        if verify:
            engine = planned(graph)
            _verify_or_raise(model, copy.copy(engine), lengths)  # whose streams and scratch go with the copy
            _core.give_back()
            if not narrow:
                return engine
            del engine  # what is compared is wide; the weights are stored from the model's own
            graph = capture.again()
        if narrow:
            store(graph, Narrowing(weights, products, weights_bound))
        return planned(graph)


def _in_float32(model: Any) -> Any:
    """Return the model, or of one of other floats a copy in float32."""
    state = (*model.parameters(), *model.buffers())
    return copy.deepcopy(model).float() if any(is_other_float(x) for x in state) else model


def is_other_float(x: Any) -> bool:
    """Whether a tensor is of floats that no engine computes in."""
    return str(x.dtype).rpartition(".")[2] in ("float64", "float16", "bfloat16")


def _verify_or_raise(model: Any, engine: Engine, lengths: Sequence[int] | None) -> None:
    for name, x in model.named_parameters():
        if is_other_float(x):
            raise DTypeError(
                f"{name} is {str(x.dtype).rpartition('.')[2]}, but an engine computes in float32, and nothing "
                'could be compared; compile with dtype="float32", which takes a copy of the model, or '
                "verify=False"
            )
    try:
        report = verify_engine(model, engine, lengths=lengths)
    except StreamLimitError:  # a limit for which every stream is too long
        return
    if report.ok:
        return
    if report.shapes is not None:
        ours, theirs = report.shapes
        raise CaptureError(
            f"the engine gives a stream an output of shape {ours}, {type(model).__name__} offline {theirs}: the "
            "forward's course depends on data or lengths in a way that a graph can't hold, or a function of "
            "@ds.register gives another shape than its class"
        )
    differ = f"the engine and {type(model).__name__} differ by {report.max_difference:g} on random chunks"
    raise CaptureError(
        f"{differ}: the forward's course or its values depend on data in a way that a graph can't hold, "
        "or they jump (round, sign, angle, a choice among equals), where the order of sums decides; then "
        "verify=False leaves the comparison out"
    )
