"""What of torch has no counterpart in the native front end: devices, element types, gradients, dropout, sizes.

They change values and leave frames alone, so that they need no operator; in a capture, which has no values, they
are what they are in evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ..array import BatchTensor
from ..array import where as native_where
from ..array.stream_tensor import StreamTensor as Native
from ..errors import ModeError, NotStreamableError
from ..nn import functional as native_functional
from ..stream.rules import BatchSize
from ..stream.where import user_line
from .constants import Constant, dtype_of, nominal
from .inside import Forward, attribute, function
from .tensor import StreamTensor

__all__ = ["visible", "with_value"]

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def with_value(inner: Native, fn: Callable[[torch.Tensor], torch.Tensor]) -> Native:
    """Return the same stream with other values; in a capture, where there are none, itself."""
    if inner.value is None:
        return inner
    return Native.inside(fn(inner.value), inner.dims, inner.edge, inner.names)  # type: ignore[arg-type]


def _dtype(x: Any) -> torch.dtype:
    """Return the torch type of what was unwrapped."""
    if isinstance(x, Constant):
        return x.torch.dtype
    value = getattr(x, "value", x)  # a complex stream has a torch type of its own
    own: Any = x.dtype if value is None else value.dtype
    return own if isinstance(own, torch.dtype) else dtype_of(own.name)


# ---------------------------------------------------------------------- attributes
@attribute("dtype")
def dtype(forward: Forward, inner: Any) -> torch.dtype:
    return _dtype(inner)


@attribute("device")
def device(forward: Forward, inner: Any) -> torch.device:
    return forward.device


@attribute("requires_grad")
def requires_grad(forward: Forward, inner: Any) -> bool:
    value = getattr(inner, "value", None)
    return isinstance(value, torch.Tensor) and value.requires_grad


@attribute("grad_fn", "grad")
def no_grad(forward: Forward, inner: Any) -> None:
    return None


@attribute("data")
def data(forward: Forward, inner: Any) -> Any:
    return with_value(inner, torch.Tensor.detach)


# ---------------------------------------------------------------------- types and devices
@function("detach")
def detach(forward: Forward, args: Args, kwargs: Kwargs) -> Any:
    return with_value(args[0], torch.Tensor.detach)


@function("requires_grad_", "retain_grad")
def unchanged(forward: Forward, args: Args, kwargs: Kwargs) -> Any:
    return args[0]


@function("is_floating_point")
def is_floating_point(forward: Forward, args: Args, kwargs: Kwargs) -> bool:
    return _dtype(args[0]).is_floating_point


@function("is_complex", "is_nonzero", "is_inference", "is_conj", "is_neg")
def is_plain(forward: Forward, args: Args, kwargs: Kwargs) -> bool:
    return False


@function("get_device")
def get_device(forward: Forward, args: Args, kwargs: Kwargs) -> int:
    return -1 if forward.device.type == "cpu" else forward.device.index or 0


def _converted(forward: Forward, inner: Any, dtype: torch.dtype | None, device: Any) -> Any:
    if device is not None:
        wanted = torch.device(device)
        if wanted.type != forward.device.type or wanted.index not in (None, forward.device.index):
            raise NotStreamableError(
                f"a stream is moved to {wanted} at {user_line()}, but the module runs on {forward.device}"
            )
    if dtype is None or _dtype(inner) == dtype:
        return inner
    return with_value(inner.to(nominal(dtype)), lambda value: value.to(dtype))


@function("to", "type", "type_as", "cpu", "cuda")
def to(forward: Forward, args: Args, kwargs: Kwargs) -> Any:
    inner, dtype, place = args[0], kwargs.get("dtype"), kwargs.get("device")
    for a in args[1:]:
        if isinstance(a, torch.dtype):
            dtype = a
        elif isinstance(a, (torch.device, str)):
            place = a
        elif hasattr(a, "is_stream"):
            dtype = _dtype(a)
    if isinstance(inner, Constant):  # constant.to(stream)
        return Constant(inner.torch.to(dtype=dtype, device=forward.device), inner.arrays)
    return _converted(forward, inner, dtype, place)


def _cast(name: str, dtype: torch.dtype) -> None:
    @function(name)
    def cast(forward: Forward, args: Args, kwargs: Kwargs) -> Any:
        return _converted(forward, args[0], dtype, None)


_cast("float", torch.float32)
_cast("double", torch.float64)
_cast("half", torch.float16)
_cast("bfloat16", torch.bfloat16)
_cast("long", torch.int64)
_cast("int", torch.int32)
_cast("bool", torch.bool)


@function("where_function")
def where(forward: Forward, args: Args, kwargs: Kwargs) -> Any:
    return native_where(*args, **kwargs)


# ---------------------------------------------------------------------- sizes
def _of_batch(make: Callable[..., torch.Tensor]) -> Callable[[Forward, Args, Kwargs], Any]:
    def made(forward: Forward, args: Args, kwargs: Kwargs) -> Any:
        first = args[0] if args else kwargs.pop("size")
        size, rest = (first, args[1:]) if isinstance(first, (list, tuple)) else (args, ())
        batch = [i for i, s in enumerate(size) if isinstance(s, BatchSize)]
        shape = [1 if i in batch else s for i, s in enumerate(size)]
        strange = next((s for s in shape if not isinstance(s, int)), None)
        if strange is not None:
            strange._misuse("the size of a new tensor")
        kwargs.setdefault("device", forward.device)
        value = Constant(make(shape, *rest, **kwargs), forward.arrays)
        return BatchTensor(value, batch)

    return made


for _make in (torch.zeros, torch.ones, torch.full, torch.empty):
    function(_make.__name__)(_of_batch(torch.zeros if _make is torch.empty else _make))


def _new(name: str, make: Callable[..., torch.Tensor]) -> None:
    @function(name)
    def made(forward: Forward, args: Args, kwargs: Kwargs) -> Any:
        kwargs.setdefault("dtype", _dtype(args[0]))
        kwargs.setdefault("device", forward.device)
        size = args[1:] if args[1:] else (kwargs.pop("size"),)
        flat = size[0] if isinstance(size[0], (list, tuple)) else size
        if any(isinstance(s, BatchSize) for s in flat):
            return _of_batch(make)(forward, size, kwargs)
        return Constant(make(*size, **kwargs), forward.arrays)


_new("new_zeros", torch.zeros)
_new("new_ones", torch.ones)
_new("new_full", torch.full)
_new("new_empty", torch.zeros)


# ---------------------------------------------------------------------- random numbers
def visible(forward: Forward, inner: Native, fn: Callable[[torch.Tensor], torch.Tensor]) -> Native:
    """Apply a function of the padded tensor that a caller would see, and take its valid frames."""
    x = inner.in_order()

    def run(value: torch.Tensor) -> torch.Tensor:
        seen = StreamTensor.from_frames(value, x.dims, x.meta, x.starts, x.rate, x.names)
        return StreamTensor.of(fn(seen.tensor().contiguous()), seen._info).frames()

    return with_value(x, run)


def _random(name: str, training: bool) -> None:
    whole = getattr(F, name)

    @function(name)
    def run(forward: Forward, args: Args, kwargs: Kwargs) -> Any:
        names = dict(zip(("input", "p", "training"), args))
        given = {"p": 0.5, "training": training, **names, **kwargs}
        x, p, active = given["input"], given["p"], given["training"]
        if not active or p == 0 or x.value is None:
            return getattr(native_functional, name)(x, p, False)
        return visible(forward, x, lambda padded: whole(padded, p, True))


for _name in ("dropout", "dropout1d", "dropout2d", "dropout3d"):
    _random(_name, True)
for _name in ("alpha_dropout", "feature_alpha_dropout"):
    _random(_name, False)


# ---------------------------------------------------------------------- statistics of a batch
@function("batch_norm")
def batch_norm(forward: Forward, args: Args, kwargs: Kwargs) -> Any:
    names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    given: dict[str, Any] = {"weight": None, "bias": None, "training": False, "momentum": 0.1, "eps": 1e-5}
    given.update(zip(names, args))
    given.update({k: v for k, v in kwargs.items() if k != "cudnn_enabled"})
    x = given["input"]
    if not given["training"] or x.value is None:
        return native_functional.batch_norm(**given)
    meta = forward.entry.meta
    if not meta.all_starting_and_ending:
        raise ModeError(
            f"batch_norm at {user_line()} is in training: its statistics are those of whole streams, but these go "
            "on; call bn.eval() on the layer",
            [i for i, a, b in zip(meta.ids, meta.sos, meta.eos) if not (a and b)],
        )
    x = x.in_order()
    at = [d for d in x.dims if not isinstance(d, str)].index(x.dims[1]) + 1
    operands = [given[n] for n in ("running_mean", "running_var", "weight", "bias")]
    plain = [None if w is None else w.torch for w in operands]
    if not len(x.value):
        return x
    if forward.buffers is not None:
        forward.buffers.writes(plain[:2])

    def run(value: torch.Tensor) -> torch.Tensor:
        moved = value.movedim(at, 1)
        mean, var, weight, bias = plain
        out = F.batch_norm(moved, mean, var, weight, bias, True, given["momentum"], given["eps"])
        return out.movedim(1, at)

    return with_value(x, run)
