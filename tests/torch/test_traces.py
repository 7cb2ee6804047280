"""What runs a model's forward leaves nothing behind: neither in the model, nor around it."""

import copy
import gc
import io
import random
import threading
import weakref

import numpy as np
import pytest
import torch
from shared_cases import CASES as SHARED, schedule
from shared_cases.case import theirs, twin
from shared_cases.front_ends import tensors_of
from side_effects import CACHES, CACHES_OUTSIDE, EFFECTS, KEEPING, keeping, made
from untouched import OF_HANDLE, Model, Process

import dreamstream as ds
from dreamstream import nn as native

SPEC = ("B", 4, "L")
pytestmark = pytest.mark.filterwarnings("ignore:the forward of")


def _exported(model):
    ds.export.onnx(model, SPEC, io.BytesIO(), rows=1, frames=4)


ENGINE = ds.compile(native.Conv1d(4, 4, 3), SPEC, verify=False)


#: What traces a model, or runs it beside an engine.
TRACES = {
    "audit": lambda model: ds.audit(model, SPEC),
    "compile": lambda model: ds.compile(model, SPEC, verify=False),
    "compile and verify": lambda model: ds.compile(model, SPEC),
    "verify": lambda model: ds.verify(model, ENGINE),
    "functionalize": lambda model: ds.torch.functionalize(model, SPEC),
    "export": _exported,
}


#: Those that do again what others do: each case goes through one of them.
REPEATING = ("compile", "verify", "functionalize", "export")


def _torch_effects():
    def draws(self, x):
        torch.rand(3)
        torch.rand(3, generator=self.of_torch)

    def data(self, x):
        with torch.no_grad():
            self.first.weight.mul_(2)
            self.second.weight.data = self.second.weight.data + 1

    def views(self, x):
        self.n[1:].add_(1)
        self.n.data.mul_(3)
        torch.add(self.n, 1, out=self.n)
        torch._foreach_add_([self.own[0]], 1)

    def defaults(self, x):
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float64)

    def frozen(self, x):
        self.first.weight.requires_grad_(False)

    return {
        "torch's random numbers": draws,
        "parameters": data,
        "views of buffers": views,
        "settings of torch": defaults,
        "what needs a gradient": frozen,
        "hooks": lambda self, x: self.first.register_forward_hook(lambda *_: None),
        "a parameter added": lambda self, x: self.register_parameter("p", torch.nn.Parameter(torch.ones(1))),
    }


CASES = {
    **{f"torch: {name}": (True, effect) for name, effect in {**EFFECTS, **_torch_effects()}.items()},
    **{f"native: {name}": (False, effect) for name, effect in EFFECTS.items()},
}


def model_of(case, fail=False):
    is_torch, effect = CASES[case]
    model = made(*(torch.nn, torch.tensor) if is_torch else (native, ds.tensor), effect, fail)
    if is_torch:
        model.of_torch = torch.Generator().manual_seed(1)
    return model


def state():
    """What is drawn next, what is set, and what the module of effects holds."""
    import side_effects

    return (
        random.getstate(),
        str(np.random.get_state()),
        torch.get_rng_state().tolist(),
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        side_effects.COUNT,
        list(side_effects.LOG),
        list(EFFECTS["defaults"].__defaults__[0]),
    )


@pytest.mark.parametrize("case", CASES)
def test_a_trace_leaves_a_model_as_it_was(case):
    turn = list(CASES).index(case) % len(REPEATING)
    for name in ("audit", "compile and verify", REPEATING[turn]):
        trace = TRACES[name]
        model = model_of(case)
        then, around, members = Model(model), state(), dict(vars(type(model)))
        trace(model)
        assert then.differences() == [], name
        assert state() == around, name
        assert dict(vars(type(model))) == members and model.counted() == 0, name
        model.state_dict()


@pytest.mark.parametrize("case", CASES)
def test_a_trace_that_fails_leaves_a_model_as_it_was(case):
    for name in ("audit", "compile", "verify"):
        model = model_of(case, fail=True)
        then, around = Model(model), state()
        with pytest.raises((ValueError, ds.ShapeError), match="in mid-forward"):
            TRACES[name](model)
        assert then.differences() == [], name
        assert state() == around and model.counted() == 0, name


#: What calls leave where offline ones leave it, too: outside the model, and what is set for all.
OUTSIDE = ("globals", "its class", "defaults", "settings of torch", "what needs a gradient")
#: What has another name each time.
NAMED_ANEW = ("hooks",)


def chunk(model, ids="anna", sos=False):
    make = torch.zeros if isinstance(model, torch.nn.Module) else lambda *shape: np.zeros(shape, np.float32)
    return ds.stream_tensor([make(4, 9)], ids=[ids], sos=sos)


@pytest.mark.parametrize("case", [c for c in CASES if not c.endswith(OUTSIDE)])
def test_a_call_that_fails_leaves_a_model_as_it_was(case):
    """The first one, and one of a stream that goes on."""
    model = ds.patch_module(model_of(case)).online()
    for calls in (0, 1, 5):
        for k in range(calls):
            model(chunk(model, sos=k == 0))
        before, around = Model(model, "_patch"), state()
        model.fail = True
        with pytest.raises(ValueError, match="in mid-forward"):
            model(chunk(model, sos=not calls))
        model.fail = False
        assert before.differences() == [], calls
        assert state() == around, calls
        model.reset()


@pytest.mark.parametrize("case", [c for c in CASES if not c.endswith(NAMED_ANEW)])
def test_a_call_that_succeeds_leaves_what_an_offline_one_leaves(case):
    model, plain = model_of(case), model_of(case)
    is_torch = isinstance(model, torch.nn.Module)
    with torch.no_grad():
        plain(torch.zeros(1, 4, 9) if is_torch else ds.tensor(np.zeros((1, 4, 9), np.float32)))
        torch.set_default_dtype(torch.float32)
        ds.patch_module(model).online()(chunk(model, sos=True))
        torch.set_default_dtype(torch.float32)
    ds.unpatch_module(model.offline() if not model.reset() else model)
    there, here = ({p: s for p, s, _ in Model(m).held} for m in (plain, model))
    assert there.keys() == here.keys()
    assert model.calls == plain.calls if hasattr(plain, "calls") else not hasattr(model, "calls")
    assert model.counted() == plain.counted() == 1
    assert np.array_equal(np.asarray(model.n), np.asarray(plain.n))
    assert model.array.tolist() == plain.array.tolist()


def test_statistics_of_training_are_those_of_the_call_and_no_trace():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5)).train()
    then = Model(model)
    around = state()
    ds.compile(model, SPEC)
    ds.audit(model, SPEC)
    assert then.differences() == [] and state() == around
    x = ds.stream_tensor([torch.zeros(4, 9)], ids=["anna"], sos=True, eos=True)
    ds.patch_module(model).online()(x)
    assert int(model[0].num_batches_tracked) == 1


def test_an_engine_has_what_the_forward_wrote():
    """Values of a buffer before and after the forward wrote into it, though the buffer is put back."""

    class Writing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", torch.ones(4, 1))

        def forward(self, x):
            before = x * self.n
            self.n.add_(2)
            return before + 10 * x * self.n

    model = Writing().eval()
    engine = ds.compile(model, SPEC)
    assert model.n.flatten().tolist() == [1] * 4
    x = np.ones((4, 3), np.float32)
    assert np.all(engine.step({"a": x}, sos="a", eos="a")["a"] == 31)


@pytest.mark.parametrize("run", [ds.audit, ds.compile])
@pytest.mark.parametrize("library", [torch.nn, native], ids=["torch", "native"])
def test_a_context_is_not_declared_where_the_trace_fails(library, run):
    class Failing(library.Module):
        def __init__(self):
            super().__init__()
            self.attention = library.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x):
            raise ValueError("in mid-forward")

    model = Failing().eval()
    then = Model(model)
    with pytest.raises(ValueError, match="in mid-forward"):
        run(model, ("B", "L", 4), context=ds.Context(left=4))
    assert then.differences() == []


@pytest.mark.parametrize("front_end", ["torch", "native"])
def test_traces_of_several_threads(front_end):
    model = made(
        *(torch.nn, torch.tensor) if front_end == "torch" else (native, ds.tensor), EFFECTS["nested containers"]
    )
    model.train()
    then = Model(model)
    threads = [threading.Thread(target=ds.compile, args=(model, SPEC)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert then.differences() == []


@pytest.mark.parametrize("library", [torch.nn, native], ids=["torch", "native"])
def test_a_patched_model_goes_with_its_last_reference(library):
    """Also after calls, of which one has failed; the handle and the module refer to each other."""
    model = ds.patch_module(library.Sequential(library.Conv1d(4, 4, 3), library.ReLU()).eval()).online()
    for k in range(5):
        model(chunk(model, sos=k == 0))
    with pytest.raises(ds.StreamIdError):
        model(chunk(model, sos=True))
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


# ---------------------------------------------------------------------- what is kept of streams
LIBRARIES = {"torch": (torch.nn, torch), "native": (native, ds)}


@pytest.mark.parametrize("front_end", LIBRARIES)
@pytest.mark.parametrize("cache", CACHES)
def test_a_cache_by_hand_is_refused(cache, front_end):
    name, forward = CACHES[cache]
    traces = [TRACES[t] for t in ("audit", "compile", "functionalize", "export")]
    for run in (lambda model: model(chunk(model, sos=True)), *traces):
        model = ds.patch_module(keeping(*LIBRARIES[front_end], forward)).online()
        then = Model(model, "_patch")
        with pytest.raises(ds.DreamStreamError, match=rf"side_effects.py:\d+ in {forward.__name__}") as caught:
            run(model)
        assert "slices reach back across calls" in str(caught.value) and name in str(caught.value)
        assert then.differences() == []


@pytest.mark.parametrize(
    ("name", "front_end"), [(name, front_end) for name in CACHES_OUTSIDE for front_end in LIBRARIES]
)
def test_a_cache_outside_the_model_is_refused(name, front_end):
    forward = CACHES_OUTSIDE[name]
    for trace in ("audit", "compile"):
        model = keeping(*LIBRARIES[front_end], forward)
        with pytest.raises(ds.NotStreamableError, match=rf"{name} keeps frames, at .* in {forward.__name__}"):
            TRACES[trace](model)
        assert model.of_all is None and _of_functions(forward) == [None]


def _of_functions(forward):
    return [forward.__globals__["LAST"], *(c.cell_contents for c in forward.__closure__ or ())][-1:]


@pytest.mark.parametrize("front_end", LIBRARIES)
@pytest.mark.parametrize("kept", KEEPING)
def test_what_one_call_keeps_for_itself_is_taken_out_of_the_model(kept, front_end):
    model = keeping(*LIBRARIES[front_end], KEEPING[kept])
    ds.patch_module(model).online()
    then = Model(model, "_patch")
    ds.audit(model, SPEC)
    engine = ds.compile(model, SPEC, verify=False)
    assert then.differences() == []
    x = np.random.default_rng(1).standard_normal((4, 24)).astype(np.float32)
    got = []
    for k in range(6):
        part = torch.from_numpy(x[:, 4 * k : 4 * k + 4]) if front_end == "torch" else x[:, 4 * k : 4 * k + 4]
        with torch.no_grad():
            got.append(np.asarray(model(ds.stream_tensor([part], ids=["a"], sos=k == 0, eos=k == 5))["a"]))
        assert then.differences() == []
        copy.deepcopy(model)
    want = engine.step({"a": x}, sos="a", eos="a")["a"]
    assert np.allclose(np.concatenate(got, 1), want, atol=1e-5)


@pytest.mark.parametrize("front_end", LIBRARIES)
@pytest.mark.parametrize("write", ["add_", "copy_", "sub_", "mul_"])
def test_frames_are_not_written_into_constants(write, front_end):
    """A vector per stream, whose shape fits: torch would write it into the buffer."""

    def forward(self, x):
        getattr(self.cache, write)(x.mean(2, keepdim=True).expand(x.size(0), 4, 2))
        return self.conv(x) + self.cache[:, :, :1]

    model = ds.patch_module(keeping(*LIBRARIES[front_end], forward)).online()
    then = Model(model, "_patch")
    for run in (lambda model: model(chunk(model, sos=True)), TRACES["compile"]):
        with pytest.raises(ds.DreamStreamError, match=r"test_traces.py:\d+ in forward"):
            run(model)
        assert then.differences() == []


# ---------------------------------------------------------------------- around it
class Mixed(torch.nn.Module):
    """Layers of several kinds, hooks, a parametrization, attention and a recurrent layer."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(4, 8, 3, padding=1))
        self.norm, self.drop, self.rnn = (
            torch.nn.BatchNorm1d(8),
            torch.nn.Dropout(0.1),
            torch.nn.GRU(8, 8, batch_first=True),
        )
        self.parts = torch.nn.ModuleList([torch.nn.Linear(8, 8), torch.nn.PReLU()])
        self.conv.register_forward_hook(lambda module, args, out: out * 2)

    def forward(self, x):
        y = self.drop(self.norm(self.conv(x))).transpose(1, 2)
        for part in self.parts:
            y = part(y)
        y, _ = self.rnn(y)
        return y.transpose(1, 2)


class Padded(torch.nn.Module):
    """Pads to a multiple of 4, which it computes of the length."""

    def forward(self, x):
        return torch.nn.functional.pad(x, (0, rest(x.size(2))))


def rest(n):
    return int(n + 3) // 4 * 4 - n


class Masked(torch.nn.Module):
    """Attends under a mask that a function makes row by row, of a number of frames."""

    def forward(self, x):
        y = x.transpose(1, 2)
        scores = (y @ y.transpose(1, 2)).masked_fill(~stairs(y.size(1), 4), float("-inf"))
        return (scores.softmax(-1) @ y).transpose(1, 2)


def stairs(n, chunk):
    mask = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        mask[i, : min((i // chunk + 1) * chunk, n)] = True
    return mask


class Refused(torch.nn.Module):
    """Is refused within its second layer."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(4, 4, 3)

    def forward(self, x):
        return self.conv(x) - self.conv(x).mean(2, keepdim=True)


class Looping(torch.nn.Module):
    """Goes through frames in its forward, by a closure, in a static method and in a comprehension."""

    def __init__(self):
        super().__init__()
        self.cell, self.line, self.held = torch.nn.GRUCell(4, 4), torch.nn.Linear(4, 4), [torch.zeros(4)]
        self.register_buffer("start", torch.ones(4))
        self.line.register_forward_hook(lambda module, args, out: out * 2)

    def forward(self, x):
        def step(frame, h):
            return self.cell(frame, h) + self.held[0] * scale

        scale, h, ys = 0.5, torch.zeros(x.size(0), 4) + self.start, []
        for t, frame in enumerate(x.unbind(2)):
            h = step(frame, h) if t else frame
            ys.append(h)
        return torch.stack([self.line(y) for y in self.summed(torch.stack(ys, 2)).unbind(2)], 2)

    @staticmethod
    def summed(x):
        y = torch.zeros_like(x)
        for t in range(x.size(2)):
            y[..., t] = x[..., t] + (y[..., t - 1] if t > 0 else 0)
        return y


class Leaving(Refused):
    """Is refused in its second loop."""

    def forward(self, x):
        y = Looping.summed(x)
        for t in range(x.size(2)):
            if t == 3:
                break
        return y


def everything(model):
    """Do all that there is to a model; yield after what leaves it patched, and at the end."""
    try:
        ds.patch_module(model).online()
        with torch.no_grad():
            for k in range(5):
                model(ds.stream_tensor([torch.zeros(4, 8)], ids=["a"], sos=k == 0, eos=k == 4))
    except ds.DreamStreamError:
        assert isinstance(model, Refused)
    yield "patched"
    ds.unpatch_module(model.offline())
    for trace in TRACES.values():
        try:
            trace(model)
        except ds.DreamStreamError:
            assert isinstance(model, (Refused, Masked, Padded)) or trace is TRACES["verify"]
    yield "over"


@pytest.fixture(scope="module")
def warm():
    """What torch and this package load when they are first used is there."""
    import torch._dynamo  # by the first function that torch runs without values

    list(everything(torch.nn.Conv1d(4, 4, 3).eval()))
    proto = pytest.importorskip("onnx").AttributeProto
    assert proto.INT != proto.GRAPH  # a message's class gets such a name when it is first read


def differences(*models, cases=()):
    """Return what is another around models when everything has been done to them, step by step to all of them.

    The process is looked at for all at once, which takes seconds. Pairs of cases and models come first.
    """
    with torch.random.fork_rng():
        process, out = Process(), []
        held = [Model(model) for model in (*models, *(model for _, model in cases))]
        with torch.no_grad():
            for case, model in cases:
                gone_through(case, model)
        for when in zip(*map(everything, models)) if models else [("over",)]:
            found = process.differences()
            if when[0] == "patched":
                found = [d for d in found if d.rpartition(": ")[2] not in OF_HANDLE]
            else:
                assert [d for each in held for d in each.differences()] == []
            out += found
    return out


def padded_within():
    """A model whose forward makes a function of lengths each time."""

    def padded(self, x):
        def rest(n):
            return int(n + 3) // 4 * 4 - n

        return torch.nn.functional.pad(x, (0, rest(x.size(2))))

    return type("Padding", (torch.nn.Module,), {"forward": padded})()


#: The table that all front ends are held against, in so many parts.
OFTEN = 80
BATCHES = [list(SHARED)[k::OFTEN] for k in range(OFTEN)]


def made_of(names):
    """Cases of the table, torch's modules and this package's own."""
    return [
        (SHARED[name], make(SHARED[name])) for name in names for make in (theirs, *[twin] * SHARED[name].native)
    ]


def test_nothing_around_models_changes(warm):
    """Functions, classes, all objects' attributes, Python's modules, and what is set for the process."""
    models = [make().eval() for make in (Mixed, Padded, Masked, Refused, Looping, Leaving, padded_within)]
    codes = [type(model).forward.__code__ for model in models]
    assert differences(*models, cases=made_of(BATCHES[0])) == []
    assert [type(model).forward.__code__ for model in models] == codes


@pytest.mark.slow
@pytest.mark.parametrize("names", BATCHES[1:], ids=lambda n: n[0])
def test_nothing_around_cases_changes(names, warm):
    assert differences(cases=made_of(names)) == []


def test_functions_that_make_masks_stay_what_they_are(warm):
    code = stairs.__code__
    list(everything(Masked().eval()))
    assert stairs.__code__ is code and not hasattr(stairs, "__signature__")


def gone_through(case, model):
    """Patch a case's model, stream through it, compile it, look at it."""
    plan, (spec, options) = schedule(case), case.spec()
    is_torch = isinstance(model, torch.nn.Module)
    ds.patch_module(model, **case.options).online()
    for call in plan.calls:
        model(*tensors_of(case, call, plan.data, not is_torch))
    model.reset()
    ds.unpatch_module(model.offline())
    ds.compile(model, spec, **options, **case.options)
    ds.audit(model, spec, **options, skew=case.skew)
    if case.exports:
        ds.torch.functionalize(model, spec, **options, skew=case.skew)


SEEN = []


class Counting(torch.nn.Module):
    """A loop over frames whose body counts, prints, and appends to lists that are not the forward's."""

    def __init__(self):
        super().__init__()
        self.n, self.log = 0, []

    def forward(self, x):
        h, ys = torch.zeros(x.size(0), 2), []
        for t in range(x.size(1)):
            h = 0.5 * h + x[:, t]
            self.n += 1
            self.log.append("frame")
            SEEN.append("frame")
            print("frame")
            ys.append(h)
        return torch.stack(ys, 1)


def test_what_a_loop_does_beside_its_tensors_happens_as_often_as_it_is_traced(capsys):
    """Twice in a patched module's first call, then once, whatever the number of frames; never by an engine."""
    x, model = torch.randn(1, 7, 2), Counting()
    SEEN.clear()
    whole = model(x)
    assert (model.n, model.log, SEEN) == (7, ["frame"] * 7, ["frame"] * 7)
    model.n, model.log = 0, []
    SEEN.clear()
    capsys.readouterr()
    engine = ds.compile(model, ("B", "L", 2), verify=False)
    assert (model.n, model.log, SEEN) == (0, [], [])  # a capture leaves no mark, but for what is printed
    capsys.readouterr()
    got = engine.step({"a": x[0].numpy()}, sos="a", eos="a")["a"]
    assert (model.n, model.log, SEEN, capsys.readouterr().out) == (0, [], [], "")
    online = ds.patch_module(model).online()
    for k, (a, b) in enumerate([(0, 3), (3, 4), (4, 7)], 1):
        y = online(ds.stream_tensor([x[0, a:b]], names=["B", "L", None], ids=["a"], sos=a == 0, eos=b == 7))
        np.testing.assert_allclose(y["a"].detach().numpy(), whole[0, a:b], atol=1e-6)
        assert (model.n, model.log, SEEN) == (1 + k, ["frame"] * (1 + k), ["frame"] * (1 + k))
        assert capsys.readouterr().out == "frame\n" * (2 if k == 1 else 1)
    np.testing.assert_allclose(got, whole[0], atol=1e-6)
