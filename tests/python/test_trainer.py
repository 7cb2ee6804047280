"""ChunkTrainer in both front ends: what it takes, what it does around its steps, and what it refuses."""

import functools
import math
from collections import namedtuple
from collections.abc import Mapping

import numpy as np
import pytest
from recipes import ctc
from turns import by_turns

import dreamstream as ds
from dreamstream.errors import LossError, ModeError, ShapeError, StreamIdError, StreamMismatchError
from dreamstream.train import Average, Callback, ChunkTrainer, ClipGradNorm, ClipGradValue, Schedule

LENGTHS = {"anna": 23, "bob": 7, "carl": 1, "dora": 12}
VARIANTS = ("chunk-wise-aligned", "full-file-aligned", "full-file-unaligned")


@pytest.fixture(params=["dreamstream", "torch"])
def lib(request):
    return ds if request.param == "dreamstream" else pytest.importorskip("torch")


def arrays(seed=1, features=3):
    rng = np.random.default_rng(seed)
    inputs = {i: rng.standard_normal((features, n)).astype(np.float32) for i, n in LENGTHS.items()}
    return inputs, {i: rng.standard_normal((n, 2)).astype(np.float32) for i, n in LENGTHS.items()}


def model_of(lib, form=lambda y, x: y, variant=VARIANTS[0], seed=0, layers=None):
    """A model that looks ahead; `form` makes what it returns of its output and its input."""

    class Model(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.rnn = lib.nn.Conv1d(3, 4, 3, padding=1), lib.nn.GRU(4, 2, batch_first=True)

        def forward(self, x):
            y = self.conv(x).tanh().transpose(1, 2)
            return form(self.rnn(y)[0], y)

    lib.manual_seed(seed)
    return ds.patch_module(Model() if layers is None else layers(), train_variant=variant).train()


def trainer_of(lib, model=None, loss=None, optimizer="SGD", lr=0.1, **options):
    model = model_of(lib) if model is None else model
    made = getattr(lib.optim, optimizer)(model.parameters(), lr=lr)
    return ChunkTrainer(model, made, loss or lib.nn.functional.mse_loss, **{"chunk": 5, "lanes": 2, **options})


def weights(trainer):
    return [np.array(p.detach().numpy()) for p in trainer.model.parameters()]


def assert_same(ours, theirs, tolerance=1e-5):
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------------- what it takes
def as_torch(arrays):
    torch = pytest.importorskip("torch")
    return {i: torch.from_numpy(x) for i, x in arrays.items()}


TOGETHER = {"together": False}


def stored(x, targets):
    return ds.data.StreamLoader(x, 5, 2, targets=targets, **TOGETHER)


def batch_dicts(x, targets):
    return [{"x": part, "target": of} for part, of in stored(x, targets)]


def rows_of(x, targets):
    """With an entry for each row, and named."""
    pair = namedtuple("Pair", "x target")
    return [pair(part, [of[i] for i in part.ids]) for part, of in stored(x, targets)]


def streams_of_targets(x, targets):
    """Targets come in chunks as inputs do, before the outputs that they are of."""
    streams = {i: np.moveaxis(t, 0, -1) for i, t in targets.items()}
    return list(zip(stored(x, None), stored(streams, None)))


class Lazy(Mapping):
    """Reads what is asked for."""

    def __init__(self, known):
        self.known, self.read = known, []

    def __getitem__(self, i):
        self.read.append(i)
        return self.known[i]

    def __iter__(self):
        return iter(self.known)

    def __len__(self):
        return len(self.known)


SOURCES = {
    "dict": lambda x, t: (x, t),
    "dict of torch": lambda x, t: (as_torch(x), as_torch(t)),
    "tensors": lambda x, t: ({i: ds.tensor(v) for i, v in x.items()}, {i: ds.tensor(v) for i, v in t.items()}),
    "lazy": lambda x, t: (Lazy(x), Lazy(t)),
    "loader with targets": lambda x, t: (stored(x, t), None),
    "loader beside targets": lambda x, t: (stored(x, None), t),
    "loader of torch": lambda x, t: (stored(as_torch(x), as_torch(t)), None),
    "lists": lambda x, t: ([list(pair) for pair in stored(x, t)], None),
    "iterator": lambda x, t: (iter(list(stored(x, t))), None),
    "single": lambda x, t: ([(part,) for part in stored(x, None)], t),
    "dicts": lambda x, t: (batch_dicts(x, t), None),
    "entries for rows": lambda x, t: (rows_of(x, t), None),
    "streams of targets": lambda x, t: (streams_of_targets(x, t), None),
}


@functools.cache
def trained_on_a_dict(lib, variant):
    """The losses of two epochs, and the weights behind them."""
    trainer = trainer_of(lib, model_of(lib, variant=variant), lanes=2)
    return [trainer.epoch(*arrays()) for _ in range(2)], weights(trainer)


@pytest.mark.parametrize(("name", "variant"), by_turns(SOURCES, VARIANTS[::2]))
def test_all_sources_train_alike(lib, name, variant, monkeypatch):
    (inputs, targets), (losses, wanted) = arrays(), trained_on_a_dict(lib, variant)
    got = trainer_of(lib, model_of(lib, variant=variant))
    monkeypatch.setitem(TOGETHER, "together", variant != VARIANTS[0])
    again = [got.epoch(*SOURCES[name](inputs, targets)) for _ in range(2)]
    assert again == pytest.approx(losses, rel=1e-5)
    assert_same(weights(got), wanted)


def test_batches_of_dataloaders(lib):
    """torch's default_collate makes pairs a list, and targets of rows a tensor."""
    torch = pytest.importorskip("torch")
    inputs, targets = arrays()
    short = {i: x[:, :7] for i, x in inputs.items() if x.shape[1] >= 7}
    whole = trainer_of(lib)
    loss = whole.epoch(ds.data.StreamLoader(short, None, 3), {i: targets[i][:7] for i in short})

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return len(short)

        def __getitem__(self, k):
            i = list(short)[k]
            x = ds.stream_tensor([torch.from_numpy(short[i])], ids=[i], sos=True, eos=True)
            return x[0], torch.from_numpy(targets[i][:7])

    got = trainer_of(lib)
    assert got.epoch(torch.utils.data.DataLoader(Rows(), batch_size=3)) == pytest.approx(loss, rel=1e-6)
    assert_same(weights(got), weights(whole))


def test_files_are_read_when_they_begin(lib):
    inputs, targets = map(Lazy, arrays())
    seen = []
    trainer = trainer_of(lib, lanes=1, callbacks=[lambda t: seen.append(len(inputs.read))])
    trainer.epoch(inputs, targets)
    assert seen[0] == 1 and seen == sorted(seen) and inputs.read == list(LENGTHS)


def test_unpack(lib):
    inputs, targets = arrays()
    batches = [(0, {"frames": x, "labels": t}) for x, t in stored(inputs, targets)]
    got = trainer_of(lib, unpack=lambda b: (b[1]["frames"], b[1]["labels"])).epoch(batches)
    assert got == pytest.approx(trainer_of(lib).epoch(stored(inputs, targets)), rel=1e-6)
    with pytest.raises(TypeError, match=r"unpack="):
        trainer_of(lib).epoch(batches)


def test_losses_without_targets(lib):
    inputs, _ = arrays()
    trainer = trainer_of(lib, loss=lambda y: (y * y).mean())
    first, *_, last = [trainer.epoch(stored(inputs, None)) for _ in range(5)]
    assert last < first


# ---------------------------------------------------------------------- several outputs
FORMS = {
    "tuple": (lambda y, x: (y, x), lambda y: y[0]),
    "list": (lambda y, x: [y, x], lambda y: y[0]),
    "dict": (lambda y, x: {"logits": y, "features": x}, lambda y: y["logits"]),
    "named tuple": (lambda y, x: namedtuple("Out", "logits hidden")(y, x), lambda y: y.logits),
    "nested": (lambda y, x: {"logits": (y, x), "length": 3}, lambda y: y["logits"][0]),
    "one in a tuple": (lambda y, x: (y,), lambda y: y[0]),
}


@pytest.mark.parametrize(("form", "variant"), by_turns(FORMS, VARIANTS))
def test_forms_of_outputs(lib, form, variant):
    inputs, targets = arrays()
    make, pick = FORMS[form]
    mse = lib.nn.functional.mse_loss
    wanted = trainer_of(lib, model_of(lib, variant=variant))
    got = trainer_of(lib, model_of(lib, make, variant), lambda y, t: mse(pick(y), t))
    assert got.epoch(inputs, targets) == pytest.approx(wanted.epoch(inputs, targets), rel=1e-6)
    assert got.evaluate(inputs, targets) == pytest.approx(wanted.evaluate(inputs, targets), rel=1e-6)
    assert_same(weights(got), weights(wanted))


@pytest.mark.parametrize("by_name", [True, False])
def test_a_target_for_each_output(lib, by_name):
    """Outputs that are behind each other meet the frames of their own."""
    inputs, _ = arrays()
    names = ("now", "later") if by_name else (0, 1)
    seen = []

    class Two(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.now, self.later = lib.nn.Conv1d(3, 2, 1), lib.nn.Conv1d(3, 2, 5, padding=2)

        def forward(self, x):
            out = self.now(x).transpose(1, 2), self.later(x).transpose(1, 2)
            return dict(zip(names, out)) if by_name else out

    targets = {i: [np.full((n, 2), k, np.float32) for k in (1, 2)] for i, n in LENGTHS.items()}
    if by_name:
        targets = {i: dict(zip(names, t)) for i, t in targets.items()}

    def loss(y, target):
        seen.append([float(target[name].mean()) for name in names if target[name].lengths.sum()])
        parts = [lib.nn.functional.mse_loss(y[n], target[n], reduction="sum") for n in names]
        return sum(parts) / int(y[names[0]].lengths.sum() or 1)

    trainer_of(lib, model_of(lib, layers=Two), loss).epoch(inputs, targets)
    assert {tuple(s) for s in seen} <= {(1.0, 2.0), (1.0,), (2.0,)} and (1.0, 2.0) in {tuple(s) for s in seen}


def test_outputs_of_whole_streams(lib):
    """One vector for each stream, in the call in which it ends."""
    inputs, _ = arrays()

    class Pooled(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = lib.nn.Conv1d(3, 4, 1), lib.nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.conv(x).mean(2))

    labels = {i: np.array([k % 3]) for k, i in enumerate(LENGTHS)}
    trainer = trainer_of(lib, model_of(lib, layers=Pooled), lib.nn.functional.cross_entropy)
    model = trainer.model.offline()
    with_frames = [model(lib.tensor(x[None])) for x in inputs.values()]
    each = [lib.nn.functional.cross_entropy(y, lib.tensor(labels[i])) for i, y in zip(inputs, with_frames)]
    wanted = float(np.mean([float(e.detach()) for e in each]))
    assert trainer.evaluate(inputs, labels) == pytest.approx(wanted, rel=1e-5)
    first, *_, last = [trainer.epoch(inputs, labels) for _ in range(8)]
    assert last < first


# ---------------------------------------------------------------------- around the steps
def by_hand(lib, inputs, targets, n, between=lambda model: None, each=1, optimizer="SGD"):
    """Train on the batches of one epoch, as the trainer does."""
    model = model_of(lib).online()
    made = getattr(lib.optim, optimizer)(model.parameters(), lr=0.1)
    waiting = []
    for x in stored(inputs, None):
        if lib is not ds:
            x = ds.stream_tensor([lib.from_numpy(np.array(x[i])) for i in x.ids], x.meta)
        y = model(x)
        waiting.append((lib.nn.functional.mse_loss(y, ds.train.align(y, targets)), int(y.lengths.sum())))
        if len(waiting) == each:
            made.zero_grad()
            n_all = sum(k for _, k in waiting)
            sum(loss * (k / n_all) for loss, k in waiting).backward()
            between(model)
            made.step()
            waiting = []
    if waiting:
        made.zero_grad()
        n_all = sum(k for _, k in waiting)
        sum(loss * (k / n_all) for loss, k in waiting).backward()
        made.step()
    return [p.detach().numpy() for p in model.parameters()]


@pytest.mark.parametrize("kind", ["norm", "value"])
def test_clipping(lib, kind):
    inputs, targets = arrays()
    callback = ClipGradNorm(0.05) if kind == "norm" else ClipGradValue(0.01)
    utils = lib.nn.utils
    clip = (utils.clip_grad_norm_, 0.05) if kind == "norm" else (utils.clip_grad_value_, 0.01)
    trainer = trainer_of(lib, callbacks=[callback])
    trainer.epoch(stored(inputs, targets))
    assert_same(
        weights(trainer), by_hand(lib, inputs, targets, 1, lambda m: clip[0](m.parameters(), clip[1])), 1e-6
    )


@pytest.mark.parametrize("each", [2, 3, 100])
def test_accumulation_is_the_mean_over_frames(lib, each):
    inputs, targets = arrays()
    trainer = trainer_of(lib, accumulate=each)
    trainer.epoch(stored(inputs, targets))
    assert_same(weights(trainer), by_hand(lib, inputs, targets, 1, each=each), 1e-5)
    assert trainer.steps == math.ceil(len(list(stored(inputs, None))) / each)


def test_schedules(lib):
    inputs, targets = arrays()
    rates = []
    trainer = trainer_of(lib, callbacks=[lambda t: rates.append(t.optimizer.param_groups[0]["lr"])])
    trainer.callbacks.append(Schedule(lib.optim.lr_scheduler.StepLR(trainer.optimizer, 2, 0.5)))
    plateau = lib.optim.lr_scheduler.ReduceLROnPlateau(trainer.optimizer, patience=0)
    trainer.callbacks.append(Schedule(plateau, each="epoch"))
    trainer.fit(stored(inputs, targets), epochs=3, validation=inputs, validation_targets=targets)
    assert rates[:5] == [0.1, 0.1, 0.05, 0.05, 0.025]
    assert plateau.last_epoch == 3 and plateau.best == min(h["validation"] for h in trainer.history)
    with pytest.raises(ValueError, match="each"):
        Schedule(plateau, each="never")


def test_averages(lib):
    inputs, targets = arrays()
    trainer = trainer_of(lib)
    average = Average(trainer.model, 0.5)
    trainer.callbacks.append(average)
    expected = weights(trainer)
    trainer.callbacks.append(type("After", (Callback,), {"after_step": lambda self, t: follow()})())

    def follow():
        expected[:] = [e + (w - e) * 0.5 for e, w in zip(expected, weights(trainer))]

    trainer.epoch(inputs, targets)
    own = weights(trainer)
    with average.applied():
        assert_same(weights(trainer), expected, 1e-6)
        loss = trainer.evaluate(inputs, targets)
    assert_same(weights(trainer), own, 0) and loss != trainer.evaluate(inputs, targets)


def test_metrics_and_evaluation(lib):
    inputs, targets = arrays()
    trainer = trainer_of(lib, metrics={"error": lambda y, t: (y - t).abs().mean()})
    trainer.model.conv.eval()
    modes = [m.training for m in trainer.model.modules()]
    before = weights(trainer)
    result = trainer.evaluate(inputs, targets)
    with ds.no_grad():
        model, whole = trainer.model.offline(), {}
        for i, x in inputs.items():
            whole[i] = np.array(model(lib.tensor(x[None])).detach().numpy())[0]
    trainer.model.online()
    errors = np.concatenate([np.abs(whole[i] - targets[i]) for i in inputs])
    assert result.metrics["error"] == pytest.approx(float(errors.mean()), rel=1e-5)
    assert result == pytest.approx(float((errors**2).mean()), rel=1e-5)
    assert [m.training for m in trainer.model.modules()] == modes and trainer.model.live_ids == []
    assert_same(weights(trainer), before, 0)
    trained = trainer.epoch(inputs, targets)
    assert trained.metrics["error"] > 0 and list(trained.metrics) == ["error"]


def test_evaluation_amid_an_epoch(lib):
    """Streams in training go on behind it as if there had been none."""
    inputs, targets = arrays()
    others = {f"other {i}": x for i, x in inputs.items()}
    of_others = {f"other {i}": t for i, t in targets.items()}
    plain, trainer = trainer_of(lib), trainer_of(lib, callbacks=[lambda t: t.evaluate(others, of_others)])
    assert plain.epoch(inputs, targets) == trainer.epoch(inputs, targets)
    assert_same(weights(plain), weights(trainer), 0)


@pytest.mark.parametrize("variant", VARIANTS[2:])
def test_targets_of_whole_streams(lib, variant):
    """CTC in training and in evaluation: there outputs are laid end to end first."""
    inputs, _ = arrays()
    inputs = {i: x for i, x in inputs.items() if x.shape[1] > 4}
    labels = {"anna": [1, 1], "bob": [1], "dora": [1, 1, 1]}
    labels = {i: lib.tensor(np.array(t)) for i, t in labels.items()}

    def ctc(y, target):
        losses = []
        for i, labels in zip(y.ids, target):
            scores = lib.nn.functional.log_softmax(y[i], -1)
            losses.append(
                lib.nn.functional.ctc_loss(scores, labels, lib.tensor(len(scores)), lib.tensor(len(labels)))
            )
        return sum(losses) / len(losses)

    trainer = trainer_of(lib, model_of(lib, variant=variant), ctc, aligned=False)
    before = trainer.evaluate(inputs, labels)
    losses = [trainer.epoch(inputs, labels) for _ in range(5)]
    assert losses[-1] < losses[0] and trainer.evaluate(inputs, labels) < before


def test_autocast_and_scaler():
    torch = pytest.importorskip("torch")
    inputs, targets = arrays()
    plain, trainer = (
        trainer_of(torch),
        trainer_of(torch, scaler=torch.amp.GradScaler("cpu", init_scale=2.0**7), callbacks=[ClipGradNorm(1e9)]),
    )
    for t in (plain, trainer):
        t.epoch(inputs, targets)
    assert_same(weights(trainer), weights(plain), 1e-5)
    narrow = trainer_of(torch, autocast=lambda: torch.autocast("cpu", torch.bfloat16))
    first, *_, last = [narrow.epoch(inputs, targets) for _ in range(10)]
    assert last < first and all(p.dtype == torch.float32 for p in narrow.model.parameters())


def test_progress(lib, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    inputs, targets = arrays()
    trainer_of(lib).epoch(inputs, targets)
    assert "frames" in capsys.readouterr().err
    trainer_of(lib, quiet=True).epoch(inputs, targets)
    assert capsys.readouterr().err == ""


# ---------------------------------------------------------------------- what it refuses
@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_that_are_no_numbers(lib, variant, tmp_path):
    """The stream and the step are named; weights and the checkpoint are those before."""
    inputs, targets = arrays()
    trainer = trainer_of(lib, model_of(lib, variant=variant), lanes=1)
    trainer.epoch(inputs, targets)
    trainer.save(tmp_path / "a")
    saved, before, steps = (tmp_path / "a").read_bytes(), weights(trainer), trainer.steps
    inputs["dora"] = np.concatenate([inputs["dora"][:, :-1], np.full((3, 1), np.nan, np.float32)], 1)
    with pytest.raises(LossError, match=r"step \d+: the loss is nan: outputs of these streams") as error:
        trainer.fit({"dora": inputs["dora"]}, targets, epochs=9, path=tmp_path / "a", every=1)
    assert error.value.ids == ("dora",) and isinstance(error.value, FloatingPointError)
    assert trainer.model.live_ids == []
    if variant != VARIANTS[0]:
        assert_same(weights(trainer), before, 0)
        assert f"step {steps + 1}:" in str(error.value) and (tmp_path / "a").read_bytes() == saved
    assert all(np.isfinite(w).all() for w in weights(trainer))
    trainer = trainer_of(lib, model_of(lib, variant=variant), lanes=1)
    targets["bob"] = np.full_like(targets["bob"], np.inf)
    with pytest.raises(LossError, match="targets of these streams") as error:
        trainer.epoch(arrays()[0], targets)
    assert error.value.ids == ("bob",)
    trainer.loss = lambda y, t: (y * math.inf).sum() * 0
    with pytest.raises(LossError, match="the loss is nan") as error:
        trainer.epoch(*arrays())
    assert error.value.ids == ("anna",)


@pytest.mark.parametrize("variant", VARIANTS)
def test_targets_of_another_length(lib, variant):
    inputs, targets = arrays()
    before = None
    for change, message in (
        (1, "has 8 frames, but the output has ended after 7"),
        (-1, "has 6 frames, but the output"),
    ):
        trainer = trainer_of(lib, model_of(lib, variant=variant))
        before = weights(trainer)
        wrong = {**targets, "bob": np.zeros((7 + change, 2), np.float32)}
        with pytest.raises(StreamMismatchError, match=message) as error:
            trainer.epoch({"bob": inputs["bob"]}, wrong)
        assert error.value.ids == ("bob",)
        if variant != VARIANTS[0]:
            assert_same(weights(trainer), before, 0)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1] * 9, "a target has 9 entries, but the whole output 7 frames"),
        (
            [1, 1, 1, 0, 0],
            "a target has 5 entries and 3 repeats, for which CTC needs 8 frames, but the whole output 7",
        ),
    ],
)
def test_labels_that_are_more_than_the_frames(lib, labels, message):
    """CTC's loss is infinite then; other streams of the batch are not to blame."""
    inputs, _ = arrays()
    trainer = trainer_of(lib, model_of(lib, variant=VARIANTS[2]), ctc(lib), aligned=False)
    targets = {"anna": np.int64([1]), "bob": np.int64(labels)}
    before = weights(trainer)
    with pytest.raises(StreamMismatchError, match=message) as error:
        trainer.epoch({i: inputs[i] for i in targets}, targets)
    assert error.value.ids == ("bob",)
    assert_same(weights(trainer), before, 0)


def test_a_backward_in_mid_file(lib):
    inputs, targets = arrays()
    trainer = trainer_of(lib, model_of(lib, variant=VARIANTS[1]))
    own = trainer.loss

    def loss(y, target):
        out = own(y, target)
        out.backward()
        return out

    trainer.loss = loss
    with pytest.raises(ModeError, match="mid-file") as error:
        trainer.epoch(inputs, targets)
    assert "anna" in error.value.ids and all(p.grad is None for p in trainer.model.parameters())


def stepped(lib, model, w):
    for p in model.parameters():
        p.grad = lib.ones_like(p)
    lib.optim.SGD(model.parameters(), 0.1).step()


EDITS = {
    "under no_grad": lambda lib, model, w: w.mul_(0.5),
    "an optimizer": stepped,
    "a part": lambda lib, model, w: w[0].zero_(),
    "detach": lambda lib, model, w: w.detach().add_(1),
    "state dict": lambda lib, model, w: model.load_state_dict({k: v * 2 for k, v in model.state_dict().items()}),
    "of a state dict": lambda lib, model, w: model.state_dict()["conv.weight"].neg_(),
    "initialisation": lambda lib, model, w: lib.nn.init.uniform_(w),
    "data": lambda lib, model, w: w.data.mul_(2),
    "a part of data": lambda lib, model, w: w.data[0].zero_(),
    "numpy": lambda lib, model, w: w.detach().numpy().fill(1),
    "numpy of data": lambda lib, model, w: np.negative(w.data.numpy(), out=w.data.numpy()),
    "asarray": lambda lib, model, w: np.asarray(w.detach()).__imul__(2),
    "dlpack": lambda lib, model, w: np.copyto(np.from_dlpack(w.detach().numpy()), 3),
    "exchanged": lambda lib, model, w: w.detach().numpy().sort(0),
}
NO_EDITS = {
    "numpy": lambda lib, model, w: w.detach().numpy().copy(),
    "state dict": lambda lib, model, w: model.state_dict(),
    "other memory": lambda lib, model, w: setattr(w, "data", w.data.clone()),
}


def edited(lib, variant, edit, calls, first=0):
    """Train an epoch, with an edit of a weight behind some calls, by the losses from one of them on."""
    inputs, targets = arrays()
    trainer, n = trainer_of(lib, model_of(lib, variant=variant)), []
    own = trainer.loss

    def loss(y, target):
        n.append(1)
        if len(n) in calls:
            with lib.no_grad():
                edit(lib, trainer.model, trainer.model.conv.weight)
        return own(y, target) if len(n) >= first else own(y, target).detach()

    trainer.loss = loss
    trainer.epoch(inputs, targets)


WHEN = [(VARIANTS[1], e, *when) for e in EDITS for when in (((3,), 0), ((2, 3), 0), ((2,), 3))]
WHEN += [(VARIANTS[0], "under no_grad", calls, 0) for calls in ((3,), (2, 3))]


@pytest.mark.parametrize(("variant", "edit", "calls", "first"), WHEN)
def test_weights_that_are_edited_before_their_backward(lib, variant, edit, calls, first):
    """For whole files also where neither library knows of it, and an edit takes the one before back.

    Or the backward comes through outputs behind the edit alone, whose tape goes on from calls before it.
    """
    with pytest.raises(ModeError, match=r"the parameter (conv|rnn)\."):
        edited(lib, variant, EDITS[edit], calls, first)


@pytest.mark.parametrize("look", NO_EDITS)
def test_weights_that_are_looked_at_before_their_backward(lib, look):
    edited(lib, VARIANTS[1], NO_EDITS[look], (2, 3))


@pytest.mark.parametrize("variant", VARIANTS[1:])
def test_a_source_that_ends_in_mid_file(lib, variant):
    inputs, targets = arrays()
    batches = [x for x in stored(inputs, None)][:3]
    trainer = trainer_of(lib, model_of(lib, variant=variant))
    with pytest.raises(ModeError, match="these streams have not") as error:
        trainer.epoch(batches, targets)
    assert error.value.ids == ("anna",) and trainer.model.live_ids == []


def test_refusals(lib):
    inputs, targets = arrays()
    with pytest.raises(ValueError, match="accumulate must be at least 1"):
        trainer_of(lib, accumulate=0)
    with pytest.raises(StreamIdError, match="no target") as error:
        trainer_of(lib).epoch(stored(inputs, None), {i: targets[i] for i in ("anna", "bob")})
    assert error.value.ids == ("carl",)
    with pytest.raises(ShapeError, match="has targets of 1 entries; expected one for each"):
        trainer_of(lib).epoch([(x, [1]) for x in stored(inputs, None)])
    with pytest.raises(TypeError, match="without a stream tensor"):
        trainer_of(lib).epoch([np.ones((2, 3, 5))])
    with pytest.raises(TypeError, match="the model returned"):
        trainer_of(lib, model_of(lib, lambda y, x: "nothing")).epoch(inputs, targets)
    for wrong in (1, 1.5):
        with pytest.raises(ValueError, match="decay"):
            Average(model_of(lib), wrong)
