"""The laws themselves are tested: each planted fault must break one of those that the fast tier holds.

Faults in Python are patched in; faults in C are built as copies of the package (`ds_laws.mutants`).
"""

import shutil

import numpy as np
import pytest
from ds_laws import first_broken, mutants, of_fast

import dreamstream as ds
from dreamstream import _core, dispatch
from dreamstream.array import operators
from dreamstream.engine import Engine
from dreamstream.online.eager import EagerCall
from dreamstream.online.session import Call, Session, StreamState


def syncs_by_counts(monkeypatch):
    """Streams that have as many frames in this call count as being together."""
    sync = operators._sync

    def planted(request):
        counts = [e.counts for e in request.edges]
        if not all(c is not None and np.array_equal(c, counts[0]) for c in counts):
            sync(request)

    monkeypatch.setattr(operators, "_sync", planted)


def stale_weights(monkeypatch):
    """Eager calls keep a weight as it was when they first saw it."""
    weight, seen = dispatch._weight, {}

    def planted(tensor):
        if tensor is None:
            return None
        return seen.setdefault(id(tensor), (tensor, weight(tensor).copy()))[1]

    monkeypatch.setattr(dispatch, "_weight", planted)


def borrowed_weights(monkeypatch):
    """An engine computes with the model's weights as they are now."""
    compiled, called = ds.compile, Engine.__call__

    def compile(model, *args, **kwargs):
        engine = compiled(model, *args, **kwargs)
        engine.again = lambda: compiled(model, *args, **kwargs)
        return engine

    def call(self, *tensors, **named):
        return called(self.again(), *tensors, **named)

    monkeypatch.setattr(ds, "compile", compile)
    monkeypatch.setattr(Engine, "__call__", call)


def lost_starts(monkeypatch):
    """A stream that starts with nothing has not started."""
    commit = Session.commit

    def planted(self, call):
        commit(self, call)
        there = call.input_counts[:, :, 2].any(0)
        lost = [i for i, sos, some in zip(call.ids, call.meta.sos, there) if sos and not some]
        self.publish({i: None for i in lost if self.state_of(i) is not None})

    monkeypatch.setattr(Session, "commit", planted)


class Proxy:
    """An operator with some of its methods replaced."""

    def __init__(self, op):
        self._op = op

    def __getattr__(self, name):
        return getattr(self._op, name)


def aliased_frames(monkeypatch):
    """What an operator keeps of one stream lies in its caller's memory."""
    operator, seen = dispatch.operator, {}

    class Aliasing(Proxy):
        def run(self, values, inputs, outputs, ended, states, *more):
            if (
                states is not None
                and self.n_values == 1
                and len(inputs) == 1
                and len(inputs[0]) == 1
                and not self.carries
            ):
                frames = seen.setdefault(id(self._op), [])
                if inputs[0][0, 0] == 0:
                    frames.clear()
                kept = int(self.kept(inputs, outputs)[0][0, 0])
                if frames and states[0] is not None:
                    states = [{"": np.frombuffer(np.concatenate(frames)[kept:].tobytes(), np.uint8)}]
                frames.append(values[0])
            return self._op.run(values, inputs, outputs, ended, states, *more)

    monkeypatch.setattr(operators, "operator", lambda *args: Aliasing(operator(*args)))


def padding_read(monkeypatch):
    """Rows of a padded array begin one frame late, and take their last from the padding."""
    made = ds.stream_tensor

    def planted(data, meta=None, names=None, *, lengths=None, **options):
        if lengths is None or not len(lengths):
            return made(data, meta, names, lengths=lengths, **options)
        rows = np.moveaxis(data, list(names).index("B"), 0)
        axis = [n for n in names if n != "B"].index("L")
        rows = [r if n == r.shape[axis] else np.roll(r, -1, axis) for r, n in zip(rows, lengths)]
        return made(np.stack(rows, list(names).index("B")), meta, names, lengths=lengths, **options)

    monkeypatch.setattr(ds, "stream_tensor", planted)


def published_early(monkeypatch):
    """Each operation publishes what has been computed so far."""
    record = Call.record

    def planted(self, states):
        record(self, states)
        new = {}
        for row, i in enumerate(self.ids):
            if self.session.state_of(i) is not None:
                rest = self.session.state_of(i).states[len(self.new) :]
                done = tuple(s[row] for s in self.new)
                new[i] = StreamState(tuple(int(n) for n in self.input_counts[:, row, 2]), done + rest)
        self.session.publish(new)

    monkeypatch.setattr(Call, "record", planted)


def inputs_written(monkeypatch):
    """An operator works in its caller's memory."""
    compute = EagerCall.compute

    def planted(self, ran, edges, values, weights):
        results = compute(self, ran, edges, values, weights)
        if values[0].flags.writeable:
            values[0][...] = 0
        return results

    monkeypatch.setattr(EagerCall, "compute", planted)


def outputs_kept(monkeypatch):
    """The outputs of a call are those of the call before, overwritten."""
    compute, buffers = EagerCall.compute, {}

    def planted(self, ran, edges, values, weights):
        results = []
        for k, (value, edge) in enumerate(compute(self, ran, edges, values, weights)):
            kept = buffers.setdefault((id(ran.op), k), [value, 0])
            results.append((kept[0] if kept[0].shape == value.shape else value, edge))
        return results

    monkeypatch.setattr(EagerCall, "compute", planted)


def neighbours_matter(monkeypatch):
    """Values depend on how many streams there are."""
    compute = EagerCall.compute

    def planted(self, *args):
        return [(v * (1 + 1e-7 * len(self.ids)) if v.dtype.kind == "f" else v, e) for v, e in compute(self, *args)]

    monkeypatch.setattr(EagerCall, "compute", planted)


def restarts_go_on(monkeypatch):
    """A stream that is restarted goes on from where it was."""
    admit = Session.admit

    def planted(self, *args):
        call = admit(self, *args)
        for row, (i, sos) in enumerate(zip(call.ids, call.meta.sos)):
            state = self.state_of(i)
            if sos and state is not None:
                call.old[row] = state
                call.input_counts[:, row, 0] += state.frames
                call.input_counts[:, row, 2] += state.frames
        return call

    monkeypatch.setattr(Session, "admit", planted)


def rows_swapped(monkeypatch):
    """The states of two rows are exchanged."""
    record = Call.record

    def planted(self, states):
        record(self, states if states is None else [*states[1:], *states[:1]])

    monkeypatch.setattr(Call, "record", planted)


def late_by_a_call(monkeypatch):
    """Counts hold back the last frame of an operator that could give it."""
    operator = dispatch.operator

    class Late(Proxy):
        def counts(self, inputs, ended, ids=()):
            out = self._op.counts(inputs, ended, ids)
            for c in out:
                c[:, 0] = np.maximum(c[:, 0] - 1, 0)
                c[~ended, 2] = np.maximum(c[~ended, 2] - 1, 0)
            return out

    monkeypatch.setattr(operators, "operator", lambda *args: Late(operator(*args)))


PLANTED = [
    (syncs_by_counts, ["add"], ()),
    (stale_weights, ["linear"], ()),
    (borrowed_weights, ["linear"], ("edited-weights",)),
    (lost_starts, ["relu"], ()),
    (aliased_frames, ["delay"], ("callers-memory",)),
    (padding_read, ["relu"], ()),
    (published_early, ["residual", "delay"], ("failed-call",)),
    (inputs_written, ["relu"], ()),
    (outputs_kept, ["relu"], ()),
    (neighbours_matter, ["relu"], ("batching",)),
    (restarts_go_on, ["delay"], ("reset",)),
    (rows_swapped, ["reduce_frames"], ()),
    (late_by_a_call, ["relu"], ("finality",)),
]


@pytest.mark.fast
@pytest.mark.parametrize(("plant", "names", "laws"), PLANTED, ids=lambda p: getattr(p, "__name__", ""))
def test_planted_in_python(plant, names, laws, monkeypatch):
    monkeypatch.delenv("DREAMSTREAM_LAW_CASES", raising=False)
    plant(monkeypatch)
    assert first_broken(names, laws, of_fast) is not None, f"no law noticed: {plant.__doc__}"


# ---------------------------------------------------------------- in C
@pytest.mark.fast
def test_lines_are_there_once():
    found = {n: (mutants.ROOT / "csrc" / m.file).read_text().count(m.line) for n, m in mutants.MUTANTS.items()}
    assert {name: n for name, n in found.items() if n != 1} == {}, "plant them anew"


@pytest.mark.slow
@pytest.mark.parametrize("name", mutants.MUTANTS)
def test_planted_in_c(name, tmp_path):
    if not (mutants.ROOT / "csrc" / "cbuild.py").exists() or shutil.which("cc") is None:
        pytest.skip("needs the C sources and a compiler")
    mutant = mutants.MUTANTS[name]
    if "x86" in mutant.into and not any("x86" in b["name"] for b in _core.config()["backends"]):
        pytest.skip("a fault in kernels of x86")
    done = mutants.run(mutant, mutants.build(mutant, tmp_path))
    if done.returncode >= 0:  # else it read outside its memory
        assert f"with {tmp_path}" in done.stdout, f"another package was imported: {done.stdout}{done.stderr}"
        assert done.returncode == 1, f"no law noticed: {done.stdout}{done.stderr}"


@pytest.mark.slow
def test_the_copy_itself_is_sound(tmp_path):
    """A copy with a line changed into itself breaks no law."""
    if not (mutants.ROOT / "csrc" / "cbuild.py").exists() or shutil.which("cc") is None:
        pytest.skip("needs the C sources and a compiler")
    first = next(iter(mutants.MUTANTS.values()))
    same = mutants.Mutant(first.file, first.line, first.line, ("conv1d", "lstm"))
    done = mutants.run(same, mutants.build(same, tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
