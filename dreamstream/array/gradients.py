"""Methods of tensors that go back through the tape, or say what shall happen there.

Each public function here is the method of tensors of its name. Source: the method of `torch.Tensor` of the same
name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

from .. import autograd
from ..errors import ModeError
from ..stream.where import refuse_gradient
from .tensor import Tensor, take

#: What a tensor has for the tape, methods and attributes.
NAMES = (
    "backward", "detach_", "grad", "grad_fn", "is_leaf", "output_nr", "register_hook", "requires_grad",
    "retain_grad", "retains_grad",
)  # fmt: skip


class Handle:
    """What takes a hook away again; also a context, at whose end it goes.

    Parameters
    ----------
    hooks : dict
        Where the hook stands.
    hook : callable
    """

    def __init__(self, hooks: dict[int, Any], hook: Callable[[Any], Any]) -> None:
        self._hooks = hooks
        hooks[id(self)] = hook

    def remove(self) -> None:
        """Take the hook away."""
        self._hooks.pop(id(self), None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def backward(
    self: Tensor,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Add the gradients of this tensor to the `grad` of the leaves that it follows from.

    Parameters
    ----------
    gradient : Tensor, optional
        The tensor's own gradient, where it has more than one element.
    retain_graph : bool, optional
        Whether another backward may go the same way.
    create_graph : bool
        For torch's sake: True raises ModeError.
    inputs : Tensor or sequence of Tensor, optional
        The only ones whose `grad` changes.

    Raises
    ------
    ModeError
        Where nothing is recorded, was freed, or was written into since. No `grad` has changed then.
    ShapeError
        For several elements without a gradient.
    """
    autograd.backward(self, gradient, retain_graph, create_graph, inputs)


def register_hook(self: Tensor, hook: Any) -> Any:
    """Let a function see the tensor's gradient in each backward; what it returns, if anything, replaces it."""
    _require_gradient(self, "register_hook")
    if self.grad_fn is not None:
        return Handle(self.grad_fn.hooks.setdefault(self.output_nr, {}), hook)
    if self._hooks is None:
        self._hooks = {}
    return Handle(self._hooks, hook)


def retain_grad(self: Tensor) -> None:
    """Let the tensor have its gradient in `grad`, as leaves have."""
    _require_gradient(self, "retain_grad")
    if self.grad_fn is not None:
        self.grad_fn.kept[self.output_nr] = ref(self)


def _retains(self: Tensor) -> bool:
    """Whether `retain_grad` was called on what is no leaf."""
    kept = None if self.grad_fn is None else self.grad_fn.kept.get(self.output_nr)
    return kept is not None and kept() is self


def detach_(self: Tensor) -> Tensor:
    """Cut the tensor off from what it follows from."""
    if getattr(self, "edge", None) is not None:
        self.edge = self.detach().edge  # type: ignore[attr-defined]
        return self
    self.grad_fn, self._wanted = None, False
    return self


def _version(self: Tensor) -> int:
    """How often the tensor's memory was written into."""
    return autograd.edits_of(self._array)


def _require_gradient(x: Tensor, name: str) -> None:
    refuse_gradient(name, x)
    if not x.requires_grad:
        raise ModeError(
            f"{name}: this tensor has no gradient; it does not follow from any with requires_grad=True"
        )


autograd.fill(Tensor._plain)
take(Tensor, globals(), retains_grad=property(_retains), _version=property(_version))
