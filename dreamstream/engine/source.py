"""Models as the engine sees them: their weights, their forward on symbolic streams and on whole sequences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

import numpy as np

from ..array.library import NATIVE, Library
from ..array.tensor import Tensor
from ..autograd import no_grad
from ..errors import DreamStreamError, ShapeError
from ..nn.module import OBSERVER, Module
from ..online.front import foreign_front
from ..online.held import Held, undone
from ..online.tracer import forward_of
from ..stream.context import declared
from ..stream.tree import leaves, without_dataclasses
from ..stream.where import passes_on
from ..stream.within import within


class Source(Protocol):
    """A model of some front end. Whatever it does leaves the model's mode and live streams as they are."""

    #: The library of its tensors.
    library: Library

    def arrays(self) -> dict[str, Any]:
        """Return parameters and buffers by path, as arrays that share their memory where that can be."""

    def streamed(self, capture: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the forward, in evaluation, on the capture's streams: a tree of native stream tensors."""

    def offline(self, inputs: Mapping[str, Any], by_name: bool) -> list[Any]:
        """Run the untouched model, in evaluation, on whole arrays; return its outputs as arrays, in order.

        ShapeError where it refuses their lengths.
        """


def source_of(model: Any) -> Source:
    """Return a model as a source; raise TypeError where it is no module of ours or of another front end."""
    if isinstance(model, Module):
        return _Native(model)
    front = foreign_front(type(model))
    if front is None:
        raise TypeError(f"expected a module of dreamstream.nn or torch.nn, got {type(model).__name__}")
    found: Source = front.source(model)
    return found


class _Native:
    library: Library = NATIVE

    def __init__(self, model: Module) -> None:
        self.model = model
        self._held = Held(model, trace=True)  # by forwards that run offline

    def arrays(self) -> dict[str, Any]:
        return {key: tensor.numpy() for key, tensor in self.model.state_dict().items()}

    def streamed(self, capture: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        held = Held(self.model, trace=True)
        with undone(held), _untouched(self.model, capture):
            result = self.model(*args, **kwargs)
            held.settle(capture.noting)
            return without_dataclasses(result)

    def offline(self, inputs: Mapping[str, Any], by_name: bool) -> list[Any]:
        tensors = {name: Tensor(array) for name, array in inputs.items()}
        with undone(self._held), _untouched(self.model):
            return [np.asarray(t) for t in leaves(without_dataclasses(whole(self.model, tensors, by_name)))]


def _observe(model: Module, capture: Any) -> Any:
    """Return what runs modules: their forwards, patched or not, their paths noted."""
    names = {id(m): n for n, m in model.named_modules()}

    @passes_on
    def call(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        patch = module.__dict__.get("_patch")
        with nullcontext() if patch is None or patch.context is None else declared(patch.context):
            if capture is None:
                return module.forward(*args, **kwargs)
            with capture.within(names.get(id(module)), module):
                return forward_of(module)(*args, **kwargs)

    return call


@contextmanager
def _untouched(model: Module, capture: Any = None) -> Iterator[None]:
    """Within it calls of the model run its forwards in eval mode, without gradients, patched and live or not."""
    with within(OBSERVER, _observe(model, capture)), turned_off(model.modules(), "training"), no_grad():
        yield


@contextmanager
def turned_off(objects: Iterable[Any], switch: str) -> Iterator[None]:
    """Turn an attribute of objects off for a while."""
    before = [(x, getattr(x, switch)) for x in objects]
    for x, _ in before:
        setattr(x, switch, False)
    try:
        yield
    finally:
        for x, was in before:
            setattr(x, switch, was)


def whole(model: Any, tensors: Mapping[str, Any], by_name: bool) -> Any:
    """Return what a model gives of whole sequences; ShapeError where it, or its library, refuses their lengths."""
    try:
        return model(**tensors) if by_name else model(*tensors.values())
    except DreamStreamError:
        raise
    except (RuntimeError, AssertionError, ValueError, IndexError) as error:
        raise ShapeError(str(error)) from error
