"""The tensor with its methods; tests/source/test_stubs.py writes this."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from typing_extensions import Self

from .base import Base, Number
from .reductions import Extreme

__all__ = ["Tensor", "each", "take"]

Flag = bool
Real = float
Operand = Any
Dims = int | Sequence[int] | None

def take(cls: type[Any], module: Mapping[str, Any] | None = None, /, **others: Any) -> None: ...
def each(**words: str) -> Callable[[Callable[[str], Any]], dict[str, Any]]: ...

class Tensor(Base):
    def sum(self, dim: Dims = None, keepdim: Flag = False, dtype: Any = None) -> Self:
        """Return the sum; int64 for integers and bools."""
    def prod(self, dim: Dims = None, keepdim: Flag = False, dtype: Any = None) -> Self:
        """Return the product; int64 for integers and bools."""
    def var(
        self, dim: Dims = None, unbiased: Flag = True, keepdim: Flag = False, *,
        correction: Real | None = None
    ) -> Self:
        """Return the mean square about the mean, divided by n - correction (1 unless `unbiased` is False)."""
    def std(
        self, dim: Dims = None, unbiased: Flag = True, keepdim: Flag = False, *,
        correction: Real | None = None
    ) -> Self:
        """Return the square root of `var`."""
    def cumsum(self, dim: int, dtype: Any = None) -> Self:
        """Return the running sum along `dim`."""
    def cumprod(self, dim: int, dtype: Any = None) -> Self:
        """Return the running product along `dim`."""
    def max(self, dim: Any = None, keepdim: Flag = False) -> Any:
        """Return the largest element, or ``(values, indices)`` along `dim`; of each two beside a tensor."""
    def min(self, dim: Any = None, keepdim: Flag = False) -> Any:
        """Return the smallest element, or ``(values, indices)`` along `dim`; of each two beside a tensor."""
    def amax(self, dim: Dims = None, keepdim: Flag = False) -> Self:
        """Return the largest elements; NaN where there is one."""
    def amin(self, dim: Dims = None, keepdim: Flag = False) -> Self:
        """Return the smallest elements; NaN where there is one."""
    def all(self, dim: Dims = None, keepdim: Flag = False) -> Self:
        """Return whether all elements are not zero (bool)."""
    def any(self, dim: Dims = None, keepdim: Flag = False) -> Self:
        """Return whether one of the elements is not zero (bool)."""
    def argmax(self, dim: int | None = None, keepdim: Flag = False) -> Self:
        """Return where the largest element is (int64): along `dim`, or in the flattened tensor."""
    def argmin(self, dim: int | None = None, keepdim: Flag = False) -> Self:
        """Return where the smallest element is (int64): along `dim`, or in the flattened tensor."""
    def cummax(self, dim: int) -> Extreme:
        """Return the largest elements so far along `dim`, and where the last of them is; NaN stays."""
    def cummin(self, dim: int) -> Extreme:
        """Return the smallest elements so far along `dim`, and where the last of them is; NaN stays."""
    def mean(self, dim: Dims = None, keepdim: Flag = False, dtype: Any = None) -> Self:
        """Return the mean; NaN of no elements."""
    def norm(self, p: Real | str = 'fro', dim: Dims = None, keepdim: Flag = False) -> Self:
        """Return the p-norm of the elements; "fro" is 2, ``inf`` and ``-inf`` give the extremes."""
    def logsumexp(self, dim: Dims, keepdim: Flag = False) -> Self:
        """Return the logarithm of the sum of e ** x; -inf where all of it is -inf."""
    def logcumsumexp(self, dim: int) -> Self:
        """Return the logarithm of the running sum of e ** x along `dim`."""
    def count_nonzero(self, dim: Dims = None) -> Self:
        """Return how many elements are not zero (int64)."""
    def nansum(self, dim: Dims = None, keepdim: Flag = False, dtype: Any = None) -> Self:
        """Return the sum of the elements that are no NaN."""
    def nanmean(self, dim: Dims = None, keepdim: Flag = False, dtype: Any = None) -> Self:
        """Return the mean of the elements that are no NaN."""
    def equal(self, other: Tensor) -> Flag:
        """Return whether `other` has the same shape and elements."""
    def allclose(
        self, other: Tensor, rtol: Real = 1e-05, atol: Real = 1e-08, equal_nan: Flag = False
    ) -> Flag:
        """Return whether `abs(self - other) <= atol + rtol * abs(other)` everywhere."""
    def matmul(self, other: Tensor) -> Self:
        """Return the matrix product, over all leading dimensions."""
    def __matmul__(self, other: Any) -> Self: ...
    def __rmatmul__(self, other: Any) -> Self: ...
    def mm(self, mat2: Tensor) -> Self:
        """Return the product of two matrices."""
    def bmm(self, mat2: Tensor) -> Self:
        """Return the products of two batches of matrices."""
    def addmm(self, mat1: Tensor, mat2: Tensor, *, beta: Real = 1, alpha: Real = 1) -> Self:
        """Return beta * self + alpha * (mat1 @ mat2)."""
    def new_tensor(self, data: Any, dtype: Any = None, requires_grad: Flag = False) -> Any:
        """Return a tensor of `data`, of this one's element type unless `dtype` says otherwise."""
    def new_full(
        self, size: Any, fill_value: Any, dtype: Any = None, *, device: Any = None,
        requires_grad: Flag = False
    ) -> Any:
        """Return `dreamstream.full` of this element type."""
    def new_zeros(self, *size: Any, **options: Any) -> Any:
        """Return `dreamstream.zeros` of this element type."""
    def new_ones(self, *size: Any, **options: Any) -> Any:
        """Return `dreamstream.ones` of this element type."""
    def new_empty(self, *size: Any, **options: Any) -> Any:
        """Return zeros: memory without values is never handed out."""
    def _cat(self, tensors: list[Tensor], dim: int) -> Self:
        """Join plain tensors; a class of streams has its own, and gets lists that hold one of its tensors."""
    @property
    def retains_grad(self) -> Flag:
        """Whether `retain_grad` was called on what is no leaf."""
    @property
    def _version(self) -> int:
        """How often the tensor's memory was written into."""
    def backward(
        self, gradient: Any = None, retain_graph: Flag | None = None, create_graph: Flag = False,
        inputs: Any = None
    ) -> None:
        """Add the gradients of this tensor to the `grad` of the leaves that it follows from."""
    def register_hook(self, hook: Any) -> Any:
        """Let a function see the tensor's gradient in each backward; what it returns, if anything, replaces it."""
    def retain_grad(self) -> None:
        """Let the tensor have its gradient in `grad`, as leaves have."""
    def detach_(self) -> Self:
        """Cut the tensor off from what it follows from."""
    def bitwise_and(self, other: Any) -> Self: ...
    def bitwise_or(self, other: Any) -> Self: ...
    def bitwise_xor(self, other: Any) -> Self: ...
    def relu(self) -> Self:
        """Return max(x, 0)."""
    def sigmoid(self) -> Self:
        """Return 1 / (1 + e ** -x)."""
    def tanh(self) -> Self:
        """Return the hyperbolic tangent."""
    def exp(self) -> Self:
        """Return e ** x."""
    def expm1(self) -> Self:
        """Return e ** x - 1, exact near zero."""
    def log(self) -> Self:
        """Return the natural logarithm."""
    def log1p(self) -> Self:
        """Return log(1 + x), exact near zero."""
    def log2(self) -> Self:
        """Return the logarithm to base 2."""
    def log10(self) -> Self:
        """Return the logarithm to base 10."""
    def sqrt(self) -> Self:
        """Return the square root."""
    def rsqrt(self) -> Self:
        """Return 1 / sqrt(x)."""
    def reciprocal(self) -> Self:
        """Return 1 / x."""
    def square(self) -> Self:
        """Return x * x."""
    def abs(self) -> Self:
        """Return the absolute value."""
    def neg(self) -> Self:
        """Return -x."""
    def sign(self) -> Self:
        """Return -1, 0 or 1; 0 for NaN."""
    def sin(self) -> Self:
        """Return the sine."""
    def cos(self) -> Self:
        """Return the cosine."""
    def sinh(self) -> Self:
        """Return the hyperbolic sine."""
    def cosh(self) -> Self:
        """Return the hyperbolic cosine."""
    def asin(self) -> Self:
        """Return the angle whose sine this is; NaN beyond [-1, 1]."""
    def acos(self) -> Self:
        """Return the angle whose cosine this is; NaN beyond [-1, 1]."""
    def atan(self) -> Self:
        """Return the angle whose tangent this is."""
    def asinh(self) -> Self:
        """Return what has this as its hyperbolic sine."""
    def acosh(self) -> Self:
        """Return what has this as its hyperbolic cosine; NaN below 1."""
    def atanh(self) -> Self:
        """Return what has this as its hyperbolic tangent; NaN beyond [-1, 1]."""
    def exp2(self) -> Self:
        """Return 2 ** x."""
    def frac(self) -> Self:
        """Return what trunc takes away."""
    def erf(self) -> Self:
        """Return the error function."""
    def erfc(self) -> Self:
        """Return 1 - erf(x), exact for small results."""
    def floor(self) -> Self:
        """Return the largest integer that is not larger."""
    def ceil(self) -> Self:
        """Return the smallest integer that is not smaller."""
    def round(self, *, decimals: int = 0) -> Self:
        """Return the nearest integers, the even one of two; or the nearest numbers of so many decimals."""
    def trunc(self) -> Self:
        """Return the nearest integer that is not larger in size."""
    def mul(self, other: Any) -> Self:
        """Return self * other."""
    def minimum(self, other: Any) -> Self:
        """Return the smaller of each two elements; NaN where one is."""
    def maximum(self, other: Any) -> Self:
        """Return the larger of each two elements; NaN where one is."""
    def eq(self, other: Any) -> Self:
        """Return whether elements are equal."""
    def ne(self, other: Any) -> Self:
        """Return whether elements differ."""
    def lt(self, other: Any) -> Self:
        """Return self < other."""
    def le(self, other: Any) -> Self:
        """Return self <= other."""
    def gt(self, other: Any) -> Self:
        """Return self > other."""
    def ge(self, other: Any) -> Self:
        """Return self >= other."""
    def atan2(self, other: Any) -> Self:
        """Return the angle of the point (other, self), from -pi to pi."""
    def hypot(self, other: Any) -> Self:
        """Return sqrt(self ** 2 + other ** 2), without overflow on the way."""
    def copysign(self, other: Any) -> Self:
        """Return the sizes of self with the signs of `other`."""
    def fmod(self, other: Any) -> Self:
        """Return what self / other leaves, exactly; the sign is that of self."""
    def remainder(self, other: Any) -> Self:
        """Return self - other * (self / other rounded down): the sign is that of `other`."""
    def floor_divide(self, other: Any) -> Self:
        """Return self / other, rounded down."""
    def logical_not(self) -> Self:
        """Return whether elements are zero."""
    def logical_and(self, other: Any) -> Self:
        """Return whether both elements are not zero."""
    def logical_or(self, other: Any) -> Self:
        """Return whether one of the elements is not zero."""
    def __eq__(self, other: Any) -> Self: ...  # type: ignore[override]
    def __ne__(self, other: Any) -> Self: ...  # type: ignore[override]
    def __lt__(self, other: Any) -> Self: ...
    def __le__(self, other: Any) -> Self: ...
    def __gt__(self, other: Any) -> Self: ...
    def __ge__(self, other: Any) -> Self: ...
    def __add__(self, other: Any) -> Self: ...
    def __sub__(self, other: Any) -> Self: ...
    def __mul__(self, other: Any) -> Self: ...
    def __truediv__(self, other: Any) -> Self: ...
    def __pow__(self, other: Any) -> Self: ...
    def __mod__(self, other: Any) -> Self: ...
    def __floordiv__(self, other: Any) -> Self: ...
    def __and__(self, other: Any) -> Self: ...
    def __or__(self, other: Any) -> Self: ...
    def __xor__(self, other: Any) -> Self: ...
    def __lshift__(self, other: Any) -> Self: ...
    def __rshift__(self, other: Any) -> Self: ...
    def __iadd__(self: Any, other: Any) -> Any: ...
    def __isub__(self: Any, other: Any) -> Any: ...
    def __imul__(self: Any, other: Any) -> Any: ...
    def __itruediv__(self: Any, other: Any) -> Any: ...
    def __ipow__(self: Any, other: Any) -> Any: ...
    def __imod__(self: Any, other: Any) -> Any: ...
    def __ifloordiv__(self: Any, other: Any) -> Any: ...
    def __iand__(self: Any, other: Any) -> Any: ...
    def __ior__(self: Any, other: Any) -> Any: ...
    def __ixor__(self: Any, other: Any) -> Any: ...
    def __ilshift__(self: Any, other: Any) -> Any: ...
    def __irshift__(self: Any, other: Any) -> Any: ...
    def __radd__(self, other: Any) -> Self: ...
    def __rsub__(self, other: Any) -> Self: ...
    def __rmul__(self, other: Any) -> Self: ...
    def __rtruediv__(self, other: Any) -> Self: ...
    def __rpow__(self, other: Any) -> Self: ...
    def __rmod__(self, other: Any) -> Self: ...
    def __rfloordiv__(self, other: Any) -> Self: ...
    def __rand__(self, other: Any) -> Self: ...
    def __ror__(self, other: Any) -> Self: ...
    def __rxor__(self, other: Any) -> Self: ...
    def __rlshift__(self, other: Any) -> Self: ...
    def __rrshift__(self, other: Any) -> Self: ...
    def pow(self, exponent: Operand) -> Self:
        """Return self ** exponent."""
    def clip(self, min: Operand = None, max: Operand = None) -> Self:
        """Return elements moved into [min, max]; `max` wins where min > max."""
    def add(self, other: Operand, *, alpha: Number = 1) -> Self:
        """Return self + alpha * other."""
    def sub(self, other: Operand, *, alpha: Number = 1) -> Self:
        """Return self - alpha * other."""
    def addcmul(self, tensor1: Operand, tensor2: Operand, *, value: Number = 1) -> Self:
        """Return self + value * tensor1 * tensor2."""
    def addcdiv(self, tensor1: Operand, tensor2: Operand, *, value: Number = 1) -> Self:
        """Return self + value * tensor1 / tensor2."""
    def softmax(self, dim: int, dtype: Any = None) -> Self:
        """Return e ** x / sum(e ** x) along `dim`; zeros where all of it is -inf."""
    def log_softmax(self, dim: int, dtype: Any = None) -> Self:
        """Return log(softmax(x)) along `dim`."""
    def logical_xor(self, other: Operand) -> Self:
        """Return whether exactly one of the elements is not zero."""
    def isnan(self) -> Self:
        """Return whether elements are NaN."""
    def isinf(self) -> Self:
        """Return whether elements are infinite."""
    def isfinite(self) -> Self:
        """Return whether elements are neither infinite nor NaN."""
    def isposinf(self) -> Self:
        """Return whether elements are inf."""
    def isneginf(self) -> Self:
        """Return whether elements are -inf."""
    def signbit(self) -> Self:
        """Return whether elements are negative, -0.0 included."""
    def tan(self) -> Self:
        """Return the tangent."""
    def clamp_min(self, min: Operand) -> Self:
        """Return elements that are at least `min`."""
    def clamp_max(self, max: Operand) -> Self:
        """Return elements that are at most `max`."""
    def heaviside(self, values: Operand) -> Self:
        """Return 0 below zero, `values` at zero, 1 above it."""
    def sinc(self) -> Self:
        """Return sin(pi x) / (pi x), and 1 at 0."""
    def deg2rad(self) -> Self:
        """Return degrees as radians."""
    def rad2deg(self) -> Self:
        """Return radians as degrees."""
    def fmax(self, other: Operand) -> Self:
        """Return the larger of each two elements, the other one where one is NaN."""
    def fmin(self, other: Operand) -> Self:
        """Return the smaller of each two elements, the other one where one is NaN."""
    def bitwise_not(self) -> Self:
        """Return ``~self``."""
    def __invert__(self) -> Self: ...
    def __neg__(self) -> Self: ...
    def __pos__(self) -> Self: ...
    def __abs__(self) -> Self: ...
    def div(self, other: Operand, *, rounding_mode: str | None = None) -> Self:
        """Return self / other; integers are divided as float32."""
    def where(self, condition: Operand, other: Operand) -> Self:
        """Return self where `condition` holds (bool), `other` elsewhere."""
    def masked_fill(self, mask: Operand, value: Operand) -> Self:
        """Return `value` (a number or a tensor of one element) where `mask` (bool) holds, self elsewhere."""
    def clamp(self, min: Operand = None, max: Operand = None) -> Self:
        """Return elements moved into [min, max]; `max` wins where min > max."""
    def logit(self, eps: Real | None = None) -> Self:
        """Return log(x / (1 - x)), x moved into [eps, 1 - eps] first where `eps` is given."""
    def nan_to_num(
        self, nan: Real | None = None, posinf: Real | None = None, neginf: Real | None = None
    ) -> Self:
        """Return the values, with numbers in the place of those that are none."""
    def logaddexp(self, other: Operand) -> Self:
        """Return log(e ** self + e ** other), without overflow on the way."""
    def xlogy(self, other: Operand) -> Self:
        """Return self * log(other), 0 where self is 0."""
    def lerp(self, end: Operand, weight: Operand) -> Self:
        """Return the point at `weight` on the way from self (0) to `end` (1)."""
    def _at(self, axis: int, place: Any) -> Self:
        """Return the elements at a place of a dimension, which stays, with size 1."""
    def _first(self, k: int, axis: int, largest: Flag, begin: int = 0) -> Extreme: ...
    def _of_enough(self, name: str, k: int, axis: int) -> Self:
        """Return a tensor with at least k elements along a dimension."""
    def topk(self, k: int, dim: int = -1, largest: Flag = True, sorted: Flag = True) -> Extreme:
        """Return the `k` greatest along a dimension, and where they were."""
    def sort(self, dim: int = -1, descending: Flag = False, stable: Flag = False) -> Extreme:
        """Return all elements along a dimension in order, and where they were; see `topk`."""
    def argsort(self, dim: int = -1, descending: Flag = False, stable: Flag = False) -> Self:
        """Return where the elements along a dimension are, in order; see `sort`."""
    def kthvalue(self, k: int, dim: int = -1, keepdim: Flag = False) -> Extreme:
        """Return the `k`-th smallest along a dimension, and where it was; NaN is the greatest."""
    def median(self, dim: int | None = None, keepdim: Flag = False) -> Any:
        """Return the median, the lower one of two, and with `dim` where it was; NaN where there is one."""
    def nanmedian(self, dim: int | None = None, keepdim: Flag = False) -> Any:
        """Return `median` of the elements that are no NaN."""
    def quantile(
        self, q: Any, dim: int | None = None, keepdim: Flag = False, *, interpolation: str = 'linear'
    ) -> Self:
        """Return the value below which a part `q` of the elements lies; NaN where one is NaN."""
    def nanquantile(
        self, q: Any, dim: int | None = None, keepdim: Flag = False, *, interpolation: str = 'linear'
    ) -> Self:
        """Return `quantile` of the elements that are no NaN."""
    def index_copy(self, dim: int, index: Tensor, source: Tensor) -> Self:
        """Return it with `source` at the places along `dim` that a 1-D int64 tensor names."""
    def index_fill(self, dim: int, index: Tensor, value: Any) -> Self:
        """Return it with a number at the places along `dim` that a 1-D int64 tensor names."""
    def index_add(self, dim: int, index: Tensor, source: Tensor, *, alpha: Real = 1) -> Self:
        """Return it with alpha * `source` added at the places along `dim` that a 1-D int64 tensor names."""
    def scatter(
        self, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
    ) -> Self:
        """Return it with `src`, or a number, at the places along `dim` that an int64 tensor has for each."""
    def scatter_add(self, dim: int, index: Tensor, src: Tensor) -> Self:
        """Return it with `src` added at the places along `dim` that an int64 tensor has for each."""
    def take_along_dim(self, indices: Tensor, dim: int | None = None) -> Self:
        """Return elements chosen along `dim` by an int64 tensor of as many dimensions."""
    def _write(self, name: str, value: Tensor) -> Self:
        """Write a plain tensor, expanded, into this one."""
    def _count(self, name: str, axis: int) -> int: ...
    def _parts(self, axis: int, sizes: Sequence[int]) -> tuple[Self, ...]: ...
    def tril(self, diagonal: int = 0) -> Self:
        """Return matrices ``(*, n, m)`` with zeros above a diagonal, counted from the main one."""
    def triu(self, diagonal: int = 0) -> Self:
        """Return matrices ``(*, n, m)`` with zeros below a diagonal, counted from the main one."""
    @property
    def T(self) -> Self:
        """The tensor with its dimensions in reverse order."""
    def reshape(self, *given: Any, shape: Any = ()) -> Self:
        """Return the elements in another shape; one size may be -1."""
    def view(self, *given: Any, size: Any = ()) -> Self:
        """Return the elements in another shape, sharing memory."""
    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Return the tensor with dimensions `start_dim` to `end_dim` joined."""
    def unflatten(self, dim: int, sizes: Sequence[Any]) -> Self:
        """Return the tensor with dimension `dim` split into `sizes`; one of them may be -1."""
    def squeeze(self, dim: int | Sequence[int] | None = None) -> Self:
        """Return the tensor without dimensions of size 1: all of them, or those of `dim` that are."""
    def unsqueeze(self, dim: int) -> Self:
        """Return the tensor with a dimension of size 1 at `dim`."""
    def expand(self, *given: Any, size: Any = ()) -> Any:
        """Return the tensor with dimensions of size 1 repeated without a copy; -1 keeps a size."""
    def repeat(self, *given: Any, repeats: Any = ()) -> Any:
        """Return the tensor laid end to end `repeats` times along each dimension."""
    def permute(self, *given: Any, dims: Any = ()) -> Self:
        """Return the tensor with its dimensions in the order `dims`."""
    def movedim(self, source: int, destination: int) -> Self:
        """Return the tensor with dimension `source` moved to `destination`."""
    def t(self) -> Self:
        """Return the transpose of a matrix; a tensor of fewer dimensions as it is."""
    def repeat_interleave(
        self, repeats: Any, dim: int | None = None, *, output_size: int | None = None
    ) -> Self:
        """Return the tensor with each element along `dim` repeated: as often for all, or by a 1-D tensor."""
    def flip(self, *given: Any, dims: Any = ()) -> Self:
        """Return the tensor reversed along `dims`."""
    def roll(self, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Self:
        """Return the tensor with elements moved on by `shifts`, those beyond the end to the start."""
    def contiguous(self) -> Self:
        """Return the tensor itself where its elements lie in order in memory, else a copy."""
    def clone(self) -> Self:
        """Return a copy."""
    def narrow(self, dim: int, start: int, length: Any) -> Any:
        """Return `length` elements from `start` on along `dim`."""
    def select(self, dim: int, index: int) -> Self:
        """Return the part at `index` along `dim`, without that dimension."""
    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """Return all parts along `dim`, without that dimension."""
    def split(self, split_size: int | Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Return parts of `split_size` (the last may be smaller), or of the given sizes, along `dim`."""
    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """Return at most `chunks` parts of equal size (the last may be smaller) along `dim`."""
    def unfold(self, dimension: int, size: int, step: int) -> Self:
        """Return windows of `size` elements, `step` apart, along `dimension`; the window comes last."""
    def gather(self, dim: int, index: Tensor) -> Self:
        """Return elements chosen along `dim` by an int64 tensor of as many dimensions."""
    def index_select(self, dim: int, index: Tensor) -> Self:
        """Return the parts along `dim` that a 1-D int64 tensor names."""
    def masked_select(self, mask: Tensor) -> Self:
        """Return the elements where a bool tensor holds, in order, as one dimension."""
    def __getitem__(self, index: Any) -> Any: ...
    def __setitem__(self, index: Any, value: Any) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Any: ...
    def __contains__(self, value: Any) -> Flag: ...
    def zero_(self) -> Self:
        """Set all elements to zero."""
    def fill_(self, value: Any) -> Self:
        """Set all elements to a number, or a tensor of one element."""
    def copy_(self, src: Any, non_blocking: Flag = False) -> Self:
        """Copy the elements of `src`, expanded and converted, into this tensor."""
    # x.relu_() writes what x.relu() gives into x, and returns x; so do all of these
    def relu_(self, *args: Any, **kwargs: Any) -> Self: ...
    def sigmoid_(self, *args: Any, **kwargs: Any) -> Self: ...
    def tanh_(self, *args: Any, **kwargs: Any) -> Self: ...
    def exp_(self, *args: Any, **kwargs: Any) -> Self: ...
    def expm1_(self, *args: Any, **kwargs: Any) -> Self: ...
    def log_(self, *args: Any, **kwargs: Any) -> Self: ...
    def log1p_(self, *args: Any, **kwargs: Any) -> Self: ...
    def log2_(self, *args: Any, **kwargs: Any) -> Self: ...
    def log10_(self, *args: Any, **kwargs: Any) -> Self: ...
    def sqrt_(self, *args: Any, **kwargs: Any) -> Self: ...
    def rsqrt_(self, *args: Any, **kwargs: Any) -> Self: ...
    def reciprocal_(self, *args: Any, **kwargs: Any) -> Self: ...
    def square_(self, *args: Any, **kwargs: Any) -> Self: ...
    def abs_(self, *args: Any, **kwargs: Any) -> Self: ...
    def neg_(self, *args: Any, **kwargs: Any) -> Self: ...
    def sign_(self, *args: Any, **kwargs: Any) -> Self: ...
    def sin_(self, *args: Any, **kwargs: Any) -> Self: ...
    def cos_(self, *args: Any, **kwargs: Any) -> Self: ...
    def sinh_(self, *args: Any, **kwargs: Any) -> Self: ...
    def cosh_(self, *args: Any, **kwargs: Any) -> Self: ...
    def asin_(self, *args: Any, **kwargs: Any) -> Self: ...
    def acos_(self, *args: Any, **kwargs: Any) -> Self: ...
    def atan_(self, *args: Any, **kwargs: Any) -> Self: ...
    def asinh_(self, *args: Any, **kwargs: Any) -> Self: ...
    def acosh_(self, *args: Any, **kwargs: Any) -> Self: ...
    def atanh_(self, *args: Any, **kwargs: Any) -> Self: ...
    def exp2_(self, *args: Any, **kwargs: Any) -> Self: ...
    def frac_(self, *args: Any, **kwargs: Any) -> Self: ...
    def erf_(self, *args: Any, **kwargs: Any) -> Self: ...
    def erfc_(self, *args: Any, **kwargs: Any) -> Self: ...
    def floor_(self, *args: Any, **kwargs: Any) -> Self: ...
    def ceil_(self, *args: Any, **kwargs: Any) -> Self: ...
    def round_(self, *args: Any, **kwargs: Any) -> Self: ...
    def trunc_(self, *args: Any, **kwargs: Any) -> Self: ...
    def mul_(self, *args: Any, **kwargs: Any) -> Self: ...
    def atan2_(self, *args: Any, **kwargs: Any) -> Self: ...
    def hypot_(self, *args: Any, **kwargs: Any) -> Self: ...
    def copysign_(self, *args: Any, **kwargs: Any) -> Self: ...
    def fmod_(self, *args: Any, **kwargs: Any) -> Self: ...
    def remainder_(self, *args: Any, **kwargs: Any) -> Self: ...
    def floor_divide_(self, *args: Any, **kwargs: Any) -> Self: ...
    def logical_not_(self, *args: Any, **kwargs: Any) -> Self: ...
    def logical_and_(self, *args: Any, **kwargs: Any) -> Self: ...
    def logical_or_(self, *args: Any, **kwargs: Any) -> Self: ...
    def add_(self, *args: Any, **kwargs: Any) -> Self: ...
    def sub_(self, *args: Any, **kwargs: Any) -> Self: ...
    def div_(self, *args: Any, **kwargs: Any) -> Self: ...
    def pow_(self, *args: Any, **kwargs: Any) -> Self: ...
    def lerp_(self, *args: Any, **kwargs: Any) -> Self: ...
    def addcmul_(self, *args: Any, **kwargs: Any) -> Self: ...
    def addcdiv_(self, *args: Any, **kwargs: Any) -> Self: ...
    def clamp_(self, *args: Any, **kwargs: Any) -> Self: ...
    def clip_(self, *args: Any, **kwargs: Any) -> Self: ...
    def clamp_min_(self, *args: Any, **kwargs: Any) -> Self: ...
    def clamp_max_(self, *args: Any, **kwargs: Any) -> Self: ...
    def masked_fill_(self, *args: Any, **kwargs: Any) -> Self: ...
    def nan_to_num_(self, *args: Any, **kwargs: Any) -> Self: ...
    def tril_(self, *args: Any, **kwargs: Any) -> Self: ...
    def triu_(self, *args: Any, **kwargs: Any) -> Self: ...
    def cumsum_(self, *args: Any, **kwargs: Any) -> Self: ...
    def cumprod_(self, *args: Any, **kwargs: Any) -> Self: ...
    def logical_xor_(self, *args: Any, **kwargs: Any) -> Self: ...
    def tan_(self, *args: Any, **kwargs: Any) -> Self: ...
    def index_add_(self, *args: Any, **kwargs: Any) -> Self: ...
    def index_copy_(self, *args: Any, **kwargs: Any) -> Self: ...
    def index_fill_(self, *args: Any, **kwargs: Any) -> Self: ...
    def scatter_(self, *args: Any, **kwargs: Any) -> Self: ...
    def scatter_add_(self, *args: Any, **kwargs: Any) -> Self: ...
