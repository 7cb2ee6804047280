"""What may be asked of a stream, and of what stands for one inside a forward: operators, indices, functions.

A case is a label and a function ``(make, x, plain)``: `make` gives what is asked, anew each time; `x` is a
stream ``(B, 4, L)``, and `plain` a constant ``(4, 1)``. A case is right where it gives a value, or is refused by
one of the package's errors that names the line, or where plain tensors in place of the streams give an error of
the same class.
"""

import copy
import inspect
import math
import operator
import pickle
import re
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from queue import SimpleQueue
from typing import Any

import numpy as np

import dreamstream as ds

Case = tuple[str, Callable[[Callable[[], Any], Any, Any], Any]]

BINARY = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift",
    "lt", "le", "gt", "ge", "eq", "ne",
)  # fmt: skip
OTHERS: dict[str, Callable[..., Any]] = {
    "2": lambda make, x, plain: 2,
    "0.5": lambda make, x, plain: 0.5,
    "inf": lambda make, x, plain: math.inf,
    "1j": lambda make, x, plain: 1j,
    "None": lambda make, x, plain: None,
    "text": lambda make, x, plain: "x",
    "list": lambda make, x, plain: [1, 2],
    "array": lambda make, x, plain: np.ones((4, 1), np.float32),
    "plain": lambda make, x, plain: plain * 1,
    "stream": lambda make, x, plain: x * 1,
    "length": lambda make, x, plain: x.size(2),
    "itself": lambda make, x, plain: make(),
}
OF_PYTHON: tuple[Callable[..., Any], ...] = (
    operator.neg, operator.pos, operator.invert, operator.index, operator.not_, abs, len, bool, int, float,
    complex, hash, list, set, sum, max, min, any, all, sorted, repr, str, format, round, math.floor, math.ceil,
    math.sqrt, range, copy.copy, copy.deepcopy, pickle.dumps, np.asarray, np.exp, np.sum,
    "%d".__mod__, "%.2f".__mod__,
)  # fmt: skip
INDICES: dict[str, Any] = {
    "0": 0, "-1": -1, ":2": slice(2), "1:": slice(1, None), "::2": slice(None, None, 2),
    "..., -2:": (..., slice(-2, None)), "::-1": slice(None, None, -1), "None": None, "...": ..., "True": True,
    "list": [0, 1], "array": np.array([0, 1]),
    "mask": np.ones(4, bool), "five": (0,) * 5, "99": 99, "text": "x", "1.5": 1.5,
}  # fmt: skip


def _operators() -> Iterator[Case]:
    for name in BINARY:
        for label, other in OTHERS.items():
            f, in_place = getattr(operator, name), getattr(operator, f"i{name.rstrip('_')}", None)
            yield f"it {name} {label}", lambda m, x, p, f=f, o=other: f(m(), o(m, x, p))
            yield f"{label} {name} it", lambda m, x, p, f=f, o=other: f(o(m, x, p), m())
            if in_place is not None:
                yield f"it {name}= {label}", lambda m, x, p, f=in_place, o=other: f(m(), o(m, x, p))
                yield f"{label} {name}= it", lambda m, x, p, f=in_place, o=other: f(o(m, x, p), m())
    for f in OF_PYTHON:
        yield f.__name__, lambda m, x, p, f=f: f(m())
    yield "1 in it", lambda m, x, p: 1 in m()
    yield "it in list", lambda m, x, p: m() in [1, 2]
    yield "max(0, it)", lambda m, x, p: max(0, m())
    yield "max(0, its max)", lambda m, x, p: max(0, m().max())
    yield "0 < it < 3", lambda m, x, p: 0 < m() < 3
    yield "del it[0]", lambda m, x, p: operator.delitem(m(), 0)
    yield "unpacked", lambda m, x, p: (lambda a, b: a)(*m())
    for name in (
        "T",
        "mT",
        "H",
        "real",
        "imag",
        "shape",
        "dtype",
        "device",
        "data",
        "grad",
        "ndim",
        "is_leaf",
        "names",
    ):
        yield f".{name}", lambda m, x, p, name=name: getattr(m(), name)
        yield f".{name} =", lambda m, x, p, name=name: setattr(m(), name, p)


def _indices() -> Iterator[Case]:
    def of_streams(label: str) -> Callable[..., Any]:
        return {
            ":L": lambda x: slice(x.size(2)),
            ":B": lambda x: slice(x.size(0)),
            "L": lambda x: x.size(2),
            "stream": lambda x: x,
            "x > 0": lambda x: x > 0,
        }.get(label, lambda x: INDICES[label])

    for label in (*INDICES, ":L", ":B", "L", "stream", "x > 0"):
        at = of_streams(label)
        yield f"it[{label}]", lambda m, x, p, at=at: m()[at(x)]
        yield f"it[{label}] = 0", lambda m, x, p, at=at: operator.setitem(m(), at(x), 0.0)
        yield f"it[{label}] = x", lambda m, x, p, at=at: operator.setitem(m(), at(x), x)
        yield f"x[{label}] = it", lambda m, x, p, at=at: operator.setitem(x * 1, at(x), m())
    table = {"x": lambda x, p: x * 1, "plain": lambda x, p: p * 1, "array": lambda x, p: np.ones((4, 4))}
    for label, of in table.items():
        yield f"{label}[it]", lambda m, x, p, of=of: of(x, p)[m()]
        yield f"{label}[:it]", lambda m, x, p, of=of: of(x, p)[: m()]
        yield f"{label}[..., it:]", lambda m, x, p, of=of: of(x, p)[..., m() :]
        yield f"{label}[it] = 0", lambda m, x, p, of=of: operator.setitem(of(x, p), m(), 0)
    yield "it[it]", lambda m, x, p: m()[m()]


#: Arguments by their names; a tensor is given for others.
GUESSED: dict[str, Any] = {
    "dim": 1, "dim0": 0, "dim1": 1, "axis": 1, "axis0": 0, "axis1": 1, "dims": (0, 1), "size": (2, 3), "shape":
    (2, 3), "sizes": (2, 2), "dimension": 1, "step": 1, "n": 2, "k": 1, "p": 2.0, "q": 0.5, "value": 1.0,
    "exponent": 2.0, "repeats": 2, "split_size": 1, "split_size_or_sections": 1, "chunks": 2, "sections": 2,
    "kernel_size": 2, "output_size": 2, "stride": (1, 1), "pad": (1, 1), "padding": 0, "num_groups": 2,
    "normalized_shape": (4,), "shifts": 1, "source": 0, "destination": 1, "n_fft": 4, "start": 0, "end": 2,
    "length": 2, "scale_factor": 2, "fill_value": 1.0, "min": 0.0, "max": 1.0, "threshold": 0.1, "upscale_factor":
    1, "downscale_factor": 1, "bins": 3, "equation": "ij,ij->ij", "diagonal": 0, "offset": 0, "lambd": 0.5,
    "groups": 2, "blocks": 2, "ord": 2, "N": 2, "start_dim": 0, "end_dim": -1, "reduce": "sum", "num_classes": 3,
}  # fmt: skip


def functions(found: Iterable[tuple[str, Callable[..., Any], Any]]) -> Iterator[Case]:
    """Give the cases of functions, each with its name and its signature, or one that is written for it."""
    for name, function, signature in found:
        parameters = inspect.signature(signature).parameters.values()
        needed = [p.name for p in parameters if p.default is p.empty and p.kind in (0, 1)]
        several = any(p.kind == 2 for p in parameters)
        if not needed and not several:
            continue

        def call(m: Any, x: Any, p: Any, at: int, first: Any = None, more: Any = (), f: Any = function,
                 needed: Any = tuple(needed), **named: Any) -> Any:  # fmt: skip
            given = [GUESSED.get(n, p) if i else p for i, n in enumerate(needed or ("",))]
            given[0] = p if first is None else first(m, x)
            given[at] = [m(), m()] if needed[at : at + 1] == ("tensors",) else m()
            return f(*given, *more, **named)

        yield name, lambda m, x, p, call=call: call(m, x, p, 0)
        if several:
            yield f"{name} with 1", lambda m, x, p, call=call: call(m, x, p, 0, more=(1,))
        for at in range(1, len(needed)):
            first = (lambda m, x: x * 1), (lambda m, x: m()), None
            for what, one in zip(("of a stream", "of itself", "of a constant"), first):
                yield (
                    f"{name} {what}, {needed[at]}",
                    lambda m, x, p, call=call, at=at, one=one: call(m, x, p, at, one),
                )
        for p in parameters:
            if p.name in ("dim", "dims", "axis") and p.default is not p.empty:
                for dim in (0, 1, -1):
                    yield (
                        f"{name} {p.name}={dim}",
                        lambda m, x, p, call=call, named={p.name: dim}: call(m, x, p, 0, **named),
                    )
            elif p.name in ("out", "prepend", "append", "weight", "bias", "n", "keepdim", "size"):
                given = GUESSED.get(p.name)
                yield (
                    f"{name} {p.name}=",
                    lambda m, x, p, call=call, n=p.name, g=given: call(
                        m, x, p, 0, **{n: p * 1 if g is None else g}
                    ),
                )


OPERATORS = (*_operators(), *_indices())
_LINE = re.compile(r"\w+\.py:\d+ in ")


def few(cases: Iterable[Case], n: int | None, *seed: str) -> list[Case]:
    """Return so many of the cases, which of them follows from their labels and the seed; all without a number."""
    return sorted(cases, key=lambda case: zlib.crc32(" ".join((case[0], *seed)).encode()))[:n]


def wrong(
    cases: Iterable[Case], inside: Callable[[Callable[[], Any]], Any], asked: tuple[Any, ...], twin: Any
) -> list[str]:
    """Return what of the cases gives an error of Python's or of a library's, and what errors name no line.

    Parameters
    ----------
    cases
    inside : callable
        Runs a function within a module that streams.
    asked, twin : tuple
        ``(make, x, plain)``; with plain tensors in place of streams.
    """
    out = []
    for label, case in cases:
        try:
            inside(lambda case=case: case(*asked))
        except Exception as error:
            if not (isinstance(error, ds.DreamStreamError) and _LINE.search(str(error))) and not _likewise(
                case, twin, error
            ):
                out.append(f"{label}: {type(error).__name__}: {error}"[:300])
    return out


def _likewise(case: Any, twin: Any, error: Exception) -> bool:
    """Whether plain tensors give an error of the same class."""
    try:
        case(*twin)
    except Exception as own:
        return isinstance(error, type(own))
    return False


def kinds(
    xp: Any, x: Any, lengths: Any, more: Mapping[str, Callable[[], Any]] = {}
) -> dict[str, Callable[[], Any]]:
    """Return what stands for streams, lengths and masks, by names, as functions that make it.

    Parameters
    ----------
    xp : module
        torch or dreamstream: what has the functions of the stream.
    x, lengths
        A stream ``(B, 4, L)`` and its lengths.
    more : mapping
        What only one of the libraries has.
    """
    L = x.size(2)

    def scores() -> Any:
        return x.transpose(1, 2) @ x

    return {
        "stream": lambda: x * 1,
        "transposed": lambda: (x * 1).transpose(1, 2),
        "one feature": lambda: (x * 1)[:, 0],
        "integers": lambda: (x * 3).long(),
        "truths": lambda: x > 0,
        "pooled": lambda: x.mean(2),
        "scores": scores,
        "softmax of scores": lambda: scores().softmax(-1),
        "greatest score": lambda: scores().amax(-1, keepdim=True),
        "pairs": lambda: xp.arange(L).unsqueeze(1) >= xp.arange(L).unsqueeze(0),
        "triangle": lambda: xp.ones(L, L).tril(),
        "positions": lambda: xp.arange(L),
        "real positions": lambda: xp.arange(L).float(),
        "rests of positions": lambda: xp.arange(L) % 3,
        "sines of positions": lambda: xp.arange(L).float().sin(),
        "zeros": lambda: xp.zeros(x.size(0), L),
        "lengths": lambda: lengths * 1,
        "mask of lengths": lambda: xp.arange(L).unsqueeze(0) < lengths.unsqueeze(1),
        "batch size": lambda: x.size(0),
        "length": lambda: x.size(2),
        "rows": lambda: x.size(0) * x.size(2),
        "quotient": lambda: x.size(2) / 2,
        "comparison": lambda: x.size(2) > 10,
        "shape": lambda: x.shape,
        "zeros of the batch": lambda: xp.zeros(x.size(0), 4),
        "joined": lambda: (x * 1).transpose(1, 2).reshape(-1, 4),
        "joined with features": lambda: (x * 1).reshape(-1, x.size(2)),
        "merged": lambda: (x * 1).flatten(1),
        "picked": lambda: (x * 1)[x > 0],
        "softmax over L": lambda: x.softmax(2),
        "last frame": lambda: (x * 1)[..., -1:],
        "no features": lambda: (x * 1)[:, 4:],
        **more,
    }  # fmt: skip


def asking(nn: Any, kinds_of: Callable[..., Any], plain_things: Callable[[], tuple[Any, Any, Any]]) -> type:
    """Return a class of models whose forward asks cases of one kind of thing, and notes what is wrong.

    Parameters
    ----------
    nn : module
        torch's, or the native one.
    kinds_of : callable
        ``(x, lengths)``, as `kinds`.
    plain_things : callable
        Gives what stands for streams and lengths outside a forward, and a plain tensor (4, 1).
    """

    class Inside(nn.Module):
        def forward(self, x: Any, function: Callable[[], Any]) -> Any:
            return function()

    class Asks(nn.Module):
        def __init__(self, kind: str, cases: Any) -> None:
            super().__init__()
            self.inside, self.kind, self.cases = Inside(), kind, cases
            self.wrong = SimpleQueue()  # which a trace, that leaves the model as it was, doesn't look into

        def forward(self, x: Any, lengths: Any) -> Any:
            whole, some, plain = plain_things()
            twin = kinds_of(whole, some)[self.kind], whole, plain
            make = kinds_of(x, lengths)[self.kind]
            self.wrong.put(wrong(self.cases, lambda function: self.inside(x, function), (make, x, plain), twin))
            return x * 1

    return Asks


def answers(model: Any, way: str, chunks: Any) -> Any:
    """Run a model that asks, "compiled", "trained", or else in evaluation; return what is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if way == "compiled":
            ds.compile(model, {"x": ("B", 4, "L"), "lengths": ds.lengths_of("x")}, verify=False)
        else:
            x = ds.stream_tensor(chunks, ids=["a", "b"], sos=True, eos=True)
            ds.patch_module(model).online().train(way == "trained")(x, ds.lengths_of(x))
    return model.wrong.get_nowait()
