"""Powers by a number: torch's bits in every front end, whatever a number is beside."""

import numpy as np
import pytest
import torch
from nets import net
from turns import in_blocks

import dreamstream as ds

#: Exponents for which torch multiplies, divides and takes roots.
EXACT = (0, 1, 2, 3, -1, -2, 0.5, -0.5, 2.0, 3.0, -1.0)
#: Others: within the last place of torch's.
NEAR = (4, 5, -3, 1.5, -1.5, 0.25, -0.75, 10)
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e25, -1e-25, 0.1)
CUTS = (0, 1, 8, 9, 30)


def powers(nn, write):
    """One spelling of a power, as a module."""
    return net(nn, lambda self, x: write(x))


def values(dtype):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((CUTS[-1], 7)).astype(dtype) * 10.0 ** rng.integers(-9, 9, (CUTS[-1], 7))
    x.reshape(-1)[3 : 3 + len(SPECIAL)] = SPECIAL
    return x.astype(dtype)


def streamed(step):
    return np.concatenate([np.asarray(step(a, b)) for a, b in zip(CUTS, CUTS[1:], strict=False)])


def fronts(write, x):
    """What each front end makes of x, and in which name."""
    spec = ("B", "L", 7)
    yield "plain", write(ds.tensor(x)).numpy()
    yield (
        "an element",
        np.array([[write(ds.tensor(x[i : i + 1, j]))[0].item() for j in range(7)] for i in range(30)]),
    )
    for name, module in (("native", powers(ds.nn, write)), ("torch", powers(torch.nn, write))):
        if x.dtype == np.float32:
            engine = ds.compile(module, spec, verify=False)
            yield (
                f"{name} engine",
                streamed(lambda a, b, e=engine: e.step({"a": x[a:b]}, sos=["a"] * (a == 0))["a"]),
            )
        online, given = ds.patch_module(module).online(), torch.from_numpy(x) if name == "torch" else x
        yield name, streamed(lambda a, b, m=online, x=given: m(ds.stream_tensor(
            [x[a:b]], ids=["a"], sos=[a == 0], names=("B", "L", None)))["a"].numpy())  # fmt: skip


SPELLINGS = {
    "**": lambda k: lambda x: x**k,
    ".pow": lambda k: lambda x: x.pow(k),
    "in place": lambda k: lambda x: (x * 1).pow_(k),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@in_blocks("spelling", SPELLINGS, 6)
@pytest.mark.parametrize("exponent", EXACT)
def test_bits_are_those_of_torch(exponent, spelling, dtype):
    x, write = values(dtype), SPELLINGS[spelling](exponent)
    of_torch = write(torch.from_numpy(x)).numpy()
    for name, got in fronts(write, x):
        got, expected = got.astype(dtype), of_torch
        if abs(exponent) == 0.5 and name != "torch":  # torch's roots are not the nearest ones on each processor
            assert np.allclose(got, of_torch, rtol=2 * np.finfo(dtype).eps, atol=0, equal_nan=True), name
            with np.errstate(invalid="ignore", divide="ignore"):
                expected = np.sqrt(x) if exponent > 0 else 1 / np.sqrt(x)
        assert np.array_equal(got, expected, equal_nan=True), name
        finite = ~np.isnan(expected)
        assert np.array_equal(np.signbit(got)[finite], np.signbit(expected)[finite]), name


@pytest.mark.parametrize("exponent", NEAR)
def test_other_exponents(exponent):
    x = values("float32")
    expected = np.power(x.astype(np.float64), np.float64(np.float32(exponent))).astype(np.float32)
    for name, got in fronts(lambda x: x**exponent, x):
        bound = 2e-7 if "torch" in name and "engine" not in name else 7e-8
        assert np.allclose(got, expected, rtol=bound, atol=1e-44, equal_nan=True), name


@pytest.mark.parametrize("exponent", [2, 3, -1, 0.5, 1.5])
def test_exponents_in_tensors_of_one_number(exponent):
    """The value decides, and not what it is written as; roots of what lies below 0 are those of a power."""
    x = values("float32")
    plain = (ds.tensor(x) ** ds.tensor(np.float32(exponent))).numpy()
    beside = (ds.tensor(x) ** ds.tensor(np.full(x.shape, exponent, np.float32))).numpy()
    assert np.array_equal(plain, beside, equal_nan=True)
    theirs = (torch.from_numpy(x) ** torch.tensor(float(exponent))).numpy()
    assert np.allclose(plain, theirs, rtol=2e-7, atol=1e-44, equal_nan=True)
    engine = ds.compile(powers(ds.nn, lambda x: x ** ds.tensor(np.float32(exponent))), ("B", "L", 7), verify=False)
    got = streamed(lambda a, b: engine.step({"a": x[a:b]}, sos=["a"] * (a == 0))["a"])
    assert np.array_equal(got, plain, equal_nan=True)
