"""Norms: against torch, on hard data, and what they refuse."""

import numpy as np
import pytest
from random_graphs.idioms import X, held, net

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import DTypeError, ModeError, NotStreamableError, ShapeError

torch = pytest.importorskip("torch")
from torch_layers import close, draw, twins


@pytest.mark.parametrize("bias", [True, False])
def test_bilinear(rng, bias):
    ours, theirs = twins("Bilinear", 4, 3, 6, bias)
    a, b = (rng.standard_normal((2, 5, n)).astype(np.float32) for n in (4, 3))
    close(ours(ds.tensor(a), ds.tensor(b)), theirs(torch.tensor(a), torch.tensor(b)))


# ---------------------------------------------------------------------- hard data
def exact_groups(x, groups):
    """group_norm in extended precision."""
    rows = x.astype(np.longdouble).reshape(len(x), groups, -1)
    centred = rows - rows.mean(-1, keepdims=True)
    y = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + np.longdouble(1e-5))
    return y.reshape(x.shape).astype(np.float64)


@pytest.mark.parametrize("offset", [0, 1e4, -3e5])
def test_far_from_zero(rng, offset):
    """An offset costs nothing: the variance is taken about the mean, not as a difference of squares."""
    x = (offset + rng.standard_normal((2, 6, 200))).astype(np.float32)
    for groups in (1, 2, 6):
        y = F.group_norm(ds.tensor(x), groups).numpy()
        np.testing.assert_allclose(y, exact_groups(x, groups), rtol=0, atol=4e-6)
    np.testing.assert_allclose(F.instance_norm(ds.tensor(x)).numpy(), exact_groups(x, 6), rtol=0, atol=4e-6)
    mean, variance = x.mean((0, 2), dtype=np.float64), x.var((0, 2), dtype=np.float64)
    bn = nn.BatchNorm1d(6).eval()
    bn.load_state_dict({**bn.state_dict(), "running_mean": mean, "running_var": variance})
    stored = bn.running_mean.numpy().astype(np.float64)[:, None]
    want = (x - stored) / np.sqrt(bn.running_var.numpy().astype(np.float64)[:, None] + 1e-5)
    np.testing.assert_allclose(bn(ds.tensor(x)).numpy(), want, rtol=4e-7, atol=4e-7)


def test_constant_rows(rng):
    """What has no variance gives the bias."""
    x = np.full((2, 4, 50), 12345.678, np.float32)
    bias = rng.standard_normal(4).astype(np.float32)
    y = F.group_norm(ds.tensor(x), 2, ds.ones(4), ds.tensor(bias))
    np.testing.assert_allclose(y.numpy(), np.broadcast_to(bias[:, None], x.shape), atol=1e-6)
    assert (F.rms_norm(ds.zeros(3, 4), (4,)).numpy() == 0).all()


# ---------------------------------------------------------------------- streams
def test_layouts_of_batch_norm():
    """Channels are dimension 1, wherever B and L are; images of features keep their axes."""

    def forward(self, x):
        image = x.unflatten(1, (2, 2))  # (B, 2, 2, L)
        y = self.two(image.transpose(2, 3)).transpose(2, 3) + self.two(image)
        z = self.one(x.permute(2, 1, 0)).permute(2, 1, 0)
        return y.flatten(1, 2) + z + self.one(x)

    one, two = nn.BatchNorm1d(4), nn.BatchNorm2d(2)
    draw(one)
    draw(two)
    held(net(forward, one=one, two=two), X, delay=0)


def test_layer_norms_of_inner_and_permuted_axes():
    def forward(self, x):
        image = x.unflatten(1, (2, 2))  # (B, 2, 2, L)
        y = self.norm(image.permute(0, 3, 2, 1)).permute(0, 3, 2, 1)
        z = self.rms(image.transpose(1, 3)).transpose(1, 3)
        w = self.both(image.permute(3, 0, 2, 1)).permute(1, 3, 2, 0)
        return (y + z - w).flatten(1, 2)

    held(net(forward, norm=nn.LayerNorm(2), rms=nn.RMSNorm(2), both=nn.LayerNorm((2, 2))), X, delay=0)


def test_group_norm_of_a_pooled_vector():
    def forward(self, x):
        return self.norm(x.mean(2))

    held(net(forward, norm=nn.GroupNorm(2, 4)), X, delay=np.inf)


def test_over_the_stream_waits_for_the_end():
    def forward(self, x):
        return self.group(x) + self.instance(x)

    model = net(forward, group=nn.GroupNorm(2, 4), instance=nn.InstanceNorm1d(4, affine=True))
    draw(model)
    held(model, X, delay=np.inf, buffered=True)


def test_images_over_the_stream():
    """Over time and frequency, wherever the two stand."""

    def forward(self, x):
        image = x.unflatten(1, (2, 2))  # (B, 2, 2, L)
        y = self.instance(image.transpose(2, 3)).transpose(2, 3) + self.group(image)
        return y.flatten(1, 2)

    model = net(forward, instance=nn.InstanceNorm2d(2, affine=True), group=nn.GroupNorm(1, 2))
    draw(model)
    held(model, X, delay=np.inf, buffered=True)


@pytest.mark.parametrize(
    ("make", "name"), [(lambda: nn.GroupNorm(2, 4), "group_norm"), (lambda: nn.InstanceNorm1d(4), "instance_norm")]
)
def test_over_the_stream_is_refused(make, name):
    model = nn.Sequential(nn.Conv1d(4, 4, 3), nn.ModuleDict({"inner": make()})["inner"]).eval()
    match = rf"1 \(\w+Norm\w*\): {name} at .*whole stream.*batch_norm.*unstreamable=\"buffer\""
    with pytest.raises(NotStreamableError, match=match) as raised:
        ds.compile(model, ("B", 4, "L"))
    assert raised.value.path == "1"
    online = ds.patch_module(model).online()
    with pytest.raises(NotStreamableError, match=match):
        online(ds.stream_tensor(np.ones((1, 4, 9), np.float32), ids="a", sos=True))
    assert online.live_ids == []
    row = next(r for r in ds.audit(model, ("B", 4, "L")).rows if r.path == "1")
    assert not row.streamable and "whole stream" in row.reason and row.delay == np.inf


def test_channels_must_be_features():
    x = ds.stream_tensor(np.ones((1, 9, 4), np.float32), names=("B", "L", "F"), ids="a", sos=True)
    for norm in (nn.BatchNorm1d(4).eval(), nn.GroupNorm(2, 4)):
        with pytest.raises(NotStreamableError, match="dimension 1"):
            ds.patch_module(norm).online()(x)
    y = ds.stream_tensor(np.ones((4, 2, 1, 9), np.float32), names=("F", "T", "B", "L"), ids="a", sos=True)
    with pytest.raises(NotStreamableError, match="first dimension"):
        ds.patch_module(net(lambda self, x: F.group_norm(x, 2)), unstreamable="buffer").online()(y)


def test_one_value_has_no_statistic():
    """As torch, which raises, for a group of one value: no frames come out."""
    x = ds.ones(2, 4, 1)
    assert F.instance_norm(x).shape == (2, 4, 0) and F.group_norm(x, 4).shape == (2, 4, 0)
    assert F.group_norm(x, 2).shape == (2, 4, 1)
    online = ds.patch_module(nn.InstanceNorm1d(4), unstreamable="buffer").online()
    y = online(ds.stream_tensor(np.ones((1, 4, 1), np.float32), ids="a", sos=True, eos=True))
    assert y["a"].shape == (4, 0)


def test_training_is_refused():
    """Statistics that run along a stream have no end before the stream has; those of whole files have."""
    x = np.ones((2, 4, 5), np.float32)
    for layer in (nn.BatchNorm1d(4), nn.InstanceNorm1d(4, track_running_stats=True)):
        online = ds.patch_module(layer).online()
        with pytest.raises(ModeError, match=r"eval\(\)"):
            online(ds.stream_tensor(x, ids=["a", "b"], sos=True, eos=[True, False]))
        assert online.live_ids == []
    ds.compile(nn.BatchNorm1d(4), ("B", 4, "L"))  # engines evaluate


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("front", ["offline", "native", "torch"])
def test_instance_norm_gathers_statistics_of_whole_rows(front, affine):
    """Each row has its own; the mean of all rows' is gathered, as torch does of rows of one length."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)

    def layers(lib):
        norm = lib.nn.InstanceNorm1d(4, affine=affine, track_running_stats=True)
        return lib.nn.Sequential(lib.nn.Conv1d(3, 4, 3, 2), norm).double()

    wanted, own = layers(torch), layers(torch if front == "torch" else ds)
    own.load_state_dict(
        wanted.state_dict() if front == "torch" else {k: v.numpy() for k, v in wanted.state_dict().items()}
    )
    if front != "offline":
        own = ds.patch_module(own).train().online()
    for x in (rng.standard_normal((3, 3, 9)), rng.standard_normal((2, 3, 6))):
        data = torch.tensor(x) if front == "torch" else ds.tensor(x)
        y = own(
            data if front == "offline" else ds.stream_tensor(data, ids=list("abc")[: len(x)], sos=True, eos=True)
        )
        (y**3).sum().backward()
        (wanted(torch.tensor(x)) ** 3).sum().backward()
    for a, b in zip(own.parameters(), wanted.parameters()):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), atol=1e-11)
    for a, b in zip(own.buffers(), wanted.buffers()):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-12)


def test_statistics_of_the_batch_are_refused():
    model = nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False)).eval()
    with pytest.raises(NotStreamableError, match=r"^0 \(BatchNorm1d\).*track_running_stats=True"):
        ds.patch_module(model)
    online = ds.patch_module(model, unstreamable="buffer").online()
    with pytest.raises(NotStreamableError, match=r"0 \(BatchNorm1d\): .*track_running_stats=True"):
        online(ds.stream_tensor(np.ones((1, 4, 9), np.float32), ids="a", sos=True))


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        (lambda: nn.GroupNorm(3, 4), ShapeError, "3 groups.*4 channels"),
        (lambda: nn.GroupNorm(2, 4)(ds.ones(2, 5, 3)), ShapeError, r"\(B, 4, \*\).*\(2, 5, 3\)"),
        (lambda: F.group_norm(ds.ones(2, 5, 3), 2), ValueError, "groups must divide the 5 channels"),
        (lambda: F.group_norm(ds.ones(4), 2), ShapeError, r"\(B, C, \*\)"),
        (lambda: F.group_norm(ds.ones(2, 4, 3), 2, ds.ones(3)), ShapeError, "weight"),
        (lambda: F.instance_norm(ds.ones(2, 4)), ShapeError, "3 dimensions"),
        (lambda: nn.InstanceNorm1d(4)(ds.ones(2, 5, 3)), ShapeError, "4 channels"),
        (lambda: nn.BatchNorm1d(4).eval()(ds.ones(2, 5, 3)), ShapeError, "4 channels"),
        (lambda: nn.BatchNorm1d(4).eval()(ds.ones(4)), ShapeError, "2 or 3 dimensions"),
        (lambda: nn.BatchNorm2d(4).eval()(ds.ones(2, 4, 3)), ShapeError, "4 dimensions"),
        (lambda: nn.BatchNorm1d(4).eval()(ds.ones(2, 4).double()), DTypeError, "float64"),
        (lambda: F.batch_norm(ds.ones(2, 4), None, None), ShapeError, "must be given"),
        (lambda: F.batch_norm(ds.ones(2, 4), ds.ones(3), ds.ones(4)), ShapeError, "running_mean"),
        (lambda: F.batch_norm(ds.ones(2, 4), ds.ones(4), ds.ones(4), eps=-1.0), ValueError, "eps"),
        (lambda: F.rms_norm(ds.ones(2, 4), (3,)), ShapeError, r"\(\*, 3\)"),
        (lambda: F.rms_norm(ds.ones(2, 4), (4,), ds.ones(4).double()), DTypeError, "float64"),
        (lambda: F.rms_norm(ds.ones(2, 4, dtype=ds.int64), (4,)), DTypeError, "int64"),
        (lambda: F.bilinear(ds.ones(2, 3), ds.ones(2, 3), ds.ones(5, 3, 4)), ShapeError, r"\(5, 3, 4\)"),
        (lambda: nn.Bilinear(0, 3, 4), ShapeError, "in1_features"),
        (lambda: F.normalize([1.0]), DTypeError, "ds.tensor"),
    ],
)  # fmt: skip
def test_wrong_use(wrong, error, match):
    with pytest.raises(error, match=match):
        wrong()
