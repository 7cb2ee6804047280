"""The laws of gradients in training are tested: each fault that is planted in the tape must break one of them.

What is planted in operators and their driver is in `test_planted.py`.
"""

from functools import cache

import numpy as np
import pytest

import dreamstream as ds
from dreamstream import autograd, nn
from dreamstream.array.versions import Contents
from dreamstream.errors import ModeError
from dreamstream.online import session, taped

CALLS = ["a0-5", "b0-3 a5-6", "a6-6 b3-9", "c0-4 b9-14", "a6-14 c4-8"]
"""Rows of each call: a stream, and which of its frames; the others' order and number change from call to call."""


class Network(nn.Module):
    """Kept frames, carried states, what is given once, two readers of one value."""

    def __init__(self):
        super().__init__()
        self.voice, self.conv = nn.Linear(2, 4), nn.Conv1d(3, 4, 3, padding=1)
        self.rnn, self.head = nn.GRU(4, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x, once):
        y = self.conv(x).transpose(1, 2) + self.voice(once).unsqueeze(1)
        y = y * self.rnn(y.cumsum(1) * 0.1, self.voice(once).unsqueeze(0))[0]
        return self.head(y)


class Streams:
    """The same streams, and the same calls of them, for each law."""

    def __init__(self, variant):
        rng = np.random.default_rng(0)
        self.model = Network().double()
        for p in self.model.parameters():
            p.numpy()[...] = rng.standard_normal(p.shape) * 0.5
        self.once = {i: rng.standard_normal(2) for i in "abc"}
        self.frames = {i: rng.standard_normal((3, n)) for i, n in zip("abc", (14, 14, 8))}
        if variant:
            ds.patch_module(self.model, variant).train().online()

    def call(self, number):
        """Return the loss of a call."""
        rows = [(part[0], *map(int, part[1:].split("-"))) for part in CALLS[number].split()]
        x = ds.stream_tensor(
            [self.frames[i][:, a:b] for i, a, b in rows], ids=[i for i, _, _ in rows],
            sos=[a == 0 for _, a, _ in rows], eos=[b == self.frames[i].shape[1] for i, _, b in rows],
        )  # fmt: skip
        new = {i: self.once[i] for i, a, _ in rows if a == 0}
        y = self.model(x, ds.static(new) if new else None)
        return sum(((y[i] * y[i]).sum() for i in y.ids), ds.zeros((), dtype=ds.float64))

    def gradients(self):
        found = {n: p.grad for n, p in self.model.named_parameters()}
        self.model.zero_grad()
        return {n: 0.0 if g is None else g.numpy().copy() for n, g in found.items()}


def require_same(found, wanted):
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-7, err_msg=name)


@cache
def of_whole_files():
    """The gradients of the same files offline, computed before anything is planted."""
    whole = Streams(None)
    for i, x in whole.frames.items():
        y = whole.model(ds.tensor(x[None]), ds.tensor(whole.once[i][None]))
        (y * y).sum().backward()
    return whole.gradients()


def full_files_are_whole(variant="full-file-aligned"):
    """Chunks' losses have the gradients of whole files."""
    cut = Streams(variant)
    sum(map(cut.call, range(len(CALLS)))).backward()
    require_same(cut.gradients(), of_whole_files())


def held_outputs_are_whole():
    """So have files that are given whole, at their end."""
    full_files_are_whole("full-file-unaligned")


def states_are_constants_chunk_by_chunk():
    """A call's gradients are those of it alone: differences from the states before it."""
    streams, rng = Streams("chunk-wise-aligned"), np.random.default_rng(1)
    model, h = streams.model, 1e-5

    def loss_at(number, states, steps):
        model.reset()
        model.set_state(states)
        for n, p in model.named_parameters():
            p.numpy()[...] += steps[n]
        loss = streams.call(number).item()
        for n, p in model.named_parameters():
            p.numpy()[...] -= steps[n]
        return loss

    for number in range(len(CALLS)):
        before = model.get_state()
        streams.call(number).backward()
        after, slopes = model.get_state(), streams.gradients()
        along = {n: rng.standard_normal(p.shape) for n, p in model.named_parameters()}
        most, least = (loss_at(number, before, {n: k * d for n, d in along.items()}) for k in (h, -h))
        wanted = sum((slopes[n] * d).sum() for n, d in along.items())
        np.testing.assert_allclose((most - least) / (2 * h), wanted, rtol=1e-5)
        model.reset()
        model.set_state(after)


def one_backward_of_several_calls_adds():
    """Chunk by chunk, the sum of calls' losses has the sum of their gradients."""
    together, apart = Streams("chunk-wise-aligned"), Streams("chunk-wise-aligned")
    sum(map(together.call, range(len(CALLS)))).backward()
    for number in range(len(CALLS)):
        apart.call(number).backward()
    require_same(together.gradients(), apart.gradients())


def refused_without_a_trace(call):
    """What can't be gone back through is refused before anything has a gradient."""
    streams = Streams("full-file-aligned")
    with pytest.raises(ModeError):
        call(streams)
    assert all(p.grad is None for p in streams.model.parameters())


def files_have_to_end():
    """A backward in mid-file is refused."""
    refused_without_a_trace(lambda s: s.call(0).backward())


def weights_have_to_stay():
    """So is one behind weights that were edited since."""

    def call(streams):
        loss = sum(map(streams.call, range(len(CALLS))))
        with ds.no_grad():
            streams.model.conv.weight.mul_(2)
        loss.backward()

    refused_without_a_trace(call)


LAWS = [
    full_files_are_whole, held_outputs_are_whole, states_are_constants_chunk_by_chunk,
    one_backward_of_several_calls_adds, files_have_to_end, weights_have_to_stay,
]  # fmt: skip


@pytest.mark.fast
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_laws(law):
    law()


# ---------------------------------------------------------------------- planted
def changed(monkeypatch, owner, name, change):
    """Let `change` stand around a function, which it gets as its first argument."""
    function = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args, **named: change(function, *args, **named))


def begun_with(hands_on):
    def plant(monkeypatch):
        changed(
            monkeypatch, taped.TapedCall, "begin", lambda begin, call, module, _: begin(call, module, hands_on)
        )

    return plant


def states_by_the_row(monkeypatch):
    """Gradients of states go to whoever stood in that row."""

    def commit(function, self, call):
        call.left = [[*rows[1:], *rows[:1]] for rows in call.left]
        function(self, call)

    changed(monkeypatch, session.Session, "commit", commit)


def rows_of_states_swapped(monkeypatch):
    """Gradients of the rows' states are exchanged."""

    def back(function, *args):
        known, n_rows = function(*args), args[4]

        def planted(*slopes):
            made = known(*slopes)
            return [*made[:-n_rows], *made[-n_rows:][1:], *made[-n_rows:][:1]]

        return planted

    changed(monkeypatch, taped, "_back", back)


def order_of_visits(monkeypatch):
    """Records are visited in the order in which they were made."""
    changed(monkeypatch, autograd, "_reached", lambda function, first: function(first)[::-1])


def forks_replace(monkeypatch):
    """Of several readers of a value the last one's gradient stays."""
    monkeypatch.setattr(autograd._Sums, "add", lambda sums, key, array, fresh: sums.set(key, array))


def once_in_the_first_chunk(monkeypatch):
    """What is held of an input that is given once has a gradient in the first chunk alone."""

    def back(function, self, wanted, n_outputs, held):
        known, starts = function(self, wanted, n_outputs, held), [s is None for s in self.old]

        def planted(*slopes):
            made = known(*slopes)
            for i, rows in held.items():
                if made[i] is not None:
                    made[i][~np.repeat(starts, [len(r) for r in rows])] = 0
            return made

        return planted

    changed(monkeypatch, taped.TapedCall, "_back_anew", back)


def known_only_now(monkeypatch):
    """What is given once is new to all streams, in every chunk."""
    monkeypatch.setattr(taped.TapedCall, "_known_all_along", lambda self, op, edges, values: (edges, values))


def weights_as_they_were(monkeypatch):
    """Operators of frames keep what was computed of an input that is given once."""
    monkeypatch.setattr(taped.TapedCall, "_with_renewed", lambda self, states, n_kept, edges: states)


def mid_file_let_through(monkeypatch):
    """A backward goes through live groups."""
    monkeypatch.setattr(taped._Exit, "check", autograd.Record.check)


def edits_let_through(monkeypatch):
    """Nobody counts edits, or looks whether parameters are what they were."""
    monkeypatch.setattr(autograd, "edits_of", lambda array: 0)
    monkeypatch.setattr(Contents, "are_now", True)


def gradients_given_early(monkeypatch):
    """Leaves get their gradients before all is checked."""

    def check(function, self):
        for place in self.parents:
            if place is not None and not isinstance(place, tuple):
                place.grad = ds.zeros(place.shape, dtype=ds.float64)
        function(self)

    changed(monkeypatch, autograd.Record, "check", check)


PLANTED = {
    "states' gradients are dropped": (begun_with(False), full_files_are_whole),
    "states are not cut off": (begun_with(True), one_backward_of_several_calls_adds),
    "states' gradients go by the row": (states_by_the_row, full_files_are_whole),
    "rows of states are swapped": (rows_of_states_swapped, full_files_are_whole),
    "order of visits": (order_of_visits, full_files_are_whole),
    "forks replace": (forks_replace, full_files_are_whole),
    "given once: first chunk alone": (once_in_the_first_chunk, states_are_constants_chunk_by_chunk),
    "given once: new in every chunk": (known_only_now, states_are_constants_chunk_by_chunk),
    "given once: as it was": (weights_as_they_were, states_are_constants_chunk_by_chunk),
    "mid-file let through": (mid_file_let_through, files_have_to_end),
    "edits let through": (edits_let_through, weights_have_to_stay),
    "gradients given early": (gradients_given_early, weights_have_to_stay),
}


@pytest.mark.fast
@pytest.mark.parametrize("name", PLANTED)
def test_planted(name, monkeypatch):
    plant, law = PLANTED[name]
    of_whole_files()
    plant(monkeypatch)
    try:
        law()
    except (Exception, pytest.fail.Exception):
        return
    pytest.fail(f"no law noticed: {name}")
