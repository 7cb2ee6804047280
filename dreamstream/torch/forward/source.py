"""Torch models as the engine sees them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch

from ...array.symbolic import Symbolic, measured
from ...engine.source import REFUSALS
from ...errors import CaptureError, DreamStreamError, DTypeError, ModeError, ShapeError
from ...stream.rules import Length
from ...stream.tree import leaves, map_leaves
from ..tensor import StreamTensor
from .choosing import Choosing
from .complex_pair import Complex
from .constants import Arrays, as_array, device_of
from .mode import Forward
from .sizes import SIZES

__all__ = ["TorchSource"]


class TorchSource:
    """A torch model whose forward is captured and run offline.

    Parameters
    ----------
    model : torch.nn.Module
    front
        What patches its modules while they are captured, where they are not patched already.
    """

    sizes = SIZES

    def __init__(self, model: Any, front: Any) -> None:
        self.model, self.front = model, front
        self._arrays = Arrays()

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
            (args, kwargs), lambda x: forward.loose(x) if isinstance(x, Symbolic) else StreamTensor.shell(x)
        )
        with self._evaluating(), self._patched(), torch.no_grad(), forward:
            try:
                return _tree(self.model(*args, **kwargs))
            except DTypeError as error:
                raise self._explained(error) from None

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
        with self._evaluating(), self._unpatched(), torch.no_grad(), Choosing():
            try:
                result = self.model(**tensors) if by_name else self.model(*tensors.values())
            except DreamStreamError:
                raise
            except REFUSALS as error:  # torch, or the model itself, refuses sequences of some lengths
                raise ShapeError(str(error)) from error
        found = leaves(_tree(result))
        return [as_array(t) if isinstance(t, torch.Tensor) else np.asarray(t) for t in found]

    # ---------------------------------------------------------------- the model's modes, left as they were
    def _evaluating(self) -> AbstractContextManager[None]:
        return _all(self.model.modules(), "training")

    @contextmanager
    def _patched(self) -> Iterator[None]:
        new = [(p, m) for p, m in self.front.parts(self.model) if "_patch" not in m.__dict__]
        for path, m in new:
            self.front.attach(m, self.front.patch("chunk-wise-aligned", "raise", None, 0, path))
        try:
            yield
        finally:
            for _, m in new:
                self.front.detach(m)

    def _unpatched(self) -> AbstractContextManager[None]:
        patches = [m.__dict__["_patch"] for m in self.model.modules() if "_patch" in m.__dict__]
        return _all(patches, "online_mode")


@contextmanager
def _all(objects: Iterable[Any], switch: str) -> Iterator[None]:
    """Turn an attribute of objects off for a while."""
    before = [(x, getattr(x, switch)) for x in objects]
    for x, _ in before:
        setattr(x, switch, False)
    try:
        yield
    finally:
        for x, was in before:
            setattr(x, switch, was)


def _tree(result: Any) -> Any:
    """Return what a forward returned as plain tuples, lists and dicts of native streams or plain tensors."""
    if isinstance(result, Mapping):
        return {k: _tree(v) for k, v in result.items()}
    if isinstance(result, (list, tuple)):
        items = [_tree(v) for v in result]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    if isinstance(result, Length):
        return measured(result)
    if isinstance(result, StreamTensor) and result._inner is not None:
        if isinstance(result._inner, Complex):
            raise CaptureError(
                "the forward returned a complex stream; return its .real and .imag, or torch.view_as_real of it"
            )
        return measured(result._inner)
    return result
