"""Torch models as the engine sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from inspect import isfunction, signature
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from ...array import Tensor
from ...array.deferred import has_formula
from ...array.hook import CHOICE
from ...array.library import Library
from ...array.symbolic import measured
from ...engine.source import turned_off, whole
from ...errors import CaptureError, DTypeError, ModeError
from ...online.handle import Options, forget_patch, patch_of
from ...online.held import undone
from ...online.tracer import TRACER
from ...operations import ELEMENTWISE, RELATIONS
from ...stream.rules import Length
from ...stream.tree import leaves, map_leaves, without_dataclasses
from ..private import uncompiled
from ..tensor import StreamTensor
from .complex_pair import Complex
from .complex_streams import view_as_real
from .constants import Arrays, as_array, device_of
from .held import TorchHeld
from .library import TORCH
from .mode import Forward
from .names import ATTRIBUTES, writes


class TorchSource:
    """A torch model whose forward is captured and run offline.

    `front` patches its modules while they are captured, where they are not patched already.
    """

    library: Library = TORCH

    def __init__(self, model: Any, front: Any) -> None:
        self.model, self.front = model, front
        self._arrays = Arrays()
        self._held = TorchHeld(model, trace=True)  # by forwards that run offline

    def arrays(self) -> dict[str, Any]:
        state = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        lazy = next((name for name, tensor in state.items() if torch.nn.parameter.is_lazy(tensor)), None)
        if lazy is not None:
            raise ModeError(
                f"{lazy} has no shape yet: call the model once, on a batch of its input, before compile"
            )
        empty = next((name for name, tensor in state.items() if tensor.is_meta), None)
        if empty is not None:
            raise ModeError(
                f"{empty} is on the meta device, without values: load the model's weights first, as by "
                'model.to_empty(device="cpu") and model.load_state_dict(...)'
            )
        return {name: self._arrays.of(tensor) for name, tensor in state.items() if not tensor.is_complex()}

    def streamed(self, capture: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        device = device_of(self.model) or torch.device("cpu")
        paths = {id(m): n for n, m in self.model.named_modules()}
        forward = Forward(capture, device, self._arrays, paths)
        args, kwargs = map_leaves(
            (args, kwargs), lambda x: forward.loose(x) if has_formula(x) else StreamTensor.shell(x)
        )
        held = forward.held = TorchHeld(self.model, trace=True)
        held.written = self._arrays.written
        with undone(held), self._evaluating(), self._patched(), torch.no_grad():
            with forward:
                try:
                    result = TRACER.of(self.model)(*args, **kwargs)
                except DTypeError as error:
                    raise self._explained(error) from None
            held.settle(capture.noting)
            return _tree(without_dataclasses(result))

    def _explained(self, error: DTypeError) -> DTypeError:
        """Say why types don't fit, where the model is of float64."""
        name = next((n for n, p in self.model.named_parameters() if p.dtype == torch.float64), None)
        if name is None:
            return error
        return DTypeError(
            f"{name} is float64, but an engine computes in float32; compile a copy of the model, as in "
            'copy.deepcopy(model).float(), or with dtype="float32", which does so'
        )

    def offline(self, inputs: Mapping[str, Any], by_name: bool) -> list[Any]:
        device = device_of(self.model)
        tensors = {k: torch.tensor(a, device=device) for k, a in inputs.items()}  # copies: forwards may write
        held = self._held
        with undone(held), self._evaluating(), self._unpatched(), torch.no_grad(), uncompiled(), _Choosing(held):
            found = leaves(_tree(without_dataclasses(whole(self.model, tensors, by_name))))
        arrays = [as_array(t) if isinstance(t, torch.Tensor) and not t.is_complex() else t for t in found]
        return [t.numpy(force=True) if isinstance(t, torch.Tensor) else np.asarray(t) for t in arrays]

    # ---------------------------------------------------------------- the model's modes, left as they were
    def _evaluating(self) -> AbstractContextManager[None]:
        return turned_off(self.model.modules(), "training")

    @contextmanager
    def _patched(self) -> Iterator[None]:
        parts = self.front.parts(self.model)
        before = [patch for _, m in parts if (patch := patch_of(m)) is not None]
        new = [self.front.patch(m, Options(), path) for path, m in parts if patch_of(m) is None]
        for patch in new:
            patch.attach(lends=False)
        for patch in (*before, *new):
            patch.stand(capturing=True)
        try:
            yield
        finally:
            for patch in new:
                forget_patch(patch.module)
            for patch in before:
                patch.stand()

    def _unpatched(self) -> AbstractContextManager[None]:
        patches = [patch for m in self.model.modules() if (patch := patch_of(m)) is not None]
        return turned_off(patches, "online_mode")


def _tree(result: Any) -> Any:
    """Return a forward's result as plain tuples, lists and dicts of native streams or plain tensors."""
    if isinstance(result, Mapping):
        return {k: _tree(v) for k, v in result.items()}
    if isinstance(result, (list, tuple)):
        items = [_tree(v) for v in result]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    if isinstance(result, Length):
        return measured(result)
    if isinstance(result, StreamTensor) and result._inner is not None:
        inner = result._inner
        if not isinstance(inner, Complex):
            return measured(inner)
        if (own := ATTRIBUTES["dtype"](inner.real)) != torch.float32:
            raise CaptureError(
                f"the forward returned a complex stream of {own}, made at {inner.line}, but an engine computes "
                "in float32; make it of float32"
            )
        parts = measured(view_as_real(inner))
        parts.edge.entry.types[parts.edge.handle] = "complex64"
        return parts
    return result


# ---------------------------------------------------------------------- choices that somebody else orders
_EXTREMES = ("max", "argmax", "min", "argmin")
#: The methods that choose, and what they take.
CHOOSE = {
    name: signature(method)
    for name, method in vars(Tensor).items()
    if isfunction(method)
    and not name.startswith("_")
    and (
        name in _EXTREMES
        or {"largest", "descending"} & {*method.__code__.co_varnames[: method.__code__.co_argcount]}
    )
}


def _given(name: str, args: Any, kwargs: Any) -> tuple[Any, Any, Any, Any]:
    """Return what is chosen, along which dimension, whether the greatest come first, and how many."""
    bound = CHOOSE[name].bind(*args, **kwargs)
    bound.apply_defaults()
    x, dim = (bound.arguments[a] for a in ("self", "dim"))
    largest = bound.arguments.get("largest", bound.arguments.get("descending", not name.endswith("min")))
    return x, dim, largest, bound.arguments.get("k", 1 if name in _EXTREMES else None)


_COMPARE = frozenset(n for name in RELATIONS for n in (name, f"__{name}__", *ELEMENTWISE[name].aliases))


def _compared(choice: Any, theirs: Any, a: Any, b: Any) -> Any:
    """Return how a and b compare, where one is a tensor of floats."""
    given = [t.detach().cpu().numpy() if isinstance(t, torch.Tensor) else t for t in (a, b)]
    if not all(isinstance(g, float) or getattr(getattr(g, "dtype", None), "kind", "f") == "f" for g in given):
        return theirs
    ours = choice.compared(*given, theirs.cpu().numpy())
    return theirs if ours is None else torch.from_numpy(ours).to(theirs.device)


class _Choosing(TorchFunctionMode):
    """Within it, choices are those of `CHOICE`, and tensors that are written into are recorded."""

    def __init__(self, held: TorchHeld) -> None:
        super().__init__()
        self._held = held

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if writes(func.__name__, kwargs or {}):
            self._held.writes((*args, *(kwargs or {}).values()))
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        choice = CHOICE.get()
        if choice is not None and name in _COMPARE and isinstance(result, torch.Tensor):
            return _compared(choice, result, *args) if len(args) == 2 else result
        if choice is None or name not in CHOOSE or not isinstance(args and args[0], torch.Tensor):
            return result
        x, dim, largest, k = _given(name, args, kwargs or {})
        if not isinstance(dim, int) or not x.is_floating_point() or not x.ndim:
            return result
        order = choice.order(x.detach().movedim(dim, -1).cpu().numpy(), largest)
        if order is None:
            return result
        places = torch.from_numpy(order[..., :k]).to(x.device).movedim(-1, dim)
        own = result if isinstance(result, torch.Tensor) else result[1]
        values = x.gather(dim, places)
        values, places = (t if own.ndim == x.ndim else t.squeeze(dim) for t in (values, places))
        return places if own is result else type(result)((values, places))
