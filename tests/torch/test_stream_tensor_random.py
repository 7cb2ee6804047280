"""Random operations on random torch stream tensors: what a result says of its streams is true, or it is plain."""

import warnings

import numpy as np
import pytest
import torch
from turns import in_blocks

import dreamstream as ds

F = torch.nn.functional


def random_tensor(rng):
    """Return a batch of any layout whose padding is NaN, and its layout."""
    n = int(rng.integers(1, 4))
    lengths = rng.integers(0, 5, n)
    sizes = {"B": n, "L": int(max(lengths, default=0) + rng.integers(0, 2)), "F": int(rng.integers(1, 4)), "G": 2}
    names = list(rng.permutation(["B", "L", "F", "G"][: int(rng.integers(2, 5))]))
    data = torch.from_numpy(rng.standard_normal([sizes[k] for k in names]))
    x = ds.as_stream_tensor(
        data,
        names=names,
        ids=[f"s{i}" for i in range(n)],
        lengths=lengths,
        sos=rng.random(n) < 0.5,
        eos=rng.random(n) < 0.5,
    )
    b, at = names.index("B"), names.index("L")
    for row in range(n):
        index = [slice(None)] * len(names)
        index[b], index[at] = row, slice(int(lengths[row]), None)
        data[tuple(index)] = torch.nan
    return x


def random_operation(rng, x):
    """Return a function of a tensor like x: positions, sizes and the like are drawn here."""
    rank = x.dim()
    dim, other = (int(d) for d in rng.integers(0, rank, 2))
    order = [int(i) for i in rng.permutation(rank)]
    k, size = int(rng.integers(0, 3)), x.shape[dim]
    shape = [int(s) for s in rng.permutation(list(x.shape))]
    weight = torch.from_numpy(rng.standard_normal((x.shape[-1], 2)))
    operations = [
        lambda t: t.sin() * 2,
        lambda t: t.exp(),
        lambda t: 1 / t,
        lambda t: t > 0,
        lambda t: t + t,
        lambda t: t.clone().add_(1),
        lambda t: t.permute(order),
        lambda t: t.transpose(dim, other),
        lambda t: t.unsqueeze(dim),
        lambda t: t.squeeze(dim),
        lambda t: t.squeeze(),
        lambda t: t.flatten(min(dim, other), max(dim, other)),
        lambda t: t.reshape(shape),
        lambda t: t.reshape(-1, t.shape[-1]),
        lambda t: t.reshape(t.shape[0], -1),
        lambda t: t.movedim(dim, other),
        lambda t: t.reshape(*t.shape[:dim], 1, *t.shape[dim:]),
        lambda t: t.reshape(1, *t.shape),
        lambda t: t.softmax(dim),
        lambda t: t.cumsum(dim),
        lambda t: t.sort(dim)[0],
        lambda t: t.flip(dim),
        lambda t: t.roll(1, dim),
        lambda t: t.topk(min(1, size), dim)[0],
        lambda t: t.sum(dim),
        lambda t: t.mean(dim, keepdim=True),
        lambda t: t.sum(),
        lambda t: t.max(dim)[0] if size else t,
        lambda t: t.std((dim, other) if dim != other else dim),
        lambda t: t.logsumexp(dim),
        lambda t: t.narrow(dim, min(1, size), size - min(1, size)),
        lambda t: t.select(dim, 0) if size else t,
        lambda t: t[..., None, :k],
        lambda t: t[:k],
        lambda t: t[..., 0] if t.shape[-1] else t,
        lambda t: t.index_select(dim, torch.tensor([0])) if size else t,
        lambda t: torch.cat([t, t], dim),
        lambda t: torch.stack([t, t], dim),
        lambda t: t.split(2, dim)[0],
        lambda t: t.chunk(2, dim)[0],
        lambda t: t.unbind(dim)[0] if size else t,
        lambda t: t @ weight,
        lambda t: t @ t.transpose(-1, -2),
        lambda t: F.linear(t, weight.T),
        lambda t: t.expand(2, *t.shape),
        lambda t: F.layer_norm(t, t.shape[-1:]),
        lambda t: F.pad(t, (0, k)),
        lambda t: t.repeat(2, *[1] * (t.dim() - 1)),
        lambda t: torch.einsum("...i,...i->...", t, t),
        lambda t: t.tril() if t.dim() > 1 else t,
        lambda t: torch.fft.fft(t, dim=dim).real,
        lambda t: t.diff(dim=dim),
        lambda t: F.mse_loss(t, t.sin(), reduction="none"),
        lambda t: t.unfold(dim, 1, 1),
        lambda t: t.repeat_interleave(2, dim),
        lambda t: t.gather(dim, torch.zeros([1] * t.dim(), dtype=torch.long)) if t.numel() else t,
    ]
    return operations[int(rng.integers(len(operations)))]


def alone(x, row):
    """Return one row without padding as a stream tensor, and so in the same dimensions."""
    out = x
    if "B" in x.names:
        out = out.narrow(x.names.index("B"), row, 1)
    if "L" in x.names:
        out = out.narrow(x.names.index("L"), 0, int(x.lengths[row]))
    return out


@in_blocks("seed", range(1500), 50)
def test_metadata_are_never_false(seed):
    rng = np.random.default_rng(seed)
    x = random_tensor(rng)
    with warnings.catch_warnings(), ds.torch.on_fallback("ignore"):
        warnings.simplefilter("ignore")
        for _ in range(3):
            if not x.dim():
                break
            state = rng.bit_generator.state
            operation = random_operation(rng, x)
            try:
                y = operation(x)
            except (ValueError, IndexError, RuntimeError, TypeError):
                break
            if not isinstance(y, ds.torch.StreamTensor):
                assert x.tensor().dim() == 0 or not getattr(y, "meta", None)
                break
            after = rng.bit_generator.state
            assert len(y.names) == y.dim() and set(y.ids) <= set(x.ids)
            assert y.lengths.max(initial=0) <= (y.shape[y.names.index("L")] if "L" in y.names else 1)
            if "B" in x.names and "B" in y.names and y.ids == x.ids and "L" in y.names and "L" in x.names:
                _check_rows(rng, state, x, y)
            rng.bit_generator.state = after
            x = y


def _check_rows(rng, state, x, y):
    """Every row is what the same operation gives for it alone, where its sizes allow for that."""
    for row, i in enumerate(x.ids):
        single = alone(x, row)
        rng.bit_generator.state = state
        try:
            want = random_operation(rng, x)(single)
        except (ValueError, IndexError, RuntimeError, TypeError):
            continue  # its sizes were drawn for the batch
        if not isinstance(want, ds.torch.StreamTensor) or want.names != y.names:
            continue
        if want.lengths[0] == y.lengths[row] and want[i].shape == y[i].shape:
            assert torch.allclose(want[i].double(), y[i].double(), rtol=1e-9, atol=1e-9, equal_nan=True)
        else:
            assert want.lengths[0] <= y.lengths[row]


def pieces_by(form, rng, x, axis, edges):
    """Cut L into pieces by one form of index."""
    width = x.shape[axis]
    spans = list(zip(edges, edges[1:]))
    lead = (slice(None),) * axis
    if form == "slices":
        return [x[(*lead, slice(a, b))] for a, b in spans]
    if form == "narrow":
        return [x.narrow("L", a, b - a) for a, b in spans]
    if form == "split":
        return x.split([b - a for a, b in spans], axis)
    if form == "tensor_split":
        return x.tensor_split(edges[1:-1], axis)
    if form == "chunk":
        return x.chunk(int(rng.integers(1, 4)), axis)
    masks = [[a <= n < b for n in range(width)] for a, b in spans]
    if rng.random() < 0.5:  # any partition, not only runs
        owner = rng.integers(0, len(spans), width)
        masks = [(owner == k).tolist() for k in range(len(spans))]
    if form == "masks":
        return [x[(*lead, torch.tensor(m, dtype=torch.bool))] for m in masks]
    lists = [[n for n, kept in enumerate(m) if kept] for m in masks]
    if form == "lists":
        return [x[(*lead, torch.tensor(p, dtype=torch.long))] for p in lists]
    return [x.index_select(axis, torch.tensor(p, dtype=torch.long)) for p in lists]


@pytest.mark.parametrize(
    "form", ["slices", "narrow", "split", "tensor_split", "chunk", "masks", "lists", "index_select"]
)
@in_blocks("seed", range(40), 40)
def test_any_partition_has_one_start_and_one_end(form, seed):
    rng = np.random.default_rng(seed)
    x = random_tensor(rng)
    axis = x.names.index("L")
    width = x.shape[axis]
    edges = sorted([0, *rng.integers(0, width + 1, int(rng.integers(0, 4))).tolist(), width])
    pieces = pieces_by(form, rng, x, axis, edges)
    if form in ("slices", "narrow"):  # an empty slice is no piece of what there is
        pieces = [p for p in pieces if p.shape[axis]] or [x[:]]
    elif not width and form in ("masks", "lists", "index_select"):
        pieces = pieces[:1]  # every piece of nothing is all of it
    for flag in ("sos", "eos"):
        counts = np.sum([getattr(p, flag) for p in pieces], 0)
        assert counts.tolist() == getattr(x, flag).astype(int).tolist()
    assert np.sum([p.lengths for p in pieces], 0).tolist() == x.lengths.tolist()
    for i in x.ids:
        frames = torch.cat([p[i] for p in pieces], x.stream_axis)
        assert frames.shape == x[i].shape
