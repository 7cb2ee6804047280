"""Streams with an input that is given once, at their start: how they come and go, what is learnt of them."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

import dreamstream as ds

#: Of each row its id, its chunk, what is given once, whether it starts, whether it ends; frames by id.
Step = Callable[[list[tuple[str, Any, Any, bool, bool]]], dict[str, Any]]


def driven(step: Step, rng: np.random.Generator, given: dict[str, tuple[Any, Any]], axis: int) -> dict[str, Any]:
    """Streams that start and end at random, in random chunks: their frames laid end to end."""
    at: dict[str, int] = {}
    got: dict[str, list[Any]] = {i: [] for i in given}
    left = list(given)
    while left:
        rows = []
        for i in [i for i in left if rng.random() < 0.5]:
            x, once = given[i]
            starts, begin = i not in at, at.get(i, 0)
            end = at[i] = min(x.shape[axis], begin + int(rng.integers(0, 6)))
            ends = end == x.shape[axis] and bool(rng.random() < 0.5)
            rows.append((i, x.take(range(begin, end), axis), once, starts, ends))
        for i, frames in (step(rows) if rows else {}).items():
            got[i].append(np.asarray(frames))
        left = [i for i in left if i not in {r[0] for r in rows if r[4]}]
    return {i: np.concatenate(parts) for i, parts in got.items()}


def stepped(engine: ds.Engine) -> Step:
    """Return what steps an engine, by arrays."""
    once = engine.inputs[1].name

    def step(rows: Any) -> dict[str, Any]:
        chunks = {i: {"x": x, once: e} if sos else x for i, x, e, sos, _ in rows}
        out: dict[str, Any] = engine.step(
            chunks, sos=[r[0] for r in rows if r[3]], eos=[r[0] for r in rows if r[4]]
        )
        return out

    return step


def called(model: Any, names: Any = None, moves: bool = False) -> Step:
    """Return what calls a copy of a torch model, patched, whose states may go and come between calls."""
    import torch

    model = ds.patch_module(copy.deepcopy(model)).online()

    def step(rows: Any) -> dict[str, Any]:
        ids, chunks, _, sos, eos = (list(part) for part in zip(*rows))
        parts = [torch.from_numpy(c.copy()) for c in chunks]
        x = ds.stream_tensor(parts, ids=ids, sos=sos, eos=eos, names=names)
        once = {i: torch.from_numpy(e) for i, _, e, starts, _ in rows if starts}
        with torch.no_grad():
            y = model(x, ds.static(once) if once else None)
        if moves and len(ids) > 1:
            states = model.get_state(model.live_ids)
            model.reset()
            model.set_state(states)
        return {i: y[i].numpy() for i in ids}

    return step


def require_gradients(
    model: Any, given: dict[str, tuple[Any, Any]], axis: int, names: Any, loss_of: Any, variant: str
) -> None:
    """Hold a torch model's gradients, and those of what was given once, to those of whole streams."""
    import torch

    online = ds.patch_module(copy.deepcopy(model), train_variant=variant).online()
    streams = {i: (torch.from_numpy(x), torch.from_numpy(e)) for i, (x, e) in given.items()}
    once = {i: e.clone().requires_grad_() for i, (_, e) in streams.items()}
    loss: Any = 0
    for k in range(3):
        parts = [x.tensor_split((4, 8), axis)[k] for x, _ in streams.values()]
        x = ds.stream_tensor(parts, ids=list(streams), sos=k == 0, eos=k == 2, names=names)
        y = online(x, ds.static(once) if k == 0 else None)
        loss = loss + sum(loss_of(y[i]) for i in y.ids)
    loss.backward()
    for i, (x, e) in streams.items():
        e.requires_grad_()
        loss_of(model(x[None], e[None])).backward()
        torch.testing.assert_close(once[i].grad, e.grad, rtol=1e-4, atol=1e-5)
    for a, b in zip(online.parameters(), model.parameters()):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)
