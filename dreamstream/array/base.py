"""What a tensor is before it has methods: storage, element type, sizes, conversions, its text."""

from __future__ import annotations

import copy as copying
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..autograd import CONSTANTS, in_training
from ..errors import DTypeError, ModeError, ShapeError
from . import dtypes, hook
from .dimension_arguments import HasShape, axis_of
from .in_place import refresh

if TYPE_CHECKING:
    from typing_extensions import Self

Number = float | int
Flag = bool
Real = float

_NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)


def is_number(value: object) -> Flag:
    """Whether `value` is a real Python or NumPy number, bools included."""
    return isinstance(value, _NUMBERS)


class Base(HasShape):
    """Storage and conversions of a tensor; `dreamstream.array.tensor` gives it the methods that compute.

    A class of tensors that stores its values otherwise overrides `numpy`, `shape`, `dtype` and `to`
    here; all elementwise maths then works unchanged.
    """

    is_stream: ClassVar[Flag] = False
    """Whether dimensions of this class's tensors stand for streams and their frames."""

    __array_priority__ = 1000  # NumPy arrays leave operators with a tensor to the tensor
    _plain_class: ClassVar[type[Any]]

    _array: NDArray[Any]
    grad: Self | None = None
    #: The record of what made this tensor (`dreamstream.autograd`), and which of its outputs it is.
    grad_fn: Any = None
    output_nr: int = 0
    _wanted: Flag = False
    #: Of a leaf: functions of its gradient.
    _hooks: dict[int, Any] | None = None
    #: Of a view: the tensor whose memory it shares, and that one's `_rewritten` when the view was made.
    _base: Any = None
    _base_at: int = 0
    #: How many writes in place have replaced `grad_fn`.
    _rewritten: int = 0
    #: The `Rolled` that it stands for, whose first or last frames aren't known yet (`array.rolled`); else None.
    _waiting: Any = None
    #: The object that puts off elementwise functions of frames that aren't computed yet (`through`); else None.
    _by_elements: Any = None
    #: The last frames of a stream that it stands for (`array.ends.LastFrames`); else None.
    _ends: Any = None
    #: Of a plain tensor: it comes of an operator that torch refuses for too few frames. All that follows from it
    #: has no frames either, pads included, as an edge with a total of -1.
    _missing: Flag = False

    def __init__(self, data: NDArray[Any], requires_grad: Flag = False) -> None:
        if not isinstance(data, np.ndarray):
            raise DTypeError(f"expected a NumPy array, got {type(data).__name__}; use ds.tensor(data)")
        self._array = dtypes.adopt(data)
        if requires_grad:
            self.requires_grad_()

    @classmethod
    def _plain(cls, array: Any, missing: Flag = False) -> Self:
        """Return a plain tensor around an array or NumPy number of one of our types, without a copy."""
        out: Self = object.__new__(cls._plain_class)
        out._array = np.asarray(array)
        if missing:
            out._missing = True
        return out

    # ------------------------------------------------------------------ what it holds
    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type, `ds.float32`, `ds.float64`, `ds.int64` or `ds.bool`."""
        return self._array.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """Sizes of all dimensions."""
        return self._array.shape

    @property
    def device(self) -> str:
        """Always ``"cpu"``."""
        return "cpu"

    def numel(self) -> int:
        """Return the number of elements."""
        return int(self.numpy().size)

    def is_floating_point(self) -> Flag:
        """Whether the elements are float32 or float64."""
        return dtypes.is_float(self.dtype)

    def is_contiguous(self) -> Flag:
        """Whether the elements lie in memory in the order of their indices."""
        return bool(self.numpy().flags.c_contiguous)

    def _axis(self, name: str, dim: Any) -> int:
        """Return `dim` counted from the front."""
        ndim = self.ndim
        if ndim == 0:
            raise ShapeError(f"{name}: this tensor has no dimensions")
        return axis_of(name, dim, ndim)

    # ------------------------------------------------------------------ to Python and NumPy
    def numpy(self) -> NDArray[Any]:
        """Return the values as an array that shares the tensor's memory."""
        return self._array

    def _satisfying(self, require: Any) -> Any:
        """Return the tensor itself, after ``require(array)``, which raises for forbidden values."""
        require(self.numpy())
        return self

    @property
    def _own(self) -> NDArray[Any]:
        """The values for an operator, which only reads: the same array in each call until they are replaced."""
        return self._array

    @property
    def _learned(self) -> bool:
        """Whether a gradient is wanted of it and the code runs in training, so that a tape records it."""
        return self.requires_grad and in_training()

    def constant(self) -> Any:
        """Return the values as operators take their weights: an array in C order."""
        array = np.asarray(self.numpy() if self.is_stream else self._own, order="C")
        constants = CONSTANTS.get()
        if constants is not None and self.requires_grad:
            constants[id(array)] = array, self
        return array

    def _first_weight(self, axis: int) -> tuple[Any, str, tuple[int, ...]]:
        """Return it at an index of 0 as operators take their weights, its type, and its shape."""
        own: Any = self.select(axis, 0)  # type: ignore[attr-defined]
        return own.constant(), own.dtype.name, tuple(own.shape)

    def __array__(self, dtype: Any = None, copy: Flag | None = None) -> NDArray[Any]:
        array = self.numpy()
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"an array of {np.dtype(dtype)} needs a copy of this {array.dtype} tensor")
            return array.astype(dtype)
        return array.copy() if copy else array

    def item(self) -> Any:
        """Return the only element as a Python number.

        Raises
        ------
        ShapeError
            Where there is not exactly one.
        """
        array = self.numpy()
        if array.size != 1:
            raise ShapeError(f"item: expected one element, got a tensor of shape {array.shape}")
        return array.item()

    def tolist(self) -> Any:
        """Return the values as nested lists of Python numbers; a number where there are no dimensions."""
        return self.numpy().tolist()

    def __float__(self) -> Real:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.dtype != dtypes.int64:
            raise DTypeError(f"only an int64 tensor of one element serves as an index, not {self.dtype}")
        return int(self.item())

    def __bool__(self) -> Flag:
        if self.numel() != 1:
            raise ShapeError(f"the truth of a tensor of shape {self.shape} is ambiguous; use .any() or .all()")
        return bool(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item() if spec and self.ndim == 0 else str(self), spec)

    def __hash__(self) -> int:
        return id(self)

    # ------------------------------------------------------------------ element types and devices
    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Return the tensor with another element type: ``to(dtype)``, ``to("cpu", dtype)``, ``to(other)``.

        The tensor itself where nothing changes and `copy` is not asked for.

        Raises
        ------
        DTypeError
            For an element type that is not ours.
        ModeError
            For a device that is not the CPU.
        """
        dtype, copy = self._to_arguments(args, kwargs)
        if (dtype is None or dtype == self.dtype) and not copy:
            return self
        return hook.made("cast", self, to=dtype or self.dtype)

    def _to_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[np.dtype[Any] | None, Flag]:
        """Read the arguments of `to`: element type, or None, and whether to copy."""
        dtype, device = kwargs.pop("dtype", None), kwargs.pop("device", None)
        copy = bool(kwargs.pop("copy", False))
        kwargs.pop("non_blocking", None)
        if kwargs:
            raise TypeError(f"to: unknown argument {next(iter(kwargs))!r}")
        for arg in args:
            if isinstance(arg, Base):
                dtype = arg.dtype
            elif isinstance(arg, bool):  # non_blocking
                continue
            elif isinstance(arg, (np.dtype, type)) or (isinstance(arg, str) and dtypes.is_name(arg)):
                dtype = arg
            elif arg is not None:
                device = arg
        dtypes.check_device(device)
        return (None if dtype is None else dtypes.as_dtype(dtype)), copy

    def float(self) -> Self:
        """Return the tensor as float32."""
        return self.to(dtypes.float32)

    def double(self) -> Self:
        """Return the tensor as float64."""
        return self.to(dtypes.float64)

    def long(self) -> Self:
        """Return the tensor as int64, fractions cut off."""
        return self.to(dtypes.int64)

    def bool(self) -> Self:
        """Return the tensor as bool: whether each element is not zero."""
        return self.to(dtypes.bool)

    def half(self) -> Self:
        """Raise DTypeError: tensors are float32 or float64."""
        raise DTypeError("tensors are float32 or float64; half precision exists for weights, see ds.compile")

    def cpu(self) -> Self:
        """Return the tensor itself: it is on the CPU."""
        return self

    # ------------------------------------------------------------------ gradients
    @property
    def requires_grad(self) -> Flag:
        """Whether a gradient is wanted, of the tensor or of what it follows from."""
        if self._base is not None and self._base_at != self._base._rewritten:
            refresh(self)
        return self._wanted or self.grad_fn is not None

    @requires_grad.setter
    def requires_grad(self, wanted: Flag) -> None:
        if self.grad_fn is not None and not wanted:
            raise ModeError("requires_grad=False: this tensor follows from others; use .detach()")
        if wanted:
            dtypes.require_float("requires_grad", self.dtype)
        self._wanted = bool(wanted)

    @property
    def is_leaf(self) -> Flag:
        """Whether it is not what recorded operations have made."""
        return self.grad_fn is None

    def requires_grad_(self, requires_grad: Flag = True) -> Self:
        """Say whether a gradient is wanted, and return the tensor itself.

        Raises
        ------
        DTypeError
            Where one is, and the elements are integers or bools.
        ModeError
            Where none is, of what was computed of others.
        """
        self.requires_grad = requires_grad
        return self

    def detach(self) -> Self:
        """Return a tensor that shares the values and has no gradient."""
        return self._plain(self._array, self._missing)

    # ------------------------------------------------------------------ Python
    def __repr__(self) -> str:
        return _text(self.numpy(), self.requires_grad)

    def __copy__(self) -> Self:
        return self._around(self._array)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        out = self._around(self._array.copy())
        memo[id(self)] = out
        out.grad = copying.deepcopy(self.grad, memo)
        return out

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "grad_fn": None, "_hooks": None, "_base": None}

    def _around(self, array: NDArray[Any]) -> Self:
        """Return a tensor like this one, its own attributes included, around another array."""
        out = object.__new__(type(self))
        out.__dict__.update(self.__dict__)
        out._array = array
        out.grad_fn, out._hooks, out._base = None, None, None
        return out


def _text(array: NDArray[Any], requires_grad: bool) -> str:
    """Return values as torch prints them, with what can't be seen from them behind."""
    body = np.array2string(array, precision=4, separator=", ", prefix="tensor(", threshold=1000)
    notes = []
    if array.size == 0 and array.shape != (0,):
        notes.append(f"size={array.shape}")
    if array.dtype == dtypes.float64 or (array.size == 0 and array.dtype != dtypes.float32):
        notes.append(f"dtype={array.dtype}")
    if requires_grad:
        notes.append("requires_grad=True")
    return f"tensor({', '.join([body, *notes])})"
