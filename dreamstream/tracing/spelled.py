"""Copies in which operators and attributes are calls: ``a + b`` is ``operator.add(a, b)``, by way of `Hooks.of`.

So a tracer can go on behind an operator that fails, as it can behind a call.
"""

import ast
from typing import ClassVar

from .nodes import HOOKS, attribute, hook, placed
from .transform import Statements


class Spelled(Statements):
    """Transforms operators, too."""

    _names: ClassVar[dict[type[ast.AST], str]] = {
        ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.MatMult: "matmul", ast.Div: "truediv",
        ast.FloorDiv: "floordiv", ast.Mod: "mod", ast.Pow: "pow", ast.LShift: "lshift", ast.RShift: "rshift",
        ast.BitOr: "or_", ast.BitXor: "xor", ast.BitAnd: "and_", ast.USub: "neg", ast.UAdd: "pos",
        ast.Invert: "invert", ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt",
        ast.GtE: "ge",
    }  # fmt: skip

    def _called(self, name: str, at: ast.AST, *operands: ast.expr) -> ast.expr:
        function = ast.Attribute(attribute(HOOKS, "operators"), name, ast.Load())
        return placed(ast.Call(hook("of", function), list(operands), []), at)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        return self._called(self._names[type(node.op)], node, self.visit(node.left), self.visit(node.right))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.Not) or isinstance(node.operand, ast.Constant):
            return super().visit_UnaryOp(node)
        return self._called(self._names[type(node.op)], node, self.visit(node.operand))

    def _comparison(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> ast.expr:
        name = self._names.get(type(op))
        return super()._comparison(op, left, right) if name is None else self._called(name, left, left, right)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if not isinstance(node.ctx, ast.Load) or node.attr.startswith("__"):
            return self.generic_visit(node)
        read = ast.Call(
            hook("of", attribute(HOOKS, "read")), [self.visit(node.value), ast.Constant(node.attr)], []
        )
        return placed(read, node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if not isinstance(node.ctx, ast.Load):
            return self.generic_visit(node)
        return self._called("getitem", node, self.visit(node.value), self._index(node.slice))

    def _index(self, index: ast.expr) -> ast.expr:
        """An index as an expression: slices are made, too."""
        if isinstance(index, ast.Tuple):
            return ast.copy_location(ast.Tuple([self._index(i) for i in index.elts], ast.Load()), index)
        if not isinstance(index, ast.Slice):
            return self.visit(index)
        ends = [ast.Constant(None) if e is None else self.visit(e) for e in (index.lower, index.upper, index.step)]
        return placed(hook("piece", *ends), index)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target, value = node.targets[0], self.visit(node.value)
        if len(node.targets) > 1 or not isinstance(target, ast.Subscript):
            node.targets, node.value = [self.visit(t) for t in node.targets], value
            return node
        put = self._called("setitem", node, self.visit(target.value), self._index(target.slice), value)
        return ast.copy_location(ast.Expr(put), node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if not isinstance(node.target, ast.Name):
            return self.generic_visit(node)
        now = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        value = self._called(f"i{self._names[type(node.op)].rstrip('_')}", node, now, self.visit(node.value))
        return ast.copy_location(ast.Assign([node.target], value), node)
