"""Gradients of rows of unequal lengths in one chunk, and weights that every call computes anew."""

import gc
import weakref

import pytest
import torch
from torch import nn

import dreamstream as ds
from dreamstream.torch.run.kernels import convolution


class Lstm(nn.Module):
    """An LSTM of batches first, seen as a stream of columns."""

    def __init__(self, layers: int, bias: bool) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 5, layers, bias, batch_first=True)

    def forward(self, x):
        return self.rnn(x.transpose(1, 2))[0].transpose(1, 2)


MODELS = {
    "lstm": lambda: Lstm(1, True),
    "lstm of three": lambda: Lstm(3, False),
    "conv": lambda: nn.Conv1d(4, 5, 3, padding=1),
    "strided": lambda: nn.Conv1d(4, 5, 3, 2, padding=2),
    "sparse": lambda: nn.Conv1d(4, 4, 2, 5, groups=2),
    "wide": lambda: nn.Conv1d(4, 5, 4, 3, dilation=2, padding=3),
    "reflected": lambda: nn.Conv1d(4, 5, 5, padding=2, padding_mode="reflect"),
}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_ragged_rows(name):
    """Frames that only stand behind short rows have no part in gradients."""
    torch.manual_seed(0)
    model, rows = MODELS[name]().train(), [torch.randn(4, n) for n in (20, 12, 17)]
    sum(model(x[None]).square().sum() for x in rows).backward()
    want = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    ds.patch_module(model).online()
    y = model(ds.stream_tensor(rows, ids=list("abc"), sos=True, eos=True))
    sum(y[i].square().sum() for i in "abc").backward()
    for p, expected in zip(model.parameters(), want):
        torch.testing.assert_close(p.grad, expected, rtol=1e-4, atol=1e-4)


def test_a_weight_that_is_computed_anew():
    """A call repeats what the one before did with such a weight, and nothing keeps it until the next."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 5, 3))).eval()
    whole = torch.randn(1, 4, 40)
    want = model(whole).detach()
    ds.patch_module(model).online()
    made, ys = [], []
    model[0].parametrizations.weight[0].register_forward_hook(lambda _, __, w: made.append(weakref.ref(w)))
    with torch.no_grad():
        for begin in range(0, 40, 10):
            chunk = whole[..., begin : begin + 10]
            ys.append(model(ds.stream_tensor(chunk, ids=["a"], sos=begin == 0, eos=begin == 30))["a"])
            gc.collect()
            assert made and all(w() is None for w in made)
    torch.testing.assert_close(torch.cat(ys, -1), want[0])


class Of(nn.Module):
    """A function of layers and a tensor (B, 4, L) as a forward."""

    def __init__(self, function, *layers):
        super().__init__()
        self.layers, self.function = nn.ModuleList(layers), function

    def forward(self, x):
        return self.function(x, *self.layers)


def attended(x, *layers):
    """Chunks of two frames see one before theirs; other frames see all up to themselves, and all there are."""
    y = x.transpose(1, 2)
    B, L, _ = y.shape
    q, k, v = (f(y).view(B, L, 2, 2).transpose(1, 2) for f in layers)
    at = torch.arange(L, device=x.device) // 2
    seen = (at[None] <= at[:, None]) & (at[None] >= at[:, None] - 1)
    near = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    far = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    far = far + nn.functional.scaled_dot_product_attention(q, k, v)
    return (near + far).transpose(1, 2).reshape(B, L, 4).transpose(1, 2)


def shifted(x, conv):
    return conv(nn.functional.pad(x, (3, 0)))[..., 2:] + conv(nn.functional.pad(x, (1, 0), mode="replicate"))


def logs(x, first, second):
    """Layers whose gradients are infinite at zero, behind frames that only stand beside others."""
    return second(torch.log(first(nn.functional.pad(x, (2, 0))).square().sum(1, keepdim=True)))


GOING_ON = {
    "causal": lambda: Of(shifted, nn.Conv1d(4, 5, 3)),
    "one tap": lambda: Of(lambda x, a, b: b(a(x)), nn.Conv1d(4, 4, 1), nn.Conv1d(4, 4, 1, groups=2, bias=False)),
    "looks ahead": lambda: Of(lambda x, a: x + a(x), nn.Conv1d(4, 4, 5, padding=4, dilation=2)),
    "strided": lambda: Of(lambda x, a, b: b(a(x)), nn.Conv1d(4, 4, 4, 2, 1), nn.ConvTranspose1d(4, 5, 4, 2, 1)),
    "pooled": lambda: Of(lambda x, a: nn.functional.max_pool1d(a(x), 3, 1, 1), nn.Conv1d(4, 4, 3, padding=1)),
    "planes": lambda: Of(
        lambda x, a, b, c: c(b(a(x[:, None]))).flatten(1, 2),
        *(nn.Conv2d(1, 2, (3, 1), padding=(1, 0)), nn.Conv2d(2, 3, 3, padding=1, groups=1)),
        nn.ConvTranspose2d(3, 2, (3, 1), padding=(1, 0)),
    ),
    "planes back": lambda: Of(
        lambda x, a, b: b(torch.relu(a(nn.functional.pad(x[:, None], (2, 0))))).flatten(1, 2)[..., :-1],
        *(nn.Conv2d(1, 2, (2, 3), stride=(2, 1)), nn.ConvTranspose2d(2, 1, (2, 2), stride=(2, 1))),
    ),
    "gru": lambda: Of(lambda x, a: a(x.transpose(1, 2))[0].transpose(1, 2), nn.GRU(4, 5, 2, batch_first=True)),
    "attention": lambda: Of(attended, *(nn.Linear(4, 4) for _ in range(3))),
    "logarithms": lambda: Of(logs, nn.Conv1d(4, 4, 3), nn.Conv1d(1, 4, 1)),
}

#: New frames of four streams per call, None before one begins and after it has ended.
CALLS = (
    ((4, 4, 4, None), (3, 1, 2, None), (2, 5, 0, None), (1, 0, 3, 2), (4, 2, 1, 3), (3, 3, 3, 3), (2, None, 4, 4)),
    ((6, 6, None, None), (1, 30, None, None), (2, 1, None, None), (1, 1, 1, 1), (2, 2, 2, 2), (9, 1, 1, 1)),
)


def rows_in_chunks(model, rows, calls):
    """Stream rows as `calls` says; return each row's frames."""
    at, got = [0] * len(rows), [[] for _ in rows]
    for n, sizes in enumerate(calls):
        there = [r for r, size in enumerate(sizes) if size is not None]
        chunks = [rows[r][:, at[r] : at[r] + sizes[r]] for r in there]
        begun = [all(call[r] is None for call in calls[:n]) for r in there]
        ends = [all(call[r] is None for call in calls[n + 1 :]) for r in there]
        ids = [f"row {r}" for r in there]
        y = model(ds.stream_tensor(chunks, ids=ids, sos=begun, eos=ends, names=("B", None, "L")))
        for r, i in zip(there, ids):
            at[r] += sizes[r]
            got[r].append(y[i])
    return [torch.cat(parts, -1) for parts in got]


@pytest.mark.parametrize("calls", CALLS, ids=["uneven", "one is long"])
@pytest.mark.parametrize("name", GOING_ON)
def test_ragged_rows_that_go_on(name, calls):
    """Values and gradients are those of whole files, of streams that begin and end within others' lives, too."""
    torch.manual_seed(0)
    model = GOING_ON[name]().double().train()
    rows = [torch.randn(4, sum(filter(None, sizes)), dtype=torch.double) for sizes in zip(*calls)]
    want = [model(x[None])[0] for x in rows]
    sum(y.square().sum() for y in want).backward()
    slopes = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    options = {"unstreamable": "buffer"} if name == "attention" else {}
    ds.patch_module(model, train_variant="full-file-aligned", **options).online()
    got = rows_in_chunks(model, rows, calls)
    sum(y.square().sum() for y in got).backward()
    for y, expected in zip(got, want):
        torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-9)
    for p, expected in zip(model.parameters(), slopes):
        torch.testing.assert_close(p.grad, expected, rtol=1e-9, atol=1e-9)
    with torch.no_grad():
        model.eval()
        for y, expected in zip(rows_in_chunks(model, rows, calls), want):
            torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-9)


#: Convolutions of frames, and of several lanes.
RUNS = {
    "causal": GOING_ON["causal"],
    "dilated": lambda: nn.Conv1d(4, 5, 3, padding=2, dilation=2),
    "strided": lambda: nn.Conv1d(4, 5, 4, 3, padding=2),
    "replicated": lambda: nn.Conv1d(4, 5, 5, padding=2, padding_mode="replicate"),
    "of groups": lambda: nn.Conv1d(4, 6, 3, 2, groups=2, bias=False),
    "of lanes": lambda: Of(
        lambda x, a: a(x.reshape(x.size(0), 2, 2, -1).flatten(0, 1)).unflatten(0, (-1, 2)).flatten(1, 2),
        nn.Conv1d(2, 3, 3, padding=1),
    ),
}


@pytest.mark.parametrize("calls", CALLS, ids=["uneven", "one is long"])
@pytest.mark.parametrize("name", RUNS)
def test_ragged_rows_in_one_run(name, calls, monkeypatch):
    """In evaluation a convolution lays unequal rows end to end where that spares many products: here wherever."""
    taken, lengths_of = [], convolution._run_lengths
    monkeypatch.setattr(convolution, "_MANY", -1e9)
    monkeypatch.setattr(convolution, "_run_lengths", lambda *given: taken.append(lengths_of(*given)) or taken[-1])
    torch.manual_seed(0)
    model = RUNS[name]().double().eval()
    rows = [torch.randn(4, sum(filter(None, sizes)), dtype=torch.double) for sizes in zip(*calls)]
    with torch.no_grad():
        want = [model(x[None])[0] for x in rows]
        ds.patch_module(model).online()
        for y, expected in zip(rows_in_chunks(model, rows, calls), want):
            torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-9)
    assert any(lengths is not None for lengths in taken)


@pytest.mark.parametrize("name", ["gru", "attention", "causal", "planes"])
def test_training_after_inference_mode(name):
    """What a call in inference mode leaves for later ones serves where gradients are wanted, of gradients, too."""
    torch.manual_seed(0)
    model = GOING_ON[name]().double()
    ds.patch_module(model, unstreamable="buffer").online()
    rows = [torch.randn(4, n, dtype=torch.double) for n in (6, 3, 5)]
    with torch.inference_mode():
        model.eval()(ds.stream_tensor(rows, ids=list("abc"), sos=True, eos=True))
    y = model.train()(ds.stream_tensor(rows, ids=list("abc"), sos=True, eos=True))
    loss = sum(y[i].square().sum() for i in "abc")
    slopes = torch.autograd.grad(loss, list(model.parameters()), create_graph=name != "gru")
    assert all(slope.abs().sum() > 0 for slope in slopes)
    if name != "gru":  # whose kernel in torch is differentiated once, offline, too
        sum(slope.square().sum() for slope in slopes).backward()
