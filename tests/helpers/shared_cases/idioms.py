"""The idioms of tests/laws, read as torch: their own source, with torch where dreamstream stands in it."""

import copy
import importlib.util
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import nets
import torch
from random_graphs.idioms import refused_of
from random_graphs.totals import Input

import dreamstream as ds

from .case import Case, Given
from .checks import hold
from .front_ends import FRONT_ENDS

LAWS = Path(__file__).parents[2] / "laws"


def _streams(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return what makes tensors of streams of torch from NumPy's arrays."""

    def made(data: Any, *args: Any, **options: Any) -> Any:
        rows = isinstance(data, list)
        data = [torch.as_tensor(d) for d in data] if rows else torch.as_tensor(data)
        return make(data, *args, **options)

    return made


class _Engine:
    """An engine, which knows no torch, as idioms call it: with what they call a patched module."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.engine = ds.compile(*args, **options)

    def __call__(self, x: Any) -> Any:
        rows = [x[i].numpy() for i in x.ids]
        return self.engine(ds.stream_tensor(rows, names=x.names, ids=x.ids, sos=x.sos, eos=x.eos))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


class _Library:
    """What ``ds`` is in an idiom: dreamstream's own names, and torch for all that is about tensors."""

    compile = _Engine
    patch_module = staticmethod(ds.patch_module)
    NotStreamableError = ds.NotStreamableError
    tensor = staticmethod(torch.tensor)
    stream_tensor = staticmethod(_streams(ds.stream_tensor))
    as_stream_tensor = staticmethod(_streams(ds.as_stream_tensor))

    @staticmethod
    def ones(*size: int, **options: Any) -> torch.Tensor:
        return torch.ones(size, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _net(forward: Callable[..., Any], **parts: Any) -> torch.nn.Module:
    model: torch.nn.Module = nets.net(torch.nn, forward, **parts)
    return model.requires_grad_(False)  # idioms look at weights as arrays


def held(
    model: torch.nn.Module,
    *inputs: Input,
    delay: float | None = None,
    refuses: bool = False,
    n_trials: int = 3,
    skew: int = 0,
    buffered: bool = False,
    buffer_limit: int | None = None,
) -> ds.Engine:
    """Stream a model patched and compiled and compare with torch offline; return an engine."""
    case = Case(
        f"{type(model).__name__} {id(model)}",
        lambda *_: copy.deepcopy(model),
        tuple(Given(x.spec, x.rate) for x in inputs),
        native=False,
        reach=12,
        delay=delay,  # type: ignore[arg-type]
        whole=buffered,
        buffer_limit=buffer_limit,
        skew=skew,
    )
    stats: Counter[str] = Counter()
    for seed in range(min(n_trials, 2) if not refuses else n_trials):
        stats += hold(case, ["torch-compiled", "torch-patched"], seed)
    assert stats["frames"] > 0
    assert bool(stats["refused"]) == refuses
    engine: ds.Engine = FRONT_ENDS["torch-compiled"].open(case)  # type: ignore[attr-defined]
    return engine


def read_as_torch(name: str) -> ModuleType:
    """Return a file of idioms as a module whose ``ds``, ``nn`` and ``F`` are torch's."""
    spec = importlib.util.spec_from_file_location(f"{name}_as_torch", LAWS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    library = _Library()
    own = {"net": _net, "held": held, "refused": refused_of(library)}
    torchs = {"ds": library, "nn": torch.nn, "F": torch.nn.functional}
    vars(module).update({k: v for k, v in {**own, **torchs}.items() if k in vars(module)})
    return module
