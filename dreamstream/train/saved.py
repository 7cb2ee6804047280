"""What of a trainer stands in a checkpoint, and how a trainer goes on from one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from ..errors import FormatError, StreamMismatchError
from ..online.handle import patch_of
from .front import drawn, is_native, keys_of, set_drawn, set_keys

VERSION = 1


# ---------------------------------------------------------------------- to a checkpoint
def marked(trainer: Any, run: Any) -> dict[str, Any]:
    """Return what changes in an epoch between two steps, as it is now."""
    source = trainer.source if run is None else run.source
    place = source.state_dict() if hasattr(source, "state_dict") else None
    buffers = {name: b.detach().clone() for name, b in trainer.model.named_buffers()}
    now = None if run is None else _of(run)
    return {"draws": drawn(), "keys": keys_of(trainer.model), "place": place, "buffers": buffers, "run": now}


def _of(run: Any) -> dict[str, Any]:
    sums = run.sums
    return {
        "first_draws": run.first_draws,
        "n_batches": run.n_batches,
        "sums": [sums.loss, sums.frames, dict(sums.metrics)],
        "adding": [run.backwards, run.frames, run.first_frames, run.part_loss],
        "targets": run.targets.state_dict(),
        "ended": run.ended,
    }


def of_trainer(trainer: Any, run: Any) -> dict[str, Any]:
    """Return all that a checkpoint holds."""
    patch: Any = patch_of(trainer.model)
    live = [] if run is None else [i for i in patch.known_ids() if i not in run.others]
    now = marked(trainer, run)
    if trainer.whole_files and live:  # their tape can't be kept: they begin again, with the weights of now
        now, live = run.mark, []
    weights = trainer.model.state_dict()
    tree = {
        "version": VERSION,
        **_identity(trainer),
        "weights": {**weights, **{name: b for name, b in now["buffers"].items() if name in weights}},
        "optimizer": trainer.optimizer.state_dict(),
        "scaler": None if trainer.scaler is None else trainer.scaler.state_dict(),
        "callbacks": [c.state_dict() for c in trainer.callbacks],
        "steps": trainer.steps,
        "epochs": trainer.epochs,
        "last": trainer.last,
        "history": trainer.history,
        "streams": patch.get_state(live) if live else {},
        "grads": {},
        **{name: now[name] for name in ("draws", "keys", "place", "run")},
    }
    if run is not None and run.backwards:
        tree["grads"] = {n: p.grad for n, p in trainer.model.named_parameters() if p.grad is not None}
    return tree


def _identity(trainer: Any) -> dict[str, Any]:
    """Return what a trainer must have in common with the one that wrote a checkpoint."""
    patch: Any = patch_of(trainer.model)
    return {
        "front_end": "dreamstream" if is_native(trainer.model) else "torch",
        "train_variant": patch.train_variant,
        "optimizer_class": type(trainer.optimizer).__name__,
        "callback_classes": [type(c).__name__ for c in trainer.callbacks],
        "accumulate": trainer.accumulate,
        "scaled": trainer.scaler is not None,
    }


# ---------------------------------------------------------------------- and from it
def to_trainer(trainer: Any, tree: Any, path: str) -> Mapping[str, Any]:
    """Let a trainer be as it was; return what its next epoch begins with.

    What is of another trainer raises FormatError; nothing has changed then.
    """
    if not isinstance(tree, Mapping) or tree.get("version") != VERSION:
        version = tree.get("version") if isinstance(tree, Mapping) else None
        raise FormatError(f"{path} is a checkpoint of version {version}, expected {VERSION}")
    for name, value in _identity(trainer).items():
        if tree.get(name) != value:
            raise FormatError(f"{path} is of a trainer with {name}={tree.get(name)!r}, not {value!r}")
    _require_same_weights(path, tree["weights"], trainer.model.state_dict())
    own = [len(g["params"]) for g in trainer.optimizer.param_groups]
    theirs = [len(g["params"]) for g in tree["optimizer"]["param_groups"]]
    if own != theirs:
        raise FormatError(f"{path} has groups of {theirs} parameters, the optimizer of {own}")
    patch: Any = patch_of(trainer.model)
    patch.online()
    if patch.known_ids():
        patch.reset()
    patch.set_state(tree["streams"])
    set_keys(trainer.model, tree["keys"])
    trainer.model.load_state_dict(tree["weights"])
    trainer.optimizer.load_state_dict(tree["optimizer"])
    for c, state in zip(trainer.callbacks, tree["callbacks"]):
        c.load_state_dict(state)
    if trainer.scaler is not None:
        trainer.scaler.load_state_dict(tree["scaler"])
    for name, p in trainer.model.named_parameters():
        found = tree["grads"].get(name)
        p.grad = None if found is None else found.to(p.device)
    for name in ("steps", "epochs", "last", "history"):
        setattr(trainer, name, tree[name])
    return {name: tree[name] for name in ("draws", "place", "run")}


def _require_same_weights(path: str, theirs: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    names = sorted(own.keys() ^ theirs.keys())
    if names:
        raise FormatError(f"{path} is of another model: {', '.join(names[:8])} stand in one of both only")
    kinds = [
        (n, (tuple(theirs[n].shape), str(theirs[n].dtype)), (tuple(own[n].shape), str(own[n].dtype)))
        for n in own
        if hasattr(own[n], "shape") and hasattr(theirs[n], "shape")
    ]
    other = [f"{n} is {a[1]} {a[0]}, here {b[1]} {b[0]}" for n, a, b in kinds if a != b]
    if other:
        raise FormatError(f"{path} is of another model: {'; '.join(other[:8])}")


def to_run(run: Any, state: Mapping[str, Any]) -> None:
    """Let an epoch be as it was."""
    run.first_draws, run.n_batches = state["first_draws"], state["n_batches"]
    run.sums.loss, run.sums.frames, run.sums.metrics = state["sums"]
    run.backwards, run.frames, run.first_frames, run.part_loss = state["adding"]
    run.targets.load_state_dict(state["targets"])
    run.ended = state.get("ended", False)


def batches_behind(source: Any, n: int, draws: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the batches of a source that has no `state_dict`, but for its first n, and draw as after these."""
    batches = iter(source)
    passed = sum(1 for _ in islice(batches, n))
    if passed < n:
        raise StreamMismatchError(f"ChunkTrainer: the source gave {n} batches, and now it has only {passed}")
    set_drawn(draws)
    yield from batches
