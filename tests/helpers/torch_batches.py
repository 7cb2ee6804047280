"""Batches of torch streams whose padding is NaN, and their rows as torch would have them."""

import torch

import dreamstream as ds

LENGTHS = (7, 3, 5, 1)
IDS = tuple("abcd")


def make(seed=0, names=("B", "F", "L"), lengths=LENGTHS, extra=2, dtype=torch.float64, **options):
    """Return a batch with 4 features whose padding is NaN (a wrong number, where there is no NaN)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(len(lengths), 4, max(lengths) + extra, generator=generator, dtype=torch.float64)
    x = x * 3
    for row, n in zip(x, lengths):
        row[:, n:] = torch.nan
    if not dtype.is_floating_point:
        x = x.nan_to_num(77.0)
    x = x.permute(["BFL".index(n) for n in names]).contiguous().to(dtype)
    ids = IDS[: len(lengths)]
    return ds.as_stream_tensor(x, names=names, ids=ids, sos=True, lengths=lengths, **options)


def rows(x):
    """Return each row as a batch of one, without padding, and without what makes it a stream."""
    axis = x.names.index("B") if "B" in x.names else None
    return [r if axis is None else r.unsqueeze(axis) for r in x.unpad_sequence()]


def streamed(model, whole, sizes):
    """Stream two rows in chunks, the second with a frame less in every other one; return what came out, by id."""
    got, at = {"a": [], "b": []}, [0, 0]
    for n, size in enumerate(sizes):
        first, last = n == 0, n == len(sizes) - 1
        ends = [whole.shape[2] if last else a + max(size - r * (n % 2), 0) for r, a in enumerate(at)]
        chunk = [whole[r, :, a:b] for r, (a, b) in enumerate(zip(at, ends))]
        out, at = model(ds.stream_tensor(chunk, ids=list(got), sos=first, eos=last)), ends
        for i in got:
            got[i].append(out[i])
    return got


def close(a, b):
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-12, atol=1e-12, equal_nan=True)


def silent(fn, *args):
    """Run with every fallback an error."""
    with ds.torch.on_fallback("raise"):
        return fn(*args)
