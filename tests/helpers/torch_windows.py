"""Streaming one operator by its torch kernel: every frame of every row by itself, nothing clever.

`PlainWindow` is what a kernel may ask for, at its plainest; what may not be read is NaN in it. `Streams` keeps
each stream's frames and carried tensors; which frames there are and which are kept the C operator says.
"""

from __future__ import annotations

import numpy as np
import torch

from dreamstream.torch.kernels import KERNELS, Step

__all__ = ["PlainWindow", "Streams"]


class PlainWindow:
    """Frames of rows ``(frames, *features)``, the first at absolute position ``at`` of its stream."""

    def __init__(self, rows, at, counts):
        self.rows, self.at, self.counts = rows, at, counts
        self.known, self.total, self.before = counts[:, 2], counts[:, 3], counts[:, 0]
        lengths = counts[:, 2] - counts[:, 0]
        self.even = bool((lengths == lengths[0]).all())

    def take(self, positions, fill=0.0):
        out = []
        for row, at, wanted in zip(self.rows, self.at, positions.tolist()):
            nothing = torch.full_like(row[:1].sum(0, dtype=row.dtype), fill)
            out.append(torch.stack([row[p - at] if at <= p < at + len(row) else nothing for p in wanted]))
        return torch.stack(out)

    def run(self, first, n, fill=0.0):
        return self.take(first[:, None] + torch.arange(n), fill)

    def new(self):
        n = self.known - self.before
        frames = self.take(self.before[:, None] + torch.arange(int(n.max())))
        return frames, n


class Streams:
    """One operator on many streams: values by its kernel, counts by C."""

    def __init__(self, op, weights, ranks, detach=False):
        self.op, self.weights, self.ranks, self.detach = op, weights, ranks, detach
        self.kernel = KERNELS[op.name]
        self.kept, self.carried = {}, {}

    def step(self, counts, outputs, ended):
        first = [torch.from_numpy(c[:, 0].copy()) for c in outputs]
        n = [int((c[:, 2] - c[:, 0]).max()) for c in outputs]
        return Step(
            self.op.name,
            dict(self.op.attributes),
            self.ranks,
            tuple(features for _, features, _, _ in self.op.outputs),
            first,
            n,
            [torch.from_numpy(c) for c in counts],
            torch.from_numpy(ended),
            torch.is_grad_enabled(),
        )

    def call(self, ids, values, counts, ended):
        """Advance streams; ``values[input][row]`` are new frames. Returns ``[output][row]`` new frames."""
        outputs = self.op.counts(counts, ended)
        step = self.step(counts, outputs, ended)
        if self.kernel.framewise:
            y = self.kernel.run(step, *[torch.cat(v) for v in values], *self.weights)
            lengths = (counts[0][:, 2] - counts[0][:, 0]).tolist()
            return [t.split(lengths) for t in (y if isinstance(y, tuple) else (y,))]
        kept = self.op.kept(counts, outputs)
        windows = []
        for i, new in enumerate(values):
            rows = []
            for r, name in enumerate(ids):
                old = self.kept.get((name, i))
                rows.append(new[r] if counts[i][r, 1] == 0 and old is None else torch.cat([old, new[r]]))
                self.kept[name, i] = rows[r][len(rows[r]) - int(counts[i][r, 2] - kept[i][r, 1]) :]
                assert len(rows[r]) == counts[i][r, 2] - kept[i][r, 0]
            at = [int(k) for k in kept[i][:, 0]]
            windows.append(PlainWindow(rows, at, torch.from_numpy(counts[i])))
        if not self.kernel.carries and not any(step.n):
            return [[None] * len(ids)] * len(outputs)
        state = ()
        if self.kernel.carries:
            like = values[0][0]
            fresh = self.kernel.carries(step, self.weights, like)
            rows = [self.carried.get(name, fresh) for name in ids]
            state = tuple(torch.cat(parts) for parts in zip(*rows))
        results, state = self.kernel.run(step, windows, self.weights, state)
        for r, name in enumerate(ids):
            self.carried[name] = tuple(s[r : r + 1] for s in state)
        out = []
        for y, c, (_, features, _, _) in zip(results, outputs, self.op.outputs, strict=True):
            lengths = (c[:, 2] - c[:, 0]).tolist()
            assert y.shape == (len(ids), max(lengths), *features), (y.shape, max(lengths), features)
            out.append([row[:n] for row, n in zip(y, lengths)])
        return out

    def forget(self, name):
        self.carried.pop(name, None)
        for key in [k for k in self.kept if k[0] == name]:
            del self.kept[key]


def counts_of(before, now, ended):
    """Counts of an input: known is total."""
    return np.array([[a, a, b, b] for a, b in zip(before, now)], np.int64).reshape(-1, 4)
