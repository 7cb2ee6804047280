"""Optimizers, schedules and the clipping of gradients, against torch's."""

import math
from itertools import product

import numpy as np
import pytest

import dreamstream as ds
from dreamstream.errors import DTypeError, FormatError, ModeError

torch = pytest.importorskip("torch")

SHAPES = ((3, 4), (5,), ())
OPTIONS = {
    "SGD": [
        {"lr": 0.1}, {"lr": 0.1, "momentum": 0.9}, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3},
        {"lr": 0.1, "momentum": 0.9, "nesterov": True}, {"lr": 0.1, "weight_decay": 0.01, "maximize": True},
        {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.1, "dampening": 1.0},
    ],
    **{
        name: [
            {}, {"lr": 0.02, "betas": (0.5, 0.9), "eps": 1e-3}, {"weight_decay": 0.1}, {"amsgrad": True},
            {"maximize": True, "weight_decay": 0.05, "amsgrad": True}, {"betas": (0.0, 0.99)},
            {"betas": (0.3, 0.0)},
        ]
        for name in ("Adam", "AdamW")
    },
}  # fmt: skip
OPTIONS["Adam"].append({"weight_decay": 0.1, "decoupled_weight_decay": True})


def parameters(dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    values = [np.asarray(rng.standard_normal(s), dtype) for s in SHAPES]
    ours = [ds.nn.Parameter(v.copy()) for v in values]
    return ours, [torch.nn.Parameter(torch.tensor(v)) for v in values]


def give_gradients(ours, theirs, rng, none=False):
    """The same random gradients, of sizes that differ widely; sometimes none for the last."""
    for i, (p, q) in enumerate(zip(ours, theirs)):
        g = np.asarray(rng.standard_normal(p.shape) * 10.0 ** rng.integers(-6, 3), p.dtype)
        if rng.random() < 0.1:
            g = np.zeros_like(g)
        missing = none and i == len(ours) - 1
        p.grad = None if missing else ds.tensor(g)
        q.grad = None if missing else torch.tensor(g)


def compare(ours, theirs, rtol):
    for p, q in zip(ours, theirs):
        np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "number"), [(n, i) for n, o in OPTIONS.items() for i in range(len(o))])
def test_forty_steps_are_those_of_torch(name, number, dtype):
    options = OPTIONS[name][number]
    ours, theirs = parameters(dtype)
    mine = getattr(ds.optim, name)([{"params": ours[:1], "lr": 0.05}, {"params": ours[1:]}], **options)
    other = getattr(torch.optim, name)([{"params": theirs[:1], "lr": 0.05}, {"params": theirs[1:]}], **options)
    rng = np.random.default_rng(1)
    for step in range(40):
        give_gradients(ours, theirs, rng, none=step % 7 == 3)
        mine.step()
        other.step()
    compare(ours, theirs, 1e-12 if dtype == "float64" else 1e-7)


def to_torch(value):
    if isinstance(value, dict):
        return {k: to_torch(v) for k, v in value.items()}
    if isinstance(value, list):
        return [to_torch(v) for v in value]
    return torch.tensor(value.numpy().copy()) if isinstance(value, ds.Tensor) else value


@pytest.mark.parametrize("name", OPTIONS)
def test_states_go_from_one_to_the_other(name):
    options = {"weight_decay": 0.1, **({"momentum": 0.9} if name == "SGD" else {"amsgrad": True})}
    (ours, theirs), rng = parameters(), np.random.default_rng(2)
    mine, other = getattr(ds.optim, name)(ours, **options), getattr(torch.optim, name)(theirs, **options)
    for _ in range(3):
        give_gradients(ours, theirs, rng)
        mine.step()
        other.step()
    own, foreign = mine.state_dict(), other.state_dict()
    assert own["param_groups"] == foreign["param_groups"]
    assert list(own["param_groups"][0]) == list(foreign["param_groups"][0])
    assert {k: list(v) for k, v in own["state"].items()} == {k: list(v) for k, v in foreign["state"].items()}
    for n, kept in foreign["state"].items():
        for key, value in kept.items():
            assert str(value.dtype) == f"torch.{own['state'][n][key].dtype}"
            np.testing.assert_allclose(own["state"][n][key].numpy(), value.numpy(), rtol=1e-12)
    crossed, back = getattr(ds.optim, name)(ours), getattr(torch.optim, name)(theirs)
    crossed.load_state_dict(foreign)
    back.load_state_dict(to_torch(own))
    for _ in range(3):
        give_gradients(ours, theirs, rng)
        crossed.step()
        back.step()
    compare(ours, theirs, 1e-12)
    assert repr(crossed).replace("\n", "") == repr(back).replace("\n", "")


def test_groups_and_names():
    a, b, c = (ds.nn.Parameter(ds.ones(2)) for _ in range(3))
    optimizer = ds.optim.SGD([("a", a), ("b", b)], lr=1.0)
    optimizer.add_param_group({"params": c, "lr": 0.5})
    assert [g["lr"] for g in optimizer.param_groups] == [1.0, 0.5]
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["a", "b"]
    assert [g["params"] for g in optimizer.state_dict()["param_groups"]] == [[0, 1], [2]]
    for p in (a, b, c):
        p.grad = ds.ones(2)
    b.grad = None
    assert optimizer.step(lambda: 3) == 3
    assert (a.tolist(), b.tolist(), c.tolist()) == ([0, 0], [1, 1], [0.5, 0.5])
    optimizer.zero_grad(set_to_none=False)
    assert a.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert a.grad is None


def test_steps_are_edits():
    w = ds.nn.Parameter(ds.ones(2))
    optimizer = ds.optim.SGD([w], lr=1.0)
    loss = (w * w).sum()
    w.grad = ds.ones(2)
    optimizer.step()
    with pytest.raises(ModeError, match="written"):
        loss.backward()


WRONG = {
    "tensor": (lambda p: ds.optim.SGD(p), TypeError),
    "nothing": (lambda p: ds.optim.SGD([]), ValueError),
    "no parameter": (lambda p: ds.optim.Adam([1]), TypeError),
    "set": (lambda p: ds.optim.SGD([{"params": {p}}]), TypeError),
    "computed": (lambda p: ds.optim.SGD([p * 2]), ValueError),
    "twice": (lambda p: ds.optim.SGD([{"params": [p]}, {"params": [p]}]), ValueError),
    "lr": (lambda p: ds.optim.SGD([p], lr=-1), ValueError),
    "momentum": (lambda p: ds.optim.SGD([p], momentum=-1), ValueError),
    "nesterov": (lambda p: ds.optim.SGD([p], nesterov=True), ValueError),
    "betas": (lambda p: ds.optim.Adam([p], betas=(0.9, 1.0)), ValueError),
    "eps": (lambda p: ds.optim.AdamW([p], eps=-1e-8), ValueError),
    "decay": (lambda p: ds.optim.AdamW([p], weight_decay=-1), ValueError),
    "state": (lambda p: ds.optim.SGD([p]).load_state_dict({"state": {}, "param_groups": []}), FormatError),
    "scheduler": (lambda p: ds.optim.lr_scheduler.StepLR(p, 3), TypeError),
    "resumed": (lambda p: ds.optim.lr_scheduler.StepLR(ds.optim.SGD([p]), 3, last_epoch=2), KeyError),
    "steps": (lambda p: ds.optim.lr_scheduler.OneCycleLR(ds.optim.SGD([p]), 1.0), ValueError),
    "factor": (lambda p: ds.optim.lr_scheduler.ReduceLROnPlateau(ds.optim.SGD([p]), factor=1.0), ValueError),
    "mode": (lambda p: ds.optim.lr_scheduler.ReduceLROnPlateau(ds.optim.SGD([p]), "best"), ValueError),
    "groups": (lambda p: ds.optim.lr_scheduler.LambdaLR(ds.optim.SGD([p]), [min, max]), ValueError),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_arguments(what):
    make, error = WRONG[what]
    with pytest.raises(error):
        make(ds.nn.Parameter(ds.ones(2)))


def test_types_of_gradients():
    w = ds.nn.Parameter(ds.ones(2))
    w.grad = ds.ones(2, dtype=ds.float64)
    with pytest.raises(DTypeError, match="float64"):
        ds.optim.SGD([w]).step()


# ---------------------------------------------------------------------- schedules
SCHEDULES = {
    "StepLR": [{"step_size": 3}, {"step_size": 1, "gamma": 0.5}],
    "LambdaLR": [{"lr_lambda": lambda n: 0.95**n}, {"lr_lambda": [lambda n: 1 / (n + 1), lambda n: n]}],
    "CosineAnnealingLR": [{"T_max": 5}, {"T_max": 7, "eta_min": 0.01}, {"T_max": 1}],
    "OneCycleLR": [
        {"max_lr": 0.5, "total_steps": 40}, {"max_lr": [0.5, 1.0], "epochs": 4, "steps_per_epoch": 10},
        {"max_lr": 0.5, "total_steps": 40, "three_phase": True, "anneal_strategy": "linear", "pct_start": 0.2},
        {"max_lr": 0.5, "total_steps": 40, "cycle_momentum": False, "div_factor": 3.0, "final_div_factor": 7.0},
        {"max_lr": 0.5, "total_steps": 40, "base_momentum": [0.5, 0.6], "max_momentum": 0.8},
    ],
}  # fmt: skip


def pairs_of_optimizers(name):
    ours, theirs = parameters()
    options = {"lr": 0.1, "momentum": 0.9} if name == "SGD" else {"lr": 0.1}
    return tuple(
        getattr(lib.optim, name)([{"params": p[:1]}, {"params": p[1:], "lr": 0.3}], **options)
        for lib, p in ((ds, ours), (torch, theirs))
    )


def options_of(optimizer):
    return [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]


@pytest.mark.filterwarnings("ignore:Detected call")
@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize(("name", "number"), [(n, i) for n, o in SCHEDULES.items() for i in range(len(o))])
def test_schedules_are_those_of_torch(name, number, optimizer):
    mine, other = pairs_of_optimizers(optimizer)
    made = [getattr(lib.optim.lr_scheduler, name) for lib in (ds, torch)]
    ours, theirs = (make(o, **SCHEDULES[name][number]) for make, o in zip(made, (mine, other)))
    for step in range(38):
        assert options_of(mine) == options_of(other)
        assert ours.get_last_lr() == theirs.get_last_lr()
        if step == 11:  # each goes on with the other's state
            own, foreign = ours.state_dict(), theirs.state_dict()
            assert own.keys() == foreign.keys() and all(own[k] == foreign[k] for k in own)
            ours.load_state_dict(foreign)
            theirs.load_state_dict(own)
        if step == 20:  # somebody else changes a rate
            mine.param_groups[0]["lr"] = other.param_groups[0]["lr"] = 0.07
        ours.step()
        theirs.step()


PLATEAUS = [
    dict(zip(("mode", "threshold_mode", "cooldown", "min_lr"), v))
    for v in product(("min", "max"), ("rel", "abs"), (0, 2), (0, [0.01, 0.02]))
]


@pytest.mark.parametrize("options", PLATEAUS, ids=str)
def test_plateaus_are_those_of_torch(options):
    mine, other = pairs_of_optimizers("SGD")
    options = {"patience": 2, "factor": 0.3, "threshold": 0.05, **options}
    ours = ds.optim.lr_scheduler.ReduceLROnPlateau(mine, **options)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(other, **options)
    rng = np.random.default_rng(3)
    for step in range(60):
        number = float(rng.choice([1.0, 0.97, 1.02, 0.9, -0.5, math.inf, math.nan]))
        ours.step(number)
        theirs.step(number)
        assert options_of(mine) == options_of(other)
        if step == 30:
            assert ours.state_dict() == theirs.state_dict()
            ours.load_state_dict(theirs.state_dict())


def test_functions_of_schedules_with_attributes_are_kept():
    class Decay:
        def __init__(self):
            self.factor = 0.5

        def __call__(self, n):
            return self.factor**n

    optimizer = ds.optim.SGD([ds.nn.Parameter(ds.ones(1))], lr=1.0)
    schedule = ds.optim.lr_scheduler.LambdaLR(optimizer, Decay())
    state = schedule.state_dict()
    state["lr_lambdas"][0]["factor"] = 0.1
    schedule.load_state_dict(state)
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_one_cycle_ends():
    schedule = ds.optim.lr_scheduler.OneCycleLR(ds.optim.Adam([ds.nn.Parameter(ds.ones(1))]), 0.1, 3)
    for _ in range(3):
        schedule.step()
    with pytest.raises(ValueError, match="3"):
        schedule.step()


# ---------------------------------------------------------------------- clipping
@pytest.mark.parametrize("p", [2.0, 1.0, 3.0, math.inf])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("most", [0.1, 1e5])
def test_norms_are_clipped_as_in_torch(p, dtype, most):
    ours, theirs = parameters(dtype)
    give_gradients(ours, theirs, np.random.default_rng(4), none=True)
    own = ds.nn.utils.clip_grad_norm_(ours, most, p)
    other = torch.nn.utils.clip_grad_norm_(theirs, most, p)
    rtol = 1e-12 if dtype == "float64" else 1e-6
    np.testing.assert_allclose(own.numpy(), other.numpy(), rtol=rtol)
    for a, b in zip(ours[:-1], theirs):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=rtol)


def test_norms_that_are_none():
    w = ds.nn.Parameter(ds.ones(2))
    assert ds.nn.utils.clip_grad_norm_([w], 1.0).item() == 0
    w.grad = ds.tensor([np.inf, 1.0])
    with pytest.raises(ModeError, match="inf"):
        ds.nn.utils.clip_grad_norm_([w], 1.0, error_if_nonfinite=True)
    ds.nn.utils.clip_grad_norm_(w, 1.0)
    q = torch.nn.Parameter(torch.ones(2))
    q.grad = torch.tensor([np.inf, 1.0])
    torch.nn.utils.clip_grad_norm_(q, 1.0)
    np.testing.assert_array_equal(w.grad.numpy(), q.grad.numpy())


def test_values_are_clipped():
    w = ds.nn.Parameter(ds.ones(3))
    w.grad = ds.tensor([-3.0, 0.5, 2.0])
    ds.nn.utils.clip_grad_value_(w, 1)
    assert w.grad.tolist() == [-1, 0.5, 1]
