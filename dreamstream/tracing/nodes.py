"""Short ways to write nodes of Python's syntax tree."""

import ast
from collections.abc import Iterable
from typing import TypeVar

#: The variables by which a copy reaches the hooks, and what its source says of its sites. They are no identifiers:
#: no variable of a user's is called so.
HOOKS, SITES = "hooks of the tracer", "sites of the function"

_Node = TypeVar("_Node", bound=ast.AST)


def name(identifier: str) -> ast.Name:
    return ast.Name(identifier, ast.Load())


def assign(identifier: str, value: ast.expr) -> ast.Assign:
    return ast.Assign(targets=[ast.Name(identifier, ast.Store())], value=value)


def walrus(identifier: str, value: ast.expr) -> ast.NamedExpr:
    return ast.NamedExpr(ast.Name(identifier, ast.Store()), value)


def method(of: str, called: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(name(of), called, ast.Load()), list(args), [])


def hook(called: str, *args: ast.expr) -> ast.Call:
    """A call of a hook."""
    return method(HOOKS, called, *args)


def attribute(of: str, called: str) -> ast.Attribute:
    return ast.Attribute(name(of), called, ast.Load())


def when(test: ast.expr, body: list[ast.stmt]) -> ast.If:
    return ast.If(test, body, [])


def is_not(left: ast.expr, value: bool) -> ast.Compare:
    return ast.Compare(left, [ast.IsNot()], [ast.Constant(value)])


def undecided(truth: str) -> ast.expr:
    """Whether a variable that holds a truth is neither True nor False."""
    return ast.BoolOp(ast.And(), [is_not(name(truth), True), is_not(name(truth), False)])


def placed(new: _Node, at: ast.AST) -> _Node:
    """Give new nodes the place of an old one; nodes of the user's within them keep theirs."""
    waiting: list[ast.AST] = [new]
    while waiting:
        node = waiting.pop()
        if "lineno" in node._attributes and hasattr(node, "lineno"):
            continue
        if "lineno" in node._attributes:
            ast.copy_location(node, at)
        waiting.extend(ast.iter_child_nodes(node))
    return new


def put_back(names: Iterable[str], holder: str, called: str) -> list[ast.stmt]:
    """Assign to each name what a method of ``holder`` gives for it, or delete it where that is ``unbound``."""
    statements: list[ast.stmt] = []
    for n in names:
        unbound = ast.Compare(name(n), [ast.Is()], [attribute(HOOKS, "unbound")])
        delete = when(unbound, [ast.Delete([ast.Name(n, ast.Del())])])
        statements += [assign(n, method(holder, called, ast.Constant(n))), delete]
    return statements
