"""The names of the earlier DreamStream, which was of PyTorch alone.

Each is another name of what the package has, or a few lines on top of it. Modules that are no longer files are
found in `sys.modules`; they load the PyTorch bridge when a name of it is asked for, not before.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from .errors import ShapeError
from .online import patch_module
from .stream import OutputCollector as _OutputCollector
from .stream import StreamMetadata
from .stream.rules import BATCH, LENGTH

__all__ = ["add_streaming_modes", "patch"]


def patch(module: Any, **options: Any) -> Any:
    """Patch a module and all modules below it; see `dreamstream.patch_module`."""
    return patch_module(module, **options)


def add_streaming_modes(module: Any) -> Any:
    """Give a module and those below it ``online()`` and ``offline()``: the same as `dreamstream.patch_module`."""
    return patch_module(module)


def stream_metadata(
    ids: Any, sos: Any, eos: Any, lengths: Any, chunk_indices: Any = None
) -> StreamMetadata:
    """Return metadata; chunks are no longer counted."""
    return StreamMetadata(ids, sos, eos, lengths)


def join_dim_names(*names: str) -> str:
    """Return the name of dimensions that became one."""
    return "_".join(names)


# ---------------------------------------------------------------------- sequences of different lengths
def pad_chunks(
    sequences: Sequence[Any],
    names: Sequence[str | None],
    ids: Sequence[str],
    sos: Any,
    eos: Any,
    batch_first: bool = False,
) -> Any:
    """Return chunks without B as one torch StreamTensor ``(L, B, ...)``, or ``(B, L, ...)``.

    Parameters
    ----------
    sequences : sequence of Tensor
        Their dimensions are `names`, L among them.
    ids, sos, eos
        One per chunk.
    batch_first : bool
        Whether B comes before L.

    Raises
    ------
    ShapeError
        B is among the names, or L is not.
    """
    if BATCH in names or LENGTH not in names:
        raise ShapeError(f"pad_chunks: names {tuple(names)} must hold L, and not B")
    at = list(names).index(LENGTH)
    rest = [n for n in names if n != LENGTH]
    lead = (BATCH, LENGTH) if batch_first else (LENGTH, BATCH)
    moved = [t.movedim(at, 0) for t in sequences]
    return _bridge().stream_tensor(moved, None, (*lead, *rest), ids=ids, sos=sos, eos=eos)


def pad_full_sequence(
    sequences: Sequence[Any], names: Sequence[str | None], ids: Sequence[str], batch_first: bool = False
) -> Any:
    """Return whole sequences as one torch StreamTensor; see `pad_chunks`."""
    return pad_chunks(sequences, names, ids, True, True, batch_first)


def pad_stream_tensor(sequences: Sequence[Any], batch_first: bool = False) -> Any:
    """Return torch StreamTensors without B, of one stream each, as one; see `pad_chunks`."""
    meta = StreamMetadata.cat([t.meta for t in sequences], BATCH)
    frames = [t.stream(t.ids[0]) for t in sequences]
    return pad_chunks(frames, sequences[0].names, meta.ids, meta.sos, meta.eos, batch_first)


class OutputCollector(_OutputCollector):
    """A collector that takes the first outputs, and several at once."""

    def __init__(self, *outputs: Any) -> None:
        super().__init__()
        self.update(*outputs)

    def update(self, *outputs: Any) -> None:
        """Append outputs of calls, one after the other."""
        for y in outputs:
            super().update(y)


# ---------------------------------------------------------------------- modules
def _bridge() -> ModuleType:
    return importlib.import_module(f"{__package__}.torch")


class _Module(ModuleType):
    """A module whose names are found when they are asked for."""

    def __init__(self, name: str, names: dict[str, Callable[[], Any]]) -> None:
        super().__init__(name, "Names of the earlier DreamStream.")
        self.__path__: list[str] = []
        self.__all__ = list(names)
        self._names = names

    def __getattr__(self, name: str) -> Any:
        names = self.__dict__.get("_names", {})
        if name not in names:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return names[name]()


def _of_bridge(name: str) -> Callable[[], Any]:
    return lambda: getattr(_bridge(), name)


def _here(value: Any) -> Callable[[], Any]:
    return lambda: value


_FLAGS = {"BATCH": _here(BATCH), "LENGTH": _here(LENGTH)}
_PADDING = {f.__name__: _here(f) for f in (pad_chunks, pad_full_sequence, pad_stream_tensor)}
_TENSOR = {
    **{n: _of_bridge(n) for n in ("StreamTensor", "as_stream_tensor", "stream_tensor")},
    "StreamMetadata": _here(StreamMetadata),
    "stream_metadata": _here(stream_metadata),
    **_FLAGS,
}

_MODULES: dict[str, dict[str, Callable[[], Any]]] = {
    "tensor": _TENSOR,
    "nn.utils": _PADDING,
    "nn.utils.pad_sequence": _PADDING,
    "utils": {},
    "utils.flags": _FLAGS,
    "data.data_objects": {
        "OutputCollector": _here(OutputCollector),
        "StreamMetadata": _here(StreamMetadata),
    },
    "overrides": {"join_dim_names": _here(join_dim_names)},
}


_TAKEN = (f"{__package__}.tensor", f"{__package__}.nn.utils")


def _enter() -> None:
    """Enter the modules, and let packages have them as attributes.

    Where the name is taken it keeps its meaning: `dreamstream.tensor` is a function, and `dreamstream.nn` has
    torch's names alone.
    """
    for path, names in _MODULES.items():
        name = f"{__package__}.{path}"
        module = sys.modules.setdefault(name, _Module(name, names))
        parent, _, last = name.rpartition(".")
        if name not in _TAKEN:
            setattr(sys.modules[parent], last, module)


_enter()
