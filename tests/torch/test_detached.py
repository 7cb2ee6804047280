"""Gradients end at `detach` and under `no_grad` inside a forward, loops over frames included, as offline."""

import math

import numpy as np
import pytest
import torch

import dreamstream as ds
from dreamstream import nn as native

FRAMES, CUTS = 23, (0, 5, 6, 17, 23)


def without(of, function):
    with of.no_grad():
        return function()


def seen(of, x):
    return (of.arange(x.size(1))[:, None] >= of.arange(x.size(1))).logical_not()


def state_detached(of, m, x):
    h, out = of.zeros(x.size(0), 3), []
    for t in range(x.size(1)):
        h = of.tanh(x[:, t] * m.b + h.detach() @ m.w)
        out.append(h)
    return of.stack(out, 1)


def frames_detached(of, m, x):
    h, out = of.zeros(x.size(0), 3), []
    for t in range(x.size(1)):
        h = of.tanh(x[:, t] @ m.w + h * m.b)
        out.append(h + (h * m.b).detach())
    return of.stack(out, 1)


def gate_without(of, m, x):
    h, out = of.zeros(x.size(0), 3), []
    for t in range(x.size(1)):
        with of.no_grad():
            g = of.sigmoid(x[:, t] @ m.w + h)
        h = g * h + x[:, t] * m.b
        out.append(h)
    return of.stack(out, 1)


def loop_without(of, m, x):
    h, out = of.zeros(x.size(0), 3), []
    with of.no_grad():
        for t in range(x.size(1)):
            h = of.tanh(x[:, t] @ m.w + h)
            out.append(h)
    return of.stack(out, 1) * m.b + x @ m.w


def in_place(of, m, x):
    y = x @ m.w
    z = y * m.b
    z.detach_()
    return y * z


def written_without(of, m, x):
    y = x @ m.w
    with of.no_grad():
        y[..., 0] = 0.5
    return y * m.b


def sums_detached(of, m, x):
    s = ((x @ m.w) @ (x * m.b).transpose(1, 2)).masked_fill(seen(of, x), -math.inf)
    e = (s - s.amax(-1, keepdim=True).detach()).exp()
    return (e / e.sum(-1, keepdim=True).detach()) @ x


def hooked(of, m, x):
    y = x @ m.w
    y.register_hook(lambda g: g * 3)
    return y


def retained(of, m, x):
    y = x @ m.w
    y.retain_grad()
    return y


def asked_for(of, m, x):
    y = x @ m.w
    return y + (ds.autograd if of is ds else of.autograd).grad(y.sum(), m.w)[0].sum()


REFUSED = [written_without, sums_detached, hooked, retained, asked_for]

FORMS = {
    "a loop that is computed without": loop_without,
    "in place": in_place,
    "frames": lambda of, m, x: (x @ m.w).detach() * m.b + x @ m.w,
    "a view": lambda of, m, x: (x @ m.w).transpose(1, 2).detach().transpose(1, 2) * m.b + x @ m.w,
    "features": lambda of, m, x: (y := x @ m.w)[..., :1].detach() * m.b + y,
    "what is kept": lambda of, m, x: m.gru((x * m.b).detach())[0] + m.gru(x * m.b)[0].detach() @ m.w,
    "rounded straight through": lambda of, m, x: (y := x @ m.w) + (y.round() - y).detach(),
    "keys": lambda of, m, x: (
        ((x @ m.w) @ (x * m.b).detach().transpose(1, 2)).masked_fill(seen(of, x), -math.inf).softmax(-1) @ x
    ),
    "frames without gradients": lambda of, m, x: (y := x * m.b) + without(of, lambda: y @ m.w),
    "a layer without gradients": lambda of, m, x: (y := x * m.b) + without(of, lambda: m.gru(y)[0]) @ m.w,
    "weights without gradients": lambda of, m, x: x @ m.w * without(of, lambda: (m.w * m.b).sum()),
    "attention's weights without gradients": lambda of, m, x: without(
        of,
        lambda: ((x @ m.w) @ (x * m.b).transpose(1, 2)).masked_fill(seen(of, x), -math.inf).softmax(-1),
    ) @ (x * m.b),
    "a state": state_detached,
    "a loop's outputs": frames_detached,
    "a gate in a loop": gate_without,
}  # fmt: skip


def model(name, library):
    of, form = ds if library is native else torch, FORMS.get(name, name)
    rng = np.random.default_rng(0)

    def learned(*shape):
        values = rng.standard_normal(shape).astype(np.float32)
        return library.Parameter(values if library is native else torch.from_numpy(values))

    class Model(library.Module):
        def __init__(self):
            super().__init__()
            self.w, self.b = learned(3, 3), learned(3)
            self.gru = library.GRU(3, 3, batch_first=True)
            for p in self.gru.parameters():
                given = rng.standard_normal(tuple(p.shape)).astype(np.float32)
                p.data.copy_(ds.tensor(given) if library is native else torch.from_numpy(given))

        def forward(self, x):  # (B, L, 3)
            return form(of, self, x)

    return Model()


def gradients(net, chunks, of):
    at, total = 0, 0
    for y in map(net, chunks):
        y = y.tensor() if hasattr(y, "ids") else y
        weight = np.cos(np.arange(at, at + y.shape[1]), dtype=np.float32)
        total, at = total + (y * of.tensor(weight[:, None])).sum(), at + y.shape[1]
    total.backward()
    return {k: None if p.grad is None else p.grad.numpy() for k, p in net.named_parameters()}


@pytest.mark.parametrize("library", [torch.nn, native], ids=["torch", "native"])
@pytest.mark.parametrize("name", FORMS)
def test_gradients_end_where_offline_ones_do(name, library):
    x = np.random.default_rng(1).standard_normal((1, FRAMES, 3)).astype(np.float32)
    wanted = gradients(model(name, torch.nn), [torch.from_numpy(x)], torch)
    net = ds.patch_module(model(name, library), train_variant="full-file-aligned").online().train()
    given = x if library is native else torch.from_numpy(x)
    found = gradients(
        net,
        [
            ds.stream_tensor(given[:, a:b], names=("B", "L", "F"), ids=["a"], sos=[a == 0], eos=[b == FRAMES])
            for a, b in zip(CUTS, CUTS[1:])
        ],
        ds if library is native else torch,
    )
    for key, gradient in wanted.items():
        if gradient is None or not gradient.any():
            assert found[key] is None or not found[key].any(), key
        else:
            np.testing.assert_allclose(
                found[key], gradient, atol=1e-5 * max(1, np.abs(gradient).max()), err_msg=key
            )


@pytest.mark.parametrize("library", [torch.nn, native], ids=["torch", "native"])
@pytest.mark.parametrize("form", REFUSED, ids=lambda f: f.__name__)
def test_what_would_lose_gradients_is_refused(form, library):
    net, of = ds.patch_module(model(form, library)).online().train(), ds if library is native else torch
    x = ds.stream_tensor(of.ones(1, 5, 3), names=("B", "L", "F"), ids=["a"], sos=True)
    with pytest.raises(ds.NotStreamableError, match="test_detached"):
        net(x)


def test_the_gradient_of_an_evaluation_is_not_taken_for_that_of_whole_files():
    net = ds.patch_module(model("frames", torch.nn), train_variant="full-file-aligned").online().eval()
    outputs = [
        net(ds.stream_tensor(torch.ones(1, 5, 3), names=("B", "L", "F"), ids=["a"], sos=at == 0, eos=at == 2))
        for at in range(3)
    ]
    outputs[0].sum().backward(retain_graph=True)  # nothing came before
    with pytest.raises(ds.ModeError, match=r"call train\(\)"):
        sum(y.sum() for y in outputs).backward()
