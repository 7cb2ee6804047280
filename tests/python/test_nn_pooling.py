"""Pooling and upsampling against torch, on plain tensors, and what of them no stream can have."""

import itertools

import numpy as np
import pytest
from random_graphs.idioms import of
from turns import in_blocks

import dreamstream as ds
import dreamstream.nn.functional as F
from dreamstream import nn
from dreamstream.errors import DTypeError, NotStreamableError, ShapeError

torch = pytest.importorskip("torch")
TF = torch.nn.functional


def test_powers_of_negative_sums(rng):
    x = rng.standard_normal((2, 9)).astype(np.float32)
    got, wanted = F.lp_pool1d(ds.tensor(x), 3, 2).numpy(), TF.lp_pool1d(torch.tensor(x), 3, 2).numpy()
    assert np.isnan(wanted).any()
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_special_values():
    x = np.array([[0, np.nan, 1, 2, -np.inf, -np.inf, np.inf, 3]], np.float32)
    for ours, theirs in ((F.max_pool1d, TF.max_pool1d), (F.avg_pool1d, TF.avg_pool1d)):
        np.testing.assert_array_equal(ours(ds.tensor(x), 2).numpy(), theirs(torch.tensor(x), 2).numpy())


LONG = (
    (nn.MaxPool1d, (65, 1, 32)), (nn.MaxPool1d, (401, 1, 200)), (nn.MaxPool1d, (13, 3, 5, 2, False, True)),
    (nn.MaxPool1d, (400, 160)), (nn.MaxPool1d, (31, 31)), (nn.MaxPool2d, ((9, 65), 1, (4, 32))),
    (nn.MaxPool2d, ((3, 16), (2, 1), 1, (1, 3))), (nn.AvgPool1d, (65, 1, 32)), (nn.AvgPool1d, (400, 160)),
    (nn.AvgPool1d, (400, 400)), (nn.AvgPool1d, (33, 2, 16, True, False)),
    (nn.AvgPool2d, ((11, 8), (1, 2), (5, 3))),
    (nn.AvgPool2d, ((8, 1), 1, (4, 0), True)), (nn.LPPool1d, (2, 65, 1)),
)  # fmt: skip


@pytest.mark.parametrize("channels", [1, 3, 8, 17, 40])
@in_blocks(("layer", "given"), LONG, 7)
def test_long_windows(layer, given, channels, rng):
    """Of one channel and of many; NaN, infinities and zeros of both signs as torch has them."""
    special = np.array([0, -0.0, 0, -0.0, np.nan, np.inf, -np.inf], np.float32)
    for share in (0, 0.01, 0.2):
        flat = layer.__name__.endswith("1d")
        x = rng.standard_normal((channels, *(() if flat else (12,)), 700), dtype=np.float32)
        chosen = rng.random(x.shape) < share
        x[chosen] = rng.choice(special, chosen.sum())
        theirs = getattr(torch.nn, layer.__name__)(*given)
        wanted = theirs(torch.tensor(x, dtype=torch.float64)).to(torch.float32).numpy()
        got = layer(*given)(ds.tensor(x)).numpy()
        if "Max" not in layer.__name__:
            np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)
            continue
        np.testing.assert_array_equal(got, wanted)
        if flat:  # the first of equals
            signs = np.signbit(np.stack([got, wanted])[:, ~np.isnan(wanted)])
            np.testing.assert_array_equal(*signs)


def test_sizes_by_the_nearest_elements(rng):
    for n, size in itertools.product(range(1, 20), range(1, 40, 3)):
        x = rng.standard_normal((2, 1, n)).astype(np.float32)
        got = F.interpolate(ds.tensor(x), size=size).numpy()
        np.testing.assert_array_equal(got, TF.interpolate(torch.tensor(x), size=size).numpy())
    for factor in (0.3, 0.5, 0.75, 1.0, 1.3, 2, 2.5, 3, 8):
        x = rng.standard_normal((2, 1, 40, 9)).astype(np.float32)
        got = F.interpolate(ds.tensor(x), scale_factor=factor).numpy()
        np.testing.assert_array_equal(got, TF.interpolate(torch.tensor(x), scale_factor=factor).numpy())


# ---------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        (lambda x: F.max_pool1d(x, 2, return_indices=True), NotStreamableError, "return_indices"),
        (lambda x: F.max_pool1d(x.transpose(0, 2), 2), NotStreamableError, "mix B"),
        (lambda x: F.adaptive_avg_pool1d(x, 2), NotStreamableError, "depends on the stream's length.*buffer"),
        (lambda x: F.adaptive_max_pool1d(x, 2), NotStreamableError, "adaptive_max_pool1d"),
        (lambda x: F.adaptive_avg_pool2d(x.unsqueeze(1), (None, 2)), NotStreamableError, "fixed kernel_size"),
        (lambda x: F.interpolate(x, size=8), NotStreamableError, "size=8"),
        (lambda x: F.interpolate(x, scale_factor=1.5), NotStreamableError, "scale_factor=1.5"),
        (lambda x: x.repeat_interleave(0, 2), ShapeError, "at least once"),
        (lambda x: F.overlap_add(x, 2), ShapeError, "windows"),
    ],
)
def test_refused_streams(function, error, says):
    model = ds.patch_module(of(function)).online()
    with pytest.raises(error, match=f"(?s){says}"):
        model(ds.stream_tensor([np.zeros((3, 5), np.float32)], ids=["a"], sos=True))
    assert model.live_ids == []


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        (lambda x: F.max_pool1d(x, 3, padding=2), ShapeError, "half of kernel_size 3, got 2"),
        (lambda x: F.max_pool1d(x, 0), ShapeError, "at least 1, got 0"),
        (lambda x: F.max_pool1d(x, (2, 2)), ShapeError, "one integer"),
        (lambda x: F.max_pool2d(x, 2, stride=(1, 2, 3)), ShapeError, "1 or 2 integers"),
        (lambda x: F.avg_pool1d(x[0, 0], 2), ShapeError, "got 1 dimensions"),
        (lambda x: F.avg_pool2d(x, 2, divisor_override=0), ShapeError, "divisor_override"),
        (lambda x: F.avg_pool1d(x.long(), 2), DTypeError, "int64"),
        (lambda x: F.max_pool2d(x.unsqueeze(0), 20), ShapeError, "shorter than a window"),
        (lambda x: F.adaptive_avg_pool1d(x, 0), ShapeError, "at least 1"),
        (lambda x: F.adaptive_avg_pool2d(x, (1, 2, 3)), ShapeError, "2 numbers"),
        (lambda x: F.interpolate(x), ShapeError, "either size or scale_factor"),
        (lambda x: F.interpolate(x, scale_factor=-1), ShapeError, "above 0"),
        (lambda x: F.interpolate(x, scale_factor=2, align_corners=True), ShapeError, "align_corners"),
        (lambda x: F.interpolate(x, size=(2, 3)), ShapeError, "1 sizes or factors"),
        (lambda x: nn.Upsample(scale_factor=2, mode="bicubic"), ShapeError, "bicubic"),
        (lambda x: nn.OverlapAdd(0), ShapeError, "at least 1"),
        (lambda x: nn.RunningMean(0), ShapeError, "at least 1"),
    ],
)
def test_bad_arguments(function, error, says):
    with pytest.raises(error, match=says):
        function(ds.zeros(2, 3, 5))


def test_parts_of_a_stream_need_its_end():
    with pytest.raises(NotStreamableError, match="adaptive_avg_pool1d"):
        ds.compile(nn.AdaptiveAvgPool1d(4), ("B", 3, "L"))
