"""Streaming one operator by its torch kernel, as the bridge does, and with nothing clever.

`Plain` keeps every frame of every row by itself; `PlainWindow` is what a kernel may ask for, at its plainest.
`Online` is the bridge's own call. Both have `call`, and counts from the C operator.
"""

import numpy as np
import torch

from dreamstream.stream import StreamMetadata
from dreamstream.stream.edge import Request
from dreamstream.torch.run.calls import Mode, TorchCall, TorchSession
from dreamstream.torch.run.kernels import KERNELS, Step


def tensors(arrays):
    """Copies of arrays, None where there is none."""
    return [None if a is None else torch.from_numpy(np.array(a, order="C")) for a in arrays]


class PlainWindow:
    """Frames of rows ``(frames, *features)``, the first at absolute position ``at`` of its stream."""

    def __init__(self, rows, at, counts):
        self.rows, self.at = rows, at
        self.known, self.total, self.before = counts[:, 2], counts[:, 3].clamp(min=0), counts[:, 0]
        lengths = self.known - self.before
        self.even = bool((lengths == lengths[0]).all())

    def take(self, positions, fill=0.0):
        out = []
        for row, at, wanted in zip(self.rows, self.at, positions.tolist()):
            nothing = row.new_full(row.shape[1:], fill)
            frames = [row[p - at] if at <= p < at + len(row) else nothing for p in wanted]
            out.append(torch.stack(frames) if frames else row[:0])
        return torch.stack(out)

    def run(self, first, n, fill=0.0):
        return self.take(first[:, None] + torch.arange(n), fill)

    def new(self):
        n = self.known - self.before
        return self.take(self.before[:, None] + torch.arange(int(n.max()))), n


class Plain:
    """One operator on many streams: values by its kernel, counts by C, states in a dict."""

    device = None

    def __init__(self, case, op, weights):
        self.op, self.weights = op, weights
        self.frames = tuple(i.features for i in case.inputs)
        self.kernel = KERNELS[op.name]
        self.kept, self.carried = {}, {}

    def call(self, rows, values, counts, ended):
        """Advance streams by ``values[input][row]``; return the new frames of all rows, output by output."""
        outputs = self.op.counts(counts, ended)
        step = Step(self.op.name, self.op.attributes, self.frames, tuple(o[1] for o in self.op.outputs))
        step.training, step.device = torch.is_grad_enabled(), self.device
        if self.kernel.framewise:
            y = self.kernel.run(step, *[torch.cat(v) for v in values], *self.weights)
            return y if isinstance(y, tuple) else (y,)
        step.first = [torch.from_numpy(c[:, 0].copy()) for c in outputs]
        step.n = [int((c[:, 2] - c[:, 0]).max()) for c in outputs]
        step.total = lambda: torch.from_numpy(counts[0][:, 3])
        step.ended = torch.from_numpy(ended)
        windows = self._windows(rows, values, counts, outputs)
        if not self.kernel.carries and not any(step.n):
            return [None] * len(outputs)
        if self.kernel.carries:
            results, state = self.kernel.run(step, windows, self.weights, self._state(rows, step, values))
            for r, row in enumerate(rows):
                self.carried[row.id] = tuple(s[r : r + 1] for s in state)
        else:
            y = self.kernel.run(step, *windows, *self.weights)
            results = y if isinstance(y, tuple) else (y,)
        for y, n, shape in zip(results, step.n, step.features, strict=True):
            assert y.shape == (len(rows), n, *shape)
        lengths = [(c[:, 2] - c[:, 0]).tolist() for c in outputs]
        return [torch.cat([row[:n] for row, n in zip(y, m)]) for y, m in zip(results, lengths)]

    def _windows(self, rows, values, counts, outputs):
        kept = self.op.kept(counts, outputs)
        windows = []
        for i, new in enumerate(values):
            frames = []
            for r, row in enumerate(rows):
                frames.append(new[r] if row.sos else torch.cat([self.kept[row.id, i], new[r]]))
                begin, end = kept[i][r, 1], counts[i][r, 2]
                self.kept[row.id, i] = frames[r][len(frames[r]) - int(end - begin) :]
                assert len(frames[r]) == end - kept[i][r, 0]
            windows.append(PlainWindow(frames, kept[i][:, 0].tolist(), torch.from_numpy(counts[i])))
        return windows

    def _state(self, rows, step, values):
        fresh = self.kernel.carries(step, self.weights, values[0][0])
        found = [fresh if row.sos else self.carried[row.id] for row in rows]
        return tuple(torch.cat(parts) for parts in zip(*found))


class Online:
    """The same by a session of the bridge."""

    device = "cpu"

    def __init__(self, case, op, weights):
        self.case, self.op, self.weights = case, op, weights
        self.session = TorchSession(case.skew, buffers=True)

    def call(self, rows, values, counts, ended):
        """Advance streams by ``values[input][row]``; return the new frames of all rows, output by output."""
        case, ids = self.case, [row.id for row in rows]
        lengths = [c[:, 2] - c[:, 0] for c in counts]
        meta = StreamMetadata(ids, np.array([row.sos for row in rows]), ended, lengths[0])
        with self.session.hold(ids):
            call = self.session.admit(meta, tuple(i.rate for i in case.inputs), lengths, False, dict, TorchCall)
            taped = torch.is_grad_enabled()
            call.prepare(torch.device(self.device), Mode(taped, False), self.device == "cpu" and not taped, {})
            call.begin()
            edges = [call.input_edge(k, i.dtype, i.features) for k, i in enumerate(case.inputs)]
            frames = [torch.cat(v) for v in values]
            request = Request(self.op.name, self.op.attributes, edges, frames, self.weights, op=self.op)
            results = call.run(request)
            self.session.commit(call)
        return [y for y, _ in results]
