"""Functions of torch that the native front end lacks: devices, element types, gradients, dropout, sizes.

Most change values frame by frame, so that they need no operator; a capture runs them as in evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import torch
import torch.nn.functional as F

from ... import dispatch
from ...array import baddbmm, stack, where, zeros_like
from ...array.batch_constants import value_of
from ...array.creation import lengths_in
from ...array.deferred import Deferred, as_number, is_computed, is_deferred
from ...array.dtypes import nominal
from ...array.einsum import of_streams
from ...array.frame_numbers import LoopNumber
from ...array.loop_body import in_loop
from ...array.masked_select import MaskedSelect
from ...array.positions import positions
from ...array.scores import Scores
from ...array.softmax_pooling import Weights
from ...array.stream_tensor import StreamTensor as Native
from ...array.symbolic import Symbolic
from ...array.tensor import Tensor
from ...array.writing import unsure
from ...errors import DTypeError, ModeError, NotStreamableError
from ...nn import functional as native_functional
from ...nn.functional.attention import hides_nothing, of_memory, under_masks, unrecognised_mask, weights_of
from ...nn.recurrent_cell import Cell, GRUCell, LSTMCell, RNNCell
from ...operations.refusals import FREQUENCIES, GRADIENTS, PLACES, Refusal
from ...stream.rules import Length, Rows, Token
from ..run.kernels.weights import looking_up
from ..tensor import StreamTensor
from .complex_pair import Complex
from .constants import Constant, as_array, dtype_of
from .names import ATTRIBUTES, COMPLEX, HANDLERS, enter, function
from .recordings import dropping, looked_at
from .running import current
from .sizes import TensorOfSizes


class AMinMax(NamedTuple):
    """The smallest and largest elements, as torch.aminmax has them."""

    min: Any
    max: Any


def with_value(inner: Native, fn: Callable[[torch.Tensor], torch.Tensor], note: str = "") -> Native:
    """Return the stream with ``fn(values)``; without values, in a capture, itself, or `note` in a loop's body."""
    if isinstance(inner, Complex):
        return inner.each(lambda part: with_value(part, fn))
    if isinstance(inner, MaskedSelect):
        return MaskedSelect(with_value(inner.base, fn), inner.mask)
    if inner.value is None:
        return in_loop(inner, note)
    return Native.inside(fn(inner.value), inner.dims, inner.edge, inner.names)  # type: ignore[arg-type]


def _types(x: Any) -> Any:
    """Return a capture's table of narrow element types by edge; None outside a capture."""
    return getattr(x.edge.entry, "types", None) if isinstance(x, Native) and x.edge is not None else None


def _dtype(x: Any) -> torch.dtype:
    """Return the torch element type of a native stream, constant or stand-in."""
    if isinstance(x, Constant):
        return x.torch.dtype
    x = x.q if isinstance(x, Scores) else x.scores if isinstance(x, Weights) else x
    x = x.base if isinstance(x, MaskedSelect) else x
    types = _types(x)
    if types and x.edge.handle in types:
        return getattr(torch, types[x.edge.handle])
    value = getattr(x, "value", x)  # a complex stream has no value, but a dtype of torch
    own: Any = x.dtype if value is None else value.dtype
    return own if isinstance(own, torch.dtype) else dtype_of(own.name)


def _requires_grad(inner: Any) -> bool:
    value = getattr(inner, "value", None)
    return isinstance(value, torch.Tensor) and value.requires_grad


def _of_gradients(what: str, otherwise: Any = None) -> Callable[..., Any]:
    """Refuse what looks at a gradient, where there will be one."""

    def refuse(x: Any, *_: Any, **__: Any) -> Any:
        if not _requires_grad(x):
            return x if otherwise is None else otherwise(x)
        return _refused(what, GRADIENTS)()

    return refuse


def _refused(name: str, why: Refusal = PLACES) -> Callable[..., Any]:
    """Refuse a function, whatever it is given: by default one that picks frames."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise NotStreamableError.here(f"{name}: {why.text}")

    return refuse


def _requiring(x: Any, requires_grad: bool = True) -> Any:
    """Let a stream be where gradients begin, as torch's requires_grad_ does."""
    value = getattr(x, "value", None)
    if not isinstance(value, torch.Tensor) or value.requires_grad == requires_grad:
        return x
    if not requires_grad:
        raise NotStreamableError.here("requires_grad_(False) of a computed stream,", ": use x.detach()")
    value.requires_grad_()
    return x


def _detached(x: Any) -> Any:
    return unsure(x, with_value(x, torch.Tensor.detach, "detach"))


enter(
    ATTRIBUTES,
    {
        "dtype": _dtype,
        "requires_grad": _requires_grad,
        "is_leaf": lambda inner: getattr(getattr(inner, "value", None), "is_leaf", True),
        "grad": lambda inner: None,
        "grad_fn": _of_gradients("grad_fn", lambda inner: None),
        "data": _detached,
    },
)


# ---------------------------------------------------------------------- types and devices
@function("type")
def type_(x: Any, dtype: Any = None, *_: Any, **__: Any) -> Any:
    if dtype is None:
        return torch.empty(0, dtype=_dtype(x), device=current().device).type()
    return to(x, torch.empty(0).type(dtype).dtype)


@function("to type_as cpu cuda")
def to(x: Any, *args: Any, dtype: Any = None, device: Any = None, copy: bool = False, **_: Any) -> Any:
    own, copy = current().device, copy or [a for a in args if type(a) is bool][1:] == [True]
    for a in args:
        if isinstance(a, torch.dtype):
            dtype = a
        elif isinstance(a, (torch.device, str)):
            device = a
        elif hasattr(a, "is_stream"):
            dtype = _dtype(a)
    if isinstance(x, Constant):  # constant.to(stream)
        return Constant(x.torch.to(dtype=dtype, device=own), x.arrays)
    if device is not None:
        wanted = torch.device(device)
        if wanted.type != own.type or wanted.index not in (None, own.index):
            raise NotStreamableError.here(f"a stream is moved to {wanted}", f", but the module runs on {own}")
    if dtype is None or _dtype(x) == dtype:
        return x.clone() if copy else x
    if isinstance(x, Deferred):  # which is computed by torch
        return x.to(dtype)
    if dtype.is_complex:
        real = to(x, dtype.to_real())
        return Complex(real, zeros_like(real))
    edge, name, types = getattr(x, "edge", None), str(dtype).removeprefix("torch."), _types(x)
    if types is not None and dtype != torch.bfloat16:
        if name != (own := nominal(dtype).name) or x.edge.handle in types:  # even of one type for operators
            made = x._operate("cast", {"to": own})
            types |= {made.edge.handle: name} if name != own else {}
            return made
    elif dtype in (torch.float16, torch.bfloat16) and edge is not None and edge.counts is None:
        raise DTypeError.here(
            f"a stream becomes {name}",
            ", but an engine computes in float32: leave the cast out, or cast what the engine gives; ask "
            "compile for narrow weights= or products=",
        )
    made = x.to(nominal(dtype))
    if getattr(made, "value", made) is None and str(dtype) == f"torch.{made.dtype}":
        return made  # in a loop's body, whose kernels know the type
    return with_value(made, lambda value: value.to(dtype))


def _cast(name: str) -> Callable[..., Any]:
    return lambda x, *_, **__: to(x, getattr(torch, name))


def _as_float(x: Any, *_: Any, **__: Any) -> Any:
    made = to(x, torch.float32)
    return in_loop(x, "float") if made is x and type(x) is Native else made  # it may be narrower in a loop's body


def _with_mean(name: str) -> Callable[..., Any]:
    def both(input: Any, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(dim, bool):  # torch.var_mean(x, unbiased)
            args, dim = (dim, *args), None
        keepdim = args[1] if len(args) > 1 else kwargs.get("keepdim", False)
        return getattr(input, name)(dim, *args, **kwargs), input.mean(dim, keepdim=keepdim)

    return both


enter(
    HANDLERS,
    {
        "detach": _detached,
        "requires_grad": _requiring,
        **{
            name: _of_gradients(name)
            for name in ("retain_grad", "register_hook", "register_post_accumulate_grad_hook")
        },
        **{name: _refused(name, GRADIENTS) for name in ("grad", "backward")},
        "is_floating_point": lambda input: _dtype(input).is_floating_point,
        "is_complex is_nonzero is_inference is_conj is_neg": lambda input: False,
        "get_device": lambda x: -1 if current().device.type == "cpu" else current().device.index or 0,
        **{name: _cast(name) for name in ("double", "half", "bfloat16", "long", "int", "bool")},
        "float": _as_float,
        **{name: _cast(name) for name in ("cfloat", "cdouble", "short")},
        "char": _cast("int8"),
        "byte": _cast("uint8"),
        **{f"{name}_mean": _with_mean(name) for name in ("var", "std")},
    },
)


# ---------------------------------------------------------------------- sizes
def _of_batch(make: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def made(*args: Any, **kwargs: Any) -> Any:
        forward, first = current(), args[0] if args else kwargs.pop("size")
        size, rest = (first, args[1:]) if isinstance(first, (list, tuple)) else (args, ())
        fills = (*rest, *kwargs.values())
        if (length := next((f for f in fills if isinstance(f, Length)), None)) is not None:
            return lengths_in(size, length)
        along = any(isinstance(s, Length) for s in size)
        batch = [i for i, s in enumerate(size) if isinstance(s, Rows)]
        shape = [1] if along else [1 if i in batch else s for i, s in enumerate(size)]
        if (token := next((s for s in shape if isinstance(s, Token)), None)) is not None:
            token._misuse("the size of a new tensor")
        kwargs.setdefault("device", forward.device)
        value = make(shape, *rest, **kwargs)
        parts = (value.real.contiguous(), value.imag.contiguous()) if value.is_complex() else (value,)
        if along:
            made = [Symbolic.filled(size, Tensor(as_array(p))) for p in parts]
        else:
            made = [forward.entry.library.of_batch(p, batch, size[batch[0]], fresh=True) for p in parts]
        return Complex(*made) if len(made) > 1 else made[0]

    return made


@function("arange")
def arange(*bounds: Any, dtype: Any = None, device: Any = None, **named: Any) -> Any:
    given = [0, *bounds] if len(bounds) == 1 and "end" not in named else list(bounds)
    first, last, step = (
        *given,
        *(named.get(n, d) for n, d in (("start", 0), ("end", 0), ("step", 1))[len(given) :]),
    )
    first, last, step = map(as_number, (first, last, step))
    return positions(first, last, step, dtype)


def _of_frame(numbers: Sequence[Any], dtype: Any) -> list[Any]:
    """Return numbers, of which some are of a loop's frame, each as a tensor of every frame."""
    is_float = any(isinstance(x, float) or getattr(x, "is_float", False) for x in numbers)
    made = [tensor(x * 1.0 if is_float else x, dtype) if isinstance(x, LoopNumber) else x for x in numbers]
    like = next(x for x in made if hasattr(x, "is_stream"))
    return [x if hasattr(x, "is_stream") else zeros_like(like) + x for x in made]


@function("tensor as_tensor")
def tensor(data: Any, dtype: Any = None, **_: Any) -> Any:
    if isinstance(data, LoopNumber):
        real = dtype if dtype is not None and dtype.is_floating_point else torch.get_default_dtype()
        made = data.as_tensor(lambda at: to(at, real))
        return made if dtype is None else to(made, dtype)
    if isinstance(data, (list, tuple)) and any(isinstance(x, LoopNumber) for x in data):
        return stack(_of_frame(data, dtype))
    if isinstance(data, Length):
        return Symbolic(data, (), data)
    if isinstance(data, list) and len(data) == 1 and isinstance(data[0], Length):
        return Symbolic(data[0], ("B",), data[0])  # each stream by itself
    if isinstance(data, (list, tuple)) and all(isinstance(s, (int, Token)) for s in data):
        return TensorOfSizes(data)
    raise NotStreamableError.here(f"a tensor made of {data!r}", ": torch.stack or torch.cat put streams together")


@function("new_tensor")
def new_tensor(x: Any, data: Any, dtype: Any = None, **_: Any) -> Any:
    made = Native.new_tensor(x, data, None if dtype is None else nominal(dtype))
    if is_deferred(made):
        return made if dtype is None else made.to(dtype)
    return Constant(torch.from_numpy(made.numpy()).to(current().device, dtype or _dtype(x)), current().arrays)


def _new(make: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def made(x: Any, *size: Any, **kwargs: Any) -> Any:
        kwargs.setdefault("dtype", _dtype(x))
        kwargs.setdefault("device", current().device)
        size = size or (kwargs.pop("size"),)
        flat = size[0] if isinstance(size[0], (list, tuple)) else size
        if any(isinstance(s, (Rows, Length)) for s in flat):
            return _of_batch(make)(*size, **kwargs)
        return Constant(make(*size, **kwargs), current().arrays)

    return made


for _name in ("zeros", "ones", "full", "empty"):
    _make = torch.zeros if _name == "empty" else getattr(torch, _name)
    for _table in (HANDLERS, COMPLEX):
        enter(_table, {_name: _of_batch(_make), f"new_{_name}": _new(_make)})


# ---------------------------------------------------------------------- what is made of other functions
@function("norm")
def norm(input: Any, p: Any = 2.0, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if isinstance(p, str) and p != "fro":
        _refuse_norm(p)
    return _typed(input, dtype).norm(2.0 if p is None else p, dim, keepdim)


@function("linalg_norm")
def norm_of_vectors_or_matrices(
    A: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    """Run torch.linalg.norm; an order and two dimensions ask for one of matrices, by sums of columns or rows."""
    if ord in (None, "fro") or isinstance(dim, int) or dim is None or len(dim) != 2:
        return norm(A, ord, dim, keepdim, dtype)
    if ord not in (1, -1, math.inf, -math.inf):
        _refuse_norm(ord)
    axes = [A._axis("norm", d) for d in dim]
    summed, chosen = axes if abs(ord) == 1 else reversed(axes)
    sums = _typed(A, dtype).abs().sum(summed, keepdim=True)
    out = sums.amax(chosen, keepdim=True) if ord > 0 else sums.amin(chosen, keepdim=True)
    return out if keepdim else out.squeeze(max(axes)).squeeze(min(axes))


def _typed(x: Any, dtype: torch.dtype | None) -> Any:
    return x if dtype is None else x.to(nominal(dtype))


def _refuse_norm(order: Any) -> NoReturn:
    raise NotStreamableError.here(
        f"the norm of matrices of order {order!r}: it is of their singular values, which are not among the "
        "operations that stream; orders 1, -1, inf, -inf and 'fro' are, and torch.linalg.vector_norm"
    )


def _cell(kind: type[Cell], **attributes: Any) -> Callable[..., Any]:
    def step(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
        state = hx if isinstance(hx, (tuple, list)) else (hx,)
        out = dispatch.apply(kind._operator, attributes, (input, *state), (w_ih, w_hh, b_ih, b_hh), (..., 0))
        return out if len(out) > 1 else out[0]

    return step


def _where(*args: Any, **kwargs: Any) -> Any:
    alone = len(args) + len(kwargs) == 1
    if [type(x) for x in args[1:]] == [float, float]:  # which are of the default type
        args = (args[0], *(Constant(torch.tensor(x), current().arrays) for x in args[1:]))
    return (_refused("torch.where of a condition alone") if alone else where)(*args, **kwargs)


enter(
    HANDLERS,
    {
        "aminmax": lambda input, dim=None, keepdim=False: AMinMax(
            input.amin(dim, keepdim), input.amax(dim, keepdim)
        ),
        "linalg_vector_norm": lambda x, ord=2.0, dim=None, keepdim=False, dtype=None: norm(
            x, ord, dim, keepdim, dtype
        ),
        "bmm": lambda input, mat2: input @ mat2,
        "einsum": of_streams,
        "lstm_cell": _cell(LSTMCell),
        "gru_cell": _cell(GRUCell),
        **{f"rnn_{kind}_cell": _cell(RNNCell, nonlinearity=kind) for kind in ("tanh", "relu")},
        # says no to torch's faster way of an encoder with a mask of keys
        "_nested_tensor_from_mask_left_aligned": lambda *_: False,
        "where_function": _where,
        **{name: _refused(name) for name in ("nonzero", "argwhere", "masked_select", "bincount")},
    },
)


# ---------------------------------------------------------------------- random numbers
def visible(inner: Native, fn: Callable[[torch.Tensor], torch.Tensor]) -> Native:
    """Apply `fn` to the padded tensor that a caller would see; return a stream of its valid frames."""
    x = inner.in_order()

    def run(value: torch.Tensor) -> torch.Tensor:
        seen = StreamTensor.from_frames(value, x.dims, x.meta, x.starts, x.rate, x.names)
        return StreamTensor.of(fn(seen.tensor().contiguous()), seen._info).frames()

    return with_value(x, run)


# ---------------------------------------------------------------------- tables
@function("embedding")
def embedding(
    input: Any, weight: Any, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Any:  # fmt: skip
    """Look rows up; options that concern gradients go to the kernel."""
    if scale_grad_by_freq and getattr(weight, "_learned", False) and current().goes_on:
        raise NotStreamableError.here(f"embedding: {FREQUENCIES.text}")
    if padding_idx is not None or scale_grad_by_freq or sparse:
        looked_at()
    with looking_up(padding_idx, scale_grad_by_freq, sparse):
        return native_functional.embedding(input, weight, padding_idx, max_norm)


# ---------------------------------------------------------------------- products and attention
@function("scaled_dot_product_attention")
def attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *given: Any, **named: Any
) -> Any:
    with dropping(dropout_p):
        return native_functional.scaled_dot_product_attention(query, key, value, attn_mask, 0.0, *given, **named)


@function("addmm baddbmm")
def added_to_a_product(input: Any, *factors: Any, beta: float = 1, alpha: float = 1, **named: Any) -> Any:
    left, right = (*factors, *named.values())  # mat1 and mat2, or batch1 and batch2
    return baddbmm(input, left, right, beta=beta, alpha=alpha)


@function("multi_head_attention_forward")
def multihead(
    query: Any, key: Any, value: Any, embed_dim: int, num_heads: int, in_proj_weight: Any, in_proj_bias: Any,
    bias_k: Any, bias_v: Any, add_zero_attn: bool, dropout_p: float, out_proj_weight: Any,
    out_proj_bias: Any = None, training: bool = True, key_padding_mask: Any = None, need_weights: bool = True,
    attn_mask: Any = None, use_separate_proj_weight: bool = False, q_proj_weight: Any = None,
    k_proj_weight: Any = None, v_proj_weight: Any = None, is_causal: bool = False, static_k: Any = None,
    static_v: Any = None, **_: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Project, attend, and project again; masks are floats by now, and the use of weights is refused."""
    if add_zero_attn or any(x is not None for x in (bias_k, bias_v, static_k, static_v)):
        raise NotStreamableError.here(
            "MultiheadAttention: add_bias_kv, add_zero_attn, static_k and static_v do not stream"
        )
    forward, hidden = current(), of_memory(key_padding_mask)
    if key_padding_mask is not None and not hidden and not hides_nothing(key_padding_mask):
        raise unrecognised_mask("MultiheadAttention", key_padding_mask)
    linear = native_functional.linear
    query, key, value = map(value_of, (query, key, value))
    if query is key is value and not use_separate_proj_weight:
        parts = list(linear(query, in_proj_weight, in_proj_bias).chunk(3, -1))
    else:
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
        weights = weights if use_separate_proj_weight else in_proj_weight.chunk(3)
        biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
        own = [map(forward.unwrap, part) for part in (weights, biases)]
        parts = [
            linear(x, w, b)
            if x.is_stream
            else Constant(F.linear(x.torch, w.torch, getattr(b, "torch", None)), forward.arrays)
            for x, w, b in zip((query, key, value), *own)
        ]
    q, k, v = (x.transpose(0, 1).unflatten(-1, (num_heads, -1)).transpose(1, 2) for x in parts)
    attn_mask = native_functional.attention.beside_hint(attn_mask, is_causal, key_padding_mask, need_weights)
    causal = is_causal and attn_mask is None
    noted = weights_of(q, k) if need_weights else None
    p = dropout_p if training else 0.0
    if hidden or (need_weights and is_computed(attn_mask)):
        padding = key_padding_mask.unsqueeze(1).unsqueeze(2) if hidden else None
        masks = [x for x in (attn_mask, padding) if x is not None]
        with dropping(p):  # torch's zeros are those of its fused kernels, which give no weights
            out = under_masks(q, k, v, masks, q.shape[-1] ** -0.5, zeros=hidden or not need_weights)
    else:
        out = attention(q, k, v, attn_mask, p, causal)
    return linear(out.transpose(1, 2).flatten(-2).transpose(0, 1), out_proj_weight, out_proj_bias), noted


# ---------------------------------------------------------------------- statistics of a batch
@function("batch_norm")
def batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5, cudnn_enabled: bool = True,
) -> Any:  # fmt: skip
    operands = (running_mean, running_var, weight, bias)
    if not training or input.value is None:
        return native_functional.batch_norm(input, *operands, training, momentum, eps)

    def run(value: torch.Tensor, mean: Any, var: Any, weight: Any, bias: Any, _: Any) -> torch.Tensor:
        return F.batch_norm(value, mean, var, weight, bias, True, momentum, eps)

    return _of_whole("batch_norm", input, operands, run)


@function("instance_norm")
def instance_norm(
    input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    operands = (running_mean, running_var, weight, bias)
    if not use_input_stats or running_mean is None or input.value is None:
        return native_functional.instance_norm(input, *operands, use_input_stats, momentum, eps)

    def run(value: torch.Tensor, mean: Any, var: Any, weight: Any, bias: Any, lengths: Any) -> torch.Tensor:
        rows = [value] if lengths is None else [r.movedim(0, -1)[None] for r in value.split(lengths) if len(r)]
        out = [F.instance_norm(r, None, None, weight, bias, True, momentum, eps) for r in rows]
        with torch.no_grad():
            seen = [r.detach().flatten(2) for r in rows]
            for known, of in ((mean, torch.mean), (var, torch.var)):
                known.lerp_(torch.cat([of(r, -1) for r in seen]).mean(0).to(known.dtype), momentum)
        return out[0] if lengths is None else torch.cat([y[0].movedim(-1, 0) for y in out])

    return _of_whole("instance_norm", input, operands, run)


def _of_whole(name: str, input: Any, operands: Any, run: Callable[..., torch.Tensor]) -> Any:
    """Normalise whole streams in training by `run`, which updates running statistics.

    `run` is given ``(frames, channels, ...)``, the operands, and the rows' lengths, or None if each frame is
    a row. Streams that don't start and end in this call are refused.
    """
    forward = current()
    if forward.goes_on:
        raise ModeError.here(
            name,
            " is in training: its statistics are those of whole streams, but these go on; call eval() on the "
            "layer",
            ids=forward.going_on,
        )
    x = input.in_order()
    at = [d for d in x.dims if not isinstance(d, str)].index(x.dims[1]) + 1
    plain = [None if w is None else w.torch for w in operands]
    if not len(x.value):
        return x
    if forward.held is not None:
        forward.held.writes(plain[:2])
    lengths = x.edge.counts[:, 2].tolist() if "L" in x.dims[1:] else None
    return with_value(x, lambda value: run(value.movedim(at, 1), *plain, lengths).movedim(1, at))
