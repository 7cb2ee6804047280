"""What each call of a torch function did, so that the next call of it at the same place need only repeat it.

The forward of the user runs in every call. What it asks of torch on streams is the same from call to call: the
same function, on edges of the same lines seen with the same dimensions, with equal numbers, lists, slices and
sizes, and with weights that are the same tensors or have the same type and shape. What was asked is the key of a
`Place`. It holds the operators that ran, what torch made of plain tensors for them, and how the results are seen,
and which of them share the memory of an argument. So the native front end is asked once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...array.stream_tensor import StreamTensor as NativeStream
from ...stream.context import Context
from ..tensor.stream_tensor import SHELL
from .complex_pair import parts_of
from .keys import Asked, bytes_of, is_small
from .recordings import FunctionRecording
from .replay import REPLAY


class Anew:
    """Stands where a function is not repeated."""

    def __init__(self, left: int) -> None:
        #: How often it may still be given other numbers: with the same in all small tensors it is repeated.
        self.left = left


def _with_numbers(asked: Asked) -> Any:
    """Return what a function is known as with the numbers of the small tensors that it is given."""
    func, numbers = asked.key[0], tuple([bytes_of(x).tobytes() if is_small(x) else None for x in asked.tensors])
    return (numbers, *func) if type(func) is tuple else (numbers, func)


#: Where nothing is repeated; how many places a forward may have beside a few per operation.
ANEW, _MOST = Anew(0), 1024


def repeated(
    forward: Any, func: Any, args: Any, kwargs: dict[str, Any], run: Callable[..., Any], *given: Any
) -> Any:
    """Repeat what a function did when the same was asked for, or run it by ``run(*given)``."""
    _compute((*args, *kwargs.values()))
    out = REPLAY.call(forward, func, args, kwargs)
    if type(out) is Anew and out.left:
        asked = REPLAY.ask(forward, func, args, kwargs)
        assert asked is not None
        reading, func = out, _with_numbers(Asked(*asked))
        out = REPLAY.call(forward, func, args, kwargs)
        reading.left -= out is NotImplemented
    if type(out) is Anew:
        return run(*given)
    return recorded(forward, func, args, kwargs, run, *given) if out is NotImplemented else out


def _compute(items: Iterable[Any]) -> None:
    """Compute the values of streams that were written into; last frames are computed where they are used."""
    for x in items:
        kind = type(x)
        if kind is tuple or kind is list:
            _compute(x)
        elif kind is SHELL:
            for own in parts_of(x._inner):
                if type(own) is NativeStream and not own._by_elements:
                    _ = own.edge


def recorded(
    forward: Any, func: Any, args: Any, kwargs: dict[str, Any], run: Callable[..., Any], *given: Any
) -> Any:
    """Run a function by ``run(*given)``, so that the next call of it at this place can repeat what it did."""
    entry = forward.recorder
    asked = REPLAY.ask(forward, func, args, kwargs)
    if asked is None or asked[0] in entry.places:
        return run(*given)
    with FunctionRecording(Asked(*asked), entry) as recording:
        entry.recording = recording
        try:
            out = run(*given)
        finally:
            entry.recording = None
    places = entry.places
    if len(places) > _MOST + 8 * entry.n_done:  # numbers differ from call to call
        places.clear()
    place, key = recording.place(out) or ANEW, asked[0]
    has_numbers = type(func) is tuple and type(func[0]) is tuple  # see `_with_numbers`
    if recording.read and place is not ANEW and not has_numbers:
        places[key] = Anew(16)
        key = (_with_numbers(recording.asked), *key[1:])
    places[key] = place
    known_as, *others = key
    if type(known_as) is tuple and isinstance(known_as[-1], Context) and not (recording.asks or recording.read):
        key = (known_as[0], *others)  # it is the same in every context
        places[key] = place
    return out
