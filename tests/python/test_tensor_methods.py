"""Every name in METHODS, against torch, on random values and shapes."""

import numpy as np
import pytest

import dreamstream as ds
from dreamstream.array import METHODS, Tensor, hook

torch = pytest.importorskip("torch")

from method_cases import BRACKETS, FLOAT, INTEGER, REAL, Data, Ours, Theirs
from turns import in_blocks


def compare(ours, theirs, exact: bool) -> None:
    """Equal structure, shapes and element types; values within 1e-5 (float64: 1e-12) of the largest."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, Tensor)
        assert str(ours.dtype) == str(theirs.dtype).removeprefix("torch.")
        compare(ours.numpy(), theirs.detach().numpy(), exact)
    elif isinstance(theirs, np.ndarray):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        finite = np.abs(theirs[np.isfinite(theirs)]) if theirs.dtype.kind == "f" else np.zeros(0)
        tolerance = 0 if exact or theirs.dtype.kind != "f" else 1e-5 if theirs.dtype == np.float32 else 1e-12
        bound = tolerance * max(1.0, float(finite.max(initial=0)))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=bound)
    elif isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            compare(a, b, exact)
    elif isinstance(theirs, float):
        assert isinstance(ours, float)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    else:
        assert type(ours) is type(theirs)
        assert ours == theirs


SEEDS = range(3)


def run(cases, seed: int, kind: str) -> None:
    for i, case in enumerate(cases):
        data = Data(1000 * seed + i, kind)
        with np.errstate(all="ignore"):
            compare(case(data.on(Ours)), case(data.on(Theirs)), False)


def test_every_method_has_a_case():
    assert set(METHODS) == set(REAL) | set(FLOAT)
    assert len(METHODS) == len(set(METHODS))
    assert all(hasattr(Tensor, name) and hasattr(torch.Tensor, name) for name in METHODS)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@in_blocks("name", METHODS, 25)
def test_method_of_reals(name, kind):
    for seed in SEEDS:
        run({**REAL, **FLOAT}[name], seed, kind)


@in_blocks("name", sorted(REAL.keys() | INTEGER.keys()), 25)
def test_method_of_integers(name):
    for seed in SEEDS:
        run(REAL.get(name, []) + INTEGER.get(name, []), seed, "int64")


def arrays_in(result):
    """The arrays of the tensors in a method's result."""
    if isinstance(result, tuple):
        return [a for part in result for a in arrays_in(part)]
    return [result.value if result.is_stream else result.numpy()] if isinstance(result, Tensor) else []


@pytest.fixture
def made(monkeypatch):
    """What the door has given, by the identity of arrays."""
    seen, apply = {}, hook.apply

    def recording(*request):
        outputs = apply(*request)
        for y in outputs:
            array = y.value if y.is_stream else y._array
            seen[id(array)] = array
        return outputs

    monkeypatch.setattr(hook, "apply", recording)
    return seen


#: They make a value from nothing, or give the tensor's own.
LEAVES = {"new_zeros", "new_ones", "new_full", "new_empty", "new_tensor", "detach"}


@in_blocks("name", [n for n in METHODS if n not in LEAVES and not n.endswith("_")], 25)
def test_what_makes_a_value_goes_through_the_door(name, made):
    for number, case in enumerate({**REAL, **FLOAT}[name] + INTEGER.get(name, [])):
        data = Data(number, "float32" if name in FLOAT or number < len(REAL.get(name, [])) else "int64").on(Ours)
        given = {id(a) for x in vars(data).values() for a in arrays_in(x)}
        for array in arrays_in(case(data)):
            assert id(array) in given or id(array) in made


VIEWS_OF_STREAMS = {
    "index": lambda x: x[:, 1:, ::2], "rows": lambda x: x[[1, 0]], "frames": lambda x: x[..., 1:3],
    "picked": lambda x: x[:, [2, 0]], "one": lambda x: x["a"], "reshape": lambda x: x.reshape(2, 2, 2, 4),
    "squeeze": lambda x: x.unsqueeze(1).squeeze(1), "expand": lambda x: x.unsqueeze(1).expand(-1, 3, -1, -1),
    "padded": lambda x: x.tensor(), "clone": lambda x: x.clone(), "flip": lambda x: x.flip(1),
    "triu": lambda x: x.reshape(2, 2, 2, 4).permute(0, 3, 1, 2).triu(1),
    "einsum": lambda x: ds.einsum("bct,dc->btd", x, ds.ones(2, 4)),
    "cat": lambda x: ds.cat([x, x], 1), "over features": lambda x: x.sum(1), "extreme": lambda x: x.max(1),
    "over frames": lambda x: x.mean(2), "of all": lambda x: x.amax(), "sum": lambda x: x + x,
    "cast": lambda x: x.double(), "matrix": lambda x: x.transpose(1, 2) @ ds.ones(4, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS_OF_STREAMS)
def test_what_makes_a_value_of_streams_goes_through_the_door(name, made, rng):
    x = ds.stream_tensor([rng.standard_normal((4, n)) for n in (4, 3)], ids=["a", "b"], dtype=ds.float32)
    results = arrays_in(VIEWS_OF_STREAMS[name](x))
    assert results
    assert all(id(array) in made for array in results)


@pytest.mark.parametrize("kind", ["float32", "int64"])
@in_blocks("number", range(len(BRACKETS)), 23)
def test_brackets_and_functions(number, kind):
    for seed in SEEDS:
        run([BRACKETS[number]], seed, kind)


@pytest.mark.parametrize("name", ["max", "min"])
def test_indices_of_extremes(name, rng):
    values = rng.permutation(60).reshape(3, 4, 5).astype(np.float32)
    for dim in (0, 1, -1):
        for keepdim in (False, True):
            ours = getattr(ds.tensor(values), name)(dim, keepdim)
            theirs = getattr(torch.tensor(values), name)(dim, keepdim)
            compare(ours.indices, theirs.indices, True)
            compare(getattr(ds.tensor(values), f"arg{name}")(dim, keepdim), theirs.indices, True)


def test_creation_follows_torch():
    for make in (
        lambda m: m.zeros(2, 3),
        lambda m: m.ones((2, 0), dtype=m.int64),
        lambda m: m.full((2,), 3),
        lambda m: m.full((2, 1), 0.5),
        lambda m: m.full([2], True),
        lambda m: m.arange(5),
        lambda m: m.arange(2, 9, 3),
        lambda m: m.arange(0, 1, 0.25),
        lambda m: m.arange(4, dtype=m.float64),
        lambda m: m.from_numpy(np.arange(3)),
    ):
        compare(make(ds), make(torch), True)
