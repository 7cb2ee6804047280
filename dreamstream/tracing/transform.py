"""A function's syntax tree becomes one in which control flow and calls go through hooks.

All nodes that are put in carry the line of what they serve, so that tracebacks, warnings, debuggers and coverage
see the user's lines. Nothing becomes a function that was none: names stay the user's local variables.
"""

import ast
from typing import NamedTuple, TypeVar

from .amounts import even_names, only_amounts
from .block import Block, always_raises, indexes, live_at_head, own, parameters, read_behind, reads
from .expressions import Expressions
from .lowering import Declarations, Returns
from .nodes import assign, attribute, hook, is_not, method, name, placed, put_back, undecided, walrus, when
from .site import Site

_LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_Function = TypeVar("_Function", bound=ast.FunctionDef | ast.Lambda)


def transform(
    node: ast.FunctionDef | ast.Lambda, file: str, function: str, kind: "type[Statements] | None" = None
) -> tuple[Site, ...]:
    """Transform a function's node in place, by a class of `Statements`; the sites are what its hooks are given."""
    statements = (kind or Statements)(file, function)
    ast.fix_missing_locations(statements.function(node))
    return tuple(statements.sites)


class _LoopNames(NamedTuple):
    """Which names a loop over frames has to look at."""

    assigned: tuple[str, ...]
    live: tuple[str, ...]
    later: tuple[str, ...]
    held: tuple[str, ...]


class Statements(Expressions):
    """Transforms statements, and functions with what is in them."""

    def __init__(self, file: str, function: str) -> None:
        super().__init__(file, function)
        self._loop_names: dict[ast.For, _LoopNames] = {}
        self._whiles = 0  # around what is transformed

    # ------------------------------------------------------------------------------------------------- functions
    def function(self, node: _Function) -> _Function:
        """Transform a function, which itself or whose function has been asked for."""
        node.args.defaults = [self.visit(d) for d in node.args.defaults]
        node.args.kw_defaults = [d and self.visit(d) for d in node.args.kw_defaults]
        if isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
            return node
        around = self._elsewhere, self._loop_names, self._whiles
        self._whiles = 0
        doc = 1 if ast.get_docstring(node, clean=False) is not None else 0
        declarations = Declarations()
        visited = [declarations.visit(s) for s in Returns().lowered(node.body[doc:])]
        body = [s for s in visited if s is not None]
        self._elsewhere = declarations.names
        self._loop_names = _loop_names(node, body, self._elsewhere)
        node.body = [*node.body[:doc], *declarations.found, *self.block(body)]
        self._elsewhere, self._loop_names, self._whiles = around
        return node

    visit_FunctionDef = visit_Lambda = function

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AsyncFunctionDef:
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        """A class within a function: its methods are transformed; what runs in its body is left alone."""
        node.body = [self.function(s) if isinstance(s, ast.FunctionDef) else s for s in node.body]
        return node

    # ------------------------------------------------------------------------------------------------- statements
    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for statement in statements:
            new = self.visit(statement)
            out += new if isinstance(new, list) else [new]
        return out

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field, old in ast.iter_fields(node):
            if isinstance(old, list) and old and isinstance(old[0], ast.stmt):
                setattr(node, field, self.block(old))
            elif isinstance(old, list):
                setattr(node, field, [self.visit(v) if isinstance(v, ast.AST) else v for v in old])
            elif isinstance(old, ast.AST):
                setattr(node, field, self.visit(old))
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.target = self.visit(node.target)
        node.value = node.value and self.visit(node.value)
        return node

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        """Where the condition is undecided, both branches run, with names put back between them."""
        done = Block([ast.If(ast.Constant(True), node.body, node.orelse)], self._elsewhere)
        raises = {"then_raises": always_raises(node.body), "else_raises": always_raises(node.orelse)}
        more = {"in_while": self._whiles > 0, "plain": only_amounts([*node.body, *node.orelse])}
        site = self.site("if", node, node.test, done, **raises, **more)
        names = () if done.escapes and not any(raises.values()) else done.names
        w = self.temporary("w")
        ask = assign(w, hook("ways", name(w), site, hook("seen")))
        out: list[ast.stmt] = [assign(w, self.truth(node.test)), when(undecided(w), [ask])]
        body, orelse = self.block(node.body), self.block(node.orelse)
        if not isinstance(node.body[-1], _LEAVES):
            body = [*body, when(is_not(name(w), True), [ast.Expr(method(w, "then", hook("seen")))])]
        out.append(when(is_not(name(w), False), body))
        back = put_back(names, w, "back")
        otherwise = [*([when(is_not(name(w), False), back)] if back else []), *orelse]
        if otherwise:
            out.append(when(is_not(name(w), True), otherwise))
        merge = [ast.Expr(method(w, "merge", hook("seen"))), *put_back(names, w, "merged")]
        out.append(when(undecided(w), merge))
        return [placed(s, node.test) for s in out]

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        """Where the condition is undecided, a hook says how often the body runs, and what the names are then."""
        if isinstance(node.test, ast.Constant):  # `while True` asks nothing
            self._whiles += 1
            node.body, node.orelse = self.block(node.body), self.block(node.orelse)
            self._whiles -= 1
            return [node]
        done = Block(node.body, self._elsewhere)
        site = self.site(
            "while",
            node,
            node.test,
            done,
            even=even_names(node, done.names),
            indexes=indexes(node.body, done.names),
        )
        w, loop = self.temporary("w"), self.temporary("l")
        holds = ast.Compare(walrus(w, self.truth(node.test)), [ast.Is()], [ast.Constant(True)])
        fails = ast.Compare(name(w), [ast.Is()], [ast.Constant(False)])
        ask = hook("rounds", name(loop), name(w), site, hook("seen"))
        test = placed(ast.IfExp(ast.BoolOp(ast.Or(), [holds, fails]), name(w), ask), node.test)
        self._whiles += 1
        body = self.block(node.body)
        self._whiles -= 1
        new = ast.copy_location(ast.While(test, body, self.block(node.orelse)), node)
        out: list[ast.stmt] = [assign(loop, hook("loop", site)), new]
        if done.names and not done.escapes:
            out.append(when(attribute(loop, "solved"), put_back(done.names, loop, "after")))
        return [placed(s, node.test) for s in out]

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        """A hook may give another iterator, over kinds of frames: names are then carried from round to round."""
        found = self._loop_names[node]
        done = Block(node.body, self._elsewhere)
        more = {"names": found.assigned, "live": found.live, "later": found.later, "held": found.held}
        site = self.site("for", node, node.iter, done, **more)
        names = tuple(dict.fromkeys((*found.assigned, *found.held)))
        loop = self.temporary("l")
        over = placed(hook("iterate", self.visit(node.iter), site, name(loop)), node.iter)
        body, orelse = self.block(node.body), self.block(node.orelse)
        if names:
            targets = Block([node.target]).names
            begin = put_back([n for n in names if n not in targets], loop, "carried")
            end = put_back(names, loop, "after")
            body = [placed(when(attribute(loop, "scans"), begin), node.iter), *body]
            orelse = [placed(when(attribute(loop, "scans"), end), node.iter), *orelse]
        new = ast.copy_location(ast.For(self.visit(node.target), over, body, orelse), node)
        return [placed(assign(loop, hook("loop", site)), node.iter), new]

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        self._unused.add(node.value)
        node.value = self.visit(node.value)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        site = self.site("assert", node, node.test)
        node.test = placed(hook("check", self.truth(node.test), site), node.test)
        node.msg = node.msg and self.visit(node.msg)
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.match_case:
        node.guard = node.guard and self.guard(node.guard)
        node.body = self.block(node.body)
        return node


def _loop_names(
    function: ast.FunctionDef, body: list[ast.stmt], elsewhere: frozenset[str]
) -> dict[ast.For, _LoopNames]:
    """Say of each loop which names its body reads first, and which are read after it."""
    loops = [n for s in body for n in own(s) if isinstance(n, ast.For)]
    if not loops:
        return {}
    local = {a.arg for a in parameters(function.args)} | set(Block(body, elsewhere).names)
    read = _reads_by_line(body)
    found: dict[ast.For, _LoopNames] = {}
    for loop in loops:
        outer = [
            o
            for s in body
            for o in own(s)
            if isinstance(o, (ast.For, ast.While)) and o is not loop and _holds(o, loop)
        ]
        inside = {id(n) for n in ast.walk(loop)}
        after = {
            n for n, line, node in read if id(node) not in inside and (outer or line is None or line > loop.lineno)
        }
        if not outer and (behind := read_behind(body, loop)) is not None:
            after &= {*behind, *(n for n, line, _ in read if line is None)}
        assigned = Block(loop.body, elsewhere).names
        live = tuple(n for n in live_at_head(loop.body, loop.target, sorted(after)) if n in local)
        used = {*assigned, *(n for s in loop.body for n in reads(s))}
        looked_at = tuple(n for n in assigned if n in local and (n in live or n in after))
        held = tuple(n for n in live if n not in assigned)
        found[loop] = _LoopNames(looked_at, live, tuple(sorted(after & used & local)), held)
    return found


def _reads_by_line(body: list[ast.stmt]) -> list[tuple[str, int | None, ast.AST]]:
    """Names that are read, with their lines: None in functions of their own, which may be called at any time."""
    read: list[tuple[str, int | None, ast.AST]] = []
    for statement in body:
        for node in own(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                read.append((node.id, node.lineno, node))
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                read += [(n, None, node) for n in reads(node)]
    return read


def _holds(outer: ast.AST, inner: ast.AST) -> bool:
    return any(n is inner for n in ast.walk(outer))
