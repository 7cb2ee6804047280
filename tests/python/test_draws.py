"""What layers draw in training: it depends on seed, stream, place and frame, not on chunks or companions."""

import numpy as np
import pytest
import torch

import dreamstream as ds
from dreamstream import nn
from dreamstream.nn import functional as F, gates
from dreamstream.torch import nn as ds_torch_nn

BLOCK = ds.Context(chunk=4, left=8, right=2)


class Cells(nn.Module):
    """A loop over frames, whose state and outputs are dropped in part."""

    def __init__(self, drop):
        super().__init__()
        self.cell, self.drop = nn.GRUCell(8, 8), drop

    def forward(self, x):
        h, ys = ds.zeros(x.size(0), 8, dtype=x.dtype), []
        for t in range(x.size(1)):
            h = self.drop(self.cell(x[:, t], h), 0.3, self.training)
            ys.append(self.drop(h + x[:, t], 0.2, self.training))
        return ds.stack(ys, 1)


class Layers(nn.Module):
    """Layers in a row, of ``(B, L, 8)``; each that draws is given."""

    def __init__(self, *layers):
        super().__init__()
        self.first = nn.Linear(3, 8)
        self.layers = nn.ModuleList(layers)
        self.last = nn.Linear(8, 2)

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = x + self.through(layer, x)
        return self.last(x)

    def through(self, layer, x):
        if isinstance(layer, nn.MultiheadAttention):
            return layer(x, x, x, need_weights=False)[0]
        if isinstance(layer, (nn.LSTM, nn.GRU, nn.RNN)):
            return layer(x)[0]
        if isinstance(layer, (nn.Dropout1d, nn.FeatureAlphaDropout)):
            return layer(x.transpose(1, 2)).transpose(1, 2)
        return layer(x)


CASES = {
    "dropout": lambda: [nn.Dropout(0.3)],
    "two at one place": lambda: [nn.Dropout(0.3), nn.Sequential(nn.Dropout(0.2), nn.Dropout(0.5))],
    "alpha": lambda: [nn.AlphaDropout(0.3)],
    "leaking": lambda: [nn.RReLU(), nn.RReLU(0.1, 0.9)],
    "channels": lambda: [nn.Dropout1d(0.4)],
    "channels, alpha": lambda: [nn.FeatureAlphaDropout(0.4)],
    "attention": lambda: [nn.MultiheadAttention(8, 2, dropout=0.3, batch_first=True, context=BLOCK)],
    "lstm": lambda: [nn.LSTM(8, 8, num_layers=3, batch_first=True, dropout=0.4)],
    "lstm, projected": lambda: [nn.LSTM(8, 16, num_layers=2, batch_first=True, dropout=0.4, proj_size=8)],
    "gru": lambda: [nn.GRU(8, 8, num_layers=2, batch_first=True, dropout=0.4)],
    "rnn": lambda: [nn.RNN(8, 8, num_layers=2, batch_first=True, dropout=0.4)],
    "a loop": lambda: [Cells(F.dropout)],
    "a loop, alpha": lambda: [nn.Dropout(0.3), Cells(F.alpha_dropout)],
    "all": lambda: [nn.Dropout(0.2), nn.GRU(8, 8, num_layers=2, batch_first=True, dropout=0.4), nn.Dropout1d(0.3)],
}
LENGTHS = {"a": 23, "b": 17}
CUT = [[("b", 5)], [("a", 7), ("b", 3)], [("b", 99), ("a", 2)], [("a", 99)]]
RNG = np.random.default_rng(0)
FILES = {i: RNG.standard_normal((n, 3)) for i, n in LENGTHS.items()}


def trained(case, calls, variant="full-file-aligned", seed=0, model=None):
    """Return the outputs of whole streams, and the gradients of the sum of their squares."""
    if model is None:
        ds.manual_seed(7)
        model = ds.patch_module(Layers(*CASES[case]()).double(), variant).train().online()
    model.zero_grad()
    ds.manual_seed(seed)
    done, got, losses = dict.fromkeys(FILES, 0), {}, []
    for call in calls:
        parts = {i: FILES[i][done[i] : done[i] + n] for i, n in call}
        sos = [done[i] == 0 for i in parts]
        for i, x in parts.items():
            done[i] += len(x)
        eos = [done[i] == len(FILES[i]) for i in parts]
        x = ds.stream_tensor(list(parts.values()), names=("B", "L", "F"), ids=list(parts), sos=sos, eos=eos)
        y = model(x)
        for i in y.ids:
            got.setdefault(i, []).append(y[i].numpy())
        losses.append((y * y).sum())
    total = losses[0]
    for loss in losses[1:]:
        total = total + loss
    total.backward()
    grads = {n: p.grad.numpy().copy() for n, p in model.named_parameters()}
    return {i: np.concatenate(parts) for i, parts in got.items()}, grads


@pytest.mark.parametrize("case", CASES)
def test_chunks_and_companions_change_no_mask(case):
    whole, slopes = trained(case, [[("a", 99), ("b", 99)]])
    cut, of_cut = trained(case, CUT)
    for i in FILES:
        np.testing.assert_allclose(cut[i], whole[i], atol=1e-12)
    for name, slope in slopes.items():
        np.testing.assert_allclose(of_cut[name], slope, atol=1e-10)
    (a, of_a), (b, of_b) = trained(case, [[("a", 6)]] * 4), trained(case, [[("b", 99)]])
    np.testing.assert_allclose(a["a"], whole["a"], atol=1e-12)
    np.testing.assert_allclose(b["b"], whole["b"], atol=1e-12)
    for name, slope in slopes.items():
        np.testing.assert_allclose(of_a[name] + of_b[name], slope, atol=1e-10)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("variant", ["chunk-wise-aligned", "full-file-unaligned"])
def test_outputs_are_the_same_under_all_variants(case, variant):
    whole, _ = trained(case, [[("a", 99), ("b", 99)]])
    cut, _ = trained(case, CUT, variant)
    for i in FILES:
        np.testing.assert_allclose(cut[i], whole[i], atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_a_seed_is_what_masks_follow_from(case):
    ds.manual_seed(7)
    model = ds.patch_module(Layers(*CASES[case]()).double(), "full-file-aligned").train().online()
    first, again, other = (trained(case, CUT, seed=s, model=model)[0]["a"] for s in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


@pytest.mark.parametrize("case", CASES)
def test_a_mask_is_a_constant_to_gradients(case):
    """The slope of a parameter is what central differences say, with the same seed."""
    ds.manual_seed(7)
    model = ds.patch_module(Layers(*CASES[case]()).double(), "full-file-aligned").train().online()
    _, grads = trained(case, CUT, model=model)
    step = 1e-6
    for name, parameter in list(model.named_parameters())[:3]:
        found = []
        for sign in (1, -1):
            parameter.numpy().flat[0] += sign * step
            found.append(sum((y**2).sum() for y in trained(case, CUT, model=model)[0].values()))
            parameter.numpy().flat[0] -= sign * step
        np.testing.assert_allclose(grads[name].flat[0], (found[0] - found[1]) / (2 * step), rtol=1e-5, atol=1e-6)


def test_files_that_are_run_again_are_dropped_otherwise():
    model = ds.patch_module(nn.Dropout(0.5)).train().online()
    ds.manual_seed(0)
    x = np.ones((40, 3), np.float32)
    runs = [
        model(ds.stream_tensor([x], names=("B", "L", "F"), ids=["a"], sos=True, eos=True))["a"].numpy()
        for _ in range(3)
    ]
    assert not any(np.array_equal(a, b) for a, b in zip(runs, runs[1:]))
    both = model(ds.stream_tensor([x, x], names=("B", "L", "F"), ids=["a", "b"], sos=True, eos=True))
    assert not np.array_equal(both["a"].numpy(), both["b"].numpy())


def test_a_stream_goes_on_elsewhere_with_its_mask():
    ds.manual_seed(0)
    model = ds.patch_module(nn.Dropout(0.5)).train().online()
    x = np.ones((40, 3), np.float32)

    def part(*, last):
        frames = x[20:] if last else x[:20]
        return ds.stream_tensor([frames], names=("B", "L", "F"), ids=["a"], sos=not last, eos=last)

    model(part(last=False))
    state = model.get_state()
    other = ds.patch_module(nn.Dropout(0.5)).train().online()
    ds.manual_seed(5)
    other.set_state(state)
    np.testing.assert_array_equal(other(part(last=True))["a"].numpy(), model(part(last=True))["a"].numpy())


@pytest.mark.parametrize("name", ["dropout", "dropout1d", "alpha_dropout", "feature_alpha_dropout"])
@pytest.mark.parametrize("p", [0.2, 0.7, 1.0])
def test_rates_and_scales_are_torchs(name, p):
    ds.manual_seed(1)
    x = ds.ones(300, 50, 4) if "1d" in name or "feature" in name else ds.ones(300, 200)
    y = getattr(F, name)(x, p, True).numpy()
    wanted = np.unique(getattr(torch.nn.functional, name)(torch.ones(300, 50, 4), p, True).numpy())
    np.testing.assert_allclose(np.unique(y), wanted, rtol=1e-5)
    channels = y.reshape(300, 50, 4)[..., 0] if x.ndim == 3 else y
    if x.ndim == 3:
        assert (y == y[..., :1]).all()
    if p < 1:
        dropped = np.isclose(channels, wanted.min() if "alpha" in name else 0).mean()
        assert abs(dropped - p) < 5 * np.sqrt(p * (1 - p) / channels.size)


def test_evaluation_and_engines_draw_nothing():
    x = ds.ones(3)
    assert F.dropout(x, 0.5, False) is x and nn.Dropout().eval()(x) is x and nn.Dropout(0.0)(x) is x
    frames = np.ones((4, 3), np.float32)
    assert (ds.compile(nn.Dropout(), ("B", "L", 3)).step({"a": frames}, sos="a")["a"] == 1).all()

    class Always(nn.Module):
        def forward(self, x):
            return F.dropout(x)

    with pytest.raises(ds.NotStreamableError, match=r"module\.eval\(\)"):
        ds.compile(Always(), ("B", "L", 3))


def test_train_and_eval_may_change_in_mid_stream():
    model = ds.patch_module(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 3))).train().online()
    for n in range(4):
        model.train(n % 2 == 0)
        x = np.ones((5, 3), np.float32)
        model(ds.stream_tensor([x], names=("B", "L", "F"), ids=["a"], sos=n == 0, eos=n == 3))


@pytest.mark.parametrize("lib", [ds, torch], ids=["native", "torch"])
@pytest.mark.parametrize(("seed", "loops"), [(1, False), (None, False), (None, True)])
def test_noise_of_a_gate_follows_frames(lib, seed, loops):
    """Of streams that go on, whatever generator the gate has for plain tensors."""
    lib.manual_seed(3)
    gate = (gates if lib is ds else ds_torch_nn).NoisyGate(3, 4, top_k=2, seed=seed)

    class Gated(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = gate

        def forward(self, x):
            if not loops:
                return self.gate.logits(x)
            ys = []
            for t in range(x.size(1)):
                ys.append(self.gate.logits(x[:, t]))
            return lib.stack(ys, 1)

    def run(cuts, number=0):
        model = ds.patch_module(Gated()).train().online()
        lib.manual_seed(number)
        parts, at = [], 0
        for n in cuts:
            x = FILES["a"][at : at + n].astype(np.float32)
            more = {"ids": ["a"], "sos": at == 0, "eos": at + n == 23, "names": ("B", "L", "F")}
            y = model(ds.stream_tensor([x if lib is ds else torch.from_numpy(x)], **more))
            parts.append(y["a"].detach().numpy())
            at += n
        ds.unpatch_module(model)
        return np.concatenate(parts)

    first = run([12, 11])
    np.testing.assert_allclose(first, run([4, 9, 10]), atol=1e-6)
    assert not np.isclose(first, run([12, 11], 1)).any()


# ---------------------------------------------------------------------- statistics of batches
class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv1d(3, 4, 3, padding=1), nn.Conv1d(4, 2, 1)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.last(self.norm(self.conv(x)).relu())


def _normed(momentum):
    torch.manual_seed(0)
    plain = torch.nn.Module()
    plain.conv, plain.last = torch.nn.Conv1d(3, 4, 3, padding=1), torch.nn.Conv1d(4, 2, 1)
    plain.norm = torch.nn.BatchNorm1d(4, momentum=momentum)
    plain.double()
    own = Normed().double()
    own.norm.momentum = momentum
    own.load_state_dict({k: ds.tensor(v.numpy()) for k, v in plain.state_dict().items()})
    return plain, own


@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_trains_as_torchs(momentum, online):
    plain, own = _normed(momentum)
    if online:
        ds.patch_module(own).train().online()
    x = RNG.standard_normal((2, 3, 9))
    for _ in range(2):
        plain.zero_grad()
        want = Normed.forward(plain, torch.tensor(x))
        (want**2).sum().backward()
        own.zero_grad()
        y = own(ds.stream_tensor(list(x), ids=["a", "b"], sos=True, eos=True) if online else ds.tensor(x))
        (y * y).sum().backward()
        got = np.stack([y[i].numpy() for i in "ab"]) if online else y.numpy()
        np.testing.assert_allclose(got, want.detach().numpy(), atol=1e-12)
        for (name, a), (_, b) in zip(plain.named_parameters(), own.named_parameters()):
            np.testing.assert_allclose(b.grad.numpy(), a.grad.numpy(), atol=1e-10, err_msg=name)
        for (name, a), (_, b) in zip(plain.named_buffers(), own.named_buffers()):
            np.testing.assert_allclose(b.numpy(), a.numpy(), atol=1e-12, err_msg=name)


def test_batch_norm_refuses_streams_that_go_on_and_keeps_its_statistics():
    _, own = _normed(0.1)
    ds.patch_module(own).train().online()
    before = {k: v.numpy().copy() for k, v in own.state_dict().items()}
    x = RNG.standard_normal((3, 9))
    with pytest.raises(ds.ModeError, match=r"whole streams, but these go on; call eval\(\)") as raised:
        own(ds.stream_tensor([x, x], ids=["a", "b"], sos=True, eos=[True, False]))
    assert raised.value.ids == ("b",)
    assert all(np.array_equal(v.numpy(), before[k]) for k, v in own.state_dict().items())
    own.norm.eval()
    own(ds.stream_tensor([x], ids=["a"], sos=True))
