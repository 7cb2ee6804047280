"""A call that brings the like of the one before finds out less; whatever happens between two of them is seen."""

import copy
import sys

import pytest
import torch
from torch import nn

import dreamstream as ds
import dreamstream.torch
from dreamstream.stream.metadata import StreamMetadata
from dreamstream.stream.tensor_info import Info
from dreamstream.torch.tensor.padding import padding, unpadding

N = 4


class Net(nn.Module):
    """Two convolutions, the second with a stride."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(3, 4, 3), nn.Conv1d(4, 2, 4, stride=2)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def patched(**options):
    torch.manual_seed(0)
    return ds.patch_module(Net().eval(), train_variant="chunk-wise-aligned", **options).online()


def chunk(x, ids=("a",), sos=False, eos=False):
    return ds.stream_tensor(x, ids=list(ids), sos=sos, eos=eos)


def fails(model):
    """A call of the like fails once its first convolution has run."""

    def hook(*_):
        raise ValueError("a hook fails")

    handle, ids = model.second.register_forward_pre_hook(hook), model.live_ids
    with pytest.raises(ValueError, match="a hook fails"):
        model(chunk(torch.randn(len(ids), 3, N), ids))
    handle.remove()


def loses_and_gets(model):
    states = model.get_state()
    model.reset()
    model.set_state(states)


def runs_another(model):
    model(chunk(torch.randn(1, 3, N), ["b"], sos=True))
    model(chunk(torch.randn(1, 3, N), ["b"], eos=True))


def trains(model):
    model.train(not model.training)


BETWEEN = {
    "nothing": lambda model: None,
    "a call that fails": fails,
    "states that are taken and given": loses_and_gets,
    "another stream": runs_another,
    "training": trains,
    "gradients": lambda model: torch.set_grad_enabled(not torch.is_grad_enabled()),
    "a hook": lambda model: model.first.register_forward_hook(lambda module, given, y: y),
    "weights elsewhere in memory": lambda model: setattr(model.first.weight, "data", model.first.weight.data + 0),
    "a call offline": lambda model: (model.offline()(torch.randn(1, 3, 9)), model.online()),
    "another default type": lambda model: torch.set_default_dtype(torch.float64),
}


@pytest.fixture(autouse=True)
def settings():
    enabled, kind = torch.is_grad_enabled(), torch.get_default_dtype()
    yield
    torch.set_grad_enabled(enabled)
    torch.set_default_dtype(kind)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("grad", [False, True], ids=["evaluated", "recorded"])
@pytest.mark.parametrize("name", BETWEEN)
def test_what_happens_between_two_calls_is_seen(name, grad, rows):
    model, ids = patched(), ["a", "y", "z"][:rows]
    sizes = [N, 3, 3, N, 3, N, 3, N, N, 3]
    whole = torch.randn(rows, 3, sum(sizes))
    want, got = copy.deepcopy(model).offline()(whole).detach(), []
    torch.set_grad_enabled(grad)
    for i, x in enumerate(whole.split(sizes, 2)):
        if i in (4, 5, 7):
            BETWEEN[name](model)
        got.append(model(chunk(x, ids, i == 0, i == 9)).tensor().detach())
    assert torch.allclose(torch.cat(got, 2), want, atol=1e-6)


@torch.no_grad()
def test_sizes_and_streams_that_change():
    model, got = patched(), {i: [] for i in "abc"}
    sizes = [5, 5, 5, 3, 3, 3, 0, 0, 0, 5, 5, 1, 1, 1]
    whole = {i: torch.randn(3, sum(sizes)) for i in "abc"}
    for k, parts in enumerate(zip(*[x.split(sizes, 1) for x in whole.values()])):
        new, first, last = dict(zip("abc", parts)), k == 0, k == len(sizes) - 1
        together = ["abc", "ab", "ab", "ba", "abc", "abc"][k % 6]
        for ids in filter(None, (together, [i for i in "abc" if i not in together])):
            x = torch.stack([new[i] for i in ids], k % 3).movedim(k % 3, 0)  # in memory it lies otherwise
            y = model(chunk(x, ids, first, last))
            for i in ids:
                got[i].append(y.stream(i))
    for i, x in whole.items():
        assert torch.allclose(torch.cat(got[i], 1), model.offline()(x[None])[0], atol=1e-6)


def test_inputs_that_drift_apart_are_refused_in_time():
    class Two(nn.Module):
        def forward(self, x, y):
            return x + 1, y * 2

    model = ds.patch_module(Two(), skew=3).online()
    for k in range(4):
        x, y = (ds.stream_tensor(torch.randn(1, 2, n), ids=["a"], sos=k == 0) for n in (3, 2))
        if k < 3:
            model(x, y)
            continue
        with pytest.raises(ds.StreamMismatchError, match="further apart than the skew allows"):
            model(x, y)


def test_tables_do_not_grow_with_streams_that_are_forgotten():
    model = patched()
    with torch.no_grad():
        for _ in range(20):
            for k in range(4):
                model(chunk(torch.randn(2, 3, N), ["a", "b"], sos=k == 0))
            model.reset("a")
            model(chunk(torch.randn(1, 3, N), ["b"], eos=True))
    assert model._patch.session.table.n_rows <= 6


@torch.no_grad()
def test_outputs_stand_where_their_own_call_has_put_them():
    model = patched()
    ys = [model(chunk(torch.randn(1, 3, N), sos=k == 0, eos=k == 5)) for k in range(6)]
    made = [0, *torch.tensor([int(y.lengths[0]) for y in ys]).cumsum(0).tolist()]
    assert [y.starts[0] for y in ys] == made[:-1]
    assert [y.sos[0] for y in ys] == [True, *[False] * 5] and [y.eos[0] for y in ys] == [*[False] * 5, True]


#: Names of dimensions, sizes of the features, and whether there is one row alone.
SEEN = [
    (("B", "L", None), (2,), False), (("L", "B", None), (2,), False), (("B", None, "L"), (2,), False),
    ((None, "B", "L", None), (2, 3), False), (("B_L", None), (2,), False), ((None, "B_L"), (2,), False),
    (("B", None), (2,), False), (("B", "L"), (), False), (("L", None), (2,), True), ((None, "L"), (2,), True),
]  # fmt: skip


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("case", SEEN, ids=str)
def test_frames_and_padded_tensors_are_the_same_by_views(case, rows):
    names, features, single = case
    n = 4 if any(name in ("L", "B_L") for name in names) else 1
    rows = 1 if single else rows
    info = Info(names, StreamMetadata([str(r) for r in range(rows)], False, False, n))
    sizes, left = {"B": rows, "L": n, "B_L": rows * n}, iter(features)
    padded = torch.randn([sizes.get(name) or next(left) for name in names]).transpose(0, -1).contiguous()
    padded = padded.transpose(0, -1)
    frames = unpadding(info, padded.shape)(padded)
    assert torch.equal(unpadding(info, padded.shape, plain=True)(padded), frames)
    assert torch.equal(padding(info, frames.shape[1:])(frames), padded)
    by_view = padding(info, frames.shape[1:], plain=True)(frames)
    assert torch.equal(by_view, padded) and by_view.shape == padded.shape


@torch.no_grad()
@pytest.mark.parametrize("name", ["written into", "seen the other way round"])
def test_weights_that_change_between_calls_are_seen(name):
    model = ds.patch_module(nn.Conv1d(3, 3, 3, padding_mode="zeros").eval()).online()
    kept = torch.zeros(1, 3, 0)
    for k in range(8):
        if k == 5 and name == "written into":
            model.weight.data.mul_(2)
        elif k == 5:
            model.weight.data = model.weight.data.transpose(0, 1)
        frames = torch.cat([kept, torch.randn(1, 3, N)], 2)
        y = model(chunk(frames[..., kept.shape[2] :], sos=k == 0)).tensor()
        assert torch.allclose(y, nn.functional.conv1d(frames, model.weight, model.bias), atol=1e-6)
        kept = frames[..., -2:]


@torch.no_grad()
def test_states_are_those_of_the_last_call_whenever_they_are_asked_for():
    model, asked = patched(), patched()
    for k in range(8):
        x = torch.randn(2, 3, N)
        for each in (model, asked):
            each(chunk(x, ["a", "b"], sos=k == 0))
        assert k % 3 or model.get_state() == asked.get_state()
        assert asked.get_state("a")["a"] == asked.get_state()["a"]


@torch.no_grad()
def test_a_call_of_a_convolution_runs_few_functions_of_python():
    model = ds.patch_module(nn.Sequential(nn.Conv1d(4, 4, 3)).eval()).online()
    for k in range(12):  # the first are watched for random numbers
        model(ds.stream_tensor(torch.randn(1, 4, 8 - k % 3), ids=["a"], sos=k == 0))
    given, seen = ds.stream_tensor(torch.randn(1, 4, 8), ids=["a"]), []
    sys.setprofile(lambda frame, event, _: event == "call" and seen.append(frame.f_code))
    try:
        model(given)
    finally:
        sys.setprofile(None)
    ours = [code.co_name for code in seen if "/dreamstream/" in code.co_filename]
    assert len(ours) <= 60, (len(ours), ours)
