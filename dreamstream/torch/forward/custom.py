"""A user's `torch.autograd.Function` inside a forward: streams get the gradient that its backward defines.

torch asks no mode about `Function.apply`, and turns gradients off while the Function's forward runs. So the copies
of forwards call `Gradients.apply` in its place: there the forward first runs on streams like any other code, which
gives values for every way of cutting. Where a gradient is wanted, the Function is then applied again, to the
frames of the call as one plain tensor, and torch records its backward. The first call at each place tries whether
that is right: values and gradients of single frames must be the same beside other frames and without them. What
fails is refused, and so is a Function that is called by what has no copy.

The reentrant way of `torch.utils.checkpoint` is such a Function, too; its block simply runs with gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from ...array.deferred import has_formula
from ...array.stream_tensor import StreamTensor as NativeStream
from ...errors import NotStreamableError
from ...online.tracer import TRACER
from ...operations.refusals import CUSTOM
from ...source_line import user_line
from ...stream.tree import leaves, map_leaves
from ..private import (
    APPLY,
    BackwardHookFunction,
    graph_task,
    keep,
    kept_by_checkpoint,
    saved_tensors_hooks_on_top,
    without_functions,
)
from ..tensor.stream_tensor import SHELL
from .drawn import random_states

#: The most frames with which a Function is tried.
_TRIED = 64


def saving() -> AbstractContextManager[Any]:
    """Return a context in which torch keeps what a backward needs, where a checkpoint would compute it again.

    It would do so outside the forward, where there are no streams.
    """
    return saved_tensors_hooks(keep, keep) if kept_by_checkpoint() else nullcontext()


class Gradients:
    """Whether the user wants gradients during a forward, and the Function of the user that runs."""

    def __init__(self, entry: Any, device: torch.device) -> None:
        self.entry, self.device = entry, device
        #: What the user has set. Where gradients are off although it is True, a Function's forward runs.
        self.wanted = True
        #: Whether a Function is being applied again: layers in it get plain tensors then, as in its backward.
        self.applies = False
        self.running: _Applied | None = None

    @property
    def quiet(self) -> bool:
        """Whether no Function of the user runs, and nothing else has a say in what is recorded."""
        return (
            self.running is None
            and torch.is_grad_enabled() is self.wanted
            and saved_tensors_hooks_on_top(True) is None
        )

    def apply(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a Function; results that are streams have the gradients that its backward defines.

        NotStreamableError is raised where these can't be right.
        """
        apply = APPLY.__get__(None, cls)  # `cls.apply` may be the user's own, which has led here
        if self.running is not None:
            return apply(*args, **kwargs)
        running = self.running = _Applied(cls, args, kwargs, self)
        try:
            out = apply(*args, **kwargs)
        finally:
            self.running = None
        self.applies = True
        try:
            with without_functions():  # the mode would take what is applied again for the forward's
                running.finish(out)
        finally:
            self.applies = False
        return out

    @property
    def _hidden(self) -> bool:
        """Whether torch has turned gradients off for a Function that was not called by `apply`."""
        off = self.wanted and not torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        return off and self.running is None and graph_task() < 0

    def require_seen(self, given: Any) -> None:
        """Refuse a Function on streams with gradients, of which neither the class nor the end is known."""
        if self._hidden and any(_is_shell(x) and _learns(x) for x in leaves(given)):
            raise _unfollowed()

    def set(self, func: Callable[[bool], None], enabled: bool) -> None:
        """Turn gradients on or off, as the user says."""
        if enabled and self._hidden:
            raise _unfollowed()
        by_user = self.running is None and torch.is_grad_enabled() is self.wanted
        func(enabled)
        if by_user:
            self.wanted = enabled


def checkpointed(block: Callable[..., Any], preserve_rng_state: bool, /, *args: Any) -> Any:
    """Run the block of a checkpoint; as in torch, it has no gradients where none flows to its arguments."""
    with torch.set_grad_enabled(torch.is_grad_enabled() and any(map(_learns, args))):
        return TRACER.of(block)(*args)


def _unfollowed() -> NotStreamableError:
    return NotStreamableError.here(
        "the backward of a torch.autograd.Function",
        ": what calls it can't be followed (code without a source, a property, torch's or Python's own); "
        "call it from a function or method in a file, or run within torch.no_grad()",
    )


def _is_shell(x: Any) -> bool:
    return type(x) is SHELL


def _learns(x: Any) -> bool:
    """Whether a gradient flows to an argument."""
    if not _is_shell(x):
        return isinstance(x, Tensor) and x.requires_grad
    inner = x._inner
    if has_formula(inner):
        return False
    value: Any = inner.value if type(inner) is NativeStream else None
    return value is None or bool(value.requires_grad)


class _Applied:
    """One call of a Function."""

    def __init__(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], gradients: Gradients) -> None:
        self.cls, self.args, self.kwargs = cls, args, kwargs
        self.entry, self.device = gradients.entry, gradients.device
        with without_functions():
            self.learns = any(map(_learns, (*args, *kwargs.values()))) and bool(self._streams())
            self.random = random_states(self.device) if self.learns else []
        self.place = (cls, self.entry.n_done)
        self.line = user_line()
        self.writes = False

    def finish(self, out: Any) -> None:
        """Give the results their gradients, or refuse."""
        found = {x.output_nr: x for x in leaves(out) if _is_shell(x) and x.grad_fn is not None}
        if not self.learns or not found:
            return
        if self.cls is BackwardHookFunction:
            self._hook(found)
            return
        wrong = self._unfit(list(found.values()))
        if wrong is None and len(next(iter(found.values()))._inner.value):
            wrong = self._apply(found)
        elif wrong is None:
            self._nothing(found)
        if wrong is None:
            return
        words = f"{self.cls.__name__} at {self.line}: {'; '.join(wrong)}"
        if self.entry.keeps_tape:
            raise NotStreamableError(words)
        for shell in found.values():  # in evaluation values are enough
            if type(shell._inner) is NativeStream:
                shell._inner = _with(shell._inner, _Refusing.apply(shell._inner.value, words, _anywhere()))

    def _streams(self) -> list[Any]:
        return [x._inner for x in leaves((self.args, self.kwargs)) if _is_shell(x)]

    def _unfit(self, results: Sequence[Any]) -> tuple[str, str] | None:
        """Return why the Function can't be applied to the frames as one tensor, and what would work."""
        given = self._streams()
        every = [*given, *(x._inner for x in results)]
        if not all(type(i) is NativeStream and i.edge is not None and _axes(i.dims) for i in every):
            return "it is given, or gives, something else than streams' frames", CUSTOM.words[1]
        if len({i.edge.line.cid for i in given}) > 1:
            return "its arguments have different delays", "bring them together by torch.cat, and split them"
        if any(i.edge.line.cid != given[0].edge.line.cid for i in every):
            return CUSTOM.words
        if self.writes:
            return "it writes into a buffer, and runs twice in training", "write into it in the module's forward"
        drawn = not all(map(torch.equal, self.random, random_states(self.device)))
        return ("it draws random numbers, and runs twice in training", CUSTOM.words[1]) if drawn else None

    def _apply(self, found: dict[int, Any]) -> tuple[str, str] | None:
        """Let torch record the backward; return why that would be wrong, if so, and what would work."""
        values = {id(i): i.value for i in self._streams()}
        with saving(), torch.enable_grad():
            tried = self.entry.session.tried
            if self.place not in tried:
                wrong = self._try(found, values)
                if wrong is not None:
                    return wrong
                tried.add(self.place)
            results = self._run(values, False)
            for number, shell in found.items():
                shell._inner = _with(shell._inner, _frames(results[number], shell._inner.dims))
        return None

    def _hook(self, found: dict[int, Any]) -> None:
        """Let the backward hooks of a layer hang on the frames of the call, seen as one row."""
        given = [x._inner if _is_shell(x) else x for x in self.args]
        fit = [type(i) is NativeStream and bool(_axes(i.dims)) for i in given]
        if not all(fit[number] for number in found):
            raise NotStreamableError(
                f"a full backward hook of a layer at {self.line}: not all gradients that it would see are of "
                "streams' frames; outside the forward, x.register_hook sees those of inputs and outputs"
            )
        with saving(), torch.enable_grad():
            rows = [_laid(i.value, i.dims, False) if ok else torch.zeros(0) for i, ok in zip(given, fit)]
            results = BackwardHookFunction.apply(*rows)
            for number, shell in found.items():
                shell._inner = _with(shell._inner, _frames(results[number], shell._inner.dims))
                shell._node = results[number].grad_fn

    def _nothing(self, found: dict[int, Any]) -> None:
        """Let a loss over results without frames have a gradient, which goes nowhere."""
        with torch.enable_grad():
            for shell in found.values():
                shell._inner = _with(shell._inner, shell._inner.value + _anywhere().to(shell._inner.value).sum())

    def _run(self, values: dict[int, Tensor], apart: bool, given: dict[int, Tensor] | None = None) -> Any:
        """Apply the Function to frames, those of streams by identity, as one row or as a row each."""

        def plain(x: Any) -> Any:
            if _is_shell(x):
                return _laid(values[id(x._inner)], x._inner.dims, apart)
            return given.get(id(x), x) if given is not None and isinstance(x, Tensor) else x

        apply = APPLY.__get__(None, self.cls)
        out = apply(*map_leaves(self.args, plain), **map_leaves(self.kwargs, plain))
        return out if isinstance(out, tuple) else (out,)

    # ---------------------------------------------------------------- is it right
    def _try(self, found: dict[int, Any], values: dict[int, Tensor]) -> tuple[str, str] | None:
        """Compare values and gradients of some frames beside others and without them."""
        n = next(iter(values.values())).shape[0]
        at = torch.arange(max(2, min(n, _TRIED) // 2 * 2)) % n
        generator = torch.Generator().manual_seed(0)
        results = [shell._inner.value.detach()[at.to(self.device)] for shell in found.values()]
        slopes = [torch.randn(y.shape, generator=generator, dtype=torch.float64) for y in results]
        for slope in slopes:
            slope[1::2] *= 1e3  # by which a backward that looks at all frames gives itself away
        try:
            frames, weights = self._tried(found, values, at, slopes, False)
            halves = [self._tried(found, values, at[k::2], [s[k::2] for s in slopes], True) for k in (0, 1)]
        except Exception as error:
            return f"on the call's frames it fails with {type(error).__name__}: {error}", CUSTOM.words[1]
        same = all(map(_close, results, frames))
        for k, (own, _) in enumerate(halves):
            same = same and all(_close(every[k::2], part) for every, part in zip(frames, own))
        for every, a, b in zip(weights, *(own for _, own in halves)):
            same = same and _close(every, a + b, max(_greatest(a), _greatest(b)))
        return None if same else CUSTOM.words

    def _tried(
        self, found: dict[int, Any], values: dict[int, Tensor], at: Tensor, slopes: Sequence[Tensor], apart: bool
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the results' frames with the gradients of the streams', and the gradients of weights."""
        given = [x for x in leaves((self.args, self.kwargs)) if not _is_shell(x) and _learns(x)]
        weights = {id(w): w.detach().clone().requires_grad_() for w in given}
        frames = {k: v.detach()[at.to(self.device)].requires_grad_(v.requires_grad) for k, v in values.items()}
        out = self._run(frames, apart, weights)
        results = [_frames(out[number], shell._inner.dims) for number, shell in found.items()]
        learned = [x for x in (*frames.values(), *weights.values()) if x.requires_grad]
        slopes = [s.to(y) for s, y in zip(slopes, results)]
        found_grads = torch.autograd.grad(results, learned, slopes, allow_unused=True)
        grads = [torch.zeros_like(x) if g is None else g for x, g in zip(learned, found_grads)]
        n = len(learned) - len(weights)
        return [*(y.detach() for y in results), *grads[:n]], grads[n:]


class _Refusing(torch.autograd.Function):
    """Values whose gradient would be wrong: a backward says so."""

    @staticmethod
    def forward(ctx: Any, frames: Tensor, words: str, anywhere: Tensor) -> Tensor:
        ctx.words = words
        return frames.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        raise NotStreamableError(ctx.words)


def _anywhere() -> Tensor:
    """Return no elements, of which nobody asks the gradient."""
    return torch.zeros(0).requires_grad_()


# ---------------------------------------------------------------------- frames as plain tensors
def _axes(dims: Sequence[Any]) -> list[str]:
    """Return the dimensions of streams if their frames can be seen as a plain tensor's, in stored order."""
    roles = sorted(d for d in dims if isinstance(d, str))
    return roles if roles in (["B"], ["B_L"], ["B", "L"]) else []


def _order(dims: Sequence[Any]) -> list[int]:
    """Return, for each visible dimension, its place behind the dimensions of streams."""
    roles = _axes(dims)
    features = sorted(d for d in dims if not isinstance(d, str))
    return [roles.index(d) if isinstance(d, str) else len(roles) + features.index(d) for d in dims]


def _laid(value: Tensor, dims: Sequence[Any], apart: bool) -> Tensor:
    """Return frames with their visible dimensions: as one row's, or each as a row by itself."""
    if len(_axes(dims)) == 2:
        value = value.unsqueeze(1 if apart else 0)
    return value.permute(_order(dims))


def _frames(x: Tensor, dims: Sequence[Any]) -> Tensor:
    """Return the frames of what `_laid` returned."""
    order = _order(dims)
    x = x.permute([order.index(i) for i in range(len(order))])
    return x.flatten(0, 1) if len(_axes(dims)) == 2 else x


def _with(inner: NativeStream, frames: Any) -> NativeStream:
    return NativeStream.inside(frames, inner.dims, inner.edge, inner.names)  # type: ignore[arg-type]


def _close(a: Tensor, b: Tensor, scale: float = 0.0) -> bool:
    """Whether tensors are equal but for rounding, in relation to their greatest number or to `scale`."""
    if a.shape != b.shape:
        return False
    if not a.is_floating_point():
        return torch.equal(a, b)
    bound = 1e3 * torch.finfo(a.dtype).eps * max(scale, _greatest(a), _greatest(b))
    return torch.allclose(a, b, rtol=0, atol=bound, equal_nan=True)


def _greatest(x: Tensor) -> float:
    x = x[x.isfinite()]
    return float(x.abs().max()) if x.numel() else 0.0
