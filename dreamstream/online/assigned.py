"""Where functions assign an attribute, and whether they read it before: it then has what an earlier call left."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable
from types import FunctionType
from typing import Any, NamedTuple

from ..source_line import place

#: Methods by which a container takes values.
_TAKING = frozenset({"add", "append", "appendleft", "extend", "insert", "setdefault", "update"})


class Assignment(NamedTuple):
    """Where an attribute is assigned, as messages have it, and how the same function reads it."""

    line: str
    read_before: bool  #: Whether it does so before.
    used: bool  #: Whether something may be computed of it, beside its own next value, comparisons and texts.


def assignment_of(name: str, functions: Iterable[FunctionType], *, is_variable: bool = False) -> Assignment | None:
    """Return where functions assign an attribute, or a variable; where one reads it before, there."""
    found = None
    for function in functions:
        uses = _Uses(name, ast.Name if is_variable else ast.Attribute)
        try:
            lines, first = inspect.getsourcelines(function)
            uses.visit(tree := ast.parse(textwrap.dedent("".join(lines))))
        except (OSError, SyntaxError, TypeError):
            continue
        if uses.assigned:
            line = first + uses.assigned - 1
            where = place(function.__code__, line, function.__globals__)
            found = Assignment(where, uses.read_before, uses.computes(tree))
            if uses.read_before:
                return found
    return found


def _takes(node: ast.Expr) -> bool:
    """Whether a statement is a method's call by which a container takes a value."""
    return getattr(getattr(node.value, "func", None), "attr", "") in _TAKING


class _Uses(ast.NodeVisitor):
    """Walks over a function as it is evaluated."""

    def __init__(self, name: str, kind: type[ast.expr]) -> None:
        self.name, self.kind, self.assigned, self.read_before = name, kind, 0, False

    def _is(self, node: ast.AST) -> bool:
        return isinstance(node, self.kind) and getattr(node, "attr", getattr(node, "id", "")) == self.name

    def computes(self, tree: ast.AST) -> bool:
        """Whether something is computed of it, beside its next value, conditions, texts and what is printed."""
        glances: list[ast.AST] = []
        for node in ast.walk(tree):
            if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
                glances.append(node.test)
            elif isinstance(node, ast.Assign):
                glances += [node.value] if any(map(self._is, node.targets)) else []
            elif isinstance(node, ast.AugAssign):
                glances.append(node.target)
            elif isinstance(node, (ast.Compare, ast.JoinedStr)) or (
                isinstance(node, ast.Expr) and not _takes(node)
            ):
                glances.append(node)
        glanced = {id(n) for each in glances for n in ast.walk(each)}
        found = (n for n in ast.walk(tree) if self._is(n) and not isinstance(getattr(n, "ctx", None), ast.Store))
        return any(id(n) not in glanced for n in found)

    def _assigns(self, node: Any) -> None:
        self.assigned = self.assigned or node.lineno

    def _reads(self) -> None:
        self.read_before = self.read_before or not self.assigned

    def visit_Attribute(self, node: Any) -> None:
        self.generic_visit(node)
        if self._is(node):
            self._assigns(node) if isinstance(node.ctx, ast.Store) else self._reads()

    visit_Name = visit_Attribute

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if self._is(node.value) and isinstance(node.ctx, ast.Store):
            self.visit(node.slice)
            self._assigns(node)
        else:
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        inner = node.target.value if isinstance(node.target, ast.Subscript) else node.target
        if self._is(inner):
            self._reads()
        self.visit(node.value)
        self.visit(node.target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self.visit(node.target)

    def visit_Call(self, node: ast.Call) -> None:
        of, called = node.func, getattr(node.func, "id", "")
        named = len(node.args) > 1 and isinstance(node.args[1], ast.Constant) and node.args[1].value == self.name
        if isinstance(of, ast.Attribute) and of.attr in _TAKING and self._is(of.value):
            for given in (*node.args, *node.keywords):
                self.visit(given)
            self._assigns(node)
            return
        self.generic_visit(node)
        if named and called == "setattr":
            self._assigns(node)
        elif named and called in ("getattr", "hasattr"):
            self._reads()
