"""Loops over frames as people write them give, chunk by chunk, what the plain loop gives of whole sequences."""

import copy
import io
from collections import deque

import numpy as np
import pytest
import torch
from architectures import schedule
from complex_loops import diagonal
from elsewhere import moving
from given_once import driven, require_gradients, stepped
from loop_models import D, functional, layers
from pair_models import CASES
from turns import by_turns

import dreamstream as ds
import dreamstream.nn
from dreamstream.stream.tree import leaves

LENGTHS = (9, 1, 17, 2, 6, 4)


@pytest.fixture
def in_float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class Loop(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        torch.manual_seed(1)
        self.m = layers(torch.nn, lambda *shape: torch.nn.Parameter(torch.randn(*shape)))
        self.scale = torch.nn.Parameter(torch.ones(D))
        self.f = f

    def forward(self, x):
        return self.f(torch, self.m, x * self.scale)


class NativeLoop(dreamstream.nn.Module):
    def __init__(self, f, plain):
        super().__init__()
        self.m = layers(dreamstream.nn, lambda *shape: dreamstream.nn.Parameter(np.zeros(shape, np.float32)))
        self.scale = dreamstream.nn.Parameter(np.ones(D, np.float32))
        self.f = f
        self.load_state_dict({k: v.numpy() for k, v in plain.state_dict().items()})

    def forward(self, x):
        return self.f(ds, self.m, x * self.scale)


def wanted_of(model, xs):
    with torch.no_grad():
        return [[y[0] for y in leaves(model(x[None]))] if len(x) > 3 or enough(model, x) else None for x in xs]


def enough(model, x):
    """Whether the plain loop gives something: of no frames ``torch.stack`` has nothing to stack."""
    try:
        model(x[None])
    except RuntimeError:
        return False
    return True


def streamed(step, xs, seed, most=5):
    """Return every stream's outputs laid end to end, of random chunks."""
    out = [None] * len(xs)
    for call in schedule(np.random.default_rng(seed), [len(x) for x in xs], most):
        rows, begins, ends, sos, eos = zip(*call)
        given = [xs[r][a:b] for r, a, b in zip(rows, begins, ends)]
        made = step(given, ids=[f"s{r}" for r in rows], sos=list(sos), eos=list(eos))
        for r in rows:
            parts = [torch.as_tensor(np.asarray(y[f"s{r}"])) for y in leaves(made)]
            out[r] = [[*o, p] for o, p in zip(out[r] or [[] for _ in parts], parts)]
    return [[torch.cat(o) for o in stream] for stream in out]


def compare(got, wanted, tolerance):
    for ours, theirs in zip(got, wanted):
        if theirs is None:
            continue
        for a, b in zip(ours, theirs, strict=True):
            b = b.reshape(a.shape) if a.shape == (1, *b.shape) else b  # of what is carried at the end one
            assert a.shape == b.shape
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def patched(model, make=lambda x: x):
    ours = ds.patch_module(copy.deepcopy(model)).online()

    def step(given, **of):
        with torch.no_grad():
            return ours(ds.stream_tensor([make(x) for x in given], names=("B", "L", None), **of))

    return step


def compiled(engine):
    return lambda given, **of: engine(ds.stream_tensor([x.numpy() for x in given], names=("B", "L", None), **of))


@pytest.mark.parametrize(("name", "front"), by_turns(CASES, ["torch", "native"]))
def test_modules_stream(name, front, request):
    """In torch's front end, or in ours, eagerly and compiled; torch's are compiled below."""
    if front == "torch":
        request.getfixturevalue("in_float64")
    plain = Loop(CASES[name]).eval()
    xs = [torch.randn(n, D) for n in LENGTHS]
    wanted = wanted_of(plain, xs)
    if front == "torch":
        compare(streamed(patched(plain), xs, 1), wanted, 1e-12)
        return
    model = NativeLoop(CASES[name], plain).eval()
    compare(streamed(patched(model, lambda x: x.numpy()), xs, 1), wanted, 2e-5)
    compare(streamed(compiled(ds.compile(model, ("B", "L", D), verify=False)), xs, 2), wanted, 2e-5)


#: Of each loop one of these in the default tier.
TURNS = by_turns(CASES, ["engines", "gradients"])


@pytest.mark.parametrize(("name", "turn"), TURNS[::2])
def test_engines_stream_as_files_and_snapshots_say(name, turn):
    """Any chunks have the same bits, and so has what goes on from a file and snapshots in another process."""
    model = Loop(CASES[name]).eval()
    xs = [torch.randn(n, D) for n in LENGTHS]
    engine = ds.compile(model, ("B", "L", D), verify=False)
    ways = (engine, 1, 5), (moving(engine), 1, 5), (engine, 1, 1), (engine, 2, 4), (engine, 3, 20)
    first, *others = [streamed(compiled(e), xs, seed, most) for e, seed, most in ways]
    compare(first, wanted_of(model, xs), 2e-5)
    for other in others:
        for ours, theirs in zip(first, other):
            for a, b in zip(ours, theirs):
                assert torch.equal(a, b)


@pytest.mark.parametrize(("name", "turn"), TURNS[1::2])
def test_gradients_are_those_of_whole_files(name, turn, in_float64):
    model = Loop(CASES[name])
    xs = [torch.randn(n, D) for n in (9, 4)]
    loss = sum(y.sin().sum() for x in xs for y in leaves(model(x[None])))
    loss.backward()
    ours = ds.patch_module(Loop(CASES[name]), "full-file-aligned").online().train()
    total = 0.0
    for a, b in ((0, 3), (3, 4), (4, 4), (4, 9)):
        chunks = [x[a:b] for x in xs]
        ends = b == 9
        made = ours(ds.stream_tensor(chunks, names=("B", "L", None), ids=["a", "b"], sos=a == 0, eos=ends))
        total = total + sum(y[i].sin().sum() for y in leaves(made) for i in ("a", "b"))
    total.backward()
    for (key, p), q in zip(model.named_parameters(), ours.parameters()):
        zero = torch.zeros_like(p)
        torch.testing.assert_close(zero if q.grad is None else q.grad, zero if p.grad is None else p.grad, msg=key)


# ---------------------------------------------------------------------- complex states
@pytest.mark.parametrize("gathers", [False, True, "by frames"])
def test_complex_states(gathers):
    model = diagonal(gathers).eval()
    xs = [torch.randn(n, D) for n in LENGTHS if n > 2 or gathers != "by frames"]
    wanted = wanted_of(model, xs)
    compare(streamed(patched(model), xs, 1), wanted, 2e-5)
    engine = ds.compile(model, ("B", "L", D))
    for each in (engine, moving(engine)):
        compare(streamed(compiled(each), xs, 2), wanted, 2e-5)


@pytest.mark.parametrize("gathers", [False, True, "by frames"])
def test_gradients_of_complex_states(gathers, in_float64):
    model, x = diagonal(gathers), torch.randn(6, D)
    sum(y.sin().sum() for y in model(x[None])).backward()
    ours = ds.patch_module(diagonal(gathers), "full-file-aligned").online().train()
    total = 0.0
    for a, b in ((0, 2), (2, 3), (3, 6)):
        made = ours(ds.stream_tensor([x[a:b]], names=("B", "L", None), ids=["a"], sos=a == 0, eos=b == 6))
        total = total + sum(y["a"].sin().sum() for y in leaves(made))
    total.backward()
    for p, q in zip(model.parameters(), ours.parameters()):
        torch.testing.assert_close(q.grad, p.grad)


# ---------------------------------------------------------------------- what is given once
def begins_with_what_is_given(m, x, once):
    h, ys = once, []
    for t in range(x.size(1)):
        h = m.cell(x[:, t], h)
        ys.append(h)
    return torch.stack(ys, 1)


def meets_what_is_given(m, x, once):
    h, ys = torch.zeros(x.size(0), 4), []
    for t in range(x.size(1)):
        h = m.cell(x[:, t], h * once) + m.line(x[:, t])
        ys.append(h)
    return torch.stack(ys, 1)


def a_linear_recurrence_of_it(m, x, once):
    return ds.torch.functional.linear_recurrence(torch.sigmoid(m.line(x)), m.line(x), once)


@pytest.mark.parametrize("f", [begins_with_what_is_given, meets_what_is_given, a_linear_recurrence_of_it])
def test_what_is_given_once_begins_loops_and_meets_their_frames(f):
    class Given(Plain):
        def forward(self, x, once):
            return self.f(self, x, once)

    model = Given(f).eval()
    rng = np.random.default_rng(0)
    given = {
        f"s{n}": (rng.standard_normal((n, D), np.float32), rng.standard_normal(4, np.float32)) for n in LENGTHS
    }
    engine = ds.compile(model, {"x": ("B", "L", D), "once": ("B", 4)})
    got = driven(stepped(engine), rng, given, 0)
    for name, (x, once) in given.items():
        with torch.no_grad():
            wanted = model(torch.from_numpy(x)[None], torch.from_numpy(once)[None])[0]
        torch.testing.assert_close(torch.from_numpy(got[name]), wanted, rtol=1e-5, atol=1e-5)
    streams = {name: (rng.standard_normal((12, D), np.float32), once) for name, (_, once) in given.items()}
    require_gradients(model.train(), streams, 0, ("B", "L", None), lambda y: y.sin().sum(), "full-file-aligned")


# ---------------------------------------------------------------------- what else holds of loops
class Plain(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        torch.manual_seed(1)
        self.cell, self.line = torch.nn.GRUCell(D, 4), torch.nn.Linear(D, 4)
        self.f = f

    def forward(self, x):
        return self.f(self, x)


def cut_off(m, x):
    h, ys = torch.zeros(x.size(0), 4), []
    for t in range(x.size(1)):
        h = m.cell(x[:, t], h.detach())
        ys.append(h)
    return torch.stack(ys, 1)


def partly_without_gradients(m, x):
    h, ys = torch.zeros(x.size(0), 4), []
    for t in range(x.size(1)):
        with torch.no_grad():
            h = m.cell(x[:, t], h)
        ys.append(h + m.line(x[:, t]))
    return torch.stack(ys, 1)


def dropping(m, x):
    h, ys = torch.zeros(x.size(0), 4), []
    for t in range(x.size(1)):
        h = torch.nn.functional.dropout(m.cell(x[:, t], h), 0.5, m.training)
        ys.append(h)
    return torch.stack(ys, 1)


@pytest.mark.parametrize("f", [cut_off, partly_without_gradients, dropping])
def test_gradients_and_random_numbers_are_those_of_the_plain_loop(f):
    model, ours = Plain(f), ds.patch_module(Plain(f), "full-file-aligned").online().train()
    x = torch.randn(2, 6, D)
    torch.manual_seed(2)
    wanted = model(x)
    wanted.sin().sum().backward()
    torch.manual_seed(2)
    got = ours(ds.stream_tensor(x, names=("B", "L", None), ids=["a", "b"], sos=True, eos=True))
    torch.testing.assert_close(got.as_subclass(torch.Tensor), wanted)
    got.as_subclass(torch.Tensor).sin().sum().backward()
    for p, q in zip(model.parameters(), ours.parameters()):
        torch.testing.assert_close(p.grad, q.grad)


def test_what_is_carried_is_in_snapshots_and_forks():
    model = Loop(CASES["lstm_cell_writes"]).eval()
    engine, x = ds.compile(model, ("B", "L", D)), torch.randn(9, D).numpy()
    engine.step({"a": x[:4]}, sos="a")
    kept = engine.snapshot("a")
    first = engine.step({"a": x[4:]}, eos="a")["a"]
    engine.restore(kept, "b")
    second = engine.step({"b": x[4:]}, eos="b")["b"]
    for a, b in zip(leaves(first), leaves(second)):
        assert np.array_equal(a, b)
    step = ds.patch_module(copy.deepcopy(model)).online()
    with torch.no_grad():
        step(ds.stream_tensor(torch.from_numpy(x[None, :4]), names=("B", "L", None), ids=["a"], sos=True))
        state = ds.get_state(step, "a")
        other = ds.patch_module(copy.deepcopy(model)).online()
        ds.set_state(other, state)
        rest = [
            m(ds.stream_tensor(torch.from_numpy(x[None, 4:]), names=("B", "L", None), ids=["a"], eos=True))
            for m in (step, other)
        ]
    for a, b in zip(*map(leaves, rest)):
        assert torch.equal(a["a"], b["a"])


def test_plain_modules_of_an_engine_have_loops():
    model, x = Loop(CASES["gated_cell"]).eval(), torch.randn(9, D)
    engine = ds.compile(model, ("B", "L", D))
    ds.torch.functionalize(engine)
    with pytest.raises(ds.NotStreamableError, match="is exported to ONNX, or"):
        ds.export.torchscript(engine, None, "unused.pt")
    assert engine.state_size > 0 and x.shape


def in_an_attribute(m, x):
    m.h, ys = None, []
    for t in range(x.size(1)):
        m.h = m.cell(x[:, t], m.h)
        ys.append(m.h)
    return torch.stack(ys, 1)


def counting_in_an_attribute(m, x):
    m.n, ys = 0, []
    for t in range(x.size(1)):
        m.n += 1
        ys.append(m.line(x[:, t]) * m.n)
    return torch.stack(ys, 1)


def in_a_queue(m, x):
    m.earlier, ys = deque([torch.zeros(x.size(0), 4)] * 3, maxlen=3), []
    for t in range(x.size(1)):
        ys.append(m.cell(x[:, t], m.earlier[0]))
        m.earlier.append(ys[-1])
    return torch.stack(ys, 1)


def put_in_front(m, x):
    ys = []
    for t in range(x.size(1)):
        ys.insert(0, m.line(x[:, t]))
    return torch.stack(ys, 1)


def written_by_another_view(m, x):
    y = torch.zeros_like(x)
    for t in range(1, x.size(1)):
        y.transpose(0, 1)[t] = x[:, t] + 0.5 * y[:, t - 1]
    return y


def in_another_function(m, x):
    h = None

    def step(frame):
        nonlocal h
        h = m.cell(frame, h)
        return h

    return torch.stack([step(x[:, t]) for t in range(x.size(1))], 1)


def written_and_held(m, x):
    a = torch.zeros(x.size(0), D)
    b, ys = a, []
    for t in range(x.size(1)):
        a.add_(x[:, t])
        ys.append(a + b)
    return torch.stack(ys, 1)


def written_and_gathered(m, x):
    h, ys = torch.zeros(x.size(0), D), []
    for t in range(x.size(1)):
        h.add_(x[:, t])
        ys.append(h)
    return torch.stack(ys, 1)


def two_for_each(m, x):
    ys = []
    for t in range(x.size(1)):
        ys.append(x[:, t])
        ys.append(-x[:, t])
    return torch.stack(ys, 1)


def written_twice(m, x):
    y = torch.zeros(x.size(0), x.size(1) + 1, D)
    for t in range(x.size(1)):
        y[:, t] += x[:, t]
        y[:, t + 1] += x[:, t]
    return y


def the_frame_behind_the_last_one(m, x):
    y = torch.zeros_like(x)
    for t in range(x.size(1)):
        y[:, t + 1] = x[:, t]
    return y


def tuples(m, x):
    ys = [(x[:, t], x[:, t] * 2) for t in range(x.size(1))]
    return torch.stack([a + b for a, b in ys], 1)


def held_twice(m, x):
    ys = zs = []
    for t in range(x.size(1)):
        ys.append(x[:, t])
    return torch.stack(zs, 1)


def gathered_long_before(m, x):
    ys = []
    for t in range(x.size(1)):
        ys.append(x[:, t] + ys[t - 20] if t >= 20 else x[:, t])
    return torch.stack(ys, 1)


def appended_to_behind_it(m, x):
    ys = []
    for t in range(x.size(1)):
        ys.append(x[:, t])
    ys.append(x[:, -1])
    return torch.stack(ys, 1)


@pytest.mark.parametrize(
    "f, words",
    [
        (in_an_attribute, "carry it in a variable"),
        (counting_in_an_attribute, "carry it in a variable"),
        (in_a_queue, "carry it in a variable"),
        (put_in_front, "append alone"),
        (written_by_another_view, "in the tensor itself"),
        (in_another_function, "carry it in a variable"),
        (written_and_held, "compute a new tensor instead"),
        (written_and_gathered, "compute a new tensor instead"),
        (two_for_each, "several values for each frame"),
        (lambda m, x: torch.stack([x[:, t] - x[:, t - 1] for t in range(x.size(1))], 1), "ask `if t >= 1`"),
        (lambda m, x: torch.stack([x[:, t + 1] for t in range(x.size(1))], 1), "behind the last one"),
        (lambda m, x: x - x[:, :1].flatten(1)[:, None], "comes once, and is no stream"),
        (written_twice, "write one of them in each"),
        (the_frame_behind_the_last_one, "let the loop end 1 earlier"),
        (lambda m, x: torch.stack([x[:, t // 2] for t in range(x.size(1))], 1), "used as an index of frames"),
        (lambda m, x: [(m.line if t % 2 else m.cell)(x[:, t]) for t in range(x.size(1))], "use a `for`"),
        (lambda m, x: torch.stack([x[:, : t + 1].sum(1) for t in range(x.size(1))], 1), "grows with every frame"),
        (tuples, "must give a tensor for each"),
        (held_twice, "give each its own"),
        (gathered_long_before, "gathered 20 frames before"),
        (appended_to_behind_it, "do so with the tensor"),
        (lambda m, x: x * len([0 for _ in x.unbind(1)]), "must give a tensor for each"),
        (lambda m, x: torch.stack(tuple(m.line(frame) for frame in x.unbind(1)), 1), "or is no list; use a"),
        (lambda m, x: x + m.cell(x[:, 0], torch.zeros(x.size(0), 4)).sum(), "written for t in range"),
    ],
)
def test_what_could_go_wrong_unseen_is_refused_by_line(f, words):
    for run in (lambda m: ds.compile(m, ("B", "L", D)), called_once):
        with pytest.raises(ds.NotStreamableError, match=words) as error:
            run(Plain(f).eval())
        assert "test_loops.py" in str(error.value)


def called_once(model):
    x = ds.stream_tensor(torch.randn(1, 3, D), names=("B", "L", None), ids=["a"], sos=True)
    with torch.no_grad():
        ds.patch_module(model).online()(x)


WRONG = {
    "got str": lambda lib, f, x: f.scan(_sums, lib.zeros(x.size(0), D), x, "L"),
    "got int": lambda lib, f, x: f.scan(3, lib.zeros(x.size(0), D), x),
    "got tuple of 3": lambda lib, f, x: f.scan(lambda c, u: (c, u, u), lib.zeros(x.size(0), D), x),
    "got NoneType": lambda lib, f, x: f.scan(lambda c, u: None, lib.zeros(x.size(0), D), x),
    "tensor or None, got float": lambda lib, f, x: f.scan(lambda c, u: (c + u, 1.0), lib.zeros(x.size(0), D), x),
    "tuples of these, got dict": lambda lib, f, x: f.scan(_sums, lib.zeros(x.size(0), D), {"x": x}),
    "tuples of these, got tuple": lambda lib, f, x: f.scan(_sums, lib.zeros(x.size(0), D), ()),
    "frames are gone": lambda lib, f, x: f.scan(lambda c, u: (c, u[0]), lib.zeros(x.size(0), D), (x, x[:, 1:])),
    "linear_recurrence: expected": lambda lib, f, x: f.linear_recurrence(0.5, x),
}


def either(library, function):
    plain = Loop(function).eval()
    return plain if library is torch else NativeLoop(function, plain).eval()


def _sums(carry, frame):
    return carry + frame, carry


@pytest.mark.parametrize("words", WRONG)
@pytest.mark.parametrize("library", [torch, ds])
def test_wrong_arguments_of_scans_are_named(library, words):
    def function(lib, m, x):
        return WRONG[words](lib, functional(lib), x)

    model = either(library, function)
    whole = torch.randn(1, 3, D) if library is torch else ds.tensor(np.zeros((1, 3, D), np.float32))
    for run in (lambda: model(whole), lambda: ds.compile(model, ("B", "L", D))):
        with pytest.raises((ds.errors.DTypeError, ds.errors.ShapeError), match=words) as error:
            run()
        assert "test_loops.py" in str(error.value)


@pytest.mark.parametrize("library", [torch, ds])
def test_constants_are_no_outputs(library):
    def function(lib, m, x):
        return x, lib.zeros(x.size(0), D)

    model = either(library, function)
    frames = [torch.randn(3, D) if library is torch else np.zeros((3, D), np.float32)]
    for run in (
        lambda: ds.compile(model, ("B", "L", D)),
        lambda: ds.patch_module(model).online()(
            ds.stream_tensor(frames, names=("B", "L", None), ids=["a"], sos=True)
        ),
    ):
        with pytest.raises(ds.NotStreamableError, match="make it outside the forward"):
            run()


@pytest.mark.parametrize(
    "name",
    [
        "gated_cell",
        "selective_scan",
        "running_maximum",
        "lstm_cell_writes",
        "gates_over_their_greatest",
        "sums_of_what_was_gathered",
        "a_counter_that_says_where",
    ],
)
def test_graphs_of_onnx_have_loops_as_scans(name):
    package = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from exported import Exported, in_onnxruntime

    rng, file = np.random.default_rng(0), io.BytesIO()
    engine = ds.compile(Loop(CASES[name]).eval(), ("B", "L", D))
    ds.export.onnx(engine, None, file, dynamic_axes=True)
    graph = package.load_from_string(file.getvalue()).graph
    assert "Scan" in [node.op_type for node in graph.node]
    exported = Exported(*in_onnxruntime(file.getvalue()), rng)
    x = {i: rng.standard_normal((n, D)).astype("float32") for i, n in (("a", 9), ("b", 5))}
    calls = [
        ({"a": (0, 3)}, ["a"], []),
        ({"a": (3, 4), "b": (0, 4)}, ["b"], []),
        ({"b": (4, 5), "a": (4, 9)}, [], ["a", "b"]),
    ]
    for cuts, begins, ends in calls:
        chunks = {i: [x[i][slice(*cut)]] for i, cut in cuts.items()}
        got, wanted = (
            exported.step(chunks, begins, ends),
            engine.step({i: c for i, (c,) in chunks.items()}, begins, ends),
        )
        for i in chunks:
            for a, b in zip(got[i], leaves(wanted[i]), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


class Retention(torch.nn.Module):
    def __init__(self, gamma):
        super().__init__()
        self.gamma = gamma

    def forward(self, x):
        (q, k, v), at = x.split(2, -1), torch.arange(x.size(1))
        return ((q @ k.mT) * (self.gamma ** (at[:, None] - at)).tril()) @ v


@pytest.mark.parametrize("gamma", [0.9, 1 - 2**-7, 1 - 2**-12, 1.0])
def test_sums_over_pairs_are_exact_after_many_frames(gamma):
    x = np.random.default_rng(0).standard_normal((100_000, 6)).astype("float32")
    engine = ds.compile(Retention(gamma), ("B", "L", 6))
    got = engine.step({"a": x[:90_000]}, sos="a")["a"], engine.step({"a": x[90_000:]})["a"]
    whole = x.astype("float64")
    decay = float(np.float32(gamma)) ** np.arange(len(whole) - 1, -1, -1.0)
    wanted = (whole[-1, :2] @ whole[:, 2:4].T * decay) @ whole[:, 4:]
    assert len(got[1]) == 10_000 and np.abs(got[1][-1] - wanted).max() <= 3e-7 * np.abs(wanted).max()
