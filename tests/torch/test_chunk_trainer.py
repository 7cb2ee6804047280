"""ds.train.ChunkTrainer against loops that are written by hand."""

import copy

import pytest
import torch
from torch.nn import functional as F

import dreamstream as ds

LENGTHS = {"a": 23, "b": 7, "c": 1, "d": 12, "e": 30}
WHOLE = ["full-file-aligned", "full-file-unaligned"]


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(3, 8, 4, stride=2, padding=2)
        self.rnn = torch.nn.LSTM(8, 5, batch_first=True)

    def forward(self, x):
        return self.rnn(torch.tanh(self.conv(x)).transpose(1, 2))[0]


def made(variant="chunk-wise-aligned"):
    torch.manual_seed(0)
    model = Tagger()
    plain = copy.deepcopy(model)
    return ds.patch_module(model, train_variant=variant).train(), plain


def data():
    torch.manual_seed(1)
    inputs = {i: torch.randn(3, n) for i, n in LENGTHS.items()}
    return inputs, {i: torch.randn(n // 2 + 1, 5) for i, n in LENGTHS.items()}


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)


def assert_same(model, plain):
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variant", WHOLE)
@pytest.mark.parametrize("lanes", [2, 9])
def test_whole_files_train_as_offline(variant, lanes):
    model, plain = made(variant)
    inputs, targets = data()
    trainer = ds.train.ChunkTrainer(model, sgd(model), F.mse_loss, chunk=5, lanes=lanes)
    got = [trainer.epoch(inputs, targets) for _ in range(3)]
    optimizer, wanted, ids = sgd(plain), [], list(inputs)
    n_all = sum(len(t) for t in targets.values())
    for _ in range(3):
        total = 0.0
        for at in range(0, len(ids), lanes):
            some = ids[at : at + lanes]
            n = sum(len(targets[i]) for i in some)
            loss = sum(F.mse_loss(plain(inputs[i][None])[0], targets[i]) * (len(targets[i]) / n) for i in some)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * n
        wanted.append(total / n_all)
    assert got == pytest.approx(wanted, rel=1e-4)
    assert_same(model, plain)
    assert model.live_ids == []


def test_targets_of_whole_streams():
    """CTC's labels have no frames."""
    model, plain = made("full-file-unaligned")
    inputs, _ = data()
    labels = {"a": torch.tensor([1, 2, 2]), "d": torch.tensor([3]), "e": torch.tensor([4, 1])}
    inputs = {i: inputs[i] for i in labels}

    def ctc(y, target):
        scores = y.tensor().transpose(0, 1).log_softmax(-1)
        return F.ctc_loss(
            scores, torch.cat(target), torch.tensor(y.lengths.tolist()), torch.tensor([len(t) for t in target])
        )

    got = ds.train.ChunkTrainer(model, sgd(model), ctc, chunk=6, aligned=False).epoch(inputs, labels)
    wanted = torch.stack(
        [
            F.ctc_loss(
                plain(x[None]).transpose(0, 1).log_softmax(-1),
                labels[i][None],
                torch.tensor([x.shape[1] // 2 + 1]),
                torch.tensor([len(labels[i])]),
            )
            for i, x in inputs.items()
        ]
    ).mean()
    assert got == pytest.approx(float(wanted.detach()), rel=1e-5)


def test_frames_first():
    model = ds.patch_module(torch.nn.Linear(3, 2)).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = ds.train.ChunkTrainer(model, optimizer, F.mse_loss, chunk=4, axis=0)
    inputs = {"a": torch.randn(9, 3), "b": torch.randn(0, 3)}
    first, *_, last = [trainer.epoch(inputs, {i: x[:, :2] for i, x in inputs.items()}) for _ in range(20)]
    assert last < 0.5 * first


def test_what_is_raised_leaves_no_stream():
    model, _ = made()
    inputs, targets = data()
    before = [p.detach().clone() for p in model.parameters()]

    def broken(y, target):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ds.train.ChunkTrainer(model, sgd(model), broken, chunk=5).epoch(inputs, targets)
    assert model.live_ids == [] and all(map(torch.equal, before, model.parameters()))
    ds.train.ChunkTrainer(model, sgd(model), F.mse_loss, chunk=5).epoch(inputs, targets)


def test_refusals():
    model, plain = made()
    inputs, targets = data()
    with pytest.raises(ds.ModeError, match=r"Tagger is not patched; give ds\.patch_module"):
        ds.train.ChunkTrainer(plain, sgd(plain), F.mse_loss, chunk=5)
    for wrong in ({"chunk": 0}, {"chunk": 5, "lanes": 0}):
        with pytest.raises(ValueError, match="must be at least 1, got 0"):
            ds.train.ChunkTrainer(model, sgd(model), F.mse_loss, **wrong)
    with pytest.raises(ValueError, match="the optimizer has no parameter of the model"):
        ds.train.ChunkTrainer(model, sgd(plain), F.mse_loss, chunk=5)
    with pytest.raises(TypeError, match="the loss is to be a tensor, got float"):
        ds.train.ChunkTrainer(model, sgd(model), lambda y, target: 0.0, chunk=5).epoch(inputs, targets)
    trainer = ds.train.ChunkTrainer(model, sgd(model), F.mse_loss, chunk=5, axis=2)
    with pytest.raises(ds.StreamIdError, match="no target") as error:
        trainer.epoch(inputs, {i: targets[i] for i in "abcd"})
    assert error.value.ids == ("e",)
    with pytest.raises(ds.ShapeError, match="axis is 2, but the input has 2 dimensions"):
        trainer.epoch(inputs, targets)
    with pytest.raises(ds.ModeError, match=r"call train\(\) first"):
        ds.train.ChunkTrainer(model.eval(), sgd(model), F.mse_loss, chunk=5).epoch(inputs, targets)
