"""Ifs that hold of some streams only, and pad or crop by what is nothing in the others.

``if T % 4: x = F.pad(x, (0, 4 - T % 4))`` is one operation for all streams: a pad by an amount that is 0 where the
condition doesn't hold. So the body is entered, and each amount in it is replaced by one that counts show to be the
same wherever the condition holds, and nothing elsewhere. Only bodies that do nothing else are entered: assignments
of what is computed of lengths, pads and crops of a variable, zeros joined behind it. What a statement does is
replaced once: in a loop, the next time round is another if. ``while T % 4: T += 1``, and a pad by one frame
in its place, end at a multiple: one round of the loop goes there.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

from ...errors import NotStreamableError, StreamLimitError
from ..where import user_line
from .decide import Formula
from .raising import asks_where_ways_part
from .tokens import Token

__all__ = ["Guard", "asked_by", "entered", "nodes_of"]

#: Of a difference g, by relation with 0: the counts that are all above 0 where it holds, in each way it may hold.
_HOLDS: dict[str, Callable[[Formula], list[list[Formula | None]]]] = {
    "gt": lambda g: [[g]],
    "ge": lambda g: [[g.plus(1)]],
    "lt": lambda g: [[g.times(-1)]],
    "le": lambda g: [[_less(1, g)]],
    "ne": lambda g: [[g], [g.times(-1)]],
    "eq": lambda g: [[g.plus(1), _less(1, g)]],
}
_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}


def _less(k: int, g: Formula) -> Formula | None:
    negative = g.times(-1)
    return None if negative is None else negative.plus(k)


class _Statement(NamedTuple):
    kind: str  # "amount", "pad", "zeros" or "crop"
    name: str  # what is assigned
    value: ast.expr
    used: tuple[ast.expr, ...]  # what must be a function of the library, or a length


class _If(NamedTuple):
    """An if: where its test stands, the answer that enters its body, that by line, and what is assigned else.

    `all_of` are the operands of an ``and``, of which one may compare lengths; `own` are variables that are used in
    its body only; `loop` is what is no multiple while a loop goes on, and of what, as ``T % 4``.
    """

    test: range
    enters: bool
    body: dict[int, _Statement]
    otherwise: ast.expr | None = None
    all_of: tuple[ast.expr, ...] = ()
    own: frozenset[str] = frozenset()
    loop: ast.BinOp | None = None


# ---------------------------------------------------------------- what is read
@lru_cache(maxsize=512)
def nodes_of(code: CodeType) -> list[ast.AST]:
    """Return what a function is written of; nothing where there is no source."""
    try:
        tree: ast.AST = ast.parse(textwrap.dedent("".join(inspect.getsourcelines(code)[0])))
    except (OSError, SyntaxError, TypeError):
        return []
    ast.increment_lineno(tree, code.co_firstlineno - 1)
    return list(ast.walk(tree))


@lru_cache(maxsize=512)
def _ifs(code: CodeType) -> list[_If]:
    """Return the ifs of a function whose bodies do nothing but what is said above."""
    used = Counter(_used(nodes_of(code)))
    out = []
    for node in nodes_of(code):
        if found := _read(node):
            inside = Counter(_used(n for s in found.body.values() for n in ast.walk(s.value)))
            out.append(found._replace(own=frozenset(n for n in inside if inside[n] == used[n])))
    return out


def _used(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for n in nodes:
        of = n.target if isinstance(n, ast.AugAssign) else n
        if isinstance(of, ast.Name) and (of is not n or isinstance(of.ctx, ast.Load)):
            yield of.id


def _read(node: ast.AST) -> _If | None:
    if isinstance(node, ast.Assign) and isinstance(choice := node.value, ast.IfExp):
        then, other = ([_copied(ast.Assign(node.targets, way), way)] for way in (choice.body, choice.orelse))
        node = _copied(ast.If(choice.test, then, other), choice.test)
    if isinstance(node, ast.While):
        return _loop(node)
    if not isinstance(node, ast.If):
        return None
    test, enters, body, otherwise = node.test, True, node.body, None
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, enters = test.operand, not enters
    all_of: tuple[ast.expr, ...] = ()
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and enters and not node.orelse:
        all_of = tuple(test.values)
    for part in all_of or (test,):
        if any(isinstance(n, (ast.BoolOp, ast.IfExp, ast.NamedExpr)) for n in ast.walk(part)):
            return None
        if any(isinstance(n, ast.Compare) and len(n.ops) > 1 for n in ast.walk(part)):
            return None
    if not all(_only_asks(part) for part in all_of):
        return None
    if node.orelse:  # an amount on one side, a number on the other
        if len(node.body) > 1 or len(node.orelse) > 1:
            return None
        if not isinstance(getattr(node.orelse[0], "value", None), (ast.Constant, ast.Name)):
            enters, body = not enters, node.orelse
        plain = (node.orelse if body is node.body else node.body)[0]
        otherwise = _assigned(plain, _name(body[0]))
        if not isinstance(otherwise, (ast.Constant, ast.Name)):
            return None
    made = [_statement(s) for s in body]
    by_line = {s.lineno: m for s, m in zip(body, made) if m is not None}
    if len(by_line) < len(body) or (otherwise is not None and next(iter(by_line.values())).kind != "amount"):
        return None
    changed = set()
    for statement in by_line.values():
        if statement.kind != "amount":
            changed.add(statement.name)
        elif any(isinstance(n, ast.Name) and n.id in changed for n in ast.walk(statement.value)):
            return None
    return _If(range(test.lineno, (test.end_lineno or test.lineno) + 1), enters, by_line, otherwise, all_of)


def _loop(node: ast.While) -> _If | None:
    """Return a loop that goes on until a length is a multiple, changing it by one each time."""
    test: Any = node.test
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.NotEq, ast.Gt)) and len(test.ops) == 1:
        test = test.left if getattr(test.comparators[0], "value", None) == 0 else None
    statement = _statement(node.body[0]) if len(node.body) == 1 and not node.orelse else None
    if not isinstance(test, ast.BinOp) or not isinstance(test.op, ast.Mod) or not _only_asks(test):
        return None
    counted = test.left.id if isinstance(test.left, ast.Name) else None
    if statement is None or statement.kind != ("pad" if counted is None else "amount"):
        return None
    if counted is not None and statement.name != counted:
        return None
    lines = range(test.lineno, (test.end_lineno or test.lineno) + 1)
    return _If(lines, True, {node.body[0].lineno: statement}, loop=test)


def _computes(found: _If, frame: FrameType) -> bool:
    """Whether what looks like an amount in an if's body is computed of streams themselves, not of their sizes."""
    amounts = [s.value for s in found.body.values() if s.kind == "amount"]
    asked = {n.value for a in amounts for n in ast.walk(a) if isinstance(n, ast.Attribute)}
    names = {n.id for a in amounts for n in ast.walk(a) if isinstance(n, ast.Name) and n not in asked}
    return any("L" in getattr(frame.f_locals.get(name), "names", ()) for name in names)


def _only_asks(value: ast.expr) -> bool:
    """Whether an expression may be evaluated once more: it calls nothing but for sizes."""
    return all(getattr(n.func, "attr", "") in ("size", "dim") for n in ast.walk(value) if isinstance(n, ast.Call))


def _copied(node: Any, place: ast.AST) -> Any:
    return ast.copy_location(node, place)


def _name(node: ast.stmt) -> str:
    """Return the variable that a statement assigns to; "" where it does not, or to several."""
    target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    return target.id if isinstance(target, ast.Name) else ""


def _assigned(node: ast.stmt, name: str) -> ast.expr | None:
    return node.value if name and isinstance(node, ast.Assign) and _name(node) == name else None


def _statement(node: ast.stmt) -> _Statement | None:
    """Return what an assignment does to its variable; None for all else."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):  # T += 1
        before = _copied(ast.Name(node.target.id, ast.Load()), node)
        node = _copied(ast.Assign([node.target], _copied(ast.BinOp(before, node.op, node.value), node)), node)
    name = _name(node)
    value = _assigned(node, name)
    if value is None:
        return None

    def is_it(given: ast.expr) -> bool:
        return isinstance(given, ast.Name) and given.id == name

    if isinstance(value, ast.BinOp) and _only_asks(value):
        return _Statement("amount", name, value, ())
    if isinstance(value, ast.Subscript) and is_it(value.value):
        return _Statement("crop", name, value, ())
    if not isinstance(value, ast.Call) or not value.args:
        return None
    called = getattr(value.func, "attr", getattr(value.func, "id", ""))
    if called == "pad" and is_it(value.args[0]):
        return _Statement("pad", name, value, (value.func,))
    first = value.args[0]
    if called in ("cat", "concat") and isinstance(first, (ast.List, ast.Tuple)) and is_it(first.elts[0]):
        return _Statement("pad", name, value, (value.func, *first.elts[1:]))
    return _Statement("zeros", name, value, (value,)) if _is_zeros(value) else None


def _is_zeros(value: ast.expr) -> bool:
    """Whether it is a call of zeros, perhaps brought to a type or device."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr in ("zeros", "new_zeros"):
            return True
        if value.func.attr not in ("to", "type", "type_as", "cuda"):
            return False
        value = value.func.value
    return False


# ---------------------------------------------------------------- what is entered
def asked_by(frame: FrameType) -> str | None:
    """Return by what a frame asks: "if", one that only pads or crops; "largest", max or min; None, other ways."""
    line = frame.f_lineno
    if asks_where_ways_part(frame):
        return "if" if any(line in f.test and not _computes(f, frame) for f in _ifs(frame.f_code)) else None
    calls = [
        n for n in nodes_of(frame.f_code) if isinstance(n, ast.Call) and n.lineno <= line <= (n.end_lineno or 0)
    ]
    names = {n.func.id for n in calls if isinstance(n.func, ast.Name)}
    return "largest" if names & {"max", "min"} and "bool" not in names else None


def entered(frame: FrameType, length: Any, relation: str, entry: Any) -> bool | None:
    """Return the answer with which an if's body is entered, whose amounts the entry's guard settles from then on.

    Parameters
    ----------
    frame : FrameType
        That asks for a truth.
    length : Length
        What compares with 0, by `relation`, in some streams only.

    Returns
    -------
    bool or None
        None where there is no such if.
    """
    found = next((f for f in _ifs(frame.f_code) if frame.f_lineno in f.test and not _computes(f, frame)), None)
    formula = None if found is None else length.formula()
    if found is None or formula is None or not asks_where_ways_part(frame):
        return None
    last = entry.guard
    if found.loop is not None and last is not None and last.is_round_of(frame, found):
        return None  # no multiple after all
    guard = Guard(frame, found, formula, length, relation if found.enters else _OPPOSITE[relation])
    others = guard.beside(found.all_of)
    if others is False:
        return False  # as all of them together are
    if others is None or not guard.can_be_entered():
        return None
    entry.guard = guard
    return found.enters


def _most(length: Any) -> int | None:
    """Return the number that a length never exceeds, but reaches; None where there is none that is small."""

    def bound(formula: Formula) -> int | None:
        most: int | None = length.most()
        while most and not formula.exceeds(most - 1):
            below = most // 2
            most = below if not formula.exceeds(below) else most - 1
        return most

    found: int | None = length.fact("reached", bound)
    return found


class Guard:
    """The body of an if that is entered for all streams."""

    def __init__(self, frame: FrameType, found: _If, formula: Formula, length: Any, relation: str) -> None:
        self._frame = frame
        self._body = dict(found.body)
        self._otherwise = found.otherwise
        self._own = found.own
        self._found = found
        self._length = length
        self._of = formula
        self._inside = _HOLDS[relation](formula)
        self._outside = _HOLDS[_OPPOSITE[relation]](formula)
        self._amounts: dict[int, tuple[Any, Any]] = {}  # by line: what is computed there, and what it is instead

    def beside(self, all_of: Sequence[ast.expr]) -> bool | None:
        """Return the truth of an ``and`` but for the one operand that depends on the stream; None: of several."""
        parts = [self._evaluated(part, self._frame.f_locals) for part in all_of]
        others = [part for part in parts if not isinstance(part, Token)]
        if len(others) < len(parts) - 1 or not all(isinstance(part, (int, type(None))) for part in others):
            return None
        return all(others)

    def is_round_of(self, frame: FrameType, loop: _If) -> bool:
        """Whether it is the body of this loop, whose one round is done."""
        return self._frame is frame and self._found is loop and not self._body

    def _rounds(self, seen: Mapping[str, Any], step: object, whole: Any = None) -> Any:
        """Return what a loop's rounds change in all, each by `step`; None where that is not known."""
        loop = self._found.loop
        assert loop is not None
        of, by = (self._evaluated(part, dict(seen)) for part in (loop.left, loop.right))
        known = self._is_length(of) and type(by) is int and by > 0 and step in (1, -1)
        if not known or (whole is not None and (step == -1 or whole.key() != of.key())):
            return None
        return -of % by if step == 1 else -(of % by)

    def can_be_entered(self) -> bool:
        """Whether the body does what it seems to, all amounts that it assigns can be settled, and are noted."""
        seen, own = dict(self._frame.f_locals), () if self._found.loop else self._own
        for line, (kind, name, value, used) in self._body.items():
            if kind == "amount":
                given, before = self._evaluated(value, seen), 0 if name in own else seen.get(name, 0)
                if self._otherwise is not None:
                    before = self._evaluated(self._otherwise, seen)
                if not self._is_length(given) or not (type(before) is int or self._is_length(before)):
                    return False
                change = given - before
                amount = self.settled(change) if self._found.loop is None else self._rounds(seen, change)
                if amount is None:
                    return False
                seen[name] = before + amount
                self._amounts[line] = (given.key(), seen[name])
                continue
            if kind != "zeros" and "L" not in getattr(seen.get(name), "names", ()):
                return False
            if kind != "zeros" and not (self._found.loop or self._may_be_nothing(kind, value, seen)):
                return False
            for part in used:
                if isinstance(part, ast.Name) and any(
                    s.kind == "zeros" and s.name == part.id for s in self._body.values()
                ):
                    continue
                if part is getattr(value, "func", None):
                    module = getattr(self._evaluated(part, seen), "__module__", None) or "torch"
                    if module.partition(".")[0] not in ("torch", "dreamstream"):
                        return False
                elif not _is_zeros(part) or not any(
                    isinstance(n, ast.Name) and self._is_length(seen.get(n.id)) for n in ast.walk(part)
                ):
                    return False
        return True

    def _may_be_nothing(self, kind: str, value: Any, seen: dict[str, Any]) -> bool:
        """Whether what a pad or crop says outright may be nothing where the condition doesn't hold."""
        if kind == "crop":
            slices = [s for s in ast.walk(value.slice) if isinstance(s, ast.Slice) and (s.lower or s.upper)]
            return len(slices) != 1 or not (slices[0].lower or isinstance(slices[0].upper, ast.Constant))
        given = value.args[1] if len(value.args) > 1 else None
        if not isinstance(given, (ast.Tuple, ast.List)) or not _only_asks(given):
            return True
        pads = [self._evaluated(pad, seen) for pad in given.elts]
        return all(type(p) is int or not self._is_length(p) or self.settled(p) is not None for p in pads)

    def _evaluated(self, value: ast.expr, seen: dict[str, Any]) -> Any:
        expression = compile(ast.Expression(value), "<if>", "eval")
        return eval(expression, self._frame.f_globals, seen)

    def _is_length(self, x: object) -> bool:
        return hasattr(x, "formula")

    # ------------------------------------------------------------ what amounts are for all streams
    def settled(self, amount: Any, used: Callable[[Any], Any] = lambda n: n) -> Any:
        """Return what is the amount wherever the condition holds, and 0 elsewhere; None where that isn't found.

        What is made of it in the end should be a function of one length.
        """
        tried: list[Any] = [amount] if self._is_length(amount) else []
        if tried and (most := _most(amount)):
            tried.append(amount % most)
        for length in (self._length, self._length + 1) if type(amount) is int else ():
            if self._is_length(length) and (most := _most(length)):
                tried += [-length % (most + 1), (length + (most - 1)) // most * amount]
        tried.sort(key=lambda t: len(getattr(used(t), "terms", ())) > 1)
        try:
            return next((t for t in tried if self._fits(t, amount)), None)
        except StreamLimitError:
            return None

    def _fits(self, settled: Any, amount: Any) -> bool:
        return self._vanishes(settled - amount, self._inside) and self._vanishes(settled, self._outside)

    def _vanishes(self, length: Any, ways: Sequence[Sequence[Formula | None]]) -> bool:
        """Whether a length is 0 wherever the counts of one of these ways are all above 0."""
        if type(length) is int:
            return not length
        formula = length.formula()
        if formula is None or formula.root != self._of.root:
            return False
        for way in ways:
            where = [w.count for w in way if w is not None]
            for sign in (1, -1):
                differs = formula.times(sign)
                lengths = (*formula.lengths, *(n for n in self._of.lengths if n not in formula.lengths))
                if len(where) < len(way) or differs is None:
                    return False
                if differs.count.first_positive((*lengths, *where)) is not None:
                    return False
        return True

    # ------------------------------------------------------------ in the midst of the body
    def _statement(self) -> tuple[int, _Statement] | None:
        """Return the statement of the body that runs."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame is not self._frame:
            frame = frame.f_back
        if frame is None:
            return None
        line = max((n for n in self._body if n <= frame.f_lineno), default=None)
        if line is None:
            return None
        statement = self._body[line]
        return (line, statement) if frame.f_lineno <= (statement.value.end_lineno or line) else None

    def length(self, computed: Any) -> Any:
        """Return what was computed of lengths, or what it is instead."""
        running = self._statement()
        if running is None or running[0] not in self._amounts:
            return computed
        key, settled = self._amounts[running[0]]
        if computed.key() != key:
            return computed
        del self._body[running[0]]
        return settled

    def pads(self, pads: list[Any], end: int, whole: Any) -> list[Any]:
        """Return what a stream of this length is padded by, of which `end` is behind its last frame."""
        running = self._statement()
        if running is None or running[1].kind != "pad":
            return pads
        out = list(pads)
        if self._found.loop is None:
            out[end] = self.settled(out[end], lambda n: whole + n)
        else:
            out[end] = self._rounds(self._frame.f_locals, out[end], whole)
        if out[end] is None or any(type(p) is not int or p for i, p in enumerate(pads) if i != end):
            raise self._refused("pads")
        del self._body[running[0]]
        return out

    def stop(self, index: Any, whole: Any) -> Any:
        """Return the slice of a stream of this length that is the whole of it where the condition doesn't hold."""
        running = self._statement()
        if running is None or running[1].kind != "crop":
            return index
        if not isinstance(index, slice) or index.start or index.step or index.stop is None:
            raise self._refused("crops")
        taken = -index.stop if self._is_negative(index.stop) else whole - index.stop
        settled = self.settled(taken, lambda n: whole - n)
        if settled is None:
            raise self._refused("crops")
        del self._body[running[0]]
        return slice(None, whole - settled)

    def _is_negative(self, stop: Any) -> bool:
        if type(stop) is int:
            return stop < 0
        return bool(stop.fact("never above", lambda f: not f.exceeds(0)))

    def _refused(self, does: str) -> NotStreamableError:
        return NotStreamableError(
            f"an if that some streams enter {does} by what is not nothing in others, at {user_line()}; "
            "do so by lengths without an if, as in F.pad(x, (0, -x.size(L) % 4))"
        )
