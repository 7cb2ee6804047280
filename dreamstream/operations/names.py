"""torch's names of functions, methods and attributes, and what they mean for streams.

Those of an operator stand in its row (`OPERATORS`, `ELEMENTWISE`), all others here. Inside a forward a name stands
for the native front end's function or method of that name; outside, for one of the rules of
`dreamstream.torch.outside`, which keep the metadata of streams true.
"""

from __future__ import annotations

from .elementwise import ELEMENTWISE
from .operator import Operation, each
from .operators import OPERATORS

_ROWS = (
    # elements: what torch's tags miss, since torch composes it of others
    *each("elementwise", "bernoulli bucketize clip complex conj conj_physical copy dequantize"),
    *each("elementwise", "feature_dropout gammaln ndtr poisson polar psi"),
    *each("elementwise", "hardsigmoid isclose isreal softshrink softsign tanhshrink"),
    *each("elementwise", "dropout dropout1d dropout2d dropout3d real imag", shares=True),
    *each("elementwise", "alpha_dropout feature_alpha_dropout", shares=True),
    # elements, by Python's operators
    Operation("rsub", native="__rsub__"),
    Operation("__div__", native="__truediv__"),
    Operation("__rdiv__", native="__rtruediv__"),
    Operation("_threshold", native="threshold"),
    # conversions, copies, and tensors that are filled anew
    *each("same", "contiguous data detach to alias bfloat16 bool byte cdouble cfloat chalf char", shares=True),
    *each("same", "cpu cuda double float half int long short type type_as xpu requires_grad_", shares=True),
    *each("same", "clone ipu pin_memory share_memory retains_grad"),
    *each("same", "resolve_conj resolve_neg empty_like full_like ones_like zeros_like rand_like randint_like"),
    *each("same", "randn_like fill zero normal uniform random exponential geometric log_normal cauchy"),
    Operation("positive", "same", native="__pos__"),
    Operation("__pos__", "same", shares=True),
    # along a dimension
    *each("along", "softmin cumsum cumprod logcumsumexp cummax cummin", arguments=("dim",)),
    Operation("argsort", "along", arguments=("dim",), default=-1),
    *each("along", "scatter scatter_add scatter_reduce", arguments=("dim",)),
    *each("along", "index_add index_copy index_fill index_reduce", arguments=("dim",)),
    *each("along", "fft_fft fft_ifft fft_rfft fft_irfft fft_hfft fft_ihfft", arguments=("n", "dim"), default=-1),
    Operation("msort", "along", default=0),
    Operation("fliplr", "along", default=1),
    Operation("flipud", "along", default=0),
    Operation("roll", "along", arguments=("shifts", "dims")),
    Operation("normalize", "along", arguments=("p", "dim"), default=1),
    Operation("renorm", "along", arguments=("p", "dim")),
    Operation("diff", "along", arguments=("n", "dim"), default=-1),
    Operation("gumbel_softmax", "along", arguments=("tau", "hard", "eps", "dim"), default=-1),
    Operation("repeat_interleave", "along", arguments=("repeats", "dim")),
    Operation("select_scatter", "along", arguments=("src", "dim")),
    Operation("slice_scatter", "along", arguments=("src", "dim"), default=0),
    Operation("cosine_similarity", "angles"),
    Operation("one_hot", "rows of tables"),
    # along the stream
    *each("whole streams", "conv3d conv_transpose3d conv_tbc convolution lp_pool1d lp_pool2d lp_pool3d"),
    *each("whole streams", "fractional_max_pool2d stft istft interpolate upsample grid_sample fold"),
    *each("whole streams", "instance_norm pixel_shuffle"),
    # reductions
    *each("reduction", "sum nansum mean nanmean", arguments=("dim", "keepdim", "dtype")),
    *each("reduction", "prod amax amin max min argmax argmin all any", arguments=("dim", "keepdim")),
    *each("reduction", "logsumexp median nanmedian", arguments=("dim", "keepdim")),
    *each("reduction", "var std var_mean std_mean", arguments=("dim", "unbiased", "keepdim")),
    *each("reduction", "quantile nanquantile", arguments=("q", "dim", "keepdim")),
    Operation("mode", "reduction", arguments=("dim", "keepdim"), default=-1),
    Operation("kthvalue", "reduction", arguments=("k", "dim", "keepdim"), default=-1),
    Operation("count_nonzero", "reduction", arguments=("dim",)),
    Operation("aminmax", "reduction"),
    Operation("norm", "reduction", arguments=("p", "dim", "keepdim", "dtype")),
    Operation("linalg_vector_norm", "reduction", arguments=("ord", "dim", "keepdim")),
    # the order and the sizes of dimensions
    *each("permuted", "t T mT", shares=True),
    *each("permuted", "H mH adjoint"),
    Operation("transpose", "permuted", ("swapaxes", "swapdims"), shares=True),
    Operation("movedim", "permuted", ("moveaxis",), shares=True),
    Operation("unsqueeze", "unsqueeze", shares=True),
    Operation("squeeze", "squeeze", shares=True),
    *each("reshaped", "flatten unflatten view view_as reshape_as", shares=True),
    Operation("ravel", "reshaped", shares=True),
    Operation("view_copy", native="view"),
    Operation("expand_as", "repeated", shares=True),
    Operation("broadcast_to", "repeated", native="expand"),
    *each("repeated", "repeat tile"),
    Operation("unfold", "unfold", shares=True),
    Operation("view_as_complex", "as complex"),
    Operation("view_as_real", "as real"),
    # parts, and parts put together
    Operation("__getitem__", "index", shares=True),
    Operation("__setitem__", "assignment"),
    Operation("narrow_copy", "narrow"),
    Operation("select", "select", shares=True),
    Operation("select_copy", "select"),
    Operation("index_select", "index_select"),
    Operation("take_along_dim", "take_along_dim"),
    Operation("split", "split", ("unsafe_split", "split_with_sizes"), shares=True),
    Operation("chunk", "split", ("unsafe_chunk",), shares=True),
    *each("split", "tensor_split hsplit vsplit dsplit"),
    Operation("unbind", "unbind", shares=True),
    Operation("stack", "stack"),
    *each("stacked", "hstack vstack dstack row_stack column_stack"),
    # products
    *each("matmul", "matmul __matmul__ __rmatmul__ mm bmm mv linalg_matmul"),
    Operation("einsum", "einsum"),
    # comparisons of whole tensors
    Operation("equal", "equal"),
    Operation("allclose", "allclose"),
    *each("resizing", "resize_ resize_as_ set_ sparse_resize_ swap_tensors"),
    *each("number of elements", "numel nelement"),
    # questions, and what torch does with a tensor as a whole
    *each("as it is", "__array__ __array_wrap__ __bool__ __complex__ __contains__ __cuda_array_interface__"),
    *each("as it is", "__dir__ __dlpack__ __dlpack_device__ __float__ __format__ __hash__ __index__ __int__"),
    *each("as it is", "__len__ __reduce__ __setstate__ _backward_hooks _base _cdata _grad _grad_fn _is_view"),
    *each("as it is", "_typed_storage _version backward can_cast data_ptr dense_dim device dim dim_order"),
    *each("as it is", "dtype element_size get_device grad grad_dtype grad_fn is_complex is_conj"),
    *each("as it is", "is_contiguous is_cpu is_cuda is_distributed is_floating_point is_inference"),
    *each("as it is", "is_ipu is_leaf is_maia is_meta is_mkldnn is_mps is_mtia is_neg is_nested is_nonzero"),
    *each("as it is", "is_pinned is_quantized is_same_size is_set_to is_shared is_signed is_sparse"),
    *each("as it is", "is_sparse_csr is_vulkan is_xla is_xpu item itemsize layout name nbytes ndim ndimension"),
    *each("as it is", "new new_empty new_empty_strided new_full new_ones new_tensor new_zeros"),
    *each("as it is", "numpy output_nr register_hook register_post_accumulate_grad_hook requires_grad"),
    *each("as it is", "result_type retain_grad storage storage_offset storage_type stride tolist"),
    *each("sizes", "shape size"),
    *each("as it is", "untyped_storage volatile"),
)

#: By name.
OPERATIONS: dict[str, Operation] = {
    row.name: row for row in (*_ROWS, *(named for row in OPERATORS.values() for named in row.named))
}

#: torch's other names: what the native front end calls it.
ALIASES: dict[str, str] = {
    **{row.name: row.native for row in OPERATIONS.values() if row.native},
    **{alias: row.name for row in OPERATIONS.values() for alias in row.aliases},
    **{alias: row.name for row in ELEMENTWISE.values() for alias in row.aliases},
}


def ours(name: str) -> str:
    """Return what the native front end calls a function of torch; those of torch.special have a prefix there."""
    name = name.removeprefix("special_")
    return ALIASES.get(name, name)
