"""What torch forwards compute of positions, as people write it: tables, sinusoids, rotary positions."""

import math

import numpy as np
import pytest
import torch
from one_stream import answers_made, held, patched, stepped
from torch import nn

import dreamstream as ds
from dreamstream import NotStreamableError, ShapeError

F = nn.functional
D, T = 16, 23


class Net(nn.Module):
    """A forward of its own, with tables and frequencies at hand."""

    def __init__(self, forward):
        super().__init__()
        self.own = forward
        div = torch.exp(torch.arange(0, D, 2).float() * (-math.log(10000.0) / D))
        angles = torch.arange(40).float()[:, None] * div
        self.register_buffer("div", div)
        self.register_buffer("pe", torch.cat([angles.sin(), angles.cos()], -1))
        self.register_buffer("pe1", self.pe[None].clone())
        self.register_buffer("cis", torch.polar(torch.ones_like(angles[:, :4]), angles[:, :4]))
        self.emb, self.lin, self.far = (
            nn.Embedding(40, D),
            nn.Linear(D, D),
            torch.arange(9e3)[:, None].repeat(1, D),
        )

    def forward(self, x):
        return self.lin(self.own(self, x))


def waves(a):
    return torch.cat([a.sin(), a.cos()], -1)


def index(x, dim=1, **options):
    return torch.arange(x.size(dim), **options)


def seq_first(fn):
    return lambda m, x: fn(m, x.transpose(0, 1)).transpose(0, 1)


def written(rows, x):
    rows += x
    return rows


TABLES = {
    "cut": lambda m, x: x + m.pe[: x.size(1)],
    "cut, with a batch": lambda m, x: x * 4 + m.pe1[:, : x.size(1)].detach().requires_grad_(False),
    "repeated": lambda m, x: x + m.pe1[:, : x.size(1)].repeat(x.size(0), 1, 1),
    "joined": lambda m, x: F.glu(torch.cat([x, m.pe[: x.size(1)].expand(x.size(0), -1, -1)], -1)),
    "narrow": lambda m, x: x + m.pe1.narrow(1, 0, x.size(1)),
    "across": lambda m, x: (x.transpose(1, 2) + m.pe.t()[None, :, : x.size(1)]).transpose(1, 2),
    "embedding": lambda m, x: x + m.emb(index(x)),
    "embedding of rows": lambda m, x: x + m.emb(index(x).repeat(x.size(0), 1)),
    "embedding by a sum": lambda m, x: x + m.emb(torch.ones(x.size(1), dtype=torch.long).cumsum(0) - 1),
    "index": lambda m, x: x + m.pe[index(x)],
    "index_select of columns": lambda m, x: x + m.pe.t().contiguous().index_select(1, index(x) + 1).t(),
    "index beside slices": lambda m, x: x + m.pe[index(x)[None], :] + m.pe1[:, index(x)] * m.pe1[..., index(x), :],
    "joined with nothing": lambda m, x: torch.cat([torch.tensor([]), x * 2], 1) + m.pe[: x.size(1)],
    "up to the last position": lambda m, x: x + m.pe[: index(x).max().item() + 1 + index(x).min().item()],
    "rows that were copied": lambda m, x: (
        written(m.pe1[:, index(x)], x) + written(m.pe1[:, : x.size(1)].clone(), x)
    ),
}
COMPUTED = {
    "sinusoids": lambda m, x: x + waves(index(x, dtype=torch.float32).unsqueeze(1) * m.div),
    "of integers": lambda m, x: x + waves(index(x)[:, None] * m.div[None])[None],
    "outer": lambda m, x: x + waves(torch.outer(index(x).float(), m.div)),
    "einsum": lambda m, x: x + waves(torch.einsum("i,j->ij", index(x).type_as(m.div), m.div)),
    "einsum with dots": lambda m, x: x + waves(torch.einsum("..., f -> ... f", index(x).float(), m.div)),
    "a product": lambda m, x: x + waves(index(x).float().unsqueeze(1) @ m.div[None]),
    "for each of a batch": lambda m, x: x + waves(index(x)[None].expand(x.size(0), -1).float()[..., None] * m.div),
    "time first": seq_first(lambda m, x: x + waves(index(x, 0).float()[:, None, None] * m.div)),
    "decay": lambda m, x: x * torch.exp(-0.1 * index(x).float()).unsqueeze(-1),
    "as they are": lambda m, x: x + 0.5 * index(x)[None, :, None],
    "from one on": lambda m, x: x / torch.arange(1, x.size(1) + 1)[:, None],
    "rests": lambda m, x: x * (index(x) % 3).float()[:, None],
    "quotients": lambda m, x: x * (index(x) // 3)[:, None],
    "every other": lambda m, x: torch.where((index(x) % 2 == 0)[:, None], x, -x),
    "scaled from afar": lambda m, x: x * (index(x).float() / 8192).floor().add(1).log1p()[:, None],
    "where they are": lambda m, x: x + index(x).to(index(x).device.type)[:, None],
    "the first hidden": lambda m, x: x.masked_fill((index(x) < 3)[:, None], 0.0) * (index(x) >= 4)[:, None],
}


def rotate_half(x):
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), -1)


def attended(turn):
    """Attention whose queries and keys ``(B, L, H, 8)`` are turned."""

    def forward(m, x):
        q = x.view(*x.shape[:2], 2, 8)
        q, k = turn(m, x, q), turn(m, x, q * 0.5)
        y = F.scaled_dot_product_attention(*(z.transpose(1, 2) for z in (q, k, k)), is_causal=True)
        return y.transpose(1, 2).flatten(2)

    return forward


def halves(cos, sin):
    return lambda q: q * cos + rotate_half(q) * sin


def turned_by_complex(q, turns):
    z = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
    return torch.view_as_real(z * turns).flatten(3).type_as(q)


def llama(m, x, q, start=0):
    cis = m.cis[start : start + x.shape[1]]
    assert cis.shape == (q.shape[1], q.shape[-1] // 2)
    return turned_by_complex(q, cis.view(*[d if i in (1, 3) else 1 for i, d in enumerate((*q.shape[:3], 4))]))


def hugging_face(m, x, q):
    ids = index(x)[None]
    with torch.autocast(device_type="cpu", enabled=False):
        freqs = (m.div[None, :4, None].float().expand(ids.shape[0], -1, 1) @ ids[:, None, :].float()).transpose(
            1, 2
        )
    emb = torch.cat((freqs, freqs), dim=-1)
    return halves(emb.cos().to(dtype=x.dtype).unsqueeze(2), emb.sin().to(dtype=x.dtype).unsqueeze(2))(q)


def polar(m, x, q):
    angles = torch.outer(index(x).float(), m.div[:4])
    return turned_by_complex(q, torch.polar(torch.ones_like(angles), angles)[None, :, None])


def by_pairs(m, x, q):
    angles = (index(x)[:, None] * m.div[:4])[:, None]
    a, b = q[..., ::2], q[..., 1::2]
    return torch.stack([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1).flatten(-2)


def buffered(m, x, q):
    cos, sin = m.pe[: x.size(1), None, 8:], m.pe[: x.size(1), None, :8]
    return halves(cos, sin)(q)


def partly(m, x, q):
    emb = torch.cat([torch.outer(index(x).float(), m.div[:2])] * 2, -1)[:, None]
    return torch.cat((halves(emb.cos(), emb.sin())(q[..., :4]), q[..., 4:]), -1)


ROTARY = {f.__name__: attended(f) for f in (llama, hugging_face, polar, by_pairs, buffered, partly)}


@pytest.mark.parametrize("name", [f"{t}: {n}" for t in ("TABLES", "COMPUTED", "ROTARY") for n in globals()[t]])
def test_as_written(name):
    """Patched and compiled, chunk by chunk, what the model says offline."""
    table, _, key = name.partition(": ")
    torch.manual_seed(0)
    model = Net(globals()[table][key]).eval()
    x = torch.randn(1, T, D)
    with torch.no_grad():
        whole = model(x)[0]
        steps = [stepped(ds.compile(model, ("B", "L", D))), patched(ds.patch_module(model).online())]
        held(steps, x[0], whole, 2e-6 * float(whole.abs().max()))
        assert not answers_made(steps[1], x[0])


def test_a_gradient_comes_through():
    """Frequencies that are learned have torch's gradient."""
    torch.manual_seed(0)
    model = Net(lambda m, x: x + waves(torch.outer(index(x).float(), m.free)))
    model.free = nn.Parameter(model.div.clone())
    x = torch.randn(1, T, D)
    model(x).square().sum().backward()
    wanted = model.free.grad.clone()
    model.zero_grad()
    online = ds.patch_module(model).train().online()
    online(ds.stream_tensor(x, names=("B", "L", None), ids=["a"], sos=True, eos=True)).square().sum().backward()
    assert (model.free.grad - wanted).abs().max() <= 1e-5 * wanted.abs().max()


def test_a_stream_that_outgrows_its_table():
    """The call raises, with ids, and is as if it had not happened; so does the engine's."""
    model = Net(TABLES["embedding"]).eval()
    engine = ds.compile(model, ("B", "L", D))
    frames = {i: np.zeros((n, D), np.float32) for i, n in (("a", 39), ("b", 3))}
    engine.step(frames, sos=["a", "b"])
    with pytest.raises(ShapeError, match="position 41 is beyond the table's 40 rows") as caught:
        engine.step({i: np.zeros((2, D), np.float32) for i in frames})
    assert caught.value.ids == ("a",)
    assert len(engine.step({"a": np.zeros((1, D), np.float32)}, eos="a")["a"]) == 1


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda m, x: x + torch.linspace(0, 1, x.size(1))[:, None], "linspace"),
        (lambda m, x: x * (index(x)[:, None] * index(x)).sum(1)[:, None], "integers that are no sum"),
        (lambda m, x: x + F.embedding(index(x) * 1 + x.size(1), m.far), "rows of a table are read in turn"),
        (lambda m, x: x[:, index(x) - 1], "which frames it picks"),
        (lambda m, x: x[:, index(x) // 2], "which frames it picks"),
        (lambda m, x: m.pe1[:, : x.size(1)].copy_(x), "a constant's rows are written into"),
        (lambda m, x: written(m.pe1[:, : x.size(1)], x), "a constant's rows are written into"),
        (
            lambda m, x: m.pe1.clone().__setitem__((slice(None), index(x)), x),
            "written into a constant, at .*caches",
        ),
    ],
)
def test_what_is_refused(forward, message):
    with pytest.raises(NotStreamableError, match=message):
        ds.compile(Net(forward).eval(), ("B", "L", D))


OF_THE_WHOLE = {
    "a share": lambda m, x: x * (index(x) / x.size(1))[:, None],
    "from 0 to 1": lambda m, x: x + torch.arange(x.size(1), dtype=torch.float32)[:, None] / (x.size(1) - 1),
    "a ramp": lambda m, x: x * torch.linspace(-1, 2, steps=x.size(1))[:, None],
    "a window": lambda m, x: x * torch.hann_window(x.size(1), periodic=False)[:, None],
    "another": lambda m, x: (
        x * torch.hamming_window(x.size(1)).unsqueeze(1) + x * torch.blackman_window(x.size(1))[:, None]
    ),
    "a root": lambda m, x: x / x.size(1) ** 0.5,
    "a turn": lambda m, x: x * torch.cos(2 * math.pi * index(x).float() / x.size(1))[:, None],
}


@pytest.mark.parametrize("name", OF_THE_WHOLE)
def test_positions_divided_by_a_length(name):
    """Refused with the line, patched and compiled; with the whole stream at hand what the model says offline."""
    model = Net(OF_THE_WHOLE[name]).eval()
    x = torch.randn(1, T, D)
    with torch.no_grad():
        whole = model(x)[0]
        with pytest.raises(NotStreamableError, match=r"test_positions\.py"):
            ds.compile(model, ("B", "L", D))
        with pytest.raises(NotStreamableError, match=r"test_positions\.py"):
            patched(ds.patch_module(model).online())(x[0], True, True)
        engine = ds.compile(model, ("B", "L", D), unstreamable="buffer")
        online = ds.patch_module(model, unstreamable="buffer").online()
        held([stepped(engine), patched(online)], x[0], whole, 2e-6 * float(whole.abs().max()))


def test_what_meets_frames_twice_is_computed_once():
    def forward(m, x):
        turns = waves(index(x)[:, None] * m.div)
        return x * turns + (x + 1) * turns.unsqueeze(0)

    engine = ds.compile(Net(forward).eval(), ("B", "L", D), verify=False)
    assert engine.summary().count(" sin ") == 1


# ---------------------------------------------------------------------- limits, tables, vectors
TURNS = {
    "table": lambda m, x, at: x + m.table[at % 4],
    "embedding": lambda m, x, at: x + m.embedding(at // 3),
    "embedding up to a limit": lambda m, x, at: x + m.embedding(at.clamp(max=5)),
    "one hot": lambda m, x, at: torch.cat(
        [x, nn.functional.one_hot(at % 4, 4).float()[None].expand(x.size(0), -1, -1)], 2
    ),
    "minimum": lambda m, x, at: x / torch.minimum(at + 1, torch.tensor(10))[None, :, None],
    "where": lambda m, x, at: x * torch.where(at < 10, at, 10)[None, :, None],
    "masked fill": lambda m, x, at: x * at.masked_fill(at > 7, 7)[None, :, None],
    "real": lambda m, x, at: x * at.float().clamp(max=9.5)[None, :, None],
    "cross": lambda m, x, at: torch.linalg.cross(x[..., :3], x[..., 3:]),
    "cross of old": lambda m, x, at: torch.cross(x[..., :3], x[..., 3:], dim=-1),
    "diagonal": lambda m, x, at: _matrices(x).diagonal(1, 2, 3) + torch.linalg.diagonal(_matrices(x), offset=-1),
    "tensordot": lambda m, x, at: torch.tensordot(_matrices(x), m.table[:2], ([2], [0])).flatten(2),
    "distance": lambda m, x, at: nn.functional.pairwise_distance(x[..., :3], x[..., 3:], p=1, keepdim=True),
    "first frame rolled": lambda m, x, at: _first_kept(x, x.roll(1, 1)),
    "frames behind": lambda m, x, at: x[:, (at + 2).clamp(max=x.size(1) - 1)] * x,
    "windows": lambda m, x, at: (
        (x[:, (at[:, None] + torch.arange(-2, 4)).clamp(0, x.size(1) - 1)] * m.table.mean(0)[:, None]).sum(2)
        + x[:, (at[:, None, None] - at.new_tensor([[0, 2], [3, 5]])).clamp(0)].sum((2, 3))
    ),
    "several for each": lambda m, x, at: (
        x.masked_fill(at[:, None] - torch.arange(6) < 0, 0.0)
        * ((at[:, None] * 2 - torch.arange(6)) % 5).clamp(1, 3)
        + (torch.arange(6) - at[:, None]) // 3
    ),
    "zeros at masks": lambda m, x, at: _at_masks(x, torch.zeros_like(x), torch.ones(*x.shape[:2], 6), at),
    "as another tensor": lambda m, x, at: x * (at.to(m.table) / 7)[:, None].cos(),
    "decays at distances": lambda m, x, at: _decayed(at.to(m.table), x),
}


def _decayed(at, x):
    later = torch.ones(x.size(1), x.size(1)).triu(1).bool()
    far = torch.masked_fill(at[:, None] - at[None], later, float("inf"))
    decays = torch.nan_to_num(torch.exp(far * torch.tensor([-0.3])))
    return x @ x.mT / 6 * (decays / decays.sum(-1, keepdim=True).sqrt()) @ x


def _at_masks(x, y, z, at):
    y[x > 0] = x[x > 0]
    z[(at > 2)[None].expand(x.size(0), -1)] = 3.0
    return y + z * x


def _matrices(x):
    return x.unflatten(2, (2, 3))


def _first_kept(x, y):
    y[:, 0] = x[:, 0]
    return x - y


class Turn(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f, self.embedding, self.table = f, nn.Embedding(64, 6), nn.Parameter(torch.randn(4, 6))

    def forward(self, x):
        return self.f(self, x, torch.arange(x.size(1)))


@pytest.mark.parametrize("name", TURNS)
def test_positions_in_turns_and_limits(name):
    torch.manual_seed(0)
    model, frames = Turn(TURNS[name]).eval(), torch.randn(1, 29, 6)
    with torch.no_grad():
        whole, *short = (model(frames[:, :n])[0].numpy() for n in (29, 1, 2, 4))
        steps = [stepped(ds.compile(model, ("B", "L", 6))), patched(ds.patch_module(model).online())]
        held(steps, frames[0], whole)
        for n, want in zip((1, 2, 4), short):  # frames alone
            for step in steps:
                out = [step(frames[0, i : i + 1], i == 0, i == n - 1) for i in range(n)]
                np.testing.assert_allclose(np.concatenate(out), want, rtol=0, atol=1e-5)


class Overlapped(nn.Module):
    """Lays halves of frames over each other, as the ports of TensorFlow's overlap_and_add do."""

    def forward(self, x):
        length = x.size(1)
        places = torch.arange(0, length + 1).unfold(0, 2, 1)
        places = x.new_tensor(places).long().contiguous().view(-1)
        out = x.new_zeros(x.size(0), length + 1, D // 2)
        out.index_add_(-2, places, x.view(x.size(0), -1, D // 2))
        return out


def test_frames_added_at_places_that_positions_say():
    x = torch.randn(1, T, D)
    model = Overlapped().eval()
    online = ds.patch_module(Overlapped()).online()
    held([stepped(ds.compile(model, ("B", "L", D), lengths=range(1, 40))), patched(online)], x[0], model(x)[0])


@pytest.mark.parametrize("kind", ["of a softmax", "times one"])
@torch.no_grad()
def test_softmax_over_frames_of_a_softmax(kind):
    """What is computed of softmax over L is a stream like others."""

    class Twice(nn.Module):
        def forward(self, x):
            v = x.softmax(1)
            return (x * v.softmax(1)).sum(1) if kind == "of a softmax" else (v * (0.1 * v).softmax(1)).sum(1)

    model, x = Twice().eval(), torch.randn(1, T, D)
    engine = ds.compile(model, ("B", "L", D), unstreamable="buffer")
    y = engine.step({"s": x[0].numpy()}, sos="s", eos="s")["s"]
    np.testing.assert_allclose(y, model(x).numpy(), atol=1e-6)


# ---------------------------------------------------------------------- frames that are picked and split
def _wide(x, at):
    return at.view(1, -1, 1).expand(x.size(0), -1, x.size(2))


PICKED = {
    "select by name": lambda m, x, at: torch.index_select(x, dim=-2, index=(at - 3).clamp(0)),
    "select, all by name": lambda m, x, at: torch.index_select(input=x, dim=1, index=(at - 3).clamp(0)),
    "select, its method": lambda m, x, at: x.index_select(index=(at + 2).clamp(max=x.size(1) - 1), dim=1),
    "gather by name": lambda m, x, at: torch.gather(input=x, dim=1, index=_wide(x, (at - 2).clamp(0))),
    "gather, its method": lambda m, x, at: x.gather(-2, index=_wide(x, (at - 2).clamp(0)), sparse_grad=False),
    "along a dimension": lambda m, x, at: torch.take_along_dim(x, (at - 2).clamp(0)[None, :, None], dim=1),
    "rows of a table by name": lambda m, x, at: x * torch.index_select(m.embedding.weight, dim=0, index=at),
    "gathered slice": lambda m, x, at: x.gather(1, _wide(x, torch.arange(3, x.size(1)))),
    "every other": lambda m, x, at: x[:, torch.arange(0, x.size(1), 2)] * x.index_select(dim=1, index=at[::2]),
    "twice the frames of half": lambda m, x, at: x[:, torch.arange(x.size(1) // 2) * 2],
    "each twice": lambda m, x, at: x[:, torch.arange(2 * x.size(1)) // 2] + x[:, at.repeat_interleave(2)],
    "overlapping windows": lambda m, x, at: (
        x[:, torch.arange((x.size(1) - 4) // 2 + 1)[:, None] * 2 + torch.arange(4)].flatten(2)
        + x[:, torch.arange(0, x.size(1) - 3, 2)[:, None] + torch.arange(3, -1, -1)].flatten(2)
    ),
    "the first of each four": lambda m, x, at: x - x[:, at - at % 4] - x[:, at // 4 * 4],
    "split and joined": lambda m, x, at: torch.cat(x.split([2, x.size(1) - 2], 1), 1),
    "split with sizes": lambda m, x, at: torch.split_with_sizes(x, split_sizes=[1, 2, x.size(1) - 3], dim=1)[2],
    "the first behind": lambda m, x, at: (lambda a, b: b - a)(*x.split([1, x.size(1) - 1], 1)),
    "tensor_split": lambda m, x, at: torch.tensor_split(x, (2, x.size(1) - 1), dim=1)[1],
    "tensor_split from the end": lambda m, x, at: x.tensor_split(indices=(3, -2), dim=1)[1],
}


@pytest.mark.parametrize("name", PICKED)
def test_frames_picked_by_positions_and_parts(name):
    torch.manual_seed(0)
    model, x = Turn(lambda m, x, at: PICKED[name](m, x * m.table[0], at)).eval(), torch.randn(1, 29, 6)
    whole = model(x)
    weights = torch.randn_like(whole[0])
    (whole[0] * weights).sum().backward()
    wanted, own = model.table.grad.clone(), whole[0].detach().numpy()
    model.zero_grad()
    steps = [stepped(ds.compile(model, ("B", "L", 6)))]
    online = ds.patch_module(model).online()
    steps.append(patched(online))
    with torch.no_grad():
        held(steps, x[0], own)
    y = online(ds.stream_tensor([x[0]], ids=["g"], sos=True, eos=True, names=("B", "L", None)))["g"]
    (y * weights).sum().backward()
    torch.testing.assert_close(model.table.grad, wanted)


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (lambda m, x, at: x[:, at // 2], "frames at .* no fixed distance"),
        (lambda m, x, at: x.gather(1, _wide(x, at // 2)), "frames at .* no fixed distance"),
        (lambda m, x, at: x.split([2, x.size(1) - 2], 1)[0], "ends at the constant position 2"),
        (
            lambda m, x, at: x.split([2, x.size(1) - 2], 1)[0].sum(1, keepdim=True),
            "ends at the constant position 2",
        ),
    ],
)
def test_parts_that_no_stream_gives_are_refused_where_they_are_read(f, why):
    x, model = torch.randn(1, 9, 6), Turn(f).eval()
    with pytest.raises(NotStreamableError, match=why):
        ds.compile(model, ("B", "L", 6))
    with pytest.raises(NotStreamableError, match=why):
        patched(ds.patch_module(model).online())(x[0], True, False)


def test_sizes_of_a_split_that_are_not_those_of_the_stream():
    model = Turn(lambda m, x, at: x.split([2, x.size(1)], 1)[1]).eval()
    with pytest.raises(ShapeError, match="don't add up"):
        ds.compile(model, ("B", "L", 6))


def test_what_is_picked_is_no_view():
    def forward(m, x, at):
        y, z = x[:, at], x[:, torch.arange(x.size(1))]
        y += 1
        z.mul_(2)
        return x + y * z

    model, x = Turn(forward).eval(), torch.randn(1, 19, 6)
    with torch.no_grad():
        held([stepped(ds.compile(model, ("B", "L", 6)))], x[0], model(x)[0].numpy())


def test_a_variable_of_two_shapes_that_is_read_behind_its_branches():
    def forward(m, x, at):
        ys = []
        for t in range(x.size(1)):
            if t % 2 == 0:
                u = torch.cat([x[:, t], x[:, t]], 1)
            else:
                u = x[:, t]
            ys.append(u[:, :6])
        return torch.stack(ys, 1)

    with pytest.raises(NotStreamableError, match=r"`u` of an if .* make both alike"):
        ds.compile(Turn(forward).eval(), ("B", "L", 6))


def paired(m, x, at):
    return torch.view_as_complex(x.unflatten(2, (3, 2)))


CASTS = {
    "complex": (lambda m, x, at: paired(m, x.double(), at), torch.view_as_real, "made at .*make it of float32"),
    "of halves": (lambda m, x, at: paired(m, x.half(), at), lambda y: torch.view_as_real(y).float(), "float32"),
    "half": (lambda m, x, at: (x * 1.1).half() * 1, lambda y: y.float(), "float16 at .*leave the cast out"),
    "half, cast back": (lambda m, x, at: x.half().float(), lambda y: y, "float16 at .*leave the cast out"),
    "bfloat16": (lambda m, x, at: x.bfloat16(), lambda y: y.float(), "bfloat16 at .*cast what the engine gives"),
}


@pytest.mark.parametrize("kind", CASTS)
@torch.no_grad()
def test_outputs_of_types_that_no_engine_gives(kind):
    """They are refused by their line, and what is told instead leads through; patched they are what they are."""
    f, seen, why = CASTS[kind]
    model, x = Turn(f).eval(), torch.randn(1, 19, 6)
    whole = model(x)[0]
    with pytest.raises((ds.errors.CaptureError, ds.errors.DTypeError), match=why) as error:
        ds.compile(model, ("B", "L", 6))
    assert "test_positions.py" in str(error.value)
    y = ds.patch_module(model).online()(
        ds.stream_tensor([x[0]], ids=["s"], sos=True, eos=True, names=("B", "L", None))
    )["s"]
    assert y.dtype == whole.dtype
    torch.testing.assert_close(seen(y), seen(whole), rtol=0, atol=1e-5)
    instead = Turn(paired if kind == "complex" else lambda m, x, at: x).eval()
    held([stepped(ds.compile(instead, ("B", "L", 6)))], x[0], instead(x)[0].numpy())
