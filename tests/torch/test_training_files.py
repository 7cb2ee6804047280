"""Online training with torch: outputs of whole files, and whole streams, against torch itself in float64."""

import collections
import copy

import numpy as np
import pytest
import torch

import dreamstream as ds
from dreamstream.errors import ModeError, StreamIdError

F = torch.nn.functional

from torch_training import (
    MODELS,
    VARIANTS,
    assert_close,
    assert_same_gradients,
    calls,
    cuts,
    noise,
    offline,
    online,
    sequences,
    streams,
)
from turns import by_turns

UNALIGNED = VARIANTS[2]
LENGTHS = {"a": 23, "b": 9, "c": 16}


# ---------------------------------------------------------------------- whole files at their end
@pytest.mark.parametrize("name", MODELS)
def test_a_group_is_given_out_once_when_it_has_ended_with_offline_gradients(name):
    rng = np.random.default_rng(1)
    plain, model = online(name, UNALIGNED)
    xs = sequences(rng, LENGTHS, requires_grad=True)
    own = {i: x.detach().clone().requires_grad_() for i, x in xs.items()}
    *early, last = [model(x) for x in calls(own, {i: cuts(rng, n) for i, n in LENGTHS.items()}, late="b")]
    assert len(early) > 3
    for y in early:
        assert y.ids == [] and y.tensor().shape[0] == 0 and y.names == last.names
        y.tensor().sum().backward()  # a loss of no rows has no gradient, and is no error
    assert all(p.grad is None for p in model.parameters())
    assert model.live_ids == [] and model._patch.session.groups.groups == ()
    assert set(last.ids) == set(xs)
    assert last.meta.sos.all() and last.meta.eos.all() and tuple(last.starts) == (0, 0, 0)
    for i, x in xs.items():
        assert_close(last[i], offline(plain, x), i)
    loss = sum((last[i].square() * noise(*last[i].shape, seed=7)).sum() for i in sorted(xs))
    loss.backward()
    wanted = [offline(plain, xs[i]) for i in sorted(xs)]
    sum((y.square() * noise(*y.shape, seed=7)).sum() for y in wanted).backward()
    assert_same_gradients(model, plain)
    for i in xs:
        assert_close(own[i].grad, xs[i].grad, i)


def test_a_loss_of_whole_files_is_the_offline_one():
    """CTC over two files in ragged chunks."""
    rng = np.random.default_rng(2)
    plain, model = online("lstm", UNALIGNED)
    xs = sequences(rng, {"a": 20, "b": 14})

    def loss(rows, lengths):
        logs = torch.log_softmax(rows, 1).permute(2, 0, 1)
        targets = torch.tensor([[1, 1, 1], [1, 1, 1]])
        return F.ctc_loss(logs, targets, torch.tensor(lengths), torch.tensor([3, 2]), blank=0)

    *_, y = [model(x) for x in calls(xs, {"a": [5, 0, 9, 6], "b": [1, 13]})]
    assert y.ids == ["a", "b"] and y.lengths.tolist() == [20, 14]
    loss(y.tensor(), [20, 14]).backward()
    rows = [offline(plain, xs[i]) for i in ("a", "b")]
    loss(torch.stack([F.pad(r, (0, 20 - r.shape[1])) for r in rows]), [20, 14]).backward()
    assert_same_gradients(model, plain)


Pair = collections.namedtuple("Pair", "wide narrow")


class Structured(torch.nn.Module):
    """Outputs in a named tuple, a dict and a list: frames, halves of frames, the last state, a constant."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(3, 4, 3, padding=1)
        self.down = torch.nn.Conv1d(4, 2, 2, stride=2)
        self.rnn = torch.nn.GRU(4, 3, batch_first=True)

    def forward(self, x):
        x = self.conv(x)
        y, h = self.rnn(x.transpose(1, 2))
        return {"pair": Pair(x, self.down(x)), "list": [y, h], "constant": 7}


def test_whole_files_come_in_whatever_structure_the_forward_returns():
    rng = np.random.default_rng(3)
    plain, model = online(Structured, UNALIGNED)
    xs = sequences(rng, {"a": 11, "b": 6})
    early, *_, last = [model(x) for x in calls(xs, {"a": [4, 4, 3], "b": [6]})]
    assert isinstance(last["pair"], Pair) and isinstance(last["list"], list) and last["constant"] == 7
    assert isinstance(early["pair"], Pair) and early["pair"].wide.ids == []
    for i, x in xs.items():
        want = plain(x[None])
        assert_close(last["pair"].wide[i], want["pair"].wide[0], i)
        assert_close(last["pair"].narrow[i], want["pair"].narrow[0], i)
        assert_close(last["list"][0][i], want["list"][0][0], i)
        row = last["list"][1].ids.index(i)
        assert_close(last["list"][1].tensor()[:, row], want["list"][1][:, 0], i)
    assert last["pair"].narrow.lengths.tolist() == [5, 3]


def test_two_groups_are_given_out_each_in_its_own_call():
    rng = np.random.default_rng(4)
    plain, model = online("residual", UNALIGNED)
    xs = sequences(rng, dict.fromkeys("abcd", 12))

    def call(ids, half, sos="", eos=""):
        return model(streams({i: xs[i][:, 6 * half : 6 * half + 6] for i in ids}, list(sos), list(eos)))

    assert call("ab", 0, sos="ab").ids == []
    assert call("cd", 0, sos="cd").ids == []
    assert call("a", 1, eos="a").ids == []
    second = call("cd", 1, eos="cd")
    assert second.ids == ["c", "d"]
    first = call("b", 1, eos="b")
    assert first.ids == ["a", "b"]
    for y in (first, second):
        for i in y.ids:
            assert_close(y[i], offline(plain, xs[i]), i)


def test_an_id_whose_outputs_wait_cannot_start_again_until_they_are_given_out_or_up():
    _, model = online("conv", UNALIGNED)
    x = noise(3, 8)
    model(streams({"a": x, "b": x}, "ab", ["a"]))
    with pytest.raises(StreamIdError, match=r"\bb\b") as caught:
        model(streams({"a": x}, ["a"]))
    assert caught.value.ids == ("a",)
    model.reset("a")
    model(streams({"a": x}, ["a"]))
    assert model(streams({"a": x}, (), ["a"])).ids == ["a"]
    assert model(streams({"b": x}, (), ["b"])).ids == ["b"]


def test_what_reset_leaves_of_a_group_comes_with_the_next_call():
    plain, model = online("conv", UNALIGNED)
    x, z = noise(3, 8), noise(3, 6, seed=1)
    model(streams({"a": x, "b": x}, "ab", ["a"]))
    model.reset("b")
    assert model.live_ids == []
    for lose in (lambda: ds.patch_module(model, VARIANTS[0]), lambda: ds.unpatch_module(model)):
        with pytest.raises(ModeError) as caught:
            lose()
        assert caught.value.ids == ("a",)
    y = model(streams({"c": z}, ["c"]))
    assert y.ids == ["a"]
    assert_close(y["a"], offline(plain, x))
    y = model(streams({"c": z}, (), ["c"]))
    assert y.ids == ["c"]
    model(streams({"a": x, "b": x}, "ab", ["a"]))
    model.reset()
    assert model(streams({"a": x}, ["a"], ["a"])).ids == ["a"]


def test_a_failed_call_holds_nothing_back_and_gives_nothing_out():
    plain, model = online("conv", UNALIGNED)
    x = noise(3, 16)
    model(streams({"a": x[:, :8]}, ["a"]))
    handle = model.up.register_forward_hook(lambda *_: 1 / 0)
    for eos in ((), ["a"]):
        with pytest.raises(ZeroDivisionError):
            model(streams({"a": x[:, 8:]}, (), eos))
    handle.remove()
    y = model(streams({"a": x[:, 8:]}, (), ["a"]))
    assert_close(y["a"], offline(plain, x))


def test_streams_whose_outputs_are_held_back_end_in_the_mode_in_which_they_began():
    plain, model = online("conv", UNALIGNED)
    x = noise(3, 8)
    model(streams({"a": x}, ["a"]))
    with pytest.raises(ModeError) as caught:
        model.eval()(streams({"a": x}, (), ["a"]))
    assert caught.value.ids == ("a",)
    y = model(streams({"b": x}, ["b"]))  # in evaluation outputs come chunk by chunk
    assert y.ids == ["b"] and y.tensor().shape[2] > 0
    with pytest.raises(ModeError) as caught:
        model.train()(streams({"b": x}, (), ["b"]))
    assert caught.value.ids == ("b",)
    y = model(streams({"a": x}, (), ["a"]))
    assert_close(y["a"], offline(plain, torch.cat([x, x], 1)))


# ---------------------------------------------------------------------- D: whole streams
class Normed(torch.nn.Module):
    """Batch norm and dropout between convolutions."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(3, 6, 3, padding=1)
        self.norm = torch.nn.BatchNorm1d(6)
        self.dropout = torch.nn.Dropout(0.4)
        self.last = torch.nn.Conv1d(6, 2, 3, stride=2)

    def forward(self, x):
        return self.last(self.dropout(F.relu(self.norm(self.conv(x)))))


@pytest.mark.parametrize(("name", "variant"), [*by_turns(MODELS, VARIANTS), *((Normed, v) for v in VARIANTS)])
def test_whole_streams_train_as_offline(name, variant):
    plain, model = online(name, variant)
    x = noise(3, 3, 14).requires_grad_()
    own = x.detach().clone().requires_grad_()
    for step in range(2):
        torch.manual_seed(step)
        want = plain(x)
        torch.manual_seed(step)
        y = model(streams(dict(zip("abc", own)), "abc", "abc"))
        assert_close(y.tensor(), want)
        weight = noise(*want.shape, seed=5)
        (want * weight).sum().backward()
        (y.tensor() * weight).sum().backward()
        assert_same_gradients(model, plain)
        assert_close(own.grad, x.grad)
        for (key, a), (_, b) in zip(model.named_buffers(), plain.named_buffers()):
            assert_close(a, b, key)
        assert model.live_ids == [] and model._patch.session.groups.groups == ()


@pytest.mark.parametrize(("name", "variant"), by_turns(MODELS, VARIANTS))
def test_shorter_whole_rows_train_as_alone_also_among_rows_that_go_on(name, variant):
    rng = np.random.default_rng(6)
    plain, model = online(name, variant)
    xs = sequences(rng, LENGTHS, requires_grad=True)
    own = {i: x.detach().clone().requires_grad_() for i, x in xs.items()}
    y = model(streams(own, "abc", "abc"))
    going = None
    if variant == VARIANTS[0]:
        ds.unpatch_module(model)
        model = ds.patch_module(model, variant).online()
        y = model(streams({**own, "z": noise(3, 30)}, "abcz", "abc"))
        going = "z"
    for i, x in xs.items():
        assert_close(y[i], offline(plain, x), i)
    sum(y[i].square().sum() for i in xs).backward()
    sum(offline(plain, x).square().sum() for x in xs.values()).backward()
    assert_same_gradients(model, plain)
    for i in xs:
        assert_close(own[i].grad, xs[i].grad, i)
    assert model.live_ids == ([going] if going else [])


def test_batch_norm_takes_its_statistics_from_valid_frames():
    torch.manual_seed(0)
    plain = torch.nn.BatchNorm1d(3).double()
    model = ds.patch_module(copy.deepcopy(plain)).online()
    xs = sequences(np.random.default_rng(7), {"a": 9, "b": 4})
    y = model(streams(xs, "ab", "ab"))
    want = plain(torch.cat(list(xs.values()), 1)[None])[0]
    assert_close(torch.cat([y["a"], y["b"]], 1), want)
    for a, b in zip(model.buffers(), plain.buffers()):
        assert_close(a, b)
    assert int(model.num_batches_tracked) == 1


@pytest.mark.parametrize("variant", VARIANTS)
def test_batch_norm_refuses_streams_that_go_on_and_keeps_its_buffers(variant):
    _, model = online(Normed, variant)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(ModeError, match="eval") as caught:
        model(streams({"a": noise(3, 9), "b": noise(3, 9)}, "ab", "b"))
    assert caught.value.ids == ("a",) and model.live_ids == []
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    model.norm.eval()
    model(streams({"a": noise(3, 9)}, ["a"]))
    assert model.live_ids == ["a"]
