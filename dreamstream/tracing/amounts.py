"""Blocks and loops that only compute amounts: numbers, and by how much streams are padded and cropped."""

import ast
from collections.abc import Iterable

#: Functions and methods that compute numbers, pad, or make what a stream is padded with.
_AMOUNTS = frozenset([
    "abs", "cat", "ceil", "concat", "cuda", "dim", "float", "floor", "int", "len", "max", "min", "new_zeros",
    "pad", "round", "size", "sqrt", "to", "type", "type_as", "zeros", "zeros_like",
])  # fmt: skip


def only_amounts(block: Iterable[ast.stmt]) -> bool:
    """Whether statements only assign, and call nothing but for amounts, judging by names."""
    for statement in block:
        if isinstance(statement, ast.If):
            if not only_amounts([*statement.body, *statement.orelse]):
                return False
        elif not isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Pass)):
            return False
        called = (n.func for n in ast.walk(statement) if isinstance(n, ast.Call))
        if any(getattr(f, "attr", getattr(f, "id", "")) not in _AMOUNTS for f in called):
            return False
    return True


def even_names(loop: ast.While, assigned: Iterable[str]) -> tuple[str, ...]:
    """Return the names that a loop moves by as much in every round; none where its test doesn't follow evenly.

    ``while (n + more) % 8: more += 1`` moves evenly; ``while n < size: n *= 2`` and ``while n * n < size: n += 1``
    don't.
    """
    changed, moved = set(assigned), dict[str, bool]()
    for statement in loop.body:
        target, value = _assignment(statement)
        if target is not None:
            moved[target] = target not in moved and _moves(target, value, changed)
    even = {name for name, is_even in moved.items() if is_even}
    return tuple(sorted(even)) if _follows(loop.test, even) else ()


def _assignment(statement: ast.stmt) -> tuple[str | None, ast.expr | None]:
    """Return the name that a statement assigns, and the value; None where it assigns no name alone."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        before = ast.Name(statement.target.id, ast.Load())
        return statement.target.id, ast.BinOp(before, statement.op, statement.value)
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return None, None
    target, *others = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return (target.id, statement.value) if not others and isinstance(target, ast.Name) else (None, None)


def _moves(name: str, value: ast.expr | None, changed: set[str]) -> bool:
    """Whether a value is a name's, plus or minus what the loop doesn't change."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, (ast.Add, ast.Sub)):
        return False
    for own, other in ((value.left, value.right), (value.right, value.left)):
        if isinstance(own, ast.Name) and own.id == name and not _names(other) & changed:
            return own is value.left or isinstance(value.op, ast.Add)
    return False


def _follows(value: ast.expr, moved: set[str]) -> bool:
    """Whether a value moves by as much in every round as names do: by sums, products and remainders of them."""
    if not _names(value) & moved or isinstance(value, ast.Name):
        return True
    if isinstance(value, ast.Compare):
        return len(value.ops) == 1 and all(_follows(v, moved) for v in (value.left, *value.comparators))
    if isinstance(value, ast.UnaryOp):
        return isinstance(value.op, ast.USub) and _follows(value.operand, moved)
    if not isinstance(value, ast.BinOp):
        return False
    sides = [side for side in (value.left, value.right) if _names(side) & moved]
    if isinstance(value.op, ast.Mod):
        return sides == [value.left] and _follows(value.left, moved)
    if isinstance(value.op, ast.Mult) and len(sides) > 1:
        return False
    return isinstance(value.op, (ast.Add, ast.Sub, ast.Mult)) and all(_follows(side, moved) for side in sides)


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
