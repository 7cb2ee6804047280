"""The torch StreamTensor outside a forward: making, asking, converting, storing."""

import copy
import io
import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch
from turns import in_blocks

import dreamstream as ds
from dreamstream.errors import DTypeError, ShapeError, StreamIdError, StreamIndexError, StreamMismatchError

Stream = ds.stream_tensor(torch.zeros(1, 1), ids="a").__class__

ROWS = [torch.randn(4, n, generator=torch.Generator().manual_seed(n)) for n in (5, 0, 3)]
META = {"ids": ["a", "b", "c"], "sos": [True, False, True], "eos": [False, False, True]}


def make(**options):
    return ds.stream_tensor(ROWS, **{**META, **options})


def same(a, b):
    assert isinstance(a, Stream) and isinstance(b, Stream)
    assert a.meta == b.meta and a.names == b.names and a.starts == b.starts and a.rate == b.rate
    assert a.restart == b.restart and a.dtype == b.dtype and torch.equal(a, b)


def test_a_list_becomes_a_padded_tensor():
    x = make(rate=50, restart=True)
    assert isinstance(x, torch.Tensor) and type(x) is ds.torch.StreamTensor is Stream
    assert x.shape == (3, 4, 5) and x.dtype == torch.float32 and x.is_leaf and not x.requires_grad
    assert x.names == ("B", "F", "L") and x.dims == ("B", 0, "L") and x.rate == Fraction(50) and x.restart
    assert x.ids == ["a", "b", "c"] and x.lengths.tolist() == [5, 0, 3] and x.sos.tolist() == META["sos"]
    assert x.starts is None and x.stream_axis == 1 and x.batch_size() == 3 and x.max_length() == 5
    assert (x.batch_dim, x.length_dim, x.has_batch_dim(), x.is_length_dim(-1)) == (0, 2, True, True)
    for i, row in zip("abc", ROWS):
        assert type(x[i]) is torch.Tensor and torch.equal(x[i], row)
    assert [len(r[0]) for r in x.unpad_sequence()] == [5, 0, 3]
    assert not x.tensor()[1].any() and not x.tensor()[2, :, 3:].any()
    assert x.drop_empty().ids == ["a", "c"] and x[1:2].drop_empty() is None
    assert repr(x) == "StreamTensor(B, 4, L; a: 5, b: 0, c: 3; dtype=torch.float32)"


def test_padding_of_the_caller_is_neither_taken_nor_touched():
    data = torch.full((2, 3, 4), torch.nan)
    data[0], data[1, :, :2] = 1, 2
    x = ds.stream_tensor(data, ids=["a", "b"], lengths=torch.tensor([4, 2]), sos=torch.tensor([True, False]))
    assert not x.tensor().isnan().any() and data.isnan().sum() == 6
    x.add_(1)
    assert data[0, 0, 0] == 1
    shared = ds.as_stream_tensor(data, ids=["a", "b"], lengths=[4, 2])
    assert shared.data_ptr() == data.data_ptr() == shared.tensor().data_ptr()
    shared["b"][:] = 5
    assert data[1, 0, 0] == 5


def test_bad_data_are_refused():
    data = torch.zeros(2, 3, 4)
    for error, call in (
        (StreamIdError, lambda: ds.stream_tensor(data)),
        (StreamIdError, lambda: ds.stream_tensor(data, ids=["a"])),
        (StreamMismatchError, lambda: ds.stream_tensor(data, ids=["a", "b"], lengths=[4, 5])),
        (StreamMismatchError, lambda: ds.stream_tensor(ROWS, ids=list("abc"), lengths=[4, 5, 6])),
        (ShapeError, lambda: ds.stream_tensor(torch.zeros(2), ids=["a", "b"])),
        (ShapeError, lambda: ds.stream_tensor(data, ids=["a", "b"], names=("B", "F", "T"))),
        (ShapeError, lambda: ds.stream_tensor(data, ids=["a", "b"], names=("B_F", "B", "L"))),
        (ShapeError, lambda: ds.stream_tensor([torch.zeros(2, 3), torch.zeros(3, 3)], ids=["a", "b"])),
        (ShapeError, lambda: ds.stream_tensor([torch.zeros(2, 3), torch.zeros(3)], ids=["a", "b"])),
        (DTypeError, lambda: ds.stream_tensor([torch.zeros(3), torch.zeros(3).double()], ids=["a", "b"])),
        (DTypeError, lambda: ds.stream_tensor([torch.zeros(3), [1.0]], ids=["a", "b"])),
        (ShapeError, lambda: Stream.outside(data, ("B", "F", "L"), make().meta)),
    ):
        with pytest.raises(error):
            call()


def test_autograd_is_torchs_own():
    x = make(requires_grad=True, dtype=torch.float64)
    assert x.is_leaf and x.requires_grad
    (x * 2).sum().backward()
    assert type(x.grad) is torch.Tensor and x.grad.sum() == 2 * 4 * 8 and not x.grad[1].any()
    (gradient,) = torch.autograd.grad((x * 3).sum(), x)
    assert gradient.sum() == 3 * 32
    assert (x * 2).grad_fn is not None and not (x * 2).detach().requires_grad
    assert not x.data.requires_grad and isinstance(x.data, Stream)
    with torch.no_grad():
        x.zero_()
    with pytest.raises(ShapeError):
        x.data = torch.zeros(2)


def test_conversions_keep_the_streams():
    x = make(rate=Fraction(1, 3))
    for y in (x.to("cpu"), x.cpu(), x.clone(), x.detach(), x.contiguous(), x.requires_grad_(), x.data):
        assert isinstance(y, Stream) and y.meta is x.meta and y.rate == x.rate
    assert x.half().dtype == torch.float16 and x.to(torch.float64).dtype == torch.float64
    assert x.type(torch.int32).ids == x.ids and x.bfloat16().names == x.names
    assert isinstance(x.detach().numpy(), np.ndarray) and np.asarray(x.detach()).shape == (3, 4, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = torch.nn.functional.linear(x.transpose(1, 2), torch.ones(2, 4))
    assert y.dtype == torch.bfloat16 and y.meta == x.meta
    assert torch.nn.Linear(4, 2)(x.transpose(1, 2)).names == ("B", "L", "F")


@pytest.mark.parametrize("way", ["pickle", "deepcopy", "copy", "save"])
def test_stored_and_copied(way):
    x = Stream.outside(make().tensor(), ("B", "F", "L"), make().meta, (3, None, 0), Fraction(2), True)
    for requires_grad in (False, True):
        x.requires_grad_(requires_grad)
        if way == "pickle":
            y = pickle.loads(pickle.dumps(x))
        elif way == "save":
            file = io.BytesIO()
            torch.save({"x": x}, file)
            file.seek(0)
            y = torch.load(file, weights_only=False)["x"]
        else:
            y = getattr(copy, way)(x)
        same(x, y)
        assert y.requires_grad == requires_grad
        assert (y.data_ptr() == x.data_ptr()) == (way == "copy")
    if way == "deepcopy":
        with pytest.raises(RuntimeError, match="detach"):
            copy.deepcopy(x * 2)


class Chunks(torch.utils.data.Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, i):
        return ds.stream_tensor([ROWS[i]], ids=[f"s{i}"], sos=True)


def test_workers_return_stream_tensors():
    loader = torch.utils.data.DataLoader(Chunks(), batch_size=None, num_workers=1)
    for i, x in enumerate(loader):
        same(x, Chunks()[i])


def test_names():
    x = make()
    assert x.size("L") == 5 and x.size(1) == 4 and x.size() == (3, 4, 5) and x.size("B") == 3
    assert x.align_to("L", ..., "F").names == ("L", "B", "F") and x.align_to("B", "C", "F", "L").shape == (
        3,
        1,
        4,
        5,
    )
    assert x.align_as(x.transpose(0, 2)).names == ("L", "F", "B")
    assert x.rename(F="freq").names == ("B", "freq", "L") and x.rename("B", None, "L").names == ("B", None, "L")
    assert x.rename("B", None, "L").refine_names("B", "F", "L").names == x.names
    assert x.transpose("B", "L").names == ("L", "F", "B") and x.sum("F").names == ("B", "L")
    assert x.permute("L", "B", "F").names == ("L", "B", "F") and x.softmax("F").names == x.names
    for wrong in (
        lambda: x.rename(L="T"),
        lambda: x.size("T"),
        lambda: x.align_to("B", "L"),
        lambda: x.rename("B", "L"),
    ):
        with pytest.raises(ShapeError):
            wrong()
    plain, meta, names = x.decouple()
    assert type(plain) is torch.Tensor and meta is x.meta and names == x.names


LAYOUTS = [
    ("B", 0, "L"),
    ("B", "L", 0),
    ("L", "B", 0),
    (0, "L", "B"),
    ("B", "L"),
    ("L", "B"),
    ("B", 0, "L", 1),
    (1, "B", 0, "L"),
    ("B_L", 0),
    (0, "B_L"),
    ("B", 0),
    (0, "B"),
    ("B", 1, 0),
]


@in_blocks("dims", LAYOUTS, 13)
@pytest.mark.parametrize("lengths", [(3, 1, 0), (2, 2, 2), (0, 0, 0), ()], ids=str)
def test_between_frames_and_padding(dims, lengths):
    if "L" not in dims and "B_L" not in dims:
        lengths = [min(n, 1) for n in lengths]
    n_features = sum(isinstance(d, int) for d in dims)
    features = (2, 3)[:n_features]
    meta = ds.StreamMetadata([f"s{i}" for i in range(len(lengths))], True, False, lengths)
    value = torch.randn(sum(lengths), *features, dtype=torch.float64, requires_grad=True)
    x = Stream.from_frames(value, dims, meta, (1,) * len(lengths), Fraction(2))
    assert x.dims == tuple(iter(_renumbered(dims))) and x.starts == (1,) * len(lengths) and x.rate == 2
    seen = [d for d in dims if isinstance(d, int)]
    want = value.permute(0, *(1 + d for d in seen))
    assert torch.equal(x.frames(), want)
    ends = np.cumsum([0, *lengths])
    for i, a, b in zip(meta.ids, ends, ends[1:]):
        axis = x.stream_axis
        assert torch.equal(x[i].movedim(axis, 0), want[a:b])
    weights = torch.randn_like(want)
    (x.frames() * weights).sum().backward()
    assert torch.equal(value.grad.permute(0, *(1 + d for d in seen)), weights)
    if "L" in dims:
        assert not x.tensor().isnan().any()
    elif "B" in dims:
        assert x.tensor().isnan().sum() == (len(lengths) - sum(lengths)) * 2 * (3 if n_features == 2 else 1)
    double = torch.ones(2, 1, dtype=torch.float64, requires_grad=True)
    if n_features == 1 and sum(lengths):
        torch.autograd.gradgradcheck(
            lambda v: Stream.from_frames(v * double[:, 0], dims, meta).frames(), value.detach().requires_grad_()
        )


def _renumbered(dims):
    seen = iter(range(9))
    return [d if isinstance(d, str) else next(seen) for d in dims]


def test_full_rows_are_views():
    value = torch.randn(6, 4)
    meta = ds.StreamMetadata(["a", "b"], True, False, [3, 3])
    x = Stream.from_frames(value, ("B", 0, "L"), meta)
    assert x.data_ptr() == value.data_ptr() and x.frames().data_ptr() == value.data_ptr()
    one = ds.as_stream_tensor(torch.randn(1, 4, 5), ids="a")
    assert one.frames().data_ptr() == one.data_ptr()


def test_indices_follow_the_rules():
    x = Stream.outside(make().tensor(), ("B", "F", "L"), make().meta, (10, 20, 30))
    y = x[..., 2:4]
    assert (
        y.lengths.tolist() == [2, 0, 1]
        and y.starts == (12, 20, 32)
        and not y.sos.all()
        and y.eos.tolist() == [0, 0, 1]
    )
    assert x[[2, 0]].ids == ["c", "a"] and x[1].names == ("F", "L") and x[1].ids == ["b"]
    assert x[..., -1].lengths.tolist() == [1, 0, 0] and x[..., 0].names == ("B", "F")
    assert x[..., torch.tensor([0, 2])].lengths.tolist() == [2, 0, 2] and x[..., ::2].starts is None
    assert x.index_select(0, torch.tensor([1, 0])).ids == ["b", "a"] and x.narrow("L", 1, 2).starts == (11, 20, 31)
    a, b = x.split(3, "L")
    assert isinstance(x.split(3, 2), list) and a.sos.tolist() == META["sos"] and b.starts == (13, 20, 33)
    same(torch.cat([a, b], 2), x)
    assert torch.cat([x[..., :1], x[..., 2:]], 2).starts == (None, 20, None)
    same(torch.cat(x.split(1)), x)
    same(torch.stack(x.unbind(0)), x)
    x = x.clone()
    x[..., :2] = 7
    assert x["c"][0].tolist()[:2] == [7, 7]
    with pytest.raises(StreamMismatchError):
        x[..., :2] = x[..., 1:3]
    for error, wrong in (
        (StreamIndexError, lambda: x[..., [2, 1]]),
        (StreamIdError, lambda: x[[0, 0]]),
        (StreamIndexError, lambda: x.gather(0, torch.zeros(1, 4, 5, dtype=torch.long))),
        (ShapeError, lambda: x.unbind(-1)),
        (StreamIdError, lambda: torch.cat([x, x])),
        (StreamMismatchError, lambda: torch.cat([x, x], 2)),
        (ShapeError, lambda: x.resize_(2)),
        (ShapeError, lambda: torch.stack([x, x.transpose(1, 2)])),
    ):
        with pytest.raises(error):
            wrong()


def test_ragged_chunks_are_laid_end_to_end():
    first, second = (
        make(),
        ds.stream_tensor([r.flip(-1) for r in ROWS[::-1]], ids=["a", "b", "c"], eos=[True, True, False]),
    )
    first = Stream.outside(first.tensor(), first.names, first.meta.replace(eos=[False] * 3), (0, 0, 0))
    whole = torch.cat([first, second], -1)
    assert whole.lengths.tolist() == [8, 0, 8] and whole.starts is None
    for row, (a, b) in enumerate(zip(ROWS, ROWS[::-1])):
        assert torch.equal(whole["abc"[row]], torch.cat([a, b.flip(-1)], 1))
    x = first.clone().requires_grad_()
    torch.cat([x, second], -1).square().sum().backward()
    assert torch.equal(x.grad, 2 * x.detach().tensor())


def test_collectors_take_torch_tensors():
    collector = ds.OutputCollector()
    x = make()
    collector.update(Stream.outside(x.tensor(), x.names, x.meta.replace(sos=[True] * 3), (0, 0, 0)))
    x.zero_()
    last = x.meta.replace(sos=[False] * 3, eos=[False, True, False], lengths=[1, 0, 0])[:2]
    collector.update(Stream.outside(x.tensor()[:2], x.names, last, (5, 0)))
    assert type(collector["a"]) is torch.Tensor and torch.equal(collector["a"][:, :5], ROWS[0])
    assert collector["a"].shape == (4, 6) and collector.finished == ["c", "b"]
    pooled = Stream.from_frames(
        torch.ones(1, 2), ("B", 0), ds.StreamMetadata(["p", "q"], True, [True, False], [1, 0])
    )
    collector.update(pooled)
    assert collector["p"].shape == (1, 2) and collector["q"].shape == (0, 2) and pooled.tensor()[1].isnan().all()
    with pytest.raises(StreamMismatchError):
        bad = make(ids=["x", "y", "z"], sos=True)
        collector.update(Stream.outside(bad.tensor(), bad.names, bad.meta, (1, 0, 0)))


def test_einops_reshapes():
    einops = pytest.importorskip("einops")
    x = make()
    y = einops.rearrange(x, "b (h d) l -> b l h d", h=2)
    assert y.names == ("B", "L", None, None) and y.meta == x.meta
    same(einops.rearrange(y, "b l h d -> b (h d) l").rename("B", "F", "L"), x)
