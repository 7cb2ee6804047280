"""What is written in another way before a function is transformed: returns within ifs, declarations."""

import ast

from .block import Block, own
from .nodes import name, placed


class Returns:
    """``if c: …; return a`` before ``…; return b`` becomes an if with an else that assigns, and one return.

    So an if that streams answer differently has no escape. The values are variables like the user's: a tracer sees
    them and merges them.
    """

    def __init__(self) -> None:
        self._count = 0

    def lowered(self, block: list[ast.stmt]) -> list[ast.stmt]:
        for statement in block:
            self._within(statement)
        return self._joined(block)

    def _joined(self, block: list[ast.stmt]) -> list[ast.stmt]:
        """What follows an if of which one branch returns belongs to the other branch."""
        for i in range(len(block) - 1, -1, -1):
            statement, rest = block[i], block[i + 1 :]
            if not isinstance(statement, ast.If):
                continue
            then, otherwise = statement.body, statement.orelse
            if _returns(then):
                otherwise = self._joined([*otherwise, *rest]) if otherwise and rest else otherwise or rest
            elif _returns(otherwise):
                then = self._joined([*then, *rest])
            if _returns(then) and _returns(otherwise):
                block = [*block[:i], *self._one_return(statement, then, otherwise)]
        return block

    def _one_return(self, statement: ast.If, then: list[ast.stmt], otherwise: list[ast.stmt]) -> list[ast.stmt]:
        self._count += 1
        value = f"returned value {self._count}"
        joined = ast.If(statement.test, self._assigned(then, value), self._assigned(otherwise, value))
        return [ast.copy_location(joined, statement), placed(ast.Return(name(value)), statement.test)]

    @staticmethod
    def _assigned(block: list[ast.stmt], value: str) -> list[ast.stmt]:
        """A block that ends by assigning what it would return."""
        end = block[-1]
        assert isinstance(end, ast.Return) and end.value is not None
        return [*block[:-1], placed(ast.Assign(targets=[ast.Name(value, ast.Store())], value=end.value), end)]

    def _within(self, node: ast.AST) -> None:
        """Lower the blocks of a statement; those of functions within it are lowered as they are reached."""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.expr)):
            return
        for field, old in ast.iter_fields(node):
            if isinstance(old, list) and old and isinstance(old[0], ast.stmt):
                setattr(node, field, self.lowered(old))
            elif isinstance(old, list):
                for item in old:
                    if isinstance(item, ast.AST):
                        self._within(item)


def _returns(block: list[ast.stmt]) -> bool:
    """Whether a block ends with the return of a value, and leaves nowhere else."""
    if not block or not isinstance(block[-1], ast.Return) or block[-1].value is None:
        return False
    inner = (n for s in block[:-1] for n in own(s))
    return not Block(block[:-1]).escapes and not any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in inner)


class Declarations(ast.NodeTransformer):
    """Takes ``global`` and ``nonlocal`` out of a function's body; they are to stand at its head."""

    def __init__(self) -> None:
        self.found: list[ast.stmt] = []

    @property
    def names(self) -> frozenset[str]:
        return frozenset(n for d in self.found if isinstance(d, (ast.Global, ast.Nonlocal)) for n in d.names)

    def _declaration(self, node: ast.Global | ast.Nonlocal) -> None:
        self.found.append(node)

    visit_Global = visit_Nonlocal = _declaration

    def _scope(self, node: ast.AST) -> ast.AST:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _scope

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if getattr(node, "body", None) == []:
            node.body = [ast.copy_location(ast.Pass(), getattr(node, "pattern", node))]  # type: ignore[attr-defined]
        return node
