"""Expressions whose control flow goes through hooks: truths, conditional expressions, calls, comprehensions."""

import ast
from collections.abc import Sequence
from typing import TypeVar

from .amounts import only_amounts
from .block import Block, text_of
from .nodes import SITES, hook, is_not, name, placed, walrus
from .site import Site

_Comprehension = TypeVar("_Comprehension", ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


_TRUTHS = (ast.Is, ast.IsNot, ast.In, ast.NotIn)


def _is_truth(node: ast.expr) -> bool:
    """Whether an expression's value is a truth already, be it undecided."""
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1 and isinstance(node.ops[0], _TRUTHS)
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


class Expressions(ast.NodeTransformer):
    """Transforms expressions. Sites that hooks may ask for are collected in ``sites``.

    The function that they stand in is known by its file and qualified name.
    """

    def __init__(self, file: str, function: str) -> None:
        self.sites: list[Site] = []
        self._file, self._function_name = file, function
        self._temporaries = 0
        self._elsewhere: frozenset[str] = frozenset()  # names that the function declares global or nonlocal
        self._texts: dict[ast.expr, str] = {}
        self._unused: set[ast.expr] = set()  # expressions of which nobody uses the value
        self._no_walrus = False  # within the iterables of comprehensions, where Python has none

    def temporary(self, of: str) -> str:
        """A variable that isn't the user's: its name begins with a dot, which leaves it out of what is seen."""
        self._temporaries += 1
        return f".{of}{self._temporaries}"

    def site(
        self, kind: str, node: ast.expr | ast.stmt, condition: ast.expr, block: Block | None = None, **more: object
    ) -> ast.expr:
        """Note a site; the expression that gives it while the copy runs."""
        if block is not None:
            found = (block.names, tuple(block.escapes), tuple(block.effects), tuple(block.augmented))
            more = {**dict(zip(("names", "escapes", "effects", "augmented"), found)), **more}
        parts = (
            [node, *getattr(node, "body", ()), *getattr(node, "orelse", ())] if isinstance(node, ast.stmt) else []
        )
        more["end"] = max([node.end_lineno or node.lineno, *(part.end_lineno or 0 for part in parts)])
        where = (kind, self._file, node.lineno, self._function_name, self._text(condition))
        self.sites.append(Site(*where, **more))  # type: ignore[arg-type]
        return ast.Subscript(name(SITES), ast.Constant(len(self.sites) - 1), ast.Load())

    def _text(self, condition: ast.expr) -> str:
        if condition not in self._texts:  # which has a site for each operand
            self._texts[condition] = text_of(condition)
        return self._texts[condition]

    # ------------------------------------------------------------------------------------------ truths
    def truth(self, node: ast.expr) -> ast.expr:
        """An expression for a condition's truth: True, False, or an undecided object."""
        return placed(self._truth(node), node)

    def _truth(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return hook("not_", self.truth(node.operand))
        if isinstance(node, ast.Constant):
            return ast.Constant(bool(node.value))
        if not isinstance(node, ast.BoolOp) or self._no_walrus:
            value = self.visit(node)
            return value if _is_truth(node) else self._asked(value, self.temporary("v"))
        is_or = isinstance(node.op, ast.Or)
        sites = [self._operand_site(node, i) for i in range(1, len(node.values))]
        whole = self.truth(node.values[-1])
        for value, site in zip(reversed(node.values[:-1]), reversed(sites)):
            w = self.temporary("w")
            further = self._further(w, self.truth(value), is_or, site)
            both = hook("tor" if is_or else "tand", name(w), whole)
            whole = placed(ast.IfExp(further, both, ast.Constant(is_or)), value)
        return whole

    def _asked(self, value: ast.expr, v: str) -> ast.expr:
        """The truth of a value, which the variable ``v`` keeps. A plain one is asked by the user's own line."""
        if self._no_walrus:
            return hook("truth", value)
        w = self.temporary("w")
        told = ast.Compare(walrus(w, hook("test", walrus(v, value))), [ast.IsNot()], [ast.Constant(None)])
        return ast.IfExp(told, name(w), ast.UnaryOp(ast.Not(), ast.UnaryOp(ast.Not(), name(v))))

    @staticmethod
    def _further(w: str, truth: ast.expr, unless: bool, site: ast.expr) -> ast.expr:
        """Whether to go on with a truth ``w``: unless it is ``unless``. Where it is undecided, a hook is asked."""
        decided = ast.Compare(name(w), [ast.Is()], [ast.Constant(not unless)])
        entered = is_not(walrus(w, hook("sides", name(w), site)), unless)
        return ast.BoolOp(ast.And(), [is_not(walrus(w, truth), unless), ast.BoolOp(ast.Or(), [decided, entered])])

    def _operand_site(self, node: ast.BoolOp, index: int) -> ast.expr:
        block = Block(self._sides(node, node.values[index:]), self._elsewhere)
        return self.site("or" if isinstance(node.op, ast.Or) else "and", node, node, block)

    def _sides(self, node: ast.expr, sides: list[ast.expr]) -> Sequence[ast.expr | ast.stmt]:
        """What a condition decides about: statements, where the value of the whole isn't used."""
        if node not in self._unused:
            return sides
        self._unused.update(sides)
        return [ast.copy_location(ast.Expr(side), side) for side in sides]

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        if self._no_walrus:
            return self.generic_visit(node)
        is_or = isinstance(node.op, ast.Or)
        sites = [self._operand_site(node, i) for i in range(1, len(node.values))]
        truths = list(map(_is_truth, node.values))
        return self._joined(node, list(map(self.visit, node.values)), truths, sites, is_or)

    def _joined(
        self, node: ast.expr, values: list[ast.expr], truths: list[bool], sites: list[ast.expr], is_or: bool
    ) -> ast.expr:
        """The operands of ``and`` or ``or``: the last one is evaluated unless those before it decide."""
        whole = values[-1]
        for value, is_truth, site in zip(reversed(values[:-1]), reversed(truths[:-1]), reversed(sites)):
            w = self.temporary("w")
            v = w if is_truth else self.temporary("v")
            asked = value if is_truth else self._asked(value, v)
            further = self._further(w, asked, is_or, site)
            joined = hook("join", name(w), name(v), whole, ast.Constant(is_or))
            whole = placed(ast.IfExp(further, joined, name(v)), node)
        return whole

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        return self.truth(node) if isinstance(node.op, ast.Not) else self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """``a if c else b``: where c is undecided, both are evaluated, with a hook before each."""
        if self._no_walrus:
            return self.generic_visit(node)
        w = self.temporary("w")
        sides = self._sides(node, [node.body, node.orelse])
        plain = only_amounts([ast.Assign([], side) for side in (node.body, node.orelse)])
        site = self.site("conditional", node, node.test, Block(sides, self._elsewhere), plain=plain)
        first = self._further(w, self.truth(node.test), False, site)
        fails = ast.BoolOp(ast.And(), [is_not(name(w), False), hook("other_side", name(w))])
        second = ast.BoolOp(ast.Or(), [ast.Compare(name(w), [ast.Is()], [ast.Constant(True)]), fails])
        then = ast.IfExp(first, self.visit(node.body), ast.Constant(None))
        otherwise = ast.IfExp(second, ast.Constant(None), self.visit(node.orelse))
        return placed(hook("pick", then, otherwise, name(w)), node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if self._no_walrus and len(node.ops) > 1:
            return self.generic_visit(node)
        rest = node.comparators
        sites = [self.site("and", node, node, Block(rest[i:], self._elsewhere)) for i in range(1, len(rest))]
        values = [self.visit(v) for v in (node.left, *rest)]
        kept = [self.temporary("c") for _ in rest[1:]]  # a < b < c: b is evaluated once
        left = [values[0], *map(name, kept)]
        right = [*map(walrus, kept, values[1:-1]), values[-1]]
        pairs = [placed(self._comparison(op, a, b), node) for op, a, b in zip(node.ops, left, right)]
        truths = [isinstance(op, _TRUTHS) for op in node.ops]
        return self._joined(node, pairs, truths, sites, False)

    def _comparison(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> ast.expr:
        if not isinstance(op, (ast.In, ast.NotIn)):
            return ast.Compare(left, [op], [right])
        if self._no_walrus:
            held: ast.expr = hook("contains", left, right)
        else:
            a, b = self.temporary("a"), self.temporary("b")
            symbolic = hook("holds", walrus(a, left), walrus(b, right))
            held = ast.IfExp(symbolic, hook("held", name(a), name(b)), ast.Compare(name(a), [ast.In()], [name(b)]))
        return held if isinstance(op, ast.In) else hook("not_", held)

    # ------------------------------------------------------------------------------------------ calls, loops
    def visit_Call(self, node: ast.Call) -> ast.expr:
        """``f(…)``: f is looked up by a hook, and called here."""
        self.generic_visit(node)
        node.func = placed(hook("of", node.func), node.func)
        return node

    def _comprehension(self, node: _Comprehension) -> ast.expr:
        single = isinstance(node, ast.ListComp) and len(node.generators) == 1 and not node.generators[0].ifs
        no_walrus = self._no_walrus
        for g in node.generators:
            site = self.site("comprehension", g.iter, g.iter, Block([node], self._elsewhere), single=single)
            self._no_walrus = True
            over = self.visit(g.iter)
            self._no_walrus = no_walrus
            g.iter = over if g.is_async else placed(hook("iterate", over, site, ast.Constant(None)), over)
            g.ifs = [self.guard(test) for test in g.ifs]
        for field in ("elt", "key", "value"):
            if hasattr(node, field):
                setattr(node, field, self.visit(getattr(node, field)))
        return placed(hook("gathered", node), node) if single else node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def guard(self, test: ast.expr) -> ast.expr:
        """A condition where only a decided truth will do."""
        site = self.site("guard", test, test)
        return placed(hook("sure", self.truth(test), site), test)
