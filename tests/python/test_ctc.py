"""The loss of connectionist temporal classification: value and gradient are torch's, on edge values too."""

import numpy as np
import pytest
from turns import in_blocks

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import DTypeError, ShapeError, StreamIndexError, StreamMismatchError

torch = pytest.importorskip("torch")


def case(seed, dtype="float64"):
    """Random rows; targets with repeats, without anything, and longer than their frames."""
    rng = np.random.default_rng(seed)
    n_frames, n_rows, n_classes = int(rng.integers(1, 14)), int(rng.integers(1, 6)), int(rng.integers(2, 6))
    logits = (rng.standard_normal((n_frames, n_rows, n_classes)) * rng.choice([0.1, 1, 10])).astype(dtype)
    lengths = rng.integers(1, n_frames + 1, n_rows)
    n_targets = rng.integers(0, max(2, n_frames // 2 + 2), n_rows)
    blank = int(rng.integers(0, n_classes))
    others = [c for c in range(n_classes) if c != blank]
    goals = rng.choice(others, (n_rows, max(1, int(n_targets.max()))))
    return logits, goals, lengths, n_targets, blank


def run(library, make, logits, *given, **options):
    x = make(logits)
    x.requires_grad_()
    y = library.ctc_loss(library.log_softmax(x, -1), *(make(g) for g in given), **options)
    weights = np.random.default_rng(0).standard_normal(tuple(y.shape)).astype(logits.dtype)
    y.backward(make(np.asarray(weights)))
    return y.detach().numpy(), x.grad.numpy()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@in_blocks("seed", range(60), 20)
def test_value_and_gradient_are_those_of_torch(seed, reduction):
    *given, blank = case(seed)
    options = {"blank": blank, "reduction": reduction, "zero_infinity": bool(seed % 3)}
    ours, theirs = run(F, ds.tensor, *given, **options), run(torch.nn.functional, torch.tensor, *given, **options)
    for own, other in zip(ours, theirs):
        np.testing.assert_allclose(own, other, rtol=1e-12, atol=1e-12)
    flat = np.concatenate([g[:n] for g, n in zip(given[1], given[3])])
    again = run(F, ds.tensor, given[0], flat, *given[2:], **options)
    for own, other in zip(again, ours):
        np.testing.assert_array_equal(own, other)


def test_single_precision_and_one_sequence():
    logits, goals, lengths, n_targets, blank = case(3, "float32")
    for given in (
        (logits, goals, lengths, n_targets),
        (logits[:, 0], goals[0, : n_targets[0]], lengths[:1], n_targets[:1]),
    ):
        options = {"blank": blank, "reduction": "none", "zero_infinity": True}
        ours, theirs = (
            run(F, ds.tensor, *given, **options),
            run(torch.nn.functional, torch.tensor, *given, **options),
        )
        for own, other in zip(ours, theirs):
            assert own.shape == other.shape and own.dtype == other.dtype
            np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)


def test_impossible_classes():
    """Logarithms of zero: a path that needs them has no probability."""
    with np.errstate(divide="ignore"):
        x = np.log(np.array([[[0.5, 0.5, 0.0]], [[0.0, 1.0, 0.0]], [[1.0, 0.0, 0.0]]]))
    for goal in ([1], [2], [1, 1]):
        given = (x, np.array([goal]), np.array([3]), np.array([len(goal)]))
        ours = F.ctc_loss(*(ds.tensor(g) for g in given), reduction="none").numpy()
        theirs = torch.nn.functional.ctc_loss(*(torch.tensor(g) for g in given), reduction="none").numpy()
        np.testing.assert_allclose(ours, theirs)


def test_of_streams(rng):
    rows = [rng.standard_normal((n, 5)) for n in (9, 4)]
    x = ds.stream_tensor(rows, ids=["a", "b"], names=("B", "L", "F")).log_softmax(-1)
    goals, n_targets = np.array([[1, 2, 2], [3, 0, 0]]), np.array([3, 1])
    padded = np.zeros((9, 2, 5))
    for r, row in enumerate(rows):
        padded[: len(row), r] = row
    plain = F.log_softmax(ds.tensor(padded), -1)
    wanted = F.ctc_loss(plain, goals, [9, 4], n_targets, reduction="none").numpy()
    got = F.ctc_loss(x.transpose(0, 1), goals, None, n_targets, reduction="none").numpy()
    np.testing.assert_allclose(got, wanted)
    fewer = F.ctc_loss(x.transpose(0, 1), goals, [7, 4], n_targets, reduction="none").numpy()
    np.testing.assert_allclose(fewer, F.ctc_loss(plain, goals, [7, 4], n_targets, reduction="none").numpy())
    with pytest.raises(StreamMismatchError) as error:
        F.ctc_loss(x.transpose(0, 1), goals, [9, 5], n_targets)
    assert error.value.ids == ("b",)
    with pytest.raises(ShapeError, match="L, B, classes"):
        F.ctc_loss(x, goals, None, n_targets)


WRONG = {
    "class": (([[5]], [3], [1]), {}, StreamIndexError),
    "blank": (([[1]], [3], [1]), {"blank": 9}, StreamIndexError),
    "frames": (([[1]], [4], [1]), {}, ShapeError),
    "targets": (([[1]], [3], [2]), {}, ShapeError),
    "floats": (([[1.0]], [3], [1]), {}, DTypeError),
    "rows": (([[1]], [3, 3], [1]), {}, ShapeError),
    "reduction": (([[1]], [3], [1]), {"reduction": "max"}, ShapeError),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_arguments(what):
    (goals, lengths, n_targets), options, error = WRONG[what]
    with pytest.raises(error):
        F.ctc_loss(ds.zeros(3, 1, 4), np.array(goals), lengths, n_targets, **options)


def test_layer():
    logits, goals, lengths, n_targets, blank = case(5)
    ours, theirs = (library.CTCLoss(blank, zero_infinity=True) for library in (nn, torch.nn))
    assert repr(ours) == repr(theirs)
    x = F.log_softmax(ds.tensor(logits), -1)
    want = theirs(torch.tensor(x.numpy()), *map(torch.tensor, (goals, lengths, n_targets)))
    np.testing.assert_allclose(ours(x, goals, lengths, n_targets).numpy(), want.numpy())


def test_a_recogniser_trains_on_whole_files(rng):
    """Chunk by chunk under full-file-unaligned, its gradients are those of the files at once."""

    class Spells(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.rnn, self.head = nn.Conv1d(3, 6, 3), nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 4)

        def forward(self, x):
            return self.head(self.rnn(self.conv(x).relu().transpose(1, 2))[0]).log_softmax(-1)

    model = Spells().double()
    data = {"a": rng.standard_normal((3, 20)), "b": rng.standard_normal((3, 13))}
    goals, n_targets = np.array([[1, 2, 3], [2, 2, 0]]), np.array([3, 2])
    for r, x in enumerate(data.values()):
        y = model(ds.tensor(x[None])).transpose(0, 1)
        F.ctc_loss(y, goals[r : r + 1], [y.shape[0]], n_targets[r : r + 1], reduction="sum").backward()
    offline = [p.grad.numpy().copy() for p in model.parameters()]
    model.zero_grad()
    ds.patch_module(model, train_variant="full-file-unaligned").train().online()
    for n in range(0, 20, 5):
        ids = [i for i in data if n < data[i].shape[1]]
        eos = [n + 5 >= data[i].shape[1] for i in ids]
        y = model(ds.stream_tensor([data[i][:, n : n + 5] for i in ids], ids=ids, sos=n == 0, eos=eos))
    F.ctc_loss(y.transpose(0, 1), goals, None, n_targets, reduction="sum").backward()
    for p, g in zip(model.parameters(), offline):
        np.testing.assert_allclose(p.grad.numpy(), g, atol=1e-12)
