"""Gradients of random models: of chunks in ragged batches, under full-file-aligned, as of whole files offline."""

import copy

import numpy as np
import pytest
from random_graphs.drivers import canonical
from random_graphs.trial import Subject, arrange

import dreamstream as ds
from dreamstream.errors import DreamStreamError
from dreamstream.stream.tree import leaves

TOLERANCE = 1e-7  # relative to the largest; quotients by small numbers lose the rest


def reals(outputs):
    return [(k, y) for k, y in enumerate(leaves(outputs)) if y.is_floating_point()]


def plain(subject, data):
    """The tensors of a stream, as a batch of one."""
    out = []
    for x, frames in zip(subject.inputs, data):
        rows = arrange(np.asarray(frames[None]), x)
        out.append(ds.tensor(rows.swapaxes(0, 1).copy() if x.layout == "LBF" else rows, requires_grad=True))
    return out


def offline(subject, model, data, weights):
    """Go back from one whole stream; None where it is too short."""
    inputs = plain(subject, data)
    try:
        outputs = reals(model.forward(*inputs))
    except DreamStreamError:
        return None
    total = ds.zeros((), dtype=ds.float64)
    for k, y in outputs:
        values = canonical(y.numpy(), subject.dims[k])[0]
        w = weights.setdefault(k, np.random.default_rng(k).standard_normal(values.shape))
        dims = subject.dims[k]
        order = [dims.index(d) for d in ("B", "B_L", "L") if d in dims]
        order += [i for i, d in enumerate(dims) if not isinstance(d, str)]
        total = total + (y.permute(*order).reshape(-1) * ds.tensor(w.reshape(-1))).sum()
    if total.requires_grad:
        total.backward()
    return [x.grad for x in inputs]


def check(seed):
    subject = Subject.of(seed)
    if len(subject.inputs) > 1:
        return  # in which both have to be as far
    rng = np.random.default_rng(seed)
    (x,) = subject.inputs
    whole, model = copy.deepcopy(subject.double), copy.deepcopy(subject.double)
    files, weights, wanted = {}, {}, {}
    for i, n in zip("abc", rng.integers(1, 40, 3)):
        data = [rng.standard_normal((int(n), subject.draft.inputs[0].size))]
        own = {}
        found = offline(subject, whole, data, own)
        if found is not None:
            files[i], weights[i], wanted[i] = data[0], own, found
    if not files:
        return
    ds.patch_module(model, "full-file-aligned", "buffer" if subject.draft.buffered else "raise").train().online()
    for part in model.children():
        part.eval()  # norms, of which streams use the running statistics
    at, losses, given = dict.fromkeys(files, 0), [], {i: [] for i in files}
    begun = set()
    while at:
        ids = [i for i in at if rng.random() < 0.8] or list(at)[:1]
        new = {i: int(rng.integers(0, 9)) for i in ids}
        names = [d if isinstance(d, str) else f"F{d}" for d in x.dims]
        rows = [arrange(files[i][at[i] : at[i] + n], x) for i, n in new.items()]
        eos = [at[i] + n >= len(files[i]) for i, n in new.items()]
        part = ds.stream_tensor(
            rows, ids=ids, names=names, sos=[i not in begun for i in ids], eos=eos, requires_grad=True
        )
        begun.update(ids)
        for i, n in new.items():
            given[i].append(part)
            at[i] += n
            if at[i] >= len(files[i]):
                del at[i]
        for k, y in reals(model(part)):
            for i, start in zip(y.ids, y.starts):
                frames = y[i].movedim(y.stream_axis, 0)
                w = weights[i][k][start : start + frames.shape[0]]
                losses.append((frames * ds.tensor(w.reshape(frames.shape))).sum())
    total = sum(losses, ds.zeros((), dtype=ds.float64))
    if not total.requires_grad:
        return
    total.backward()
    for (name, p), q in zip(model.named_parameters(), whole.parameters()):
        compare(name, p.grad, q.grad)
    for i, parts in given.items():
        if wanted[i][0] is None or any(p.grad is None for p in parts):
            continue
        got = np.concatenate([np.moveaxis(p.grad[i].numpy(), p.stream_axis, 0) for p in parts])
        want = canonical(wanted[i][0].numpy(), x.dims)[0]
        compare(f"input of {i}", ds.tensor(got), ds.tensor(want))


def compare(name, own, other):
    own, other = (0.0 if g is None else g.numpy() for g in (own, other))
    scale = np.abs(other)[np.isfinite(other)].max(initial=1.0) if np.ndim(other) else 1.0
    np.testing.assert_allclose(own, other, rtol=0, atol=TOLERANCE * scale, err_msg=name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("block", range(6))
def test_full_files_have_the_gradients_of_offline(block):
    for seed in range(20 * block, 20 * block + 20):
        try:
            check(seed)
        except Exception as error:
            raise AssertionError(
                f"seed {seed}: {type(error).__name__}: {error}\n{Subject.of(seed).draft}"
            ) from error
