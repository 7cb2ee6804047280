"""torch's names of functions, methods and attributes, and what they mean for streams.

Functions of single elements need no row here: `ELEMENTWISE` has theirs. Inside a forward a name stands for the
native front end's function or method of that name; outside, for one of the rules of `dreamstream.torch.outside`,
which keep the metadata of streams true.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from .elementwise import ELEMENTWISE

__all__ = ["ALIASES", "OPERATIONS", "Operation", "Rule"]

#: What happens to stream tensors outside a forward, as `dreamstream.torch.outside` names it. "": torch's tags tell
#: whether elements are seen one by one; "same": the shape, and nothing of the values; "along": one dimension or
#: several, of features; "as it is": torch's answer, which is no stream; "resizing", "whole streams": refused.
Rule = Literal[
    "", "elementwise", "same", "as it is", "resizing", "along", "last dimensions", "running statistics",
    "whole streams", "rows of tables", "angles", "reduction", "permuted", "unsqueeze", "squeeze", "reshaped",
    "repeated", "unfold", "pad", "as complex", "as real", "index", "assignment", "narrow", "select",
    "index_select", "gather", "take_along_dim", "split", "unbind", "cat", "stack", "stacked", "matmul",
    "linear", "einsum", "equal", "allclose",
]  # fmt: skip


@dataclass(frozen=True)
class Operation:
    """A function, method or attribute of torch.

    Attributes
    ----------
    name : str
    outside : str
        The rule for stream tensors outside a forward.
    aliases : tuple of str
        torch's other names for it.
    native : str
        The native front end's name, where it is another one.
    arguments : tuple of str
        Of rules that look at dimensions: the arguments behind the tensor, in their order.
    default : int or None
        The dimension where none is given.
    shares : bool
        Whether the result shares memory with the tensor: what is written into one is seen in the other.
    """

    name: str
    outside: Rule = ""
    aliases: tuple[str, ...] = ()
    native: str = ""
    arguments: tuple[str, ...] = ()
    default: int | None = None
    shares: bool = False


def _each(rule: Rule, names: str, **more: Any) -> Iterator[Operation]:
    """Return rows of names of which the same is to be said."""
    return (Operation(name, rule, **more) for name in names.split())


_ROWS = (
    # elements: what torch's tags miss, since torch composes it of others
    *_each("elementwise", "bernoulli bucketize clip complex conj conj_physical copy dequantize"),
    *_each("elementwise", "feature_dropout poisson polar"),
    *_each("elementwise", "hardsigmoid hardswish isclose isreal softshrink softsign tanhshrink"),
    *_each("elementwise", "dropout dropout1d dropout2d dropout3d real imag", shares=True),
    *_each("elementwise", "alpha_dropout feature_alpha_dropout", shares=True),
    # elements, by Python's operators
    Operation("rsub", native="__rsub__"),
    Operation("__div__", native="__truediv__"),
    Operation("__rdiv__", native="__rtruediv__"),
    Operation("_threshold", native="threshold"),
    # conversions, copies, and tensors that are filled anew
    *_each("same", "contiguous data detach to alias bfloat16 bool byte cdouble cfloat chalf char", shares=True),
    *_each("same", "cpu cuda double float half int long short type type_as xpu requires_grad_", shares=True),
    *_each("same", "clone ipu pin_memory share_memory retains_grad"),
    *_each("same", "resolve_conj resolve_neg empty_like full_like ones_like zeros_like rand_like randint_like"),
    *_each("same", "randn_like fill zero normal uniform random exponential geometric log_normal cauchy"),
    Operation("positive", "same", native="__pos__"),
    Operation("__pos__", "same", shares=True),
    # along a dimension
    *_each("along", "softmax log_softmax softmin cumsum cumprod logcumsumexp cummax cummin", arguments=("dim",)),
    *_each("along", "sort argsort glu", arguments=("dim",), default=-1),
    *_each("along", "scatter scatter_add scatter_reduce", arguments=("dim",)),
    *_each("along", "index_add index_copy index_fill index_reduce", arguments=("dim",)),
    *_each("along", "fft_fft fft_ifft fft_rfft fft_irfft fft_hfft fft_ihfft", arguments=("n", "dim"), default=-1),
    Operation("msort", "along", default=0),
    Operation("flip", "along", arguments=("dims",)),
    Operation("fliplr", "along", default=1),
    Operation("flipud", "along", default=0),
    Operation("roll", "along", arguments=("shifts", "dims")),
    Operation("topk", "along", arguments=("k", "dim"), default=-1),
    Operation("normalize", "along", arguments=("p", "dim"), default=1),
    Operation("renorm", "along", arguments=("p", "dim")),
    Operation("diff", "along", arguments=("n", "dim"), default=-1),
    Operation("gumbel_softmax", "along", arguments=("tau", "hard", "eps", "dim"), default=-1),
    Operation("repeat_interleave", "along", arguments=("repeats", "dim")),
    Operation("select_scatter", "along", arguments=("src", "dim")),
    Operation("slice_scatter", "along", arguments=("src", "dim"), default=0),
    Operation("cosine_similarity", "angles"),
    *_each("last dimensions", "layer_norm rms_norm"),
    Operation("batch_norm", "running statistics"),
    *_each("rows of tables", "embedding one_hot"),
    # along the stream
    *_each("whole streams", "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc"),
    *_each("whole streams", "avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d convolution"),
    *_each("whole streams", "max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices"),
    *_each("whole streams", "lp_pool1d lp_pool2d lp_pool3d fractional_max_pool2d"),
    *_each("whole streams", "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d"),
    *_each("whole streams", "adaptive_max_pool1d adaptive_max_pool2d lstm gru rnn_tanh rnn_relu stft istft"),
    *_each("whole streams", "interpolate upsample grid_sample fold instance_norm group_norm pixel_shuffle"),
    *_each("whole streams", "multi_head_attention_forward scaled_dot_product_attention"),
    # reductions
    *_each("reduction", "sum nansum mean nanmean", arguments=("dim", "keepdim", "dtype")),
    *_each("reduction", "prod amax amin max min argmax argmin all any", arguments=("dim", "keepdim")),
    *_each("reduction", "logsumexp median nanmedian", arguments=("dim", "keepdim")),
    *_each("reduction", "var std var_mean std_mean", arguments=("dim", "unbiased", "keepdim")),
    *_each("reduction", "quantile nanquantile", arguments=("q", "dim", "keepdim")),
    Operation("mode", "reduction", arguments=("dim", "keepdim"), default=-1),
    Operation("kthvalue", "reduction", arguments=("k", "dim", "keepdim"), default=-1),
    Operation("count_nonzero", "reduction", arguments=("dim",)),
    Operation("aminmax", "reduction"),
    Operation("norm", "reduction", arguments=("p", "dim", "keepdim", "dtype")),
    Operation("linalg_vector_norm", "reduction", arguments=("ord", "dim", "keepdim")),
    # the order and the sizes of dimensions
    *_each("permuted", "permute t T mT", shares=True),
    *_each("permuted", "H mH adjoint"),
    Operation("transpose", "permuted", ("swapaxes", "swapdims"), shares=True),
    Operation("movedim", "permuted", ("moveaxis",), shares=True),
    Operation("unsqueeze", "unsqueeze", shares=True),
    Operation("squeeze", "squeeze", shares=True),
    *_each("reshaped", "reshape flatten unflatten view view_as reshape_as", shares=True),
    Operation("ravel", "reshaped", shares=True),
    Operation("view_copy", native="view"),
    *_each("repeated", "expand expand_as", shares=True),
    Operation("broadcast_to", "repeated", native="expand"),
    *_each("repeated", "repeat tile"),
    Operation("unfold", "unfold", shares=True),
    Operation("pad", "pad"),
    Operation("view_as_complex", "as complex"),
    Operation("view_as_real", "as real"),
    # parts, and parts put together
    Operation("__getitem__", "index", shares=True),
    Operation("__setitem__", "assignment"),
    Operation("narrow", "narrow", shares=True),
    Operation("narrow_copy", "narrow"),
    Operation("select", "select", shares=True),
    Operation("select_copy", "select"),
    Operation("index_select", "index_select"),
    Operation("gather", "gather"),
    Operation("take_along_dim", "take_along_dim"),
    Operation("split", "split", ("unsafe_split", "split_with_sizes"), shares=True),
    Operation("chunk", "split", ("unsafe_chunk",), shares=True),
    *_each("split", "tensor_split hsplit vsplit dsplit"),
    Operation("unbind", "unbind", shares=True),
    Operation("cat", "cat", ("concat", "concatenate")),
    Operation("stack", "stack"),
    *_each("stacked", "hstack vstack dstack row_stack column_stack"),
    # products
    *_each("matmul", "matmul __matmul__ __rmatmul__ mm bmm mv linalg_matmul"),
    Operation("linear", "linear"),
    Operation("einsum", "einsum"),
    # comparisons of whole tensors
    Operation("equal", "equal"),
    Operation("allclose", "allclose"),
    *_each("resizing", "resize_ resize_as_ set_ sparse_resize_ swap_tensors"),
    # questions, and what torch does with a tensor as a whole
    *_each("as it is", "__array__ __array_wrap__ __bool__ __complex__ __contains__ __cuda_array_interface__"),
    *_each("as it is", "__dir__ __dlpack__ __dlpack_device__ __float__ __format__ __hash__ __index__ __int__"),
    *_each("as it is", "__len__ __reduce__ __setstate__ _backward_hooks _base _cdata _grad _grad_fn _is_view"),
    *_each("as it is", "_typed_storage _version backward can_cast data_ptr dense_dim device dim dim_order"),
    *_each("as it is", "dtype element_size get_device grad grad_dtype grad_fn is_complex is_conj"),
    *_each("as it is", "is_contiguous is_cpu is_cuda is_distributed is_floating_point is_inference"),
    *_each("as it is", "is_ipu is_leaf is_maia is_meta is_mkldnn is_mps is_mtia is_neg is_nested is_nonzero"),
    *_each("as it is", "is_pinned is_quantized is_same_size is_set_to is_shared is_signed is_sparse"),
    *_each("as it is", "is_sparse_csr is_vulkan is_xla is_xpu item itemsize layout name nbytes ndim ndimension"),
    *_each("as it is", "nelement new new_empty new_empty_strided new_full new_ones new_tensor new_zeros numel"),
    *_each("as it is", "numpy output_nr register_hook register_post_accumulate_grad_hook requires_grad"),
    *_each("as it is", "result_type retain_grad shape size storage storage_offset storage_type stride tolist"),
    *_each("as it is", "untyped_storage volatile"),
)

#: By name.
OPERATIONS: dict[str, Operation] = {row.name: row for row in _ROWS}

#: torch's other names: what the native front end calls it.
ALIASES: dict[str, str] = {
    **{row.name: row.native for row in _ROWS if row.native},
    **{alias: row.name for row in _ROWS for alias in row.aliases},
    **{alias: row.name for row in ELEMENTWISE.values() for alias in row.aliases},
}
