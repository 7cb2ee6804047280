"""A loop over streams of any length, in chunks, for every train_variant and both front ends."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from ..data.progress import Progress
from ..errors import ModeError, StreamIdError, StreamMismatchError
from ..online.handle import patch_of
from ..stream.tree import leaves, map_leaves
from . import checkpoint, saved
from .batches import Targets, frames_of, loader_of, parts_of
from .callbacks import Call, Callback
from .faults import explained
from .front import drawn, is_native, is_stream, modes_of, no_grad_of, set_drawn, set_modes, taken
from .whole import Whole


class Result(float):
    """A loss, the mean over all frames of the outputs; `metrics` holds those of the trainer by name."""

    metrics: dict[str, float]

    def __new__(cls, loss: float, metrics: Mapping[str, float]) -> Result:
        out = super().__new__(cls, loss)
        out.metrics = dict(metrics)
        return out

    def __reduce__(self) -> Any:
        return type(self), (float(self), self.metrics)


class Sums:
    """A loss and metrics, summed over frames."""

    def __init__(self) -> None:
        self.loss, self.frames, self.metrics = 0.0, 0, dict[str, float]()

    def add(self, n: int, loss: float, metrics: Mapping[str, float]) -> None:
        """Add the means over n frames."""
        self.loss, self.frames = self.loss + loss * n, self.frames + n
        for name, value in metrics.items():
            self.metrics[name] = self.metrics.get(name, 0.0) + value * n

    def result(self) -> Result:
        """Return the means."""
        n = self.frames or math.nan
        return Result(self.loss / n, {name: total / n for name, total in self.metrics.items()})


class Run:
    """An epoch that is under way."""

    def __init__(self, source: Any, targets: Targets, others: frozenset[str]) -> None:
        self.source, self.targets, self.others = source, targets, others
        #: States of the random generators at its beginning, from which the source may have drawn its order.
        self.first_draws = drawn()
        self.n_batches = 0  #: How many batches it has taken of the source.
        self.sums = Sums()
        #: Losses that no backward has gone through, and the number of frames of each.
        self.waiting: list[tuple[Any, int]] = []
        #: How many backwards the next step adds up, of how many frames they are, and of how many the first is.
        self.backwards = self.frames = self.first_frames = 0
        self.part_loss = 0.0
        #: Whether the source has given all of its batches; its place is the beginning of the next epoch then.
        self.ended = False
        #: State from before the whole files that are on the tape began: what a checkpoint holds meanwhile.
        self.mark: dict[str, Any] | None = None


class ChunkTrainer:
    """Trains a patched module on streams of any length, some at a time and chunk by chunk.

    Its `train_variant` says when weights change. "chunk-wise-aligned": with every call that gives frames; a lane
    whose stream has ended takes the next one. Both of "full-file-…": when all live streams have ended (`lanes`
    streams, which start together), by the mean over all of their frames; the tape holds these streams.

    Parameters
    ----------
    model : torch.nn.Module or dreamstream.nn.Module
        As `dreamstream.patch_module` returns it, in ``train()``; layers of it may be in ``eval()``, as batch norm
        has to be chunk by chunk. `epoch` puts it online.
    optimizer : torch.optim.Optimizer or dreamstream.optim.Optimizer
        Of its parameters.
    loss : callable
        ``loss(y, target)``, the mean over the frames of what the model gave, whatever it returns: a stream tensor,
        a tuple or a dict of them. The target has the frames of the (first) output, or is a dict or tuple like the
        outputs, where that of a stream is one. With ``aligned=False`` it is a list, one entry for each row of `y`.
        Without targets it is ``loss(y)``.
    chunk : int, optional
        Frames of the input in a call, where whole streams are given by id; None: whole streams.
    lanes : int
        Streams at a time, likewise.
    axis : int
        Which dimension of an input, without B, is L, likewise.
    aligned : bool
        Whether targets have an entry per frame of the output. False: they are for whole streams, as those of CTC
        under "full-file-unaligned".
    callbacks : sequence of Callback or callable
        What runs around each step, in order; a function is called with the trainer behind each.
    metrics : dict of str to callable, optional
        By name ``metric(y, target)``, a number that is a mean over the frames of `y`.
    accumulate : int
        How many backwards a step adds up: their mean over frames.
    scaler : torch.amp.GradScaler, optional
    autocast : callable, optional
        Returns a context in which the forward and the loss run: ``lambda: torch.autocast("cuda")``.
    unpack : callable, optional
        ``unpack(batch)`` returns inputs (a tensor, a tuple of arguments, or a dict by name) and targets, where a
        batch is none of the forms that `epoch` takes.
    quiet : bool
        Whether no progress is shown on a terminal.

    Attributes
    ----------
    steps, epochs : int
        How many were finished.
    last : float
        The loss of the last step.
    result, validation : Result or None
        Of the last epoch.
    history : list of dict
        Of each epoch that `fit` ran.

    Raises
    ------
    ModeError
        For a module that isn't patched.
    ValueError
        For numbers below 1, and an optimizer of other parameters.

    Examples
    --------
    >>> import numpy as np, dreamstream as ds
    >>> _ = ds.manual_seed(0)
    >>> model = ds.patch_module(ds.nn.Conv1d(1, 1, 3, padding=1)).train()
    >>> optimizer = ds.optim.SGD(model.parameters(), lr=0.1)
    >>> def loss(y, target):
    ...     return ds.nn.functional.mse_loss(y.transpose(1, 2), target)
    >>> trainer = ds.train.ChunkTrainer(model, optimizer, loss, chunk=10)
    >>> rng = np.random.default_rng(0)
    >>> inputs = {i: np.float32(rng.standard_normal((1, n))) for i, n in (("anna", 35), ("otto", 12))}
    >>> targets = {i: x.T for i, x in inputs.items()}
    >>> first, *_, last = [trainer.epoch(inputs, targets) for _ in range(20)]
    >>> last < 0.1 * first
    True
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        loss: Callable[..., Any],
        chunk: int | None = None,
        lanes: int = 8,
        axis: int = -1,
        aligned: bool = True,
        *,
        callbacks: Sequence[Any] = (),
        metrics: Mapping[str, Callable[..., Any]] | None = None,
        accumulate: int = 1,
        scaler: Any = None,
        autocast: Callable[[], Any] | None = None,
        unpack: Callable[[Any], Any] | None = None,
        quiet: bool = False,
    ) -> None:
        if patch_of(model) is None:
            raise ModeError(f"ChunkTrainer: {type(model).__name__} is not patched; give ds.patch_module(model)")
        for name, number in (("chunk", chunk), ("lanes", lanes), ("accumulate", accumulate)):
            if number is not None and number < 1:
                raise ValueError(f"ChunkTrainer: {name} must be at least 1, got {number}")
        own, groups = {id(p) for p in model.parameters()}, getattr(optimizer, "param_groups", ())
        if groups and not any(id(p) in own for group in groups for p in group["params"]):
            raise ValueError(
                "ChunkTrainer: the optimizer has no parameter of the model, and would never change it"
            )
        self.model, self.optimizer, self.loss = model, optimizer, loss
        self.chunk, self.lanes, self.axis, self.aligned = chunk, lanes, axis, aligned
        self.callbacks = [c if isinstance(c, Callback) else Call(c) for c in callbacks]
        self.metrics, self.accumulate = dict(metrics or {}), accumulate
        self.scaler, self.autocast, self.unpack, self.quiet = scaler, autocast or nullcontext, unpack, quiet
        self.steps = self.epochs = 0
        self.last = math.nan
        self.result: Result | None = None
        self.validation: Result | None = None
        self.history: list[dict[str, Any]] = []
        self._run: Run | None = None
        self.source: Any = None  # what the last epoch went through, where it knows its place
        self._resumed: Mapping[str, Any] | None = None
        self._unsound = ""  # why no checkpoint can be written now
        self._autosave: tuple[Any, int | None] = (None, None)

    @property
    def _patch(self) -> Any:
        return patch_of(self.model)

    @property
    def whole_files(self) -> bool:
        """Whether a step is by whole files."""
        return bool(self._patch.train_variant != "chunk-wise-aligned")

    # ---------------------------------------------------------------- epochs
    def fit(
        self,
        source: Any,
        targets: Mapping[str, Any] | None = None,
        epochs: int = 1,
        *,
        validation: Any = None,
        validation_targets: Mapping[str, Any] | None = None,
        path: str | os.PathLike[str] | None = None,
        every: int | None = None,
    ) -> list[dict[str, Any]]:
        """Train until so many epochs are finished.

        Parameters
        ----------
        source, targets
            As of `epoch`.
        epochs : int
            How many in all, those before among them.
        validation, validation_targets
            What is evaluated behind each epoch.
        path : path, optional
            A checkpoint: it is resumed if it is there, and written behind each epoch. A program that is started
            again after it was ended in whatever way goes on where it was.
        every : int, optional
            How many steps lie between two checkpoints within an epoch.

        Returns
        -------
        list of dict
            Of each epoch "epoch", "steps", "loss" and metrics by name; "validation", and the metrics of
            that ("validation accuracy").
        """
        if every is not None and (path is None or every < 1):
            raise ValueError(f"ChunkTrainer: every={every} is a number of steps, 1 or more, and goes with path=")
        if path is not None and os.path.exists(path):
            self.resume(path)
        elif path is not None and not os.path.isdir(os.path.dirname(os.path.abspath(path))):
            raise FileNotFoundError(f"ChunkTrainer: there is no folder for the checkpoint {os.fspath(path)}")
        self._autosave = path, every
        try:
            while self.epochs < epochs:
                self._epoch(source, targets, validation, validation_targets)
                found = self.validation
                named = {} if found is None else {f"validation {n}": value for n, value in found.metrics.items()}
                of_validation = named if found is None else {"validation": float(found), **named}
                assert self.result is not None
                about = {"epoch": self.epochs, "steps": self.steps, "loss": float(self.result)}
                self.history.append({**about, **self.result.metrics, **of_validation})
                if path is not None:
                    self.save(path)
        finally:
            self._autosave = None, None
        return self.history

    def epoch(self, source: Any, targets: Mapping[str, Any] | None = None) -> Result:
        """Train once on each stream of a source.

        Parameters
        ----------
        source : dict of str to array, or iterable of batches
            By id a whole stream, without B, in the order of the dict: arrays or tensors of either front end. What
            is read when it is asked for (a mapping that reads files) is held while its stream lasts.

            Or batches: a `dreamstream.data.StreamLoader`, torch's DataLoader, any iterable. A batch is a
            stream tensor of either front end, or a pair of it and targets (``default_collate`` makes a list of
            them), or a dict of the forward's arguments and "target". Under "full-file-…" streams should begin
            together.
        targets : dict of str to array, optional
            By id what `align` takes, ``(L, ...)``; with ``aligned=False`` what the loss takes. Without it targets
            are those of the batches: a dict by id, an entry for each row, or a stream tensor of the chunks'
            frames.

        Returns
        -------
        Result
            A float, the loss as the mean over all frames of the outputs, with `metrics`.

        Raises
        ------
        ModeError
            For a model in ``eval()``, and for streams that have not ended under "full-file-…".
        StreamIdError
            For streams without a target, before the first call where the source is a dict.
        ShapeError
            For an input without the axis.
        LossError
            For a loss that is no finite number, before weights change.
        StreamMismatchError
            For a target that is longer or shorter than its stream's output.
        What else is raised leaves no stream of these live.
        """
        return self._epoch(source, targets)

    def _epoch(self, source: Any, targets: Any, validation: Any = None, of_validation: Any = None) -> Result:
        if not getattr(self.model, "told_to_train", self.model.training):
            raise ModeError("ChunkTrainer: the model is in eval(), or new; call train() first")
        loader, known = self._loader(source, targets)
        self.source = None if isinstance(source, Mapping) else source
        self._patch.online()
        run, batches = self._begin(loader, known)
        try:
            with self._progress(batches, run.others) as progress:
                for batch in batches:
                    run.n_batches += 1
                    progress.advance(self._call(batch, run))
                self._unsound, run.ended = "in the midst of a step", True
                self._close(run)
                self._unsound = ""
        except BaseException:
            self._unsound = "after an epoch that was broken off: resume() from the last checkpoint"
            raise
        finally:
            self._run = None
        self.epochs += 1
        self.result = run.sums.result()
        self.validation = None if validation is None else self.evaluate(validation, of_validation)
        for c in self.callbacks:
            c.after_epoch(self)
        return self.result

    def _loader(self, source: Any, targets: Any) -> tuple[Any, Targets]:
        if targets is not None and isinstance(source, Mapping):
            missing = [i for i in source if i not in targets]
            if missing:
                raise StreamIdError("ChunkTrainer: these streams have no target", missing)
        if isinstance(source, Mapping):
            how = self.chunk, self.lanes, self.axis, self.whole_files
            source = loader_of(source, *how, native=is_native(self.model))
        return source, Targets(targets)

    def _begin(self, loader: Any, targets: Targets) -> tuple[Run, Any]:
        """Begin an epoch, or go on with that of a checkpoint; return its batches, too."""
        resumed = self._resumed
        within = None if resumed is None else resumed["run"]
        run = Run(loader, targets, frozenset(() if within else self._patch.known_ids()))
        place = None if resumed is None else resumed["place"]
        if place is not None:
            if not hasattr(loader, "load_state_dict"):
                kind = type(loader).__name__
                raise StreamMismatchError(
                    f"ChunkTrainer: the checkpoint has a loader's place, and {kind} takes none"
                )
            loader.load_state_dict(place)
        if resumed is None or within is None:
            if resumed is not None:
                set_drawn(resumed["draws"])
                run.first_draws = drawn()
            batches = iter(loader)
        else:
            saved.to_run(run, within)
            set_drawn(within["first_draws"] if place is None else resumed["draws"])
            skip = within["n_batches"], resumed["draws"]
            rest = () if run.ended else loader
            batches = iter(rest) if place is not None else saved.batches_behind(loader, *skip)
        if self.whole_files:
            run.mark = {**saved.marked(self, run), **(resumed or {})}
        self._run, self._resumed, self._unsound = run, None, ""
        return run, batches

    @contextmanager
    def _progress(self, batches: Any, others: frozenset[str]) -> Iterator[Progress]:
        """Show a bar of progress; afterwards close `batches`, and reset streams that have not ended."""
        try:
            with Progress(0, self.quiet, "frames") as progress:
                yield progress
        finally:
            if hasattr(batches, "close"):
                batches.close()
            if live := self._live(others):
                self._patch.reset(live)

    def _live(self, others: frozenset[str]) -> list[str]:
        """Return the streams of an epoch that have not ended: all but others of the model."""
        return [i for i in self._patch.known_ids() if i not in others]

    # ---------------------------------------------------------------- a call
    def _call(self, batch: Any, run: Run) -> int:
        """Run the model and the loss on a batch, and step when that is due; return its number of input frames."""
        args, kwargs, first = self._inputs(batch, run.targets)
        self._unsound = "in the midst of a step"
        with self.autocast():
            y = self.model(*args, **kwargs)
            n = frames_of(y)
            if n:
                loss, number, metrics = self._loss_and_metrics(y, run.targets)
                if not hasattr(loss, "backward"):
                    raise TypeError(f"ChunkTrainer: the loss is to be a tensor, got {type(loss).__name__}")
                run.waiting.append((loss, n))
                run.sums.add(n, number, metrics)
        live = self._live(run.others)
        if run.waiting and not (self.whole_files and live):
            self._backward(run)
        if run.backwards == self.accumulate:
            self._step(run)
        run.targets.forget(live)
        self._unsound = ""
        if self.whole_files and not live:
            run.mark = saved.marked(self, run)
        return int(first.lengths.sum())

    def _inputs(self, batch: Any, targets: Targets) -> tuple[Any, Any, Any]:
        """Return the model's arguments and the first stream tensor among them; targets go to `targets`."""
        args, kwargs, given = parts_of(batch, self.unpack)
        args, kwargs = map_leaves((args, kwargs), partial(taken, self.model))
        first = next(x for x in leaves((args, kwargs)) if is_stream(x))
        targets.add(first.ids, given)
        return args, kwargs, first

    def _loss_and_metrics(self, y: Any, targets: Targets) -> tuple[Any, float, dict[str, float]]:
        """Return the loss, its value as a float, which is finite or raises, and metrics by name."""
        target = targets.of(y, self.aligned)
        arguments = (y,) if targets.none else (y, target)
        loss = self.loss(*arguments)
        number = float(loss.detach()) if hasattr(loss, "detach") else float(loss)
        if not math.isfinite(number):
            raise explained(self, number, y, target)
        metrics = {}
        if self.metrics:
            with no_grad_of(self.model)():
                metrics = {name: float(metric(*arguments)) for name, metric in self.metrics.items()}
        return loss, number, metrics

    def _backward(self, run: Run) -> None:
        """Run backward on the mean over frames of the losses that wait."""
        n = sum(frames for _, frames in run.waiting)
        loss = sum(part * (frames / n) for part, frames in run.waiting)
        run.waiting = []
        if not run.backwards:
            self.optimizer.zero_grad()
            run.first_frames, run.frames, run.part_loss = n, 0, 0.0
        run.part_loss += float(loss.detach()) * n
        weighted = loss if n == run.first_frames else loss * (n / run.first_frames)
        (weighted if self.scaler is None else self.scaler.scale(weighted)).backward()
        run.backwards, run.frames = run.backwards + 1, run.frames + n

    def _step(self, run: Run) -> None:
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if run.backwards > 1:  # gradients are sums, in units of the first backward's frames
            for p in self.model.parameters():
                if p.grad is not None:
                    p.grad = p.grad * (run.first_frames / run.frames)
        for c in self.callbacks:
            c.before_step(self)
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.steps += 1
        self.last = run.part_loss / run.frames
        run.backwards = 0
        self._unsound = ""
        for c in self.callbacks:
            c.after_step(self)
        path, every = self._autosave
        if path is not None and every is not None and self.steps % every == 0:
            self.save(path)

    def _close(self, run: Run) -> None:
        """Take the last step of an epoch."""
        live = [i for i in self._patch.live_ids if i not in run.others]
        if live and self.whole_files:
            raise ModeError("ChunkTrainer: the source has ended, but these streams have not (eos)", live)
        if run.backwards:
            self._step(run)

    # ---------------------------------------------------------------- without training
    def evaluate(self, source: Any, targets: Mapping[str, Any] | None = None) -> Result:
        """Return the loss and metrics of streams, with the model in ``eval()`` and nothing recorded.

        Modules are in the modes that they had, afterwards. Streams in training go on; those of `source` must have
        other ids.

        Parameters
        ----------
        source, targets
            As of `epoch`. With ``aligned=False`` the loss gets whole streams, some of them at a time.
        """
        loader, known = self._loader(source, targets)
        self._patch.online()
        others = frozenset(self._patch.known_ids())
        modes, sums, whole = modes_of(self.model), Sums(), Whole()
        batches = iter(loader)
        self.model.eval()
        try:
            with self._progress(batches, others) as progress, no_grad_of(self.model)():
                for batch in batches:
                    args, kwargs, first = self._inputs(batch, known)
                    with self.autocast():
                        y = self.model(*args, **kwargs)
                        y = y if self.aligned else whole.of(y)
                        n = 0 if y is None else frames_of(y)
                        if n:
                            _, number, metrics = self._loss_and_metrics(y, known)
                            sums.add(n, number, metrics)
                    known.forget(self._live(others))
                    progress.advance(int(first.lengths.sum()))
        finally:
            set_modes(modes)
        return sums.result()

    # ---------------------------------------------------------------- checkpoints
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that training goes on from to one file, in mid-file too.

        Weights, optimizer, callbacks, scaler, the states of live streams, the source's place, sums of the epoch,
        and the states of the generators of `random`, NumPy, dreamstream and torch. The file is complete, or the
        older one is still there, whenever the process ends. It is a safetensors file; nothing in it is pickled.

        Raises
        ------
        ModeError
            Within a step (a callback's ``after_step`` is the place), and after an epoch that was broken off.
        FormatError
            Where a callback's or the model's state holds what is no number, text or array.
        """
        if self._unsound:
            raise ModeError(f"ChunkTrainer: no checkpoint can be written {self._unsound}")
        checkpoint.write(path, saved.of_trainer(self, self._run))

    def resume(self, path: str | os.PathLike[str]) -> None:
        """Go on from a file of `save`, by the next `epoch` or `fit`: the losses that follow are the same bits.

        The trainer is made as the one that wrote it, the source too: a StreamLoader goes on from its place, any
        other iterable gives again what it gave, and is passed over so far. Live streams of the model are given up.

        Raises
        ------
        FormatError
            For a file that is no checkpoint, is damaged, or is one of another model, optimizer or trainer. Nothing
            has changed then.
        """
        if self._run is not None:
            raise ModeError("ChunkTrainer: an epoch is under way; resume() before it begins")
        tree = checkpoint.read(path)
        self._resumed = saved.to_trainer(self, tree, os.fspath(path))
        self._unsound = ""
