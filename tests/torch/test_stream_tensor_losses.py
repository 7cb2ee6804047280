"""Losses of torch stream tensors: those of all valid frames in one long row, gradients too."""

from functools import partial

import pytest
import torch
from torch_batches import LENGTHS, make, rows, silent

import dreamstream as ds
from dreamstream.errors import StreamMismatchError

F = torch.nn.functional

LOSSES = {
    "mse": lambda t, **k: F.mse_loss(t, t.sin(), **k),
    "l1": lambda t, **k: F.l1_loss(t, t.cos(), **k),
    "smooth_l1": lambda t, **k: F.smooth_l1_loss(t, t.sin(), beta=0.5, **k),
    "huber": lambda t, **k: F.huber_loss(t, t.sin(), delta=0.5, **k),
    "bce": lambda t, **k: F.binary_cross_entropy(t.sigmoid(), t.sin().abs(), **k),
    "bce logits": lambda t, **k: F.binary_cross_entropy_with_logits(
        t, t.sin().abs(), pos_weight=torch.arange(1.0, 5, dtype=t.dtype)[:, None], **k
    ),
    "kl": lambda t, **k: F.kl_div(t.log_softmax(1), t.sin().softmax(1), **k),
    "soft_margin": lambda t, **k: F.soft_margin_loss(t, t.detach().sign(), **k),
    "gaussian": lambda t, **k: F.gaussian_nll_loss(t, t.sin(), t.abs() + 0.1, **k),
    "cross_entropy": lambda t, **k: F.cross_entropy(
        t, t.sin().argmax(1), weight=torch.arange(1.0, 5, dtype=t.dtype), ignore_index=2, **k
    ),
    "cross_entropy of probabilities": lambda t, **k: F.cross_entropy(
        t, t.sin().softmax(1), label_smoothing=0.1, **k
    ),
    "nll": lambda t, **k: F.nll_loss(t.log_softmax(1), t.sin().argmax(1), **k),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_see_valid_frames_only(name):
    x, fn = make(5), LOSSES[name]
    whole = torch.cat(rows(x), 2)  # one long row
    for reduction in ("sum", "mean"):
        a, b = x.clone().requires_grad_(), whole.clone().requires_grad_()
        got, want = silent(partial(fn, a, reduction=reduction)), fn(b, reduction=reduction)
        assert type(got) is torch.Tensor and torch.allclose(got, want, rtol=1e-12)
        got.backward()
        want.backward()
        gradient = torch.as_tensor(a.grad)
        pieces = torch.cat([g[:, :n] for g, n in zip(gradient, LENGTHS)], 1)
        assert torch.allclose(pieces, b.grad[0], rtol=1e-10, atol=1e-12)
        assert not gradient.isnan().any()
    assert silent(lambda: fn(x, reduction="none")).meta == x.meta


def test_losses_with_plain_targets():
    x = make(6)
    target = torch.zeros(x.shape, dtype=x.dtype)
    assert silent(F.mse_loss, x, target) == silent(F.mse_loss, x, x * 0)
    classes = torch.zeros(x.shape[0], x.shape[2], dtype=torch.long)
    assert silent(F.cross_entropy, x, classes) == silent(F.cross_entropy, x, x.argmax(1) * 0)
    batch = silent(lambda: F.kl_div(x.log_softmax(1), x.softmax(1), reduction="batchmean"))
    assert torch.allclose(batch, silent(lambda: F.kl_div(x.log_softmax(1), x.softmax(1), reduction="sum")) / 4)
    with pytest.raises(StreamMismatchError, match="lengths"):
        F.mse_loss(x, make(6, lengths=(7, 3, 4, 1)))
    with pytest.raises(ds.ShapeError, match="classes"):
        F.cross_entropy(x.transpose(1, 2), classes)


def test_ctc_loss_takes_the_streams_lengths():
    x = make(7, lengths=(9, 6, 8)).permute(2, 0, 1).log_softmax(-1)
    targets, sizes = torch.tensor([[1, 2], [3, 1], [2, 2]]), torch.tensor([2, 2, 2])
    want = torch.stack(
        [
            F.ctc_loss(r[:, 0], t, torch.tensor(len(r)), torch.tensor(2), reduction="sum")
            for r, t in zip(rows(x), targets)
        ]
    )
    got = silent(lambda: F.ctc_loss(x, targets, torch.tensor([9, 6, 8]), sizes, reduction="none"))
    assert torch.allclose(got, want) and torch.allclose(
        F.ctc_loss(x, targets, None, sizes, reduction="none"), want
    )
    with pytest.raises(StreamMismatchError, match="'b'"):
        F.ctc_loss(x, targets, torch.tensor([9, 7, 8]), sizes)
