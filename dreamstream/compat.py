"""The names of the earlier DreamStream, which was of PyTorch alone: ``import dreamstream.compat`` enters them.

They are here, each another name of what the package has or a few lines on top of it, and from then on also where
they were: modules that are no files are entered in `sys.modules`, `patch` and `add_streaming_modes` in the
package, and patched torch convolutions have `kernel_width` and `stream_buffer`. The PyTorch bridge is loaded when
a name of it is asked for, not before. Nothing else imports this module.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from .array.operators import operator
from .errors import ShapeError
from .online import patch_module
from .online.front import CONVOLUTIONS
from .stream import OutputCollector as _OutputCollector, StreamMetadata
from .stream.foreign import bridge
from .stream.rules import BATCH, LENGTH

if TYPE_CHECKING:
    from .torch import StreamTensor, as_stream_tensor, stream_tensor

__all__ = [
    "BATCH", "LENGTH", "OutputCollector", "StreamMetadata", "StreamTensor", "add_streaming_modes",
    "as_stream_tensor", "join_dim_names", "pad_chunks", "pad_full_sequence", "pad_stream_tensor", "patch",
    "patch_module", "stream_metadata", "stream_tensor",
]  # fmt: skip


def patch(module: Any, **options: Any) -> Any:
    """Patch a module and all modules below it; see `dreamstream.patch_module`."""
    return patch_module(module, **options)


def add_streaming_modes(module: Any) -> Any:
    """Give a module and those below it ``online()`` and ``offline()``: the same as `dreamstream.patch_module`."""
    return patch_module(module)


def stream_metadata(ids: Any, sos: Any, eos: Any, lengths: Any, chunk_indices: Any = None) -> StreamMetadata:
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
    return bridge().stream_tensor(moved, None, (*lead, *rest), ids=ids, sos=sos, eos=eos)


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


# ---------------------------------------------------------------------- patched convolutions
def kernel_width(patch: Any) -> int:
    """Return how many frames one output frame of a convolution sees."""
    module = patch.module
    return int(module.dilation[0] * (module.kernel_size[0] - 1) + 1)


class StreamBuffer(Mapping[str, Any]):
    """The frames ``(channels, frames)`` kept for each live stream of a convolution that is called itself.

    What it keeps inside a larger module is with that module's streams (`get_state`).
    """

    def __init__(self, patch: Any) -> None:
        self.__self__ = patch

    def __getitem__(self, stream_id: str) -> Any:
        return _kept(self.__self__)[stream_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.__self__.live_ids)

    def __len__(self) -> int:
        return len(self.__self__.live_ids)


def _kept(patch: Any) -> dict[str, Any]:
    session, module = patch.session, patch.module
    kept: dict[str, Any] = {}
    with session.hold():
        for i in session.live_ids:
            state = session.state_of(i)
            (name, attributes, *_), n = session.script[0], int(state.frames[0])
            dtype = "float64" if str(module.weight.dtype) == "torch.float64" else "float32"
            signature = (dtype, (module.in_channels,), 1, 1)
            op = operator(name, dict(attributes), [signature], [module.weight, module.bias])
            counts = np.array([[0, -1, n, n]], np.int64)
            (after,) = op.counts([counts], np.zeros(1, bool))
            size = n - int(op.kept([counts], [after])[0][0, 1])
            rows = state.states.store.tensors.get((0, 0))
            frames = module.weight.new_zeros(0, module.in_channels) if rows is None else rows[state.states.row]
            kept[i] = frames[:size].detach().T.clone()
    return kept


# ---------------------------------------------------------------------- where the names were
def __getattr__(name: str) -> Any:
    """Load the PyTorch bridge for the names that are its own."""
    if name in ("StreamTensor", "as_stream_tensor", "stream_tensor"):
        return getattr(bridge(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Module(ModuleType):
    """A module that has some of this one's names."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        super().__init__(name, "Names of the earlier DreamStream.")
        self.__path__: list[str] = []
        self.__all__ = list(names)

    def __getattr__(self, name: str) -> Any:
        if name not in self.__dict__.get("__all__", ()):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(sys.modules[__name__], name)


_FLAGS = ("BATCH", "LENGTH")
_PADDING = ("pad_chunks", "pad_full_sequence", "pad_stream_tensor")
_METADATA = ("StreamMetadata", "stream_metadata")
_MODULES: dict[str, Sequence[str]] = {
    "tensor": ("StreamTensor", "as_stream_tensor", "stream_tensor", *_METADATA, *_FLAGS),
    "nn.utils": _PADDING,
    "nn.utils.pad_sequence": _PADDING,
    "utils": (),
    "utils.flags": _FLAGS,
    "data.data_objects": ("OutputCollector", "StreamMetadata"),
    "overrides": ("join_dim_names",),
}
#: Their names mean something else: `dreamstream.tensor` is a function.
_TAKEN = ("tensor",)


def _enter() -> None:
    """Put the names where they were."""
    for path, names in _MODULES.items():
        name = f"{__package__}.{path}"
        module = sys.modules.setdefault(name, _Module(name, names))
        if not isinstance(module, _Module):  # `dreamstream.nn.utils`, which has torch's names
            module.__dict__.update({n: globals()[n] for n in names})
        parent, _, last = name.rpartition(".")
        if path not in _TAKEN:
            setattr(sys.modules[parent], last, module)
    for function in (patch, add_streaming_modes):
        setattr(sys.modules[__package__], function.__name__, function)
    CONVOLUTIONS.update(kernel_width=kernel_width, stream_buffer=StreamBuffer)


_enter()
