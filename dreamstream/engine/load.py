"""load: from a model file to an engine."""

from __future__ import annotations

import contextlib
import copyreg
import dataclasses
import errno
import mmap
import os
import stat
from typing import Any

from .. import _core
from ..config import default_threads
from ..errors import CaptureError, DTypeError, FormatError, ShapeError, StreamMismatchError
from ..file_kinds import instead_of_module, not_a_file, not_a_model
from .engine import Engine
from .files import is_path, read_all
from .interface import Interface
from .spec import number_of
from .text import from_text, is_text
from .weights import AS_IT_IS, BOUND, TILES, Narrowing, Weights, store

HEAD = 4096  # bytes of a file that say what it is
MOST_BYTES = 2**62  # of max_bytes

Model = tuple[_core.Graph, Interface]


def load(
    source: Any,
    threads: int | None = None,
    max_streams: int | None = None,
    blas: bool | None = None,
    backend: str | None = None,
    weights: Weights | None = None,
    products: Weights | None = None,
    weights_bound: float = BOUND,
    max_bytes: int | None = None,
) -> Engine:
    """Make an engine of a model file: what `Engine.save` wrote, in any of its forms.

    What a file holds is checked before it is used, and nothing in it is executed. The file of a path is
    mapped where it is a ``.dsm``: its weights take no memory of the process where kernels read them as they
    are, and processes share them. It may be replaced meanwhile (a new file renamed over it, as `Engine.save`
    does), not written to.

    Parameters
    ----------
    source : str, path, file object or bytes
        A path; an object with ``read(n)`` that gives bytes; or the content itself. Which form it is in, its
        content says.
    threads : int, optional
        Threads per step; ``DREAMSTREAM_THREADS`` or 1 by default.
    max_streams : int, optional
        The most streams that may be live after a call.
    blas : bool, optional
        Whether products go to OpenBLAS; None: as the model was compiled, where OpenBLAS is there.
    backend : str, optional
        The kernels to use whatever the environment says, as in :func:`compile`.
    weights : str or dict, optional
        How weights are stored from now on, as in :func:`compile`; None: as the file has them.
    products : str or dict, optional
        In what products are from now on, as in :func:`compile`; None: as the file has it, but for weights that are
        stored otherwise from now on.
    weights_bound : float
        The error that "auto" allows, as in :func:`compile`.
    max_bytes : int, optional
        The most bytes that weights, one stream and a call of one frame may take together, and the most of any
        call. By default 2 GiB and four times the file's size for the former, the machine's memory for the latter.
        They are counted before anything is made, so a file of strangers can't ask for more.

    Returns
    -------
    Engine
        Which gives the same bits as the one that was saved, where neither `weights` nor `products` is given.

    Raises
    ------
    FormatError
        For what is no model file, or a damaged one; the message says where.
    StreamLimitError
        For a model that takes more than `max_bytes`, with the layer that takes most.
    OSError
        Where the file can't be read.

    Examples
    --------
    >>> import io, dreamstream as ds
    >>> from dreamstream import nn
    >>> file = io.BytesIO()
    >>> ds.compile(nn.Conv1d(3, 4, 5).eval(), ("B", 3, "L")).save(file)
    >>> ds.load(file.getvalue()).outputs[0].dimensions
    ('B', 4, 'L')
    """
    n_threads = number_of("threads", threads, default_threads(), 1024)
    most_streams = number_of("max_streams", max_streams, 0, 2**31)
    most_bytes = number_of("max_bytes", max_bytes, 0, MOST_BYTES)
    graph, interface, origin = _read(source, how=Narrowing(weights, products, weights_bound))
    if blas is not None:
        interface = dataclasses.replace(interface, blas=bool(blas))
    use = interface.blas and (blas is True or _has_blas())  # asked for where there is none: an error
    return planned(graph, interface, n_threads, most_streams, use, origin, backend, most_bytes)


def stored_as(engine: Engine, how: Narrowing) -> Engine:
    """Return an engine of the same model whose weights are stored in another way."""
    graph, interface = _model(bytes_of(engine), how=how)
    blas = engine._core.blas
    return planned(graph, interface, engine.threads, engine._max_streams, blas, None, None, engine._max_bytes)


def bytes_of(engine: Engine) -> bytes:
    """Return the model file of an engine."""
    pieces: list[bytes] = []
    engine._write(pieces.append)
    return b"".join(pieces)


def tiled(engine: Engine) -> tuple[str, ...]:
    """Return the paths of an engine's layers whose products go by tiles, of which its file knows nothing."""
    return tuple(dict.fromkeys(n["path"] for n in engine._core.nodes if n["products"] == TILES))


def load_changed(source: Any) -> Engine:
    """Load a model file that was edited on purpose: its fingerprint is not looked at."""
    graph, interface, origin = _read(source, changed=True)
    return planned(graph, interface, 1, 0, interface.blas and _has_blas(), origin)


def _has_blas() -> bool:
    return bool(_core.config()["blas"])


def planned(
    graph: _core.Graph,
    interface: Interface,
    threads: int,
    max_streams: int,
    blas: bool,
    origin: Any,
    backend: str | None = None,
    max_bytes: int = 0,
) -> Engine:
    """Plan a graph; what is wrong with it is wrong with its file."""
    try:
        core = _core.Engine(graph, threads, blas, max_streams, interface.skew, backend, max_bytes)
    except (CaptureError, DTypeError, ShapeError, StreamMismatchError) as error:
        raise FormatError(f"the model can't be planned: {error}") from None
    return Engine(core, interface.with_delays(core.delays), max_streams, origin, max_bytes)


# ---------------------------------------------------------------- what is there to read
def _read(source: Any, changed: bool = False, how: Narrowing = AS_IT_IS) -> tuple[_core.Graph, Interface, Any]:
    """Return graph and interface, and of a path where and what it was."""
    if not is_path(source):
        content = _content(source)
        try:
            return *_model(content, changed=changed, how=how), None
        except FormatError as error:
            raise FormatError(not_a_model("this", content) or str(error)) from None
    path = os.path.abspath(os.fsdecode(source))
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, not_a_file(path), path)
    with open(path, "rb") as file:
        seen = os.fstat(file.fileno())
        head = file.read(HEAD)
        mapped = stat.S_ISREG(seen.st_mode) and not _reads_as_text(head, seen.st_size)
        content = b"" if mapped else head + file.read()
    try:
        model = _model(path if mapped else content, mapped, changed, how)
    except FormatError as error:
        message = not_a_model(path, path if mapped else content) or str(error)
        raise FormatError(
            message if _core.shown(path, True) in _core.shown(message, True) else f"{path}: {message}"
        ) from None
    return *model, (path, state_of(seen)) if how.nothing else None


def _content(source: Any) -> bytes:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    if hasattr(source, "read"):
        return read_all(source)
    raise TypeError(f"expected a path, a file object with read() or bytes, got {instead_of_module(source)}")


def _reads_as_text(head: bytes, size: int) -> bool:
    """A container begins with a length that lies within it, and the brace behind; it is never text."""
    container = head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= size - 8
    return not container and is_text(head)


def _model(source: Any, mapped: bool = False, changed: bool = False, how: Narrowing = AS_IT_IS) -> Model:
    if not mapped and _reads_as_text(source[:HEAD], len(source)):
        source = from_text(source)
    graph, text, inputs, outputs, types = _core.read_model(source, mapped, changed)
    if not how.nothing:  # now that the file is known to be what was written
        store(graph, how)
    return graph, Interface.read(text, inputs, outputs, types)


def container_of(source: Any) -> Any:
    """Return the bytes of a model file as a container, mapped where they can be, whatever form it is in."""
    if is_path(source):
        with open(source, "rb") as file:
            seen = os.fstat(file.fileno())
            if stat.S_ISREG(seen.st_mode) and not _reads_as_text(file.read(HEAD), seen.st_size):
                with contextlib.suppress(ValueError):  # of a file of no bytes
                    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            file.seek(0)
            source = file.read()
    content = _content(source)
    return from_text(content) if _reads_as_text(content[:HEAD], len(content)) else content


# ---------------------------------------------------------------- pickles
def state_of(file: os.stat_result) -> tuple[int, ...]:
    """Return what changes when a file does."""
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns


def _reduced(engine: Engine) -> tuple[Any, ...]:
    """Return what a pickle holds: the path of the engine's file while that is unchanged, or the model's bytes."""
    source: Any = None
    if engine._origin is not None:
        path, state = engine._origin
        with contextlib.suppress(OSError):
            source = path if state_of(os.stat(path)) == state else None
    if source is None:
        source = bytes_of(engine)
    about = (source, engine.fingerprint, engine.threads, engine._max_streams, engine._interface.blas)
    tiles = tiled(engine)  # the reference has them on every machine
    reference = bool(tiles) and engine._core.kernels == "ref"
    return unpickled, (*about, tiles, reference, engine._max_bytes)


copyreg.pickle(Engine, _reduced)


def unpickled(
    source: Any,
    fingerprint: str,
    threads: int,
    max_streams: int,
    blas: bool,
    tiles: tuple[str, ...] = (),
    reference: bool = False,
    max_bytes: int = 0,
) -> Engine:
    """Make the engine that was pickled: of the same file, or of its bytes."""
    graph, interface, origin = _read(source, how=Narrowing(tiled=tiles))
    interface = dataclasses.replace(interface, blas=blas)
    backend = "ref" if reference else None
    engine = planned(graph, interface, threads, max_streams, blas and _has_blas(), origin, backend, max_bytes)
    if engine.fingerprint != fingerprint:
        name = source if is_path(source) else "the pickle's file"
        raise FormatError(
            f"{name} holds another model than the one that was pickled: {engine.fingerprint} instead of "
            f"{fingerprint}"
        )
    return engine
