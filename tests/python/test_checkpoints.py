"""Checkpoints of ChunkTrainer: what follows a resumption is, to the bit, what would have followed."""

import importlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import container
from dreamstream.errors import FormatError, ModeError, StreamMismatchError
from dreamstream.train import checkpoint

LENGTHS = {"anna": 23, "bob": 7, "carl": 1, "dora": 12, "emil": 30, "fay": 18}
VARIANTS = ("chunk-wise-aligned", "full-file-aligned", "full-file-unaligned")
FRONTS = ("dreamstream", "torch")


def library(front):
    """The package of layers and optimizers; torch's sums depend on how many threads there are."""
    if front == "dreamstream":
        return ds
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    return torch


def tagger(front, seed=0):
    """A convolution that looks ahead, a recurrent layer and a layer per frame."""
    lib = library(front)

    class Tagger(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = lib.nn.Conv1d(3, 8, 4, stride=2, padding=2)
            self.rnn = lib.nn.GRU(8, 5, batch_first=True)
            self.head = lib.nn.Linear(5, 5)

        def forward(self, x):
            return self.head(self.rnn(self.conv(x).tanh().transpose(1, 2))[0])

    lib.manual_seed(seed)
    return Tagger()


def data():
    rng = np.random.default_rng(1)
    inputs = {i: rng.standard_normal((3, n)).astype(np.float32) for i, n in LENGTHS.items()}
    return inputs, {i: rng.standard_normal((n // 2 + 1, 5)).astype(np.float32) for i, n in LENGTHS.items()}


def trainer_of(
    front, variant="chunk-wise-aligned", seed=0, optimizer="Adam", callbacks=(), network=tagger, **options
):
    lib = library(front)
    model = ds.patch_module(network(front, seed), train_variant=variant).train()
    made = getattr(lib.optim, optimizer)(model.parameters(), lr=0.05)
    schedule = lib.optim.lr_scheduler.StepLR(made, 4, gamma=0.7)
    average = ds.train.Average(model, 0.9)
    own = [ds.train.ClipGradNorm(1.0), ds.train.Schedule(schedule), average, *callbacks]
    options = {"chunk": 5, "lanes": 2, **options}
    return ds.train.ChunkTrainer(model, made, lib.nn.functional.mse_loss, callbacks=own, **options)


def loader_of(kind, variant):
    inputs, targets = data()
    together = variant != VARIANTS[0]
    loader = ds.data.StreamLoader(inputs, 5, 2, shuffle=True, seed=3, targets=targets, together=together)
    if kind == "loader":
        return loader, None
    if kind == "batches":  # any iterable; it gives the same again
        return [x for x, _ in loader], targets
    return inputs, targets


class Losses:
    """Notes the loss of each step, with one number of each generator, and saves behind some."""

    def __init__(self, folder=None):
        self.found, self.folder = [], folder

    def __call__(self, trainer):
        self.found.append((trainer.steps, trainer.last, random.random(), float(np.random.rand())))
        if self.folder is not None:
            trainer.save(self.folder / f"{trainer.steps}")


# ---------------------------------------------------------------------- the same bits
@pytest.mark.parametrize(
    ("front", "variant", "kind", "accumulate"),
    [
        *(("dreamstream", variant, kind, 1) for variant in VARIANTS for kind in ("loader", "batches", "dict")),
        *(("torch", variant, "loader", 1) for variant in VARIANTS),
        ("torch", VARIANTS[0], "batches", 1),
        *(
            ("dreamstream", VARIANTS[0], kind, 5) for kind in ("loader", "batches", "dict")
        ),  # the last adds up fewer
    ],
)
def test_from_every_step_on_the_losses_are_the_same_bits(front, variant, kind, accumulate, tmp_path):
    random.seed(4), np.random.seed(4)
    losses = Losses(tmp_path)
    whole = trainer_of(front, variant, callbacks=[losses], accumulate=accumulate)
    source = loader_of(kind, variant)
    history = whole.fit(*source, epochs=2)
    assert len(losses.found) == whole.steps > (8 if variant == VARIANTS[0] and accumulate == 1 else 3)
    every = front == "dreamstream" and kind == "loader" and variant == VARIANTS[0] and accumulate == 1
    for step in range(1, whole.steps + 1, 1 if every else 4):
        again = Losses()
        other = trainer_of(front, variant, seed=9, callbacks=[again], accumulate=accumulate)
        random.seed(99), np.random.seed(99)
        other.resume(tmp_path / f"{step}")
        assert other.steps == step and other.fit(*loader_of(kind, variant), epochs=2) == history
        assert again.found == losses.found[step:]
    for a, b in zip(whole.model.parameters(), other.model.parameters()):
        assert a.detach().numpy().tobytes() == b.detach().numpy().tobytes()
    assert other.model.live_ids == []


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_steps_that_add_up_several_calls(front, optimizer, tmp_path):
    """A checkpoint between two calls of a step: gradients so far are in it."""
    inputs, targets = data()

    def source(trainer, at=None):
        for n, x in enumerate(ds.data.StreamLoader(inputs, 5, 2)):
            yield x
            if n == at:
                trainer.save(tmp_path / "between")

    whole, other = (trainer_of(front, accumulate=3, optimizer=optimizer, seed=s) for s in (0, 5))
    loss = whole.epoch(source(whole, at=4), targets)
    other.resume(tmp_path / "between")
    assert other.steps == 1 and other.epoch(source(other), targets) == loss
    for a, b in zip(whole.model.parameters(), other.model.parameters()):
        assert np.array_equal(a.detach().numpy(), b.detach().numpy())


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("variant", VARIANTS[1:])
def test_whole_files_that_are_on_the_tape_begin_again(front, variant, tmp_path):
    inputs, targets = data()

    def source(trainer, at=None):
        batches = ds.data.StreamLoader(inputs, 5, 3, together=True)
        for n, x in enumerate(batches):
            if n == at:
                trainer.save(tmp_path / "mid")
            yield x

    whole, other = (trainer_of(front, variant, seed=s) for s in (0, 5))
    loss = whole.epoch(source(whole, at=7), targets)  # in the midst of the second three
    other.resume(tmp_path / "mid")
    assert other.steps == 1 and other.epoch(source(other), targets) == loss


def dropping(front, seed=0):
    """A network whose layers draw: what is dropped, slopes, a gate's noise."""
    lib = library(front)
    gates = importlib.import_module("dreamstream.nn.gates" if lib is ds else "dreamstream.torch.nn")

    class Dropping(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = lib.nn.Sequential(
                lib.nn.Conv1d(3, 8, 4, stride=2, padding=2), lib.nn.RReLU(), lib.nn.Dropout(0.3)
            )
            self.rnn = lib.nn.GRU(8, 5, num_layers=2, dropout=0.4, batch_first=True)
            self.gate, self.head = gates.NoisyGate(5, 6, top_k=2, seed=1), lib.nn.Linear(6, 5)

        def forward(self, x):
            return self.head(self.gate.logits(self.rnn(self.conv(x).transpose(1, 2))[0]))

    lib.manual_seed(seed)
    return Dropping()


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_drawn_is_the_same(front, variant, tmp_path):
    """From each step on, most of them in mid-file."""
    losses = Losses(tmp_path)
    whole = trainer_of(front, variant, callbacks=[losses], network=dropping)
    loss = whole.epoch(*loader_of("loader", variant))
    every = front == "dreamstream" and variant == VARIANTS[0]
    for step in range(1, whole.steps, 1 if every else 16):
        again = Losses()
        other = trainer_of(front, variant, 9, callbacks=[again], network=dropping)
        other.resume(tmp_path / f"{step}")
        assert other.epoch(*loader_of("loader", variant)) == loss and again.found == losses.found[step:]


KILLED = """
import contextlib, os, signal, sys
sys.path.insert(0, {folder!r})
import test_checkpoints as t
front, variant, path, at, where, told = sys.argv[1:]
steps = [0]
def kill():
    if steps[0] == int(at):
        os.kill(os.getpid(), signal.SIGKILL)
def note(trainer):
    with open(told, "a") as file:
        file.write(f"{{trainer.steps}} {{trainer.last.hex()}}\\n")
    steps[0] = trainer.steps
    if where == "step":
        kill()
if where != "step":
    import dreamstream.train.checkpoint as checkpoint
    plain = checkpoint.replacing
    @contextlib.contextmanager
    def replacing(path):
        with plain(path) as file:
            yield t.Halved(file, kill) if where == "half" else file
            kill() if where == "written" else None
    checkpoint.replacing = replacing
trainer = t.trainer_of(front, variant, callbacks=[note], network=t.dropping, accumulate=2)
trainer.fit(*t.loader_of("loader", variant), epochs=2, path=path, every=2)
"""


class Halved:
    """A file that has half of what is written on the disk when the process is killed."""

    def __init__(self, file, kill):
        self.file, self.kill = file, kill

    def write(self, content):
        half = len(content) // 2
        self.file.write(content[:half])
        self.file.flush()
        self.kill()
        self.file.write(content[half:])


@pytest.mark.parametrize(
    ("front", "variant", "kills"),
    [
        ("dreamstream", VARIANTS[0], ((1, "step"), (4, "half"), (7, "step"), (8, "written"))),
        pytest.param("dreamstream", VARIANTS[2], ((2, "half"), (3, "step")), marks=pytest.mark.slow),
        pytest.param("torch", VARIANTS[0], ((5, "step"), (8, "half")), marks=pytest.mark.slow),
    ],
)
def test_a_process_that_is_killed_and_started_again(front, variant, kills, tmp_path):
    """Behind a step, and while its checkpoint is written: half of it, or all, but under another name still."""
    script, told, path = KILLED.format(folder=str(Path(__file__).parent)), tmp_path / "told", tmp_path / "run.ckpt"
    library(front)
    losses = Losses()
    whole = trainer_of(front, variant, callbacks=[losses], network=dropping, accumulate=2)
    whole.fit(*loader_of("loader", variant), epochs=2)
    wanted = {step: loss.hex() for step, loss, *_ in losses.found}
    for at, where in (*kills, (0, "step")):
        given = (front, variant, path, at, where, told)
        done = subprocess.run([sys.executable, "-c", script, *map(str, given)])
        assert done.returncode == (-9 if at else 0)
    found = [line.split() for line in told.read_text().splitlines()]
    assert {int(step) for step, _ in found} == set(wanted)
    assert all(wanted[int(step)] == loss for step, loss in found)


def test_a_checkpoint_between_epochs(tmp_path):
    """The order of the next epoch follows from the loader's place."""
    whole, seen = trainer_of("dreamstream"), []
    loader, _ = loader_of("loader", VARIANTS[0])
    whole.epoch(loader)
    whole.save(tmp_path / "a")
    seen.append(whole.epoch(loader))
    other = trainer_of("dreamstream", seed=7)
    other.resume(tmp_path / "a")
    seen.append(other.epoch(loader_of("loader", VARIANTS[0])[0]))
    assert seen[0] == seen[1] and other.epochs == 2


# ---------------------------------------------------------------------- files
def test_the_file(tmp_path):
    """Weights are tensors by their names, for any reader of safetensors; a file is replaced as a whole."""
    trainer = trainer_of("dreamstream")
    trainer.epoch(*data())
    trainer.save(tmp_path / "a")
    before = (tmp_path / "a").read_bytes()
    trainer.save(tmp_path / "a")
    assert os.listdir(tmp_path) == ["a"] and (tmp_path / "a").read_bytes() == before
    found = {t.name: t for t in container.read(before)[0]}
    weight = np.frombuffer(found["weights.head.weight"].data, np.float32).reshape(5, 5)
    assert np.array_equal(weight, trainer.model.head.weight.numpy())
    assert "optimizer.state.0.exp_avg" in found and found["weights.conv.weight"].dtype == "F32"


def test_what_a_file_can_hold(tmp_path):
    tree = {
        "numbers": [1, -(1 << 90), 0.1, float("inf"), True, None], "text": "ä\n", 3: ("a", b"\0\xff"),
        "arrays": [np.arange(6.0).reshape(2, 3)[:, ::2], np.zeros((0, 2), np.int16), np.array(3)], None: {},
        "swapped": np.ones(2, ">f4"), "complex": np.array([1 + 2j]), "bool": np.array([True]),
        "a.b": {"c": np.ones(1)}, "a": {"b.c": np.zeros(1)},
        "tensor": ds.tensor([1.0, 2.0]), "number": np.float64(0.25),
    }  # fmt: skip
    checkpoint.write(tmp_path / "x", tree)
    back = checkpoint.read(tmp_path / "x")
    assert back.keys() == tree.keys() and back["numbers"] == tree["numbers"] and back[3] == tree[3]
    assert all(np.array_equal(a, b) and a.shape == b.shape for a, b in zip(back["arrays"], tree["arrays"]))
    assert (
        np.array_equal(back["swapped"], tree["swapped"])
        and back["complex"] == tree["complex"]
        and back["bool"].dtype == bool
        and back["number"] == 0.25
    )
    assert back["a.b"]["c"] == 1 and back["a"]["b.c"] == 0
    assert isinstance(back["tensor"], ds.Tensor) and back["tensor"].tolist() == [1.0, 2.0]
    for wrong in ({"a": {"b": object()}}, {"a": [len]}, {(1, 2): 3}, {"a": np.array([None])}):
        with pytest.raises(FormatError, match="can't hold"):
            checkpoint.write(tmp_path / "x", wrong)
    assert checkpoint.read(tmp_path / "x").keys() == tree.keys()


def test_tensors_of_torch(tmp_path):
    torch = pytest.importorskip("torch")
    tensors = [
        torch.arange(6.0).reshape(2, 3).T, torch.ones(3, dtype=torch.bfloat16), torch.tensor(7), torch.zeros(0, 4),
        torch.ones(2, dtype=torch.complex64), torch.tensor([True]), torch.ones(2).half(), torch.get_rng_state(),
    ]  # fmt: skip
    checkpoint.write(tmp_path / "x", tensors)
    back = checkpoint.read(tmp_path / "x")
    assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(back, tensors))


def test_damaged_files_are_refused(tmp_path):
    trainer, path = trainer_of("dreamstream"), tmp_path / "a"
    trainer.epoch(*data())
    trainer.save(path)
    content, before = path.read_bytes(), [p.numpy().copy() for p in trainer.model.parameters()]
    rng = np.random.default_rng(0)
    kinds = set()
    for n in range(60):
        damaged = bytearray(content)
        if n % 3:
            damaged[rng.integers(len(content))] ^= 1 << rng.integers(8)
        else:
            damaged = damaged[: rng.integers(len(content))]
        if bytes(damaged).rstrip(b"\0") == content.rstrip(b"\0"):
            continue
        path.write_bytes(damaged)
        try:
            trainer.resume(path)
        except FormatError as error:
            kinds.add(str(error).split(":")[0].replace(str(path), ""))
        else:  # a byte between two tensors, which nobody reads
            assert n % 3
    assert len(kinds) >= 2
    path.write_bytes(content)
    trainer.resume(path)
    assert all(np.array_equal(a, b.numpy()) for a, b in zip(before, trainer.model.parameters()))


@pytest.mark.parametrize("content", [b"", b"PK\3\4", b"\x80\4\x95", os.urandom(4000), b"{}"])
def test_files_of_others_are_refused(content, tmp_path):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(FormatError, match="no checkpoint"):
        trainer_of("dreamstream").resume(tmp_path / "a")
    tree = [container.Tensor("w", "F32", (1,), bytes(4))]
    (tmp_path / "a").write_bytes(container.write(tree, {"model": "x"}))
    with pytest.raises(FormatError, match="another safetensors file"):
        trainer_of("dreamstream").resume(tmp_path / "a")
    checkpoint.write(tmp_path / "a", {"version": 99})
    with pytest.raises(FormatError, match="version 99"):
        trainer_of("dreamstream").resume(tmp_path / "a")


OTHERS = {
    "train_variant": {"variant": "full-file-aligned"},
    "optimizer_class": {"optimizer": "SGD"},
    "callback_classes": {"callbacks": [print]},
    "accumulate": {"accumulate": 2},
}


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("name", OTHERS)
def test_checkpoints_of_another_trainer_are_refused(front, name, tmp_path):
    trainer = trainer_of(front)
    trainer.epoch(*data())
    trainer.save(tmp_path / "a")
    other = trainer_of(front, seed=3, **OTHERS[name])
    before = [p.detach().numpy().copy() for p in other.model.parameters()]
    with pytest.raises(FormatError, match=name):
        other.resume(tmp_path / "a")
    assert all(np.array_equal(a, b.detach().numpy()) for a, b in zip(before, other.model.parameters()))


@pytest.mark.parametrize("front", FRONTS)
def test_checkpoints_of_another_model_are_refused(front, tmp_path):
    trainer = trainer_of(front)
    trainer.save(tmp_path / "a")
    lib = library(front)
    for change in (
        lambda m: setattr(m, "head", lib.nn.Linear(5, 4)),
        lambda m: setattr(m, "more", lib.nn.Linear(5, 4)),
    ):
        model = tagger(front)
        change(model)
        other = ds.train.ChunkTrainer(ds.patch_module(model), lib.optim.Adam(model.parameters()), None)
        other.callbacks = trainer.callbacks
        with pytest.raises(FormatError, match="another model"):
            other.resume(tmp_path / "a")
    if front == "torch":
        with pytest.raises(FormatError, match="front_end"):
            trainer_of("dreamstream").resume(tmp_path / "a")


def test_another_source_is_refused(tmp_path):
    trainer = trainer_of("dreamstream", callbacks=[lambda t: t.save(tmp_path / "a") if t.steps == 5 else None])
    trainer.epoch(loader_of("loader", VARIANTS[0])[0])
    other = trainer_of("dreamstream", callbacks=[print])
    other.resume(tmp_path / "a")
    inputs, targets = data()
    with pytest.raises(StreamMismatchError, match="a loader's place, and list takes none"):
        other.epoch([], targets)
    with pytest.raises(StreamMismatchError, match="chunk=5, not 6"):
        other.epoch(ds.data.StreamLoader(inputs, 6, 2, shuffle=True, seed=3, targets=targets))
    trainer = trainer_of("dreamstream", callbacks=[lambda t: t.save(tmp_path / "a") if t.steps == 5 else None])
    trainer.epoch(loader_of("batches", VARIANTS[0])[0], targets)
    other.resume(tmp_path / "a")
    with pytest.raises(StreamMismatchError, match="gave 5 batches, and now it has only 0"):
        other.epoch([], targets)


def test_no_checkpoint_within_a_step_or_behind_a_broken_epoch(tmp_path):
    inputs, targets = data()
    trainer = trainer_of("dreamstream")
    own = trainer.loss

    def loss(y, target):
        if trainer.steps == 2:
            trainer.save(tmp_path / "a")
        return own(y, target)

    trainer.loss = loss
    with pytest.raises(ModeError, match="midst of a step"):
        trainer.epoch(inputs, targets)
    with pytest.raises(ModeError, match="broken off"):
        trainer.save(tmp_path / "a")
    assert os.listdir(tmp_path) == []
    trainer.loss = own
    trainer.epoch(inputs, targets)
    trainer.save(tmp_path / "a")


def test_what_can_never_be_written_is_refused_before_training(tmp_path):
    trainer, source = trainer_of("dreamstream"), data()
    for wrong in ({"every": 3}, {"every": 0, "path": tmp_path / "x.ckpt"}):
        with pytest.raises(ValueError, match="is a number of steps, 1 or more, and goes with path="):
            trainer.fit(*source, **wrong)
    with pytest.raises(FileNotFoundError, match="no folder for the checkpoint"):
        trainer.fit(*source, path=tmp_path / "nowhere" / "x.ckpt")
    assert trainer.steps == 0


def test_the_history_is_json(tmp_path):
    trainer = trainer_of("dreamstream", metrics={"error": lambda y, t: abs(y - t).mean()})
    validation = {"validation": {"zoe": np.ones((3, 9), np.float32)}}
    validation["validation_targets"] = {"zoe": np.ones((5, 5), np.float32)}
    history = trainer.fit(*data(), epochs=2, **validation, path=tmp_path / "a")
    names = ["epoch", "steps", "loss", "error", "validation", "validation error"]
    assert list(json.loads(json.dumps(history))[1]) == names
    other = trainer_of("dreamstream", metrics={"error": lambda y, t: abs(y - t).mean()})
    other.resume(tmp_path / "a")
    assert other.history == history
