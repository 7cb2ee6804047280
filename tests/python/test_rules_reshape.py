"""Reshape plans, carried out row by row, against np.reshape of the padded array."""

import random
from fractions import Fraction
from math import prod

import numpy as np
import pytest
from edges import Edge

import dreamstream as ds
from dreamstream.array import forward
from dreamstream.errors import DTypeError, NotStreamableError, ShapeError
from dreamstream.stream.rules import BatchLength, BatchSize, Length, plan_reshape

B, L = BatchSize(Edge()), Length(Edge())
N_ROWS, N_FRAMES = 3, 24


def number(size):
    """The concrete value of a size."""
    if isinstance(size, BatchSize):
        return N_ROWS * size.times
    if isinstance(size, BatchLength):
        return N_ROWS * size.length.apply(N_FRAMES) * size.times
    return size.apply(N_FRAMES) if isinstance(size, Length) else size


def sizes_of(dims, features):
    def size(dim):
        own = sorted(parts([dim]), key=lambda p: p == "L")  # the length by itself, times the rest
        return prod(p[0] if isinstance(p, list) else {"B": B, "L": L}[p] for p in own)

    return [size(d) if isinstance(d, str) else features[d] for d in dims]


def parts(dims):
    """B, L, lanes by their size in a list, and feature axes."""
    out = []
    for d in dims:
        out += [p if p in "BL" else [int(p)] for p in d.split("_")] if isinstance(d, str) else [d]
    return out


def stored(atoms):
    """The places of B, L, lanes and features among atoms."""
    lanes = [i for i, a in enumerate(atoms) if isinstance(a, list)]
    own = sorted((a, i) for i, a in enumerate(atoms) if isinstance(a, int))
    return [atoms.index(a) for a in "BL" if a in atoms], lanes, [i for _, i in own]


def to_rows(array, dims, features):
    """Padded array -> [rows][frames][lanes, if there are any][stored features]."""
    atoms = parts(dims)
    sizes = {"B": N_ROWS, "L": N_FRAMES}
    array = array.reshape(
        [a[0] if isinstance(a, list) else features[a] if a not in sizes else sizes[a] for a in atoms]
    )
    frames, lanes, own = stored(atoms)
    array = array.transpose([*frames, *lanes, *own])
    n = len(frames)
    return array.reshape(*array.shape[:n], *[-1] * bool(lanes), *array.shape[n + len(lanes) :])


def to_array(rows, dims):
    """[rows][frames][lanes, if there are any][stored features] -> padded array."""
    atoms = parts(dims)
    frames, lanes, own = stored(atoms)
    n = len(frames)
    sizes = [atoms[i][0] for i in lanes]
    rows = rows.reshape(*rows.shape[:n], *sizes, *rows.shape[n + bool(lanes) :])
    array = rows.transpose(np.argsort([*frames, *lanes, *own]))
    shape, k = [], 0
    for d in dims:
        shape.append(prod(array.shape[k : k + len(parts([d]))]))
        k += len(parts([d]))
    return array.reshape(shape)


def carry_out(plan, rows):
    out = []
    for x in rows:
        for step, *arguments in plan.steps:
            n, features = x.shape[0], x.shape[1:]
            if step == "permute":
                x = x.transpose(0, *(1 + a for a in arguments[0]))
            elif step == "features":
                x = x.reshape(n, *arguments[0])
            elif step == "unstack":
                assert features[0] == arguments[0]
                x = x.reshape(n * features[0], *features[1:])
            else:
                assert step == "stack"
                x = x.reshape(n // arguments[0], arguments[0], *features)
        lanes = [p[0] for p in parts(plan.dims) if isinstance(p, list)]
        assert x.shape[1:] == (*[prod(lanes)] * bool(lanes), *plan.features)
        assert len(x) == plan.ratio * rows.shape[1]
        out.append(x)
    return np.stack(out)


def check(dims, features, shape, **kwargs):
    plan = plan_reshape(dims, sizes_of(dims, features), shape, **kwargs)
    sizes = [number(s) for s in sizes_of(dims, features)]
    array = np.random.default_rng(prod(sizes)).permutation(prod(sizes)).reshape(sizes)
    expected = array.reshape([number(s) for s in shape])
    got = to_array(carry_out(plan, to_rows(array, dims, features)), plan.dims)
    np.testing.assert_array_equal(got, expected)
    names = [s[0] for s in plan.steps]
    order = ["permute", "features", "unstack", "stack", "features"]
    at = -1
    for name in (
        names if not any("_" in d and d != "B_L" for d in (*dims, *plan.dims) if isinstance(d, str)) else ()
    ):
        at = order.index(name, at + 1)
    for v, o in enumerate(plan.origin):
        assert o is None or isinstance(dims[o], str) == isinstance(plan.dims[v], str)
        if o is not None and isinstance(dims[o], int):
            assert expected.shape[v] == sizes[o]
    return plan


def regroup(numbers, total):
    """A random factorisation of a number into sizes."""
    out = []
    while total > 1 and numbers.random() < 0.7:
        f = numbers.choice([d for d in range(1, total + 1) if total % d == 0])
        out.append(f)
        total //= f
    if total > 1 or numbers.random() < 0.2:
        out.append(total)
    return out


def random_case(numbers):
    """Dimensions, features and a new shape that is right by construction."""
    runs = [regroup(numbers, numbers.choice([1, 2, 4, 6])) for _ in range(3)]
    flip = numbers.random() < 0.2
    if not flip and numbers.random() < 0.3:
        runs[1] = []
    joined_in = not flip and not runs[1] and numbers.random() < 0.5
    first, second = ("L", "B") if flip else ("B", "L")
    visible = [*runs[0], *(["B_L"] if joined_in else [first, *runs[1], second]), *runs[2]]
    axes = list(range(sum(isinstance(v, int) for v in visible)))
    numbers.shuffle(axes)
    dims, features, k = [], [0] * len(axes), 0
    for v in visible:
        if isinstance(v, int):
            features[axes[k]] = v
            dims.append(axes[k])
            k += 1
        else:
            dims.append(v)
    new = [regroup(numbers, prod(r)) for r in runs]
    behind = 1 if flip else 2
    up = numbers.choice([d for d in (1, 2, 3) if prod(runs[behind]) % d == 0])
    down = numbers.choice([1, 1, 2, 3, 4])
    token = L * up // down
    ratio = Fraction(up, down)
    new[behind] = (
        regroup(numbers, int(prod(runs[behind]) / ratio))
        if (prod(runs[behind]) / ratio).denominator == 1
        else None
    )
    if new[behind] is None:
        token, new[behind] = L, regroup(numbers, prod(runs[behind]))
    if not flip and prod(runs[1]) == 1 and numbers.random() < 0.4:
        new[1] = []
        middle = [B * token if numbers.random() < 0.5 else token * B]
    else:
        middle = [token, *new[1], B] if flip else [B, *new[1], token]
    return tuple(dims), features, [*new[0], *middle, *new[2]]


def test_random_reshapes():
    numbers = random.Random(11)
    seen = set()
    for _ in range(1500):
        dims, features, shape = random_case(numbers)
        plan = check(dims, features, shape)
        seen |= {s[0] for s in plan.steps} | {bool(plan.steps)}
        # any one size may be -1, with the same result
        k = numbers.randrange(len(shape))
        inferred = [*shape[:k], -1, *shape[k + 1 :]]
        again = plan_reshape(dims, sizes_of(dims, features), inferred)
        assert (again.steps, again.dims, again.features, again.ratio) == (
            plan.steps, plan.dims, plan.features, plan.ratio,
        )  # fmt: skip
    assert seen == {"permute", "features", "unstack", "stack", True, False}


def test_arbitrary_shapes_are_right_or_refused():
    numbers = random.Random(12)
    counts = {"right": 0, ShapeError: 0, NotStreamableError: 0}
    for _ in range(4000):
        dims, features, shape = random_case(numbers)
        pool = [1, 2, 3, 4, 6, 8, 12, -1, B, L, L // 2, L * 2, L * B, B * (L // 2), (L // 3) * 2, *shape]
        new = list(shape)
        for _ in range(numbers.randint(1, 3)):
            k = numbers.randrange(len(new) + 1)
            if numbers.random() < 0.4:
                new.insert(k, numbers.choice(pool))
            elif k < len(new):
                new[k] = numbers.choice(pool)
        numbers.random() < 0.2 and numbers.shuffle(new)
        try:
            plan = plan_reshape(dims, sizes_of(dims, features), new)
        except (ShapeError, NotStreamableError) as error:
            counts[type(error)] += 1
            # what is called impossible is so for this length too, or names a dimension wrongly
            repeated = "occurs twice" in str(error)
            if isinstance(error, ShapeError) and not repeated:
                old = prod(number(s) for s in sizes_of(dims, features))
                rest = prod(number(s) for s in new if isinstance(s, int) is False or s != -1)
                ones = sum(isinstance(s, int) and s == -1 for s in new)
                assert ones > 1 or (old % rest if ones else old != rest)
            continue
        if plan.ratio * N_FRAMES % 1 == 0:
            check(dims, features, new)
            counts["right"] += 1
    assert min(counts.values()) > 200, counts


def grouped(numbers, atoms):
    """Random neighbours joined: those with B, and features; L alone."""
    shape, k = [], 0
    while k < len(atoms):
        n = numbers.randint(1, 3)
        group = atoms[k : k + n]
        if any(a is L for a in group) and not any(a is B for a in group):
            n, group = 1, atoms[k : k + 1]
        shape.append(prod(group))
        k += n
    return shape


def test_random_groups():
    """B, and B and L, are joined with features anywhere and regrouped, and taken apart again."""
    numbers, seen = random.Random(13), set()
    for _ in range(1500):
        sizes = [numbers.choice([1, 2, 3, 4]) for _ in range(numbers.randint(1, 4))]
        atoms: list = [B, L, *range(len(sizes))]
        numbers.shuffle(atoms)
        dims = tuple("B" if a is B else "L" if a is L else a for a in atoms)
        seen_sizes = [sizes[a] if isinstance(a, int) else a for a in atoms]
        plan = check(dims, sizes, grouped(numbers, seen_sizes))
        again = check(plan.dims, plan.features, grouped(numbers, seen_sizes)) if plan.ratio == 1 else plan
        if again.ratio != 1:  # features behind L have become frames
            continue
        k = numbers.randrange(len(atoms))
        back = check(again.dims, again.features, seen_sizes)
        inferred = plan_reshape(
            again.dims, sizes_of(again.dims, again.features), [*seen_sizes[:k], -1, *seen_sizes[k + 1 :]]
        )
        assert (inferred.steps, inferred.dims, inferred.features) == (back.steps, back.dims, back.features)
        assert back.dims == tuple(d if isinstance(d, str) else i for d, i in zip(dims, back.dims))
        seen |= {d for d in plan.dims if isinstance(d, str)}
    assert {"B", "L", "B_L", "L_B", "B_2", "3_B", "B_4_L", "2_B_3"} <= seen


@pytest.mark.parametrize(
    ("dims", "features", "shape", "steps", "new_dims"),
    [
        (("B", "L", 0), [6], (B, L, 2, 3), (("features", (2, 3)),), ("B", "L", 0, 1)),
        (("B", "L", 0), [6], (B, L // 2, 12), (("stack", 2), ("features", (12,))), ("B", "L", 0)),
        (("B", "L", 0), [6], (B, L * 2, 3), (("features", (2, 3)), ("unstack", 2)), ("B", "L", 0)),
        (("B", "L", 0), [6], (B, L * 6), (("unstack", 6),), ("B", "L")),
        (("B", "L", 0), [6], (B, -1), (("unstack", 6),), ("B", "L")),
        (("B", 0, "L"), [6], (B, 6, L // 4, 4), (("stack", 4),), ("B", 1, "L", 0)),
        (("B", "L", 0), [6], (B * L, 6), (), ("B_L", 0)),
        (("B", "L", 0), [6], (-1, 6), (), ("B_L", 0)),
        (("B_L", 0), [6], (B, L, 6), (), ("B", "L", 0)),
        (("L", "B", 0), [6], (-1, 6), (), ("L_B", 0)),
        (("L", "B", 0), [6], (B * L, 6), (), ("L_B", 0)),
        (("B", 0, "L"), [6], (B * 6, L), (), ("B_6", "L")),
        (("B", 0, "L"), [6], (-1, L), (), ("B_6", "L")),
        (("B", 0, "L"), [6], (B * 2, 3, L), (("features", (2, 3)),), ("B_2", 0, "L")),
        (("B", 0, "L", 1), [4, 6], (B * 4 * L, 6), (), ("B_4_L", 0)),
        (("B", 1, "L", 0), [6, 4], (B * 4, L, 6), (("permute", (1, 0)),), ("B_4", "L", 0)),
        ((0, "B", "L", 1), [4, 6], (B * 4, L, 6), (), ("4_B", "L", 0)),
        (("B_4", "L", 0), [6], (B, 4, L, 6), (), ("B", 0, "L", 1)),
        (("B_4", "L", 0), [6], (B, -1, L, 6), (), ("B", 0, "L", 1)),
        (("B_4", "L", 0), [6], (B * 2, 2, L, 6), (("features", (2, 2, 6)),), ("B_2", 0, "L", 1)),
        (("B_4", "L", 0), [6], (B * 4, L, 2, 3), (("features", (4, 2, 3)),), ("B_4", "L", 0, 1)),
        (("B_L", 0), [6], (-1, L, 6), (), ("B", "L", 0)),
        (("B_L", 0), [6], (B, -1, 6), (), ("B", "L", 0)),
        (("B_L", 0), [6], (B * L, 2, -1), (("features", (2, 3)),), ("B_L", 0, 1)),
        (("B", "L", 0), [6], (B, L, 6), (), ("B", "L", 0)),
        (("B", "L", 1, 0), [3, 2], (B, L, 2, 3), (), ("B", "L", 1, 0)),
        (("B", "L", 1, 0), [3, 2], (B, L, 6), (("permute", (1, 0)), ("features", (6,))), ("B", "L", 0)),
        (("B", 0, "L", 1), [4, 6], (B, 2, 2, L, 6), (("features", (2, 2, 6)),), ("B", 0, 1, "L", 2)),
        (("L", "B", 0), [6], (L, B, 2, 3), (("features", (2, 3)),), ("L", "B", 0, 1)),
        (("L", "B", 0), [6], (L // 2, 2, B, 6), (("stack", 2),), ("L", 0, "B", 1)),
        (("B", "L"), [], (B, L // 8, 8), (("stack", 8),), ("B", "L", 0)),
        (("B", "L"), [], (B, 1, L), (("features", (1,)),), ("B", 0, "L")),
        (("B", "L"), [], (B * (L // 2), 2), (("stack", 2),), ("B_L", 0)),
        (("B_L", 0), [6], (B, L // 2, 12), (("stack", 2), ("features", (12,))), ("B", "L", 0)),
        (("B", "L", 0), [3], (B, L * 3 // 2, 2), (("unstack", 3), ("stack", 2)), ("B", "L", 0)),
    ],
)
def test_plans(dims, features, shape, steps, new_dims):
    plan = (
        check(dims, features, shape)
        if -1 not in [s for s in shape if isinstance(s, int)]
        else plan_reshape(dims, sizes_of(dims, features), shape)
    )
    assert plan.steps == steps
    assert plan.dims == new_dims
    assert plan.claims == ()


def test_origin():
    plan = plan_reshape(("B", 0, "L", 1), (B, 4, L, 6), (B, 4, L // 2, 12))
    assert plan.origin == (0, 1, 2, None)
    plan = plan_reshape(("B", "L", 0), (B, L, 6), (B * L, 6))
    assert plan.origin == (None, 2)


def test_without_length():
    plan = plan_reshape(("B", 0, 1), (B, 4, 6), (B, 2, -1))
    assert plan.steps == (("features", (2, 12)),) and plan.dims == ("B", 0, 1) and plan.ratio == 1
    assert plan_reshape(("B", 0), (B, 4), (-1, 2, 2)).dims == ("B", 0, 1)
    with pytest.raises(ShapeError, match="has no L"):
        plan_reshape(("B", 0), (B, 4), (B, L, 4))


@pytest.mark.parametrize(
    ("dims", "features", "shape", "text"),
    [
        (("B", 0, "L"), [6], (B, 6 * L), "mixed"),
        (("B", 0, "L"), [6], (B, L, 6), "mixed"),
        (("B", 0, "L"), [6], (B, 2, -1), "mixed"),
        (("B", 0, "L"), [6], (B * L, 6), "mixed"),
        (("B", "L", 0), [6], (2, B, L, 3), "mixed"),
        (("B", "L", 0), [6], (L, B, 6), "exchanges B and L"),
        (("B", "L", 0), [6], (6,), "drops B and L"),
        (("B", "L", 0), [6], (B, 6), "drops L"),
        (("B", "L", 0), [6], (24, 6), "drops B and L"),
        (("B", "L", 0), [6], (B, L + 1, 6), "never the length"),
    ],
)
def test_not_streamable(dims, features, shape, text):
    with pytest.raises(NotStreamableError, match=text) as caught:
        plan_reshape(dims, sizes_of(dims, features), shape)
    assert "test_rules_reshape.py" in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "error"),
    [
        ((B, L, 5), ShapeError),
        ((B, L // 2, 6), ShapeError),
        ((B, L, 4, -1), ShapeError),
        ((B, -1, -1), ShapeError),
        ((B, L, -2), ShapeError),
        ((B, B, L, 6), ShapeError),
        ((B * L, L, 6), ShapeError),
        ((B, L, 0, -1), ShapeError),
        ((-1, 0), ShapeError),
        ((B, L, 2.0, 3), DTypeError),
        ((B, L, True, 6), DTypeError),
        ((B, L, None), DTypeError),
    ],
)
def test_impossible(shape, error):
    with pytest.raises(error):
        plan_reshape(("B", "L", 0), (B, L, 6), shape)


def test_empty_features():
    assert plan_reshape(("B", "L", 0), (B, L, 0), (B, L, 0, 5)).features == (0, 5)
    assert check(("B", "L", 0), [0], (B, L // 2, 2, 0)).ratio == Fraction(1, 2)
    assert check(("B", "L", 0), [0], (B, L * 2, 0)).ratio == 2


def test_tokens_with_a_function():
    """The size of the tensor itself may be a function of an edge's length."""
    half = L // 2
    plan = plan_reshape(("B", "L", 0), (B, half, 6), (B, L // 2 // 3, 18))
    assert plan.steps == (("stack", 3), ("features", (18,))) and not plan.claims
    assert not plan_reshape(("B", "L", 0), (B, half, 6), (B, L // 6, 18)).claims
    plan = plan_reshape(("B", "L", 0), (B, half, 6), (B, L, 3))  # right for every second length
    assert plan.ratio == 2 and plan.claims == (L,)


def test_claims():
    other = Length(Edge(("op", 4)))
    plan = plan_reshape(("B", "L", 0), (B, L, 6), (B, other, 2, 3))
    assert plan.claims[0] is other and plan.ratio == 1 and plan.features == (2, 3)
    double = Length(Edge(("op", 4), rate=2))
    plan = plan_reshape(("B", "L", 0), (B, L, 6), (B * double, -1))
    assert plan.claims[0] is double and plan.ratio == 2 and plan.features == (3,)
    for token, size in ((L // 2 * 2, 6), (L // 4 * 2, 12)):
        assert plan_reshape(("B", "L", 0), (B, L, 6), (B, token, size)).claims == (token,)
    with pytest.raises(ShapeError, match="same product"):
        plan_reshape(("B", "L", 0), (B, L, 6), (B, double, 6))
    with pytest.raises(NotStreamableError, match="rate 0"):
        plan_reshape(("B", "L", 0), (B, L, 6), (B, Length(Edge("x", 0)), 6))


def test_wrong_dims():
    for dims, sizes in (
        (("B", "L", 1), (B, L, 6)),
        (("B", "L"), (B, L, 6)),
        (("B", "L", "F"), (B, L, 6)),
        (("L_B", 0), (B * L, 6)),
        (("B", "B_L"), (B, B * L)),
        (("B", "L", 0), (B, 24, 6)),
    ):
        with pytest.raises(ShapeError):
            plan_reshape(dims, sizes, (B, L, 6))


# ---------------------------------------------------------------------- from call to call
class Reshaping(ds.nn.Module):
    """Sizes of the tensor's own, of another tensor of the same frames, and one that is claimed of a length."""

    def forward(self, x):
        batch, frames, _ = x.shape
        y = (x + 1).view(batch, frames, 2, 4).flatten(2).unflatten(-1, (4, -1)).flatten(2)
        return y.reshape(-1, 8).reshape(batch, -1, 8) + y.reshape(batch, frames // 2 * 2, 8)


def test_plans_are_made_once(monkeypatch):
    made = []
    monkeypatch.setattr(forward, "plan_reshape", lambda *args: made.append(args[2]) or plan_reshape(*args))
    x, model = np.random.default_rng(0).standard_normal((12, 8)).astype(np.float32), Reshaping()
    ds.patch_module(model).online()
    for n in range(4):
        before = len(made)
        part = ds.stream_tensor([x[3 * n : 3 * n + 3]], ids=["a"], names=("B", "L", "F"), sos=n == 0, eos=n == 3)
        y = model(part)["a"].numpy()
        np.testing.assert_array_equal(y, 2 * (x[3 * n : 3 * n + 3] + 1))
        assert len(made) - before == (1 if n else 7)
