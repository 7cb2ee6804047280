"""A loop over streams of any length, in chunks, for every train_variant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from ..array import as_tensor
from ..array.stream_creation import stream_tensor
from ..errors import ModeError, ShapeError, StreamIdError
from ..nn.module import Module
from ..online.handle import patch_of
from .align import align


class ChunkTrainer:
    """Trains a patched module on streams of any length, some at a time and chunk by chunk.

    Its `train_variant` says when weights change. "chunk-wise-aligned": with every call that gives frames; a lane
    whose stream has ended takes the next one. Both of "full-file-…": when `lanes` streams, which start together,
    have all ended, by the mean over all of their frames; the tape holds these streams.

    Parameters
    ----------
    model : torch.nn.Module or dreamstream.nn.Module
        As `dreamstream.patch_module` returns it, in ``train()``; layers of it may be in ``eval()``, as batch norm
        has to be chunk by chunk. `epoch` puts it online.
    optimizer : torch.optim.Optimizer or dreamstream.optim.Optimizer
        Of its parameters.
    loss : callable
        ``loss(y, target)``, the mean over the frames of what the model gave; both are stream tensors of the same
        frames. With ``aligned=False`` the target is a list, one entry for each row of `y`.
    chunk : int
        Frames of the input in a call.
    lanes : int
        Streams at a time.
    axis : int
        Which dimension of an input, without B, is L.
    aligned : bool
        Whether targets have an entry per frame of the output. False: they are for whole streams, as those of CTC
        under "full-file-unaligned".

    Raises
    ------
    ModeError
        For a module that isn't patched.
    ValueError
        For numbers below 1.

    Examples
    --------
    >>> import torch, dreamstream as ds
    >>> _ = torch.manual_seed(0)
    >>> model = ds.patch_module(torch.nn.Conv1d(1, 1, 3, padding=1))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> def loss(y, target):
    ...     return torch.nn.functional.mse_loss(y.transpose(1, 2), target)
    >>> trainer = ds.train.ChunkTrainer(model, optimizer, loss, chunk=10)
    >>> inputs = {"anna": torch.randn(1, 35), "otto": torch.randn(1, 12)}
    >>> targets = {i: x.T for i, x in inputs.items()}
    >>> first, *_, last = [trainer.epoch(inputs, targets) for _ in range(20)]
    >>> last < 0.1 * first
    True
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        loss: Callable[[Any, Any], Any],
        chunk: int,
        lanes: int = 8,
        axis: int = -1,
        aligned: bool = True,
    ) -> None:
        if patch_of(model) is None:
            raise ModeError(f"ChunkTrainer: {type(model).__name__} is not patched; give ds.patch_module(model)")
        for name, number in (("chunk", chunk), ("lanes", lanes)):
            if number < 1:
                raise ValueError(f"ChunkTrainer: {name} must be at least 1, got {number}")
        self.model, self.optimizer, self.loss = model, optimizer, loss
        self.chunk, self.lanes, self.axis, self.aligned = chunk, lanes, axis, aligned

    def epoch(self, inputs: Mapping[str, Any], targets: Mapping[str, Any]) -> float:
        """Train once on each stream, in the order of `inputs`.

        Parameters
        ----------
        inputs : dict of str to tensor
            By id a whole stream, without B. What is read when it is asked for (a mapping that reads files) is held
            while its stream lasts.
        targets : dict of str to tensor
            By id what `align` takes, ``(L, ...)``; with ``aligned=False`` what the loss takes.

        Returns
        -------
        float
            The loss, as the mean over all frames of the outputs.

        Raises
        ------
        ModeError
            For a model in ``eval()``.
        StreamIdError
            For streams without a target, before the first call.
        ShapeError
            For an input without the axis.
        What else is raised leaves no stream of these live.
        """
        missing = [i for i in inputs if i not in targets]
        if missing:
            raise StreamIdError("ChunkTrainer: these streams have no target", missing)
        if not getattr(self.model, "told_to_train", self.model.training):
            raise ModeError("ChunkTrainer: the model is in eval(), or new; call train() first")
        patch: Any = patch_of(self.model)
        together = patch.train_variant != "chunk-wise-aligned"
        patch.online()
        total, frames = 0.0, 0
        waiting: list[tuple[Any, int]] = []
        try:
            for x, ended in self._calls(inputs, together):
                y = self.model(x)
                n = int(y.lengths.sum())
                if n:
                    waiting.append((self.loss(y, self._target(y, targets)), n))
                if waiting and (ended or not together):
                    total += self._step(waiting)
                    frames += sum(n for _, n in waiting)
                    waiting = []
        finally:  # all have ended, but where something was raised
            live = [i for i in patch.live_ids if i in inputs]
            if live:
                patch.reset(live)
        return total / frames if frames else float("nan")

    def _target(self, y: Any, targets: Mapping[str, Any]) -> Any:
        return align(y, targets) if self.aligned else [targets[i] for i in y.ids]

    def _step(self, losses: list[tuple[Any, int]]) -> float:
        """Take a step by the mean over all frames; return their sum."""
        n = sum(frames for _, frames in losses)
        loss = sum(part * (frames / n) for part, frames in losses)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach()) * n

    def _calls(self, inputs: Mapping[str, Any], together: bool) -> Iterator[tuple[Any, bool]]:
        """Yield the chunks of a call, and whether no stream is left behind it."""
        make: Any = stream_tensor
        if not isinstance(self.model, Module):
            from ..torch.tensor.creation import stream_tensor as of_torch

            make = partial(of_torch, device=next((p.device for p in self.model.parameters()), None))
        waiting = list(inputs)
        whole: dict[str, Any] = {}
        at: dict[str, int] = {}
        while at or waiting:
            n_free = 0 if together and at else self.lanes - len(at)
            started, waiting = waiting[:n_free], waiting[n_free:]
            for i in started:
                whole[i], at[i] = as_tensor(inputs[i]) if isinstance(self.model, Module) else inputs[i], 0
            length = {i: self._length(i, whole[i]) for i in at}
            chunks = [whole[i].narrow(self.axis, n, min(self.chunk, length[i] - n)) for i, n in at.items()]
            ids, at = list(at), {i: n + self.chunk for i, n in at.items()}
            ended = [i for i, n in at.items() if n >= length[i]]
            names: list[str | None] = ["B", *[None] * whole[ids[0]].ndim]
            names[1 + self.axis % whole[ids[0]].ndim] = "L"
            for i in ended:
                del whole[i], at[i]
            yield (
                make(chunks, names=names, ids=ids, sos=[i in started for i in ids], eos=[i in ended for i in ids]),
                not at,
            )

    def _length(self, stream_id: str, whole: Any) -> int:
        if not -whole.ndim <= self.axis < whole.ndim:
            raise ShapeError(
                f"ChunkTrainer: axis is {self.axis}, but the input has {whole.ndim} dimensions", [stream_id]
            )
        return int(whole.shape[self.axis])
