"""Targets of whole streams, cut to what a call has given: with torch's tensors and with ours."""

import numpy as np
import pytest
import torch
from torch_training import calls, cuts, gathered, made, sequences, streams

import dreamstream as ds
from dreamstream.errors import ShapeError, StreamIdError, StreamMismatchError

LENGTHS = {"a": 23, "b": 9, "c": 16}


@pytest.mark.parametrize("kind", ["numpy", "torch", "native"])
@pytest.mark.parametrize("name", ["conv", "lstm", "residual"])
def test_targets_laid_end_to_end_are_the_whole_ones(name, kind):
    rng = np.random.default_rng(1)
    model = ds.patch_module(made(name)).online().train()
    xs = sequences(rng, LENGTHS)
    sizes = {i: model.offline()(x[None]).shape[2] for i, x in xs.items()}
    model.online()
    arrays = {i: rng.standard_normal((n, 2, 3)) for i, n in sizes.items()}
    arrays["nobody"] = np.zeros((3, 2, 3))
    make = {"numpy": np.asarray, "torch": torch.tensor, "native": lambda a: ds.tensor(a)}[kind]
    targets = {i: make(a) for i, a in arrays.items()}
    parts = []
    for x in calls(xs, {i: cuts(rng, n) for i, n in LENGTHS.items()}, late="b"):
        y = model(x)
        t = ds.train.align(y, targets)
        assert isinstance(t, type(y)) and t.dtype == torch.float64
        assert t.meta == y.meta and tuple(t.starts) == tuple(y.starts) and t.rate == y.rate
        assert t.names[:2] == ("B", "L")
        parts.append({i: t[i] for i in t.ids})
    for i in LENGTHS:
        whole = torch.cat([p[i] for p in parts if i in p])
        assert torch.equal(whole, torch.tensor(arrays[i]))


def test_aligned_targets_meet_outputs_in_a_loss_of_valid_frames():
    rng = np.random.default_rng(2)
    model = ds.patch_module(made("lstm")).online().train()
    xs = sequences(rng, {"a": 9, "b": 4})
    targets = {i: torch.tensor(rng.standard_normal((x.shape[1], 2))) for i, x in xs.items()}
    at = dict.fromkeys(xs, 0)
    for x in calls(xs, {"a": [4, 5], "b": [3, 1]}):
        y = model(x)
        loss = torch.nn.functional.mse_loss(y.transpose(1, 2), ds.train.align(y, targets))
        errors = []
        for i, frames in gathered([y]).items():
            errors.append(frames.T - targets[i][at[i] : at[i] + frames.shape[1]])
            at[i] += frames.shape[1]
        assert torch.allclose(loss, torch.cat(errors).square().mean(), rtol=1e-12) and loss.requires_grad


def test_targets_of_outputs_without_frames():
    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = torch.nn.GRU(3, 2, batch_first=True)

        def forward(self, x):
            return self.rnn(x.transpose(1, 2))[1][0]

    model = ds.patch_module(made(Last)).online().train()
    xs = sequences(np.random.default_rng(3), {"a": 6, "b": 4})
    targets = {i: torch.full((1, 2), float(k)) for k, i in enumerate("ab")}
    first, second = (ds.train.align(model(x), targets) for x in calls(xs, {"a": [3, 3], "b": [4]}))
    assert first.lengths.tolist() == [0, 1] and first.tensor().shape == (2, 2)
    assert first["b"].tolist() == [[1.0, 1.0]] and second["a"].tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("library", [ds.nn, torch.nn])
def test_targets_of_outputs_without_rows_are_as_wide(library):
    """What waits for a file's end has no rows before; it meets targets in a loss all the same."""
    model = ds.patch_module(library.Linear(3, 5), train_variant="full-file-unaligned").train().online()
    x = (ds.ones if library is ds.nn else torch.ones)(3, 3)
    y = model(ds.stream_tensor([x], ids=["a"], sos=True, names=("B", "L", None)))
    assert ((y - ds.train.align(y, {"a": np.ones((6, 5), np.float32)})) ** 2).sum().item() == 0


def outputs(model, n=6, eos=()):
    return model(streams({"a": torch.zeros(3, n, dtype=torch.float64)}, ["a"], eos))


def test_what_does_not_fit_is_refused_with_its_ids():
    model = ds.patch_module(made("lstm")).online()
    y = outputs(model)
    with pytest.raises(StreamIdError) as caught:
        ds.train.align(y, {"b": np.zeros(6)})
    assert caught.value.ids == ("a",)
    with pytest.raises(StreamMismatchError, match=r"5 frames.*reached 6") as caught:
        ds.train.align(y, {"a": np.zeros(5)})
    assert caught.value.ids == ("a",)
    for bad in ("text", np.float64(1.0), None):
        with pytest.raises(ShapeError):
            ds.train.align(y, {"a": bad})
    model.reset()
    y = outputs(model, eos=["a"])
    assert ds.train.align(y, {"a": np.zeros(6)}).lengths.tolist() == [6]
    with pytest.raises(StreamMismatchError, match=r"7 frames.*ended after 6"):
        ds.train.align(y, {"a": np.zeros(7)})
    with pytest.raises(StreamMismatchError, match="which frames"):
        ds.train.align(streams({"a": torch.zeros(3, 4)}, "a"), {"a": np.zeros(4)})
    y = model(streams({i: torch.zeros(3, 4, dtype=torch.float64) for i in "bc"}, "bc"))
    with pytest.raises(ShapeError, match="more than their length"):
        ds.train.align(y, {"b": np.zeros((9, 2)), "c": np.zeros((9, 3))})


def test_native_outputs_have_native_targets():
    model = ds.patch_module(ds.nn.Conv1d(2, 2, 3, padding=1)).online()
    x = np.random.default_rng(4).standard_normal((2, 10)).astype(np.float32)
    targets = {"a": torch.arange(10), "b": torch.arange(10) * 2}
    parts = {"a": [], "b": []}
    for cut, sos, eos in ((slice(0, 4), True, False), (slice(4, 10), False, True)):
        y = model(ds.stream_tensor([x[:, cut], x[:, cut]], ids=["a", "b"], sos=sos, eos=eos))
        t = ds.train.align(y, targets)
        assert isinstance(t, ds.StreamTensor) and t.dtype == np.int64 and t.starts == y.starts
        for i in parts:
            parts[i].append(t[i].numpy())
    for i, p in parts.items():
        assert np.concatenate(p).tolist() == targets[i].tolist()


def test_what_is_no_dict_of_targets():
    y = ds.stream_tensor([np.zeros((3, 4), np.float32)], ids=["a"], sos=True)
    with pytest.raises(TypeError, match="targets are a dict, by id the target of the whole stream, got Tensor"):
        ds.train.align(y, torch.zeros(4))
    with pytest.raises(TypeError, match="y is what an online module returned, got Tensor"):
        ds.train.align(torch.zeros(1, 4), {})
