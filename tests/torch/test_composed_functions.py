"""Functions of torch that are made of others: values, gradients and types of patched and compiled modules."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from wrappers import Scaled

import dreamstream as ds

RNG = torch.Generator().manual_seed(0)
TABLE = torch.randn(7, 8, generator=RNG)
POINTS = torch.rand(8, generator=RNG).cumsum(0)

#: What is computed of frames of eight features, ``(B, L, 8)``; and of images ``(B, 8, 2, L)``.
CASES = {
    "cdist": lambda x: torch.cdist(x, TABLE),
    "cdist of a batch": lambda x: torch.cdist(x, TABLE[None].expand(x.size(0), -1, -1)),
    "cdist, p = 1": lambda x: torch.cdist(x, TABLE, p=1.0),
    "nearest row": lambda x: torch.cdist(x, TABLE).argmin(-1),
    "inner": lambda x: torch.inner(x, TABLE),
    "vecdot": lambda x: torch.linalg.vecdot(x, TABLE[0]),
    "diag_embed": torch.diag_embed,
    "diag_embed above": lambda x: torch.diag_embed(x, 1),
    "diag_embed below": lambda x: torch.diag_embed(x, -2),
    "diag_embed elsewhere": lambda x: torch.diag_embed(x, 0, 2, 3).transpose(2, 3),
    "matrix_power": lambda x: torch.linalg.matrix_power(x.unsqueeze(-1) * TABLE[0], 3),
    "trapezoid": lambda x: torch.trapezoid(x, dx=0.5),
    "trapezoid of infinity": lambda x: torch.trapezoid(torch.where(x > 1, torch.inf, x), dx=0.5),
    "gradient of infinity": lambda x: torch.gradient(torch.where(x > 1, torch.inf, x), dim=1)[0],
    "trapz by points": lambda x: torch.trapz(x, POINTS),
    "cumulative_trapezoid": lambda x: torch.cumulative_trapezoid(x, POINTS, dim=-1),
    "cumulative_trapezoid along L": lambda x: torch.cumulative_trapezoid(x, dx=0.1, dim=1),
    "gradient": lambda x: torch.gradient(x, dim=-1)[0],
    "gradient along L": lambda x: torch.gradient(x, spacing=0.5, dim=1)[0],
    "gradient of both": lambda x: torch.cat(torch.gradient(x, dim=(1, 2)), -1),
    "local_response_norm": lambda x: F.local_response_norm(x.transpose(1, 2), 3, 0.1),
    "isclose": lambda x: torch.isclose(x, x + x.abs().sign() * 2e-5 * x, 1.5e-5),
    "isclose of NaN": lambda x: torch.isclose(x.log(), x.log(), equal_nan=True),
    "isin": lambda x: torch.isin((x * 2).long(), torch.tensor([0, 1, 3])),
    "isin, not": lambda x: torch.isin((x * 2).long(), torch.tensor([0, 1, 3]), invert=True),
    "ldexp": lambda x: torch.ldexp(x, torch.tensor(3)),
    "ndtr": torch.special.ndtr,
    "entr": lambda x: torch.special.entr(x.abs() + 0.1),
    "entr of all": lambda x: torch.special.entr(torch.cat([x, x * 0], -1)),
    "channel_shuffle": lambda x: F.channel_shuffle(x.transpose(1, 2)[:, :, None], 4),
    "select_scatter": lambda x: torch.select_scatter(x, x[..., 0] * 2, -1, 2),
    "slice_scatter": lambda x: torch.slice_scatter(x, x[..., :2] * 2, -1, 3, 7, 2),
    "slice_scatter of frames": lambda x: torch.slice_scatter(x, x[:, 1:] * 2, 1, 1),
    "fftshift": lambda x: torch.fft.fftshift(x[..., :7], dim=-1),
    "ifftshift": lambda x: torch.fft.ifftshift(x[..., :7], dim=-1),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.transpose(1, 2).unflatten(1, (4, 2)), 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x[:, : x.size(1) // 2 * 2].mT.unflatten(1, (2, 4)), 2),
}  # fmt: skip


def seen(y):
    return y if isinstance(y, torch.Tensor) else torch.from_numpy(np.asarray(y))


def streamed(step, x):
    """What two streams get, the first in chunks of 4, 1 and 6 frames; the other has no more than 3."""
    parts = []
    for begin, end in ((0, 4), (4, 5), (5, 11)):
        ids, data = ["a"], [x[0, begin:end]]
        if begin == 0:
            ids, data = ["a", "b"], [x[0, :4], x[1, :3]]
        ends = [end == 11, True][: len(ids)]
        parts.append(step(ds.stream_tensor(data, names=("B", "L", "C"), ids=ids, sos=begin == 0, eos=ends)))
    axis = parts[0].names.index("L") - 1
    a = torch.cat([seen(y["a"]) for y in parts], axis)
    return a, seen(parts[0]["b"])


@pytest.mark.parametrize("name", CASES)
def test_as_torch(name):
    x, model = torch.randn(2, 11, 8, generator=torch.Generator().manual_seed(1)), Scaled(CASES[name])
    wanted = model(x[:1])[0], model(x[1:, :3])[0]
    learns = wanted[0].requires_grad
    if learns:
        sum(w.square().sum() for w in wanted).backward()
        slope = model.scale.grad.clone()
        model.scale.grad = None
    engine = ds.compile(Scaled(CASES[name]).eval(), ("B", "L", 8))
    chunked = streamed(engine, x.numpy())
    got = streamed(ds.patch_module(model).online(), x)
    for own, whole in ((got, wanted), (chunked, wanted)):
        for y, w in zip(own, whole):
            assert y.dtype == w.dtype
            torch.testing.assert_close(
                y, w.detach() if own is chunked else w, rtol=1e-5, atol=1e-5, equal_nan=True
            )
    if learns:
        whole = model(
            ds.stream_tensor([x[0], x[1, :3]], names=("B", "L", "C"), ids=["c", "d"], sos=True, eos=True)
        )
        sum(whole[one].square().sum() for one in "cd").backward()
        torch.testing.assert_close(model.scale.grad, slope, rtol=1e-4, atol=1e-4, equal_nan=True)
