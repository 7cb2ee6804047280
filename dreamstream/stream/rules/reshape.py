"""What a reshape does inside a forward, where L is no number.

A reshape is row-major, so it is right for every length only if each run of dimensions that begins at
B or at L keeps its own product. `plan_reshape` cuts the old and the new shape into such runs (the
features before the first of B and L, those behind B, those behind L), compares them, and says what to
do with each row's stored frames ``[n_frames][feature axes]``. Only the run behind L may change its
product: what it loses, L gains.

Grammar of a plan. ``dims`` says what each visible dimension is: ``"B"``, ``"L"``, ``"B_L"``, or the
number of a stored feature axis. ``steps`` are tuples, to be carried out in order on every row:

``("permute", order)``
    ``frames = frames.transpose(0, *(1 + a for a in order))``: stored axis ``order[i]`` becomes i.
``("features", shape)``
    ``frames = frames.reshape(n_frames, *shape)``.
``("unstack", k)``
    The first feature axis, of size k, is merged into the frames:
    ``frames = frames.reshape(n_frames * k, *rest)``.
``("stack", k)``
    Every k frames become one with a new first feature axis:
    ``frames = frames.reshape(n_frames // k, k, *features)``. That k divides the number of frames is
    for the counts to check, at the stream's end.

A reshape that this can't say, and one that begins or ends with features joined with B, is planned by
`regroup`: with "permute" and "features" alone, on frames whose lanes are features too.

Each occurs once at most, in the order permute, features, unstack, stack, features (features twice). A plan
without "permute" moves no data; one without "unstack" and "stack" keeps the frame counts, hence the
lineage. Whether B and L are one dimension, ``"B_L"``, changes no frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from math import prod
from typing import Any

from ...errors import NotStreamableError, ShapeError
from ...source_line import user_line
from ._ints import as_int, is_integer
from .batch_folding import ReshapePlan, lanes_of, plan_regroup, with_features
from .lengths import BatchLength, BatchSize, Length
from .sizes import Edge

__all__ = ["own_sizes", "plan_reshape"]

JOINED = "B_L"
_INFER = -1


@dataclass
class _Run:
    """The features behind B, behind L or before both: sizes, and the visible dimensions they are."""

    sizes: list[int]
    visible: list[int]

    @property
    def product(self) -> int:
        return prod(self.sizes)


def _cut(dims: Sequence[int | str], sizes: Sequence[Any]) -> tuple[list[str], dict[str, _Run]]:
    """Return the order of B and L among dimensions, and the run behind each ("" before both)."""
    order: list[str] = []
    runs = {"": _Run([], [])}
    for v, (dim, size) in enumerate(zip(dims, sizes)):
        if isinstance(dim, str):
            order += dim.split("_")
            runs.update((part, _Run([], [])) for part in dim.split("_"))
        else:
            run = runs[order[-1] if order else ""]
            run.sizes.append(size)
            run.visible.append(v)
    return order, runs


class _Reshape:
    """One call of `plan_reshape`: its arguments, and how to complain about them."""

    def __init__(self, dims: Sequence[int | str], sizes: Sequence[Any], shape: Sequence[Any]) -> None:
        self.dims = tuple(dims)
        self.sizes = tuple(sizes)
        self.shape = tuple(shape)
        if len(self.dims) != len(self.sizes):
            raise ShapeError(f"{len(self.sizes)} sizes for {len(self.dims)} dimensions")
        axes = sorted(d for d in self.dims if isinstance(d, int))
        if axes != list(range(len(axes))):
            raise ShapeError(f"dimensions {self.dims} don't hold each feature axis once")
        lengths = [s if isinstance(s, Length) else s.length for s in sizes if isinstance(s, (Length, BatchLength))]
        self.length: Length | None = lengths[0] if lengths else None

    def _text(self) -> str:
        old = ", ".join(d if isinstance(d, str) else str(s) for d, s in zip(self.dims, self.sizes))
        return f"reshape of ({old}) to {self.shape} at {user_line()}"

    def impossible(self, reason: str) -> ShapeError:
        return ShapeError(f"{self._text()}: {reason}")

    def unstreamable(self, reason: str, remedy: str) -> NotStreamableError:
        return NotStreamableError(f"{self._text()}: {reason}; {remedy}")

    # ---- the old shape

    def read_old(self) -> tuple[list[str], dict[str, _Run]]:
        """Return the order of B and L, and the run behind each ("" before both)."""
        sizes = []
        for v, (dim, size) in enumerate(zip(self.dims, self.sizes)):
            if not isinstance(dim, str):
                sizes.append(as_int(size, "a feature size"))
                continue
            before = [p for d in self.dims[:v] if isinstance(d, str) for p in d.split("_")]
            if dim not in ("B", "L", JOINED) or any(p in before for p in dim.split("_")):
                raise self.impossible(f"unexpected dimension {dim!r}")
            if dim != "B" and not isinstance(size, (Length, BatchLength)):
                raise self.impossible(f"the size of {dim!r} must be a length, got {size!r}")
            sizes.append(0)
        return _cut(self.dims, sizes)

    # ---- the new shape

    def ratio_of(self, token: Length, length: Length) -> tuple[Fraction, bool]:
        """Return a new L per old L, and whether that it is just so long is a claim, to be checked at the end."""
        if not token.rate or not length.rate:
            raise self.unstreamable("an edge of rate 0 has no length", "use -1")
        ratio = token.rate / length.rate
        same = token == length * ratio.numerator // ratio.denominator
        if same is False:
            raise self.unstreamable(
                f"{token!r} is never the length of what comes out", "use a slice, or F.pad, to change the length"
            )
        return ratio, same is not True

    def read_new(self, order: list[str]) -> tuple[list[str | int], Fraction | None, list[Length]]:
        """Return the new shape with tokens as names and -1 resolved if it is no feature."""
        length = self.length
        entries: list[str | int] = []
        ratio: Fraction | None = None
        claims: list[Length] = []
        for item in self.shape:
            if isinstance(item, BatchSize):
                if item.times != 1:
                    raise self.impossible("the tensor has no features behind B to join with it")
                entries.append("B")
            elif isinstance(item, (Length, BatchLength)):
                token = item if isinstance(item, Length) else item.length * item.times
                entries.append("L" if isinstance(item, Length) else JOINED)
                if length is None:
                    raise self.impossible(f"the tensor has no L, so {item!r} can't be a size of it")
                ratio, claim = self.ratio_of(token, length)
                if claim:
                    claims.append(token)
            else:
                size = as_int(item, "a size")
                if size < _INFER:
                    raise self.impossible(f"a size must be 0 or more, or -1, got {size}")
                entries.append(size)
        if entries.count(_INFER) > 1:
            raise self.impossible("only one size can be -1")
        given = [p for e in entries if isinstance(e, str) for p in e.split("_")]
        for part in given:
            if part not in order:
                raise self.impossible(f"the tensor has no dimension {part}")
            if given.count(part) > 1:
                raise self.impossible(f"{part} occurs twice")
        missing = [p for p in order if p not in given]
        if missing:
            if _INFER not in entries:
                raise self.unstreamable(
                    f"it drops {' and '.join(missing)}",
                    "give x.size() of that dimension, or -1, as one of the sizes",
                )
            if missing == ["L", "B"]:
                raise self.unstreamable("L can't be merged with B behind it", "transpose to (B, L, ...) first")
            entries[entries.index(_INFER)] = "_".join(missing)
        return entries, Fraction(1) if length is None else ratio, claims

    # ---- comparing them

    def solve(self, old: dict[str, _Run], new: dict[str, _Run], ratio: Fraction | None) -> Fraction:
        """Fill in the -1, return the ratio, and refuse what mixes runs."""
        total_old = prod(r.product for r in old.values())
        known = prod(s for r in new.values() for s in r.sizes if s != _INFER)
        inferring = any(_INFER in r.sizes for r in new.values())
        if ratio is None:
            if not total_old or not known:
                raise self.impossible("with a size of 0, -1 could be any length")
        else:
            total_new = ratio * known
            fits = (total_new and not total_old % total_new) if inferring else total_old == total_new
            if inferring and not total_new:
                raise self.impossible("with a size of 0, -1 could be anything")
            stands_for_b = not inferring and any(is_integer(s) and s == _INFER for s in self.shape)
            if not fits and stands_for_b:
                raise self.unstreamable(
                    "-1 would not be the number of streams",
                    "give x.size() of the batch, and -1 for one of the features",
                )
            if not fits:
                raise self.impossible("the sizes don't have the same product")
        for key, run in new.items():
            before = old[key].product
            if key == "L" and ratio is None:
                ratio = Fraction(before, run.product)
            factor = ratio if key == "L" and ratio is not None else Fraction(1)
            after = factor * prod(s for s in run.sizes if s != _INFER)
            if _INFER in run.sizes:
                if not after or before % after:
                    raise self._mixed(key)
                run.sizes[run.sizes.index(_INFER)] = int(before / after)
            elif before != after:
                raise self._mixed(key)
        return Fraction(1) if ratio is None else ratio

    def regrouped(self) -> ReshapePlan | None:
        """Plan a reshape that joins B, or B and L, with features, or takes them apart; None if there is none."""
        features = [s for d, s in sorted((d, s) for d, s in zip(self.dims, self.sizes) if isinstance(d, int))]
        length = self.length
        letters = [p for d in self.dims if isinstance(d, str) for p in d.split("_") if p in ("B", "L")]
        left = prod(features) * (lanes_of(self.dims) or 1)
        entries: list[tuple[tuple[str, ...], int]] = []
        claims: list[Length] = []
        for item in self.shape:
            own: tuple[str, ...] = ()
            number = item.times if isinstance(item, (BatchSize, BatchLength)) else 1
            if isinstance(item, (Length, BatchLength)):
                token = item if isinstance(item, Length) else item.length
                if length is None or not token.rate or not length.rate:
                    return None
                ratio, claim = self.ratio_of(token, length)
                if ratio.denominator > 1 or (claim and ratio != 1):
                    return None
                claims += [token] if claim else []
                number *= ratio.numerator
                own = ("L",) if isinstance(item, Length) else ("B", "L")
            elif isinstance(item, BatchSize):
                own = ("B",)
            else:
                number = as_int(item, "a size")
            for letter in own:
                if letter not in letters:
                    return None
                letters.remove(letter)
            if number != _INFER:
                if not number or left % number:
                    return None
                left //= number
            entries.append((own, number))
        inferred = [i for i, (_, number) in enumerate(entries) if number == _INFER]
        if len(inferred) > 1 or (not inferred and (letters or left != 1)):
            return None
        for i in inferred:
            entries[i] = (tuple(letters), left)
        return plan_regroup(self.dims, features, entries, tuple(claims))

    def _mixed(self, key: str) -> NotStreamableError:
        place = f"behind {key}" if key else "before B and L"
        return self.unstreamable(
            f"the features {place} would be mixed with other dimensions",
            "only those right behind L can be merged into it or split off it: transpose first",
        )


def _plan_runs(call: _Reshape) -> ReshapePlan:
    """Plan a reshape that leaves the runs behind B and L what they are, but for what L takes or gives."""
    order, old = call.read_old()
    entries, ratio, claims = call.read_new(order)
    new_order, new = _cut(entries, entries)
    if new_order != order:
        raise call.unstreamable("it exchanges B and L", "transpose instead")
    ratio = call.solve(old, new, ratio)
    keeps = all(old[k].sizes == new[k].sizes for k in new)
    steps: list[tuple[Any, ...]] = []
    axes: dict[int, int] = {}  # stored axis of each new visible dimension
    if keeps and ratio == 1:
        features = [0] * sum(isinstance(d, int) for d in call.dims)
        for key, run in new.items():
            for axis, v_new, size in zip(_axes(call.dims, old, [key]), run.visible, run.sizes):
                axes[v_new], features[axis] = axis, size
    else:
        runs = _working_order(call.dims, old, ratio)
        axis_order = _axes(call.dims, old, runs)
        if axis_order != sorted(axis_order):
            steps.append(("permute", tuple(axis_order)))
        stored = [s for k in runs for s in old[k].sizes]
        rest = [s for k in runs if k != "L" for s in old[k].sizes]
        if ratio.numerator > 1:
            p = ratio.numerator
            inner = [old["L"].product // p] if old["L"].product != p else []
            if stored != [p, *inner, *rest]:
                steps.append(("features", (p, *inner, *rest)))
            steps.append(("unstack", p))
            stored = [*inner, *rest]
        if ratio.denominator > 1:
            steps.append(("stack", ratio.denominator))
            stored = [ratio.denominator, *stored]
        features = [s for k in runs for s in new[k].sizes]
        if stored != features:
            steps.append(("features", tuple(features)))
        axes = {v: a for a, v in enumerate(v for k in runs for v in new[k].visible)}
    origin: list[int | None] = [None] * len(entries)
    for v, entry in enumerate(entries):
        if isinstance(entry, str) and entry in call.dims:
            origin[v] = call.dims.index(entry)
    for key, run in new.items():
        if run.sizes == old[key].sizes:
            for v_old, v_new in zip(old[key].visible, run.visible):
                origin[v_new] = v_old
    new_dims = tuple(e if isinstance(e, str) else axes[v] for v, e in enumerate(entries))
    return ReshapePlan(tuple(steps), new_dims, tuple(features), tuple(origin), ratio, tuple(claims))


def plan_reshape(dims: Sequence[int | str], sizes: Sequence[Any], shape: Sequence[Any]) -> ReshapePlan:
    """Say how a tensor inside a forward is reshaped: steps on each row's frames, and the new dimensions.

    Dimensions are those that are seen, ``"B"``, ``"L"``, ``"B_L"`` or the number of a stored feature axis;
    sizes are integers for features, else a `BatchSize`, `Length` or `BatchLength`. In the new shape -1 stands
    for a feature size, or for whichever of B and L (or both as ``"B_L"``) is missing. A shape of another number
    of elements raises ShapeError; one that drops B or L, changes their order, or mixes L with features in a way
    that is not right for every length NotStreamableError.

    With ``B, L`` the sizes of a tensor of dimensions ``("B", "L", 0)`` and 80 features::

        plan_reshape(("B", "L", 0), (B, L, 80), (B, L // 2, 160)).steps
        # (('stack', 2), ('features', (160,)))
    """
    call = _Reshape(dims, sizes, shape)
    reason: Exception | None = None
    if not with_features(call.dims):
        try:
            return _plan_runs(call)
        except (NotStreamableError, ShapeError) as error:
            reason = error
    found = call.regrouped()
    if found is None:
        raise reason or call.unstreamable("B or L would be mixed with features", "transpose first")
    return found


def own_sizes(edge: Edge, shape: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return what tells apart shapes of numbers and a tensor's own B and L, and the same in every call.

    None where a size may be another tensor's, or one of another call.
    """

    def own(size: Any) -> Any:
        if type(size) is int:
            return size
        if isinstance(size, BatchSize) and size.edge.entry is edge.entry:
            return "B", size.times
        terms: Any = getattr(size, "terms", ((0, None),))
        (times, atom), *more = terms
        counts = times == 1 and not more and not size.plus and getattr(atom, "entry", None) is edge.entry
        return "L" if counts and atom.cid == edge.cid else None

    found = tuple(map(own, shape))
    return None if None in found else found


def _axes(dims: tuple[int | str, ...], runs: dict[str, _Run], order: Sequence[str]) -> list[int]:
    """Return the stored axes of some runs, one after the other."""
    return [a for k in order for v in runs[k].visible if isinstance(a := dims[v], int)]


def _working_order(dims: tuple[int | str, ...], runs: dict[str, _Run], ratio: Fraction) -> list[str]:
    """Return an order in which runs are stored while they change: L's first if L changes.

    Of the orders that serve, one in which the axes are stored already is best: nothing moves.
    """
    orders = [list(o) for o in permutations(runs) if ratio == 1 or o[0] == "L"]
    for order in orders:
        axes = _axes(dims, runs, order)
        if axes == sorted(axes):
            return order
    return orders[0]
