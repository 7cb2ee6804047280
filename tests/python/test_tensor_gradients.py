"""Gradients of plain tensors: of every method and function, against torch's, on random numbers and at edges."""

import numpy as np
import pytest

from dreamstream.array import Tensor

torch = pytest.importorskip("torch")

from method_cases import BRACKETS, FLOAT, REAL, Data, Ours, Theirs
from turns import in_blocks

#: Methods of which torch has no derivative, or none of a copy that is written into.
NOT_OF_TORCH = ("floor_divide", "floor_divide_", "heaviside", "acosh_", "asinh_", "atanh_")
#: What is no operation, or is told apart from torch's below.
OTHERS = ("numpy", "requires_grad_", "scatter", "scatter_", "scatter_add", "scatter_add_")
#: torch doesn't say which of equal elements it takes; of NaN its logit gives now this, now that.
OF_ORDINARY_NUMBERS = ("quantile", "nanquantile", "logit")
CASES = {**REAL, **FLOAT, "brackets": BRACKETS}
SMOOTH = ("x", "y", "row", "column", "p", "left", "right", "batch", "other", "one", "odd")


def reals_in(result):
    """Tensors of a method's result that have gradients."""
    if isinstance(result, (tuple, list)):
        return [t for part in result for t in reals_in(part)]
    is_tensor = isinstance(result, (Tensor, torch.Tensor))
    return [result] if is_tensor and result.is_floating_point() and result.requires_grad else []


def gradients(case, data, library, weights):
    """Gradients of what a case gives, weighted, with respect to all that it is given; None where it has none."""
    given = data.on(library)
    leaves = {n: getattr(given, n).requires_grad_() for n in SMOOTH}
    for name, leaf in leaves.items():
        setattr(given, name, leaf * 1)  # what is written in place is no leaf
    outputs = reals_in(case(given))
    if not outputs:
        return None
    for i, y in enumerate(outputs):
        y.backward(
            library.make(weights.standard_normal(tuple(y.shape)).astype(str(y.dtype).removeprefix("torch."))),
            retain_graph=i < len(outputs) - 1,
        )
    return {n: None if leaf.grad is None else leaf.grad.numpy() for n, leaf in leaves.items()}


@in_blocks("name", sorted(n for n in CASES if n not in (*NOT_OF_TORCH, *OTHERS)), 25)
def test_gradients_are_those_of_torch(name):
    for number, case in enumerate(CASES[name]):
        for seed in range(2):
            data = Data(1000 * seed + number, "float64")
            if name in OF_ORDINARY_NUMBERS:
                data.arrays["odd"] = data.arrays["x"]
            with np.errstate(all="ignore"):
                ours, theirs = (gradients(case, data, lib, np.random.default_rng(seed)) for lib in (Ours, Theirs))
            if theirs is None:
                assert ours is None, number
                continue
            assert ours is not None, number
            for leaf, g in theirs.items():
                own = ours[leaf]
                if g is None or own is None:
                    assert not np.any(own if g is None else g), (number, leaf)
                    continue
                scale = np.abs(g[np.isfinite(g)]).max(initial=1.0)
                np.testing.assert_allclose(own, g, rtol=1e-9, atol=1e-11 * scale, err_msg=f"{number} {leaf}")
