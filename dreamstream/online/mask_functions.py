"""Functions that make masks of lengths by loops: called with numbers, once attention asks what they say.

One is known since `ds.register` was told, since it is of a known package, or since a forward failed in it.

Such a function may be held by whoever imported it, so its code is exchanged, not the function: from then on a
call that is given a length of a stream, or a stream, is noted like any other step that makes a mask. All other
calls run what they ran before.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from traceback import walk_tb
from types import FunctionType
from typing import Any

from ..array.scores import Scores
from ..array.symbolic import Symbolic
from ..stream.rules import Length
from ..stream.tree import leaves
from .whole_numbers import kept_by

#: What runs in place of a function that is given lengths: ``fn(length, original, args, kwargs)``.
Instead = Callable[[Any, Any, Any, Any], Any]

#: Frames for which a function is asked whether it makes a tensor.
_TRIED = 48

_ORIGINALS: list[tuple[Callable[..., Any], Instead]] = []
_PLACES: dict[Any, int] = {}


def _noted(length: Any, original: Any, args: Any, kwargs: Any) -> Any:
    return type(length).note_call(original, args, kwargs)


#: Functions of packages that are not loaded for them, by their modules.
BROUGHT: dict[str, dict[str, Instead]] = {
    "wenet.utils.mask": {"subsequent_chunk_mask": _noted, "add_optional_chunk_mask": _noted},
    # which say whether a stream is too short for its layers: then they give no frame
    "espnet.nets.pytorch_backend.transformer.subsampling": {"check_short_utt": lambda *_: (False, -1)},
    "funasr.models.transformer.utils.subsampling": {"check_short_utt": lambda *_: (False, -1)},
}

#: Methods by which layers make their tables of positions.
METHODS: dict[str, Instead] = {"make_pe": _noted}


def note_calls(function: Any, instead: Instead = _noted) -> None:
    """Let a function of Python be called with integers where it is given lengths, or let something run instead."""
    code = function.__code__
    if code in _PLACES:
        return
    original = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    original.__kwdefaults__ = function.__kwdefaults__
    function.__signature__ = inspect.signature(function)
    constants = tuple(len(_ORIGINALS) if c == "place" else c for c in _asks.__code__.co_consts)
    asks = _asks.__code__.replace(co_consts=constants, co_name=code.co_name, co_freevars=code.co_freevars)
    function.__code__, function.__defaults__, function.__kwdefaults__ = asks, None, None
    _PLACES[asks] = len(_ORIGINALS)
    _ORIGINALS.append((original, instead))


def _asks(*args: Any, **kwargs: Any) -> Any:
    from dreamstream.online.mask_functions import called

    return called("place", args, kwargs)


def called(place: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function, or note that it is called with lengths."""
    function, instead = _ORIGINALS[place]
    length = _length_in((args, kwargs))
    if length is not None:
        return instead(length, function, args, kwargs)
    return function(*args, **kwargs)


def note_failed(error: BaseException) -> bool:
    """Note calls of the function in which lengths were asked for as numbers, where it makes a tensor of them.

    Or let the function's own ``int`` leave lengths as they are.

    Returns
    -------
    bool
        Whether there is one that was not noted before: then the forward may run again.
    """
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        code = frame.f_code
        function = frame.f_globals.get(code.co_name)
        ours = frame.f_globals.get("__name__", "").partition(".")[0] in ("dreamstream", "torch")
        if ours or not inspect.isfunction(function) or function.__code__ is not code:
            continue
        given = {name: frame.f_locals.get(name) for name in inspect.signature(function).parameters}
        length = _length_in(given)
        if length is not None and _makes_tensor(function, given, type(length).noting):
            note_calls(function)
            return True
    return kept_by(error)


def _inner(x: Any) -> Any:
    """Return what a tensor of torch stands for; scores of attention refuse to be asked."""
    return x if isinstance(x, Scores) else getattr(x, "_inner", x)


def _length_in(args: Any) -> Any:
    """Return a length of a stream among arguments, or of one of them; None without any."""
    for x in leaves(args):
        inner = _inner(x)
        if isinstance(inner, Symbolic):
            return inner.length
        if hasattr(type(inner), "says"):
            inner = next(inner.lengths(), None)
        elif getattr(inner, "is_stream", False) and getattr(inner, "edge", None):
            inner = next((s for s in inner.shape if isinstance(s, Length)), None)
        if isinstance(inner, Length):
            return inner
    return None


def _makes_tensor(function: Any, given: dict[str, Any], noting: Any) -> bool:
    """Whether a function that is given numbers in place of lengths returns a tensor of so many."""
    inner = {name: _inner(x) for name, x in given.items()}
    if any(getattr(x, "edge", None) is not None and not isinstance(x, (Length, Symbolic)) for x in inner.values()):
        return False  # of streams it may know more than their shapes
    try:
        with noting.quietly():
            out = noting(function, (), inner).at(lambda _: _TRIED)
    except Exception:  # what it asks for is no number either
        return False
    return hasattr(out, "masked_fill") and _TRIED in out.shape


def bring(model: Any) -> None:
    """Note calls of functions that are known to make masks, of the packages that are loaded, and of methods."""
    for module, names in BROUGHT.items():
        for name, instead in names.items():
            function = getattr(sys.modules.get(module), name, None)
            if inspect.isfunction(function):
                note_calls(function, instead)
    for kind in {type(part) for part in model.modules()}:
        for name, instead in METHODS.items():
            if inspect.isfunction(getattr(kind, name, None)):
                note_calls(getattr(kind, name), instead)
