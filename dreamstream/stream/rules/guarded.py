"""Ifs that hold of some streams only, and pad or crop by what is nothing in the others.

``if T % 4: x = F.pad(x, (0, 4 - T % 4))`` is one operation for all streams: a pad by an amount that is 0 where the
condition doesn't hold. So the body is entered, and each amount in it is replaced by one that counts show to be the
same wherever the condition holds, and nothing elsewhere. Only bodies that do nothing else are entered: assignments
of what is computed of lengths, pads and crops of a variable, zeros joined behind it. What a statement does is
replaced once: in a loop, the next time round is another if. ``while T % 4: T += 1`` ends at a multiple, which is
assigned in its place; of a loop that pads by one frame, one round goes there.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

from ...errors import NotStreamableError
from ..where import user_line
from .condition import Condition, is_length
from .decide import OPPOSITE
from .raising import asks_where_ways_part
from .tokens import Token

_CHOSEN = "<chosen>"  # what an expression with an if in it is assigned to

__all__ = ["Guard", "asked_by", "entered", "nodes_of"]


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

    @property
    def fits(self) -> bool:
        """Whether it makes something as long as it should be; numbers may mean anything."""
        return not any(isinstance(s.value, ast.Constant) for s in self.body.values())

    @property
    def counts(self) -> bool:
        """Whether it is computed with lengths and numbers only, as an if without else."""
        return self.otherwise is None and all(s.kind == "amount" for s in self.body.values())


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
    for node in (n for each in nodes_of(code) for n in (*_returned(each), each)):
        if found := _read(node):
            inside = Counter(_used(n for s in found.body.values() for n in ast.walk(s.value)))
            out.append(found._replace(own=frozenset(n for n in inside if inside[n] == used[n])))
    return out


def _returned(node: ast.AST) -> Iterator[ast.IfExp]:
    """Yield what a block chooses to return: ``if pad: return y[..., :-pad]`` before ``return y``."""
    for block in (getattr(node, "body", ()), getattr(node, "orelse", ())):
        for choice, after in zip(block, (*block[1:], None)) if isinstance(block, list) else ():
            ways = (choice.body, choice.orelse or [after]) if isinstance(choice, ast.If) else ()
            values = [way[0].value for way in ways if isinstance(way[0], ast.Return) and way[0].value is not None]
            if len(values) == 2:
                yield _copied(ast.IfExp(choice.test, *values), choice.test)


def _used(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for n in nodes:
        of = n.target if isinstance(n, ast.AugAssign) else n
        if isinstance(of, ast.Name) and (of is not n or isinstance(of.ctx, ast.Load)):
            yield of.id


def _read(node: ast.AST) -> _If | None:
    if isinstance(node, ast.IfExp):
        return _choice(node)
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


def _choice(node: ast.IfExp) -> _If | None:
    """Return ``y[..., :-r] if r else y``, which changes a variable where it holds, or ``4 - r if r else 0``."""
    for way, other, swapped in ((node.body, node.orelse, False), (node.orelse, node.body, True)):
        name = other.id if isinstance(other, ast.Name) else _CHOSEN
        made, plain = (
            _copied(ast.Assign([_copied(ast.Name(name, ast.Store()), way)], v), way) for v in (way, other)
        )
        found = _statement(made)
        if found is not None and found.kind in ("crop", "pad"):
            test = _copied(ast.UnaryOp(ast.Not(), node.test), node.test) if swapped else node.test
            return _read(_copied(ast.If(test, [made], []), node.test))
        if found is not None:
            return _read(
                _copied(ast.If(node.test, *([plain], [made]) if swapped else ([made], [plain])), node.test)
            )
    return None


def _loop(node: ast.While) -> _If | None:
    """Return a loop that goes on until a length is a multiple, or as large as another, with one assignment."""
    test: Any = node.test
    statement = _statement(node.body[0]) if len(node.body) == 1 and not node.orelse else None
    if statement is None or not _only_asks(test):
        return None
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        op, limit = test.ops[0], test.comparators[0]
        if isinstance(op, (ast.NotEq, ast.Gt)) and getattr(limit, "value", None) == 0:
            test = test.left
        elif isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
            ways = (test.left, limit) if isinstance(op, (ast.Lt, ast.LtE)) else (limit, test.left)
            less = ast.Constant(isinstance(op, (ast.LtE, ast.GtE)) + 0)  # below 0 while the loop goes on
            test = ast.BinOp(ast.BinOp(*ways[:1], ast.Sub(), ways[1]), ast.Sub(), less)
            test = ast.fix_missing_locations(_copied(test, node.test))
    if not isinstance(test, ast.BinOp) or not isinstance(test.op, (ast.Mod, ast.Sub)):
        return None
    counted = statement.kind == "amount" and _evenly(
        statement, test if isinstance(test.op, ast.Sub) else test.left
    )
    if not (counted or (statement.kind == "pad" and isinstance(test.op, ast.Mod))):
        return None
    lines = range(node.test.lineno, (node.test.end_lineno or node.test.lineno) + 1)
    return _If(lines, True, {node.body[0].lineno: statement}, loop=test)


def _evenly(statement: _Statement, asked: ast.expr) -> bool:
    """Whether what is asked goes up or down by as much each time that a statement runs: by sums and products."""
    it, change = statement.name, statement.value
    names = [list(_used(ast.walk(e))) for e in (change, asked)]
    if any(n.count(it) != 1 for n in names) or not isinstance(change, ast.BinOp):
        return False
    around = [n for n in ast.walk(asked) if not isinstance(n, ast.Name) and it in _used(ast.walk(n))]
    even = all(isinstance(getattr(n, "op", None), (ast.Add, ast.Sub, ast.Mult, ast.USub)) for n in around)
    side = change.left if isinstance(change.op, ast.Sub) else None
    own = next((e for e in (change.left, change.right) if isinstance(e, ast.Name) and e.id == it), None)
    return even and own is not None and isinstance(change.op, (ast.Add, ast.Sub)) and side in (None, own)


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

    number = isinstance(value, ast.Constant) and type(value.value) is int
    if number or (isinstance(value, ast.BinOp) and _only_asks(value)):
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
    """Return by what a frame asks: "if", one that only pads or crops, "other", another; "largest", max or min.

    None: in a loop, or another way.
    """
    line = frame.f_lineno
    if asks_where_ways_part(frame):
        if any(line in f.test and f.fits and not _computes(f, frame) for f in _ifs(frame.f_code)):
            return "if"
        return "other" if line in _tested_once(frame.f_code) else None
    calls = [
        n for n in nodes_of(frame.f_code) if isinstance(n, ast.Call) and n.lineno <= line <= (n.end_lineno or 0)
    ]
    names = {n.func.id for n in calls if isinstance(n.func, ast.Name)}
    return "largest" if names & {"max", "min"} and "bool" not in names else None


@lru_cache(maxsize=512)
def _tested_once(code: CodeType) -> dict[int, ast.expr]:
    """Return by line the tests of a function's ifs that are not within a loop."""
    again = {id(n) for loop in nodes_of(code) if isinstance(loop, ast.While) for n in ast.walk(loop)}
    tests = [n.test for n in nodes_of(code) if isinstance(n, (ast.If, ast.IfExp)) and id(n) not in again]
    return {line: test for test in tests for line in range(test.lineno, (test.end_lineno or 0) + 1)}


def false_anyway(frame: FrameType) -> bool:
    """Whether what a frame tests is an ``and`` of which an operand that asks for no length is false."""
    test = _tested_once(frame.f_code).get(frame.f_lineno)
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else ()
    plain = (ast.Name, ast.Attribute, ast.Constant, ast.Compare, ast.Is, ast.IsNot, ast.UnaryOp, ast.Not, ast.Load)
    asked = [p for p in parts if all(isinstance(n, plain) for n in ast.walk(p))]
    values = [_evaluated(p, frame, frame.f_locals) for p in asked]
    return any(v is False or v is None for v in values)


def _evaluated(value: ast.expr, frame: FrameType, seen: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(value), "<if>", "eval"), frame.f_globals, seen)


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
    where = Condition(length, formula, relation if found.enters else OPPOSITE[relation])
    guard = Guard(frame, found, where)
    ((_, (kind, name, value, _)), *_) = found.body.items()
    if found.loop is not None and kind == "amount":
        all_rounds = guard.rounds(found.loop, name, value)
        if all_rounds is None:
            return None
        _assign(frame, name, all_rounds)
        return False
    others = guard.beside(found.all_of)
    if others is False:
        return False  # as all of them together are
    if others is None or not guard.can_be_entered():
        return None
    if found.counts:
        guard.assign()
        return not found.enters
    entry.guard = guard
    return found.enters


def _assign(frame: FrameType, name: str, value: object) -> None:
    """Let a variable of a function that runs be this."""
    frame.f_locals[name] = value
    if sys.version_info < (3, 13):  # where f_locals is a copy
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


class Guard:
    """The body of an if that is entered for all streams."""

    def __init__(self, frame: FrameType, found: _If, where: Condition) -> None:
        self._frame = frame
        self._body = dict(found.body)
        self._otherwise = found.otherwise
        self._own = found.own
        self._found = found
        self._where = where
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

    def rounds(self, loop: ast.BinOp, name: str, value: ast.expr) -> Any:
        """Return what a variable is behind a loop that changes it by as much each time; None: not known."""
        seen = dict(self._frame.f_locals)
        of, before = self._evaluated(loop if isinstance(loop.op, ast.Sub) else loop.left, seen), seen.get(name)
        by = self._evaluated(loop.right, seen)
        if not is_length(of) or not (type(before) is int or is_length(before)):
            return None
        seen[name] = self._evaluated(value, seen)
        step = seen[name] - before
        more = self._evaluated(loop if isinstance(loop.op, ast.Sub) else loop.left, seen) - of
        if type(step) is not int or type(more) is not int:
            return None
        if isinstance(loop.op, ast.Sub):
            times: Any = -(of // more) if more > 0 else None
            return before + times * step if is_length(times) and times.compare(0, "ge") is True else None
        if type(by) is not int or by < 1 or step not in (1, -1) or more != step:
            return None
        return before + (-of % by if step == 1 else -(of % by))

    def _missing(self, loop: ast.BinOp, step: object, whole: Any) -> Any:
        """Return by how much a loop pads this length in all, each round by one; None where that is not known."""
        of, by = (self._evaluated(part, self._frame.f_locals) for part in (loop.left, loop.right))
        known = is_length(of) and type(by) is int and by > 0 and step == 1
        return -of % by if known and whole.key() == of.key() else None

    def can_be_entered(self) -> bool:
        """Whether the body does what it seems to, all amounts that it assigns can be settled, and are noted."""
        seen, own = dict(self._frame.f_locals), self._own
        for line, (kind, name, value, used) in self._body.items():
            if kind == "amount":
                given, before = self._evaluated(value, seen), 0 if name in own else seen.get(name, 0)
                if self._otherwise is not None:
                    before = self._evaluated(self._otherwise, seen)
                given_number = type(given) is int and self._found.counts
                if not (given_number or is_length(given)) or not (type(before) is int or is_length(before)):
                    return False
                if self._found.counts and name in own:
                    seen[name] = given
                else:
                    amount = self._where.settled(given - before)
                    if amount is None:
                        return False
                    seen[name] = before + amount
                self._amounts[line] = (given, seen[name])
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
                    isinstance(n, ast.Name) and is_length(seen.get(n.id)) for n in ast.walk(part)
                ):
                    return False
        return True

    def assign(self) -> None:
        """Let the variables of a body that only counts be what they are behind it, in all streams."""
        for line, (_, name, _, _) in self._body.items():
            _assign(self._frame, name, self._amounts[line][1])

    def _may_be_nothing(self, kind: str, value: Any, seen: dict[str, Any]) -> bool:
        """Whether what a pad or crop says outright may be nothing where the condition doesn't hold."""
        if kind == "crop":
            slices = [s for s in ast.walk(value.slice) if isinstance(s, ast.Slice) and (s.lower or s.upper)]
            return len(slices) != 1 or not (slices[0].lower or isinstance(slices[0].upper, ast.Constant))
        given = value.args[1] if len(value.args) > 1 else None
        if not isinstance(given, (ast.Tuple, ast.List)) or not _only_asks(given):
            return True
        pads = [self._evaluated(pad, seen) for pad in given.elts]
        return all(type(p) is int or not is_length(p) or self._where.settled(p) is not None for p in pads)

    def _evaluated(self, value: ast.expr, seen: dict[str, Any]) -> Any:
        return _evaluated(value, self._frame, seen)

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
        given, settled = self._amounts[running[0]]
        if computed.key() != given.key():
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
            out[end] = self._where.settled(out[end], lambda n: whole + n)
        else:
            out[end] = self._missing(self._found.loop, out[end], whole)
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
        settled = self._where.settled(taken, lambda n: whole - n)
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
