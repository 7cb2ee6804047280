"""Constants with a row for each stream: what all of them have alike serves, what depends on how many does not."""

import pytest
import torch
from torch import nn

import dreamstream as ds

F = nn.functional


class Adds(nn.Module):
    """Frames plus what is computed of ones for each stream."""

    def __init__(self, of):
        super().__init__()
        self.of, self.weight = of, nn.Parameter(torch.randn(1, 4))

    def forward(self, x):
        return x + self.of(self, torch.ones(x.size(0), 1, 4))


ALIKE = {
    "mean": lambda m, c: c.mean(0),
    "deviation": lambda m, c: (c * m.weight).std(0, correction=0),
    "largest": lambda m, c: c.amax(0, keepdim=True) * m.weight,
    "exponential": lambda m, c: (c * m.weight).exp(),
    "of features": lambda m, c: (c * m.weight).softmax(-1).cumsum(-1),
    "parts along others": lambda m, c: c.unbind(1)[0].unsqueeze(1) * m.weight,
    "not a number": lambda m, c: torch.nan_to_num((c * torch.inf) * 0, nan=0.5),
}
COUNTED = {
    "sum": lambda m, c: c.sum(0),
    "einsum": lambda m, c: torch.einsum("blf->lf", c),
    "softmax": lambda m, c: c.softmax(0),
    "normalised": lambda m, c: F.normalize(c, dim=0),
    "running sum": lambda m, c: c.cumsum(0),
    "norm": lambda m, c: c.norm(dim=0, keepdim=True),
    "parts": lambda m, c: torch.stack(c.unbind(0)).sum(0),
    "number of parts": lambda m, c: m.weight * len(c.split(1)),
    "half of them": lambda m, c: c.chunk(2)[0].sum(0),
    "numbers": lambda m, c: torch.tensor(c.tolist()).sum(0),
}


@pytest.mark.parametrize("name", ALIKE)
@torch.no_grad()
def test_what_is_alike(name):
    model, x = Adds(ALIKE[name]).eval(), torch.randn(3, 7, 4)
    want = model(x)
    y = ds.patch_module(model).online()(
        ds.stream_tensor(list(x), ids=["a", "b", "c"], sos=True, names=("B", "L", None))
    )
    torch.testing.assert_close(torch.stack([y[i] for i in "abc"]), want)
    got = ds.compile(model.offline(), ("B", "L", 4)).step({"a": x[0].numpy()}, sos="a", eos="a")["a"]
    torch.testing.assert_close(torch.from_numpy(got), want[0])


@pytest.mark.parametrize("name", COUNTED)
def test_what_depends_on_their_number_is_refused(name):
    """Sums over the streams of a call were those of two."""
    x = ds.stream_tensor(list(torch.randn(3, 7, 4)), ids=["a", "b", "c"], sos=True, names=("B", "L", None))
    for call in (lambda m: ds.patch_module(m).online()(x), lambda m: ds.compile(m, ("B", "L", 4))):
        with torch.no_grad(), pytest.raises(ds.NotStreamableError, match=r"test_batch_constants\.py"):
            call(Adds(COUNTED[name]).eval())


def _masked(x, lengths):
    return x * (torch.arange(x.size(1)) < lengths)[..., None]


MEETING_FRAMES = {
    "@": lambda w, x: w.expand(x.size(0), -1, -1) @ x.mT,
    "bmm": lambda w, x: torch.bmm(w.expand(x.size(0), -1, -1), x.mT),
    "bmm of frames": lambda w, x: torch.bmm(x, w.expand(x.size(0), -1, -1)),
    "baddbmm": lambda w, x: torch.baddbmm(x.mT, w.expand(x.size(0), -1, -1), x.mT, beta=0.5, alpha=2),
    "lengths in a column": lambda w, x: _masked(x, torch.full((x.size(0), 1), x.size(1))) @ w,
    "products with lengths": lambda w, x: _masked(x, torch.ones(x.size(0), 1) * x.size(1)) @ w,
}


class Meeting(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.of, self.weight = of, nn.Parameter(torch.randn(1, 4, 4))

    def forward(self, x):
        return self.of(self.weight, x)


@pytest.mark.parametrize("name", MEETING_FRAMES)
def test_what_meets_frames(name):
    torch.manual_seed(0)
    model, x = Meeting(MEETING_FRAMES[name]), torch.randn(2, 7, 4)
    (want := model(x)).square().sum().backward()
    gradient, model.weight.grad, axis = model.weight.grad, None, want.shape[1:].index(7)
    engine = ds.compile(model, ("B", "L", 4))
    got = engine.step({"a": x[0].numpy()}, sos="a", eos="a")["a"]
    torch.testing.assert_close(torch.from_numpy(got), want[0].detach())
    ds.patch_module(model, train_variant="full-file-aligned").online()
    chunks = x.split([3, 1, 3], 1)
    outs = [
        model(ds.stream_tensor(list(c), ids=["a", "b"], sos=i == 0, eos=i == 2, names=("B", "L", None)))
        for i, c in enumerate(chunks)
    ]
    for row, i in enumerate("ab"):
        torch.testing.assert_close(torch.cat([y[i] for y in outs], axis), want[row])
    sum(y.tensor().square().sum() for y in outs).backward()
    torch.testing.assert_close(model.weight.grad, gradient)


class Squeezed(nn.Module):
    def forward(self, x):
        return x.squeeze(0).unsqueeze(0) if x.size(0) == 1 else x


def test_a_batch_of_one_is_not_squeezed():
    """It came out with a dimension too many."""
    x = ds.stream_tensor([torch.randn(7, 4)], ids=["a"], sos=True, names=("B", "L", None))
    for call in (lambda m: ds.patch_module(m).online()(x), lambda m: ds.compile(m, ("B", "L", 4))):
        with pytest.raises(ds.NotStreamableError, match=r"squeeze of B of .* test_batch_constants\.py:\d+"):
            call(Squeezed().eval())
