"""How an idiom is held against offline, or refused; the idioms stand in `tests/laws/test_idioms*.py`."""

import copy
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import nets
import numpy as np
import pytest

import dreamstream as ds
from dreamstream import nn
from dreamstream.errors import NotStreamableError

from .drafts import Draft
from .totals import Input
from .trial import Subject, Trial

X = Input("x", Fraction(1), 4, "BFL")  # (B, 4, L), as convolutions take it
T = Input("x", Fraction(1), 4, "BLF")  # (B, L, 4), as LSTM and Linear take it

net = partial(nets.net, nn)


def of(function: Callable[[Any], Any]) -> nn.Module:
    """Return a module that is a function of its input."""
    model: nn.Module = net(lambda self, x: function(x))
    return model


def held(
    model: nn.Module,
    *inputs: Input,
    delay: float | None = None,
    refuses: bool = False,
    n_trials: int = 2,
    **options: Any,
) -> ds.Engine:
    """Stream a model in both modes and compare; return an engine.

    Parameters
    ----------
    delay : number, optional
        What the engine must say.
    refuses : bool
        Whether streams of some lengths are an error.
    options
        Of the draft: ``skew``, ``buffered``, ``buffer_limit``.
    """
    subject = Subject.made(Draft(0, list(inputs), **options), model)
    stats: Counter[str] = Counter()
    for seed in range(n_trials):
        trial = Trial(subject, np.random.default_rng(seed), stats)
        try:
            trial.play()
            trial.in_double()
        finally:
            trial.close()
    assert stats["frames"] > 0 and stats["streams"] > 0
    assert bool(stats["refused at the end"]) == refuses
    engine = subject.compiled()
    if delay is not None:
        assert engine.delay == delay
    return engine


def _refused(
    ds: Any,
    model: nn.Module,
    x: Input,
    match: str,
    expected: type[Exception] = NotStreamableError,
    line: str | None = "test_idioms",
    offline_too: bool = False,
) -> None:
    """A model that can't stream: the error says why, by name of the line, in both modes; offline it runs."""
    n = 12
    frames = np.random.default_rng(0).standard_normal((1, n, x.size), dtype=np.float32)
    array = frames.swapaxes(1, 2) if x.layout == "BFL" else frames
    if not offline_too:
        model(ds.tensor(np.ascontiguousarray(array)))
    with pytest.raises(expected, match=match) as captured:
        ds.compile(model, x.spec)
    assert line is None or line in str(captured.value)
    online = ds.patch_module(copy.deepcopy(model)).online()
    names = [d if isinstance(d, str) else "F" for d in x.dims]
    with pytest.raises(expected, match=match) as raised:
        online(ds.stream_tensor(array, names=names, ids=["a"], sos=True, eos=True))
    assert line is None or line in str(raised.value)
    assert captured.type is raised.type
    assert online.live_ids == []


def refused_of(ds: Any) -> Callable[..., None]:
    """Return what holds that a library refuses a model; see `_refused`."""
    return partial(_refused, ds)


refused = refused_of(ds)
