"""What a block does, read off the source: which names it assigns, how it leaves, what stays changed."""

import ast
from collections.abc import Iterable, Iterator

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

#: Methods of lists, dictionaries, sets, generators and modules that change them; but for `add` and `sort`, which
#: tensors have, too: where those change something, nobody uses their value.
# fmt: off
CHANGING = frozenset([
    "append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "popitem", "remove", "clear",
    "reverse", "rotate", "update", "setdefault", "discard", "difference_update",
    "intersection_update", "symmetric_difference_update", "__setitem__", "__delitem__", "__setattr__",
    "__delattr__", "__next__", "send", "throw", "write", "register_buffer", "register_parameter", "__iadd__",
    "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__", "__imatmul__", "__iand__",
    "__ior__", "__ixor__", "__ilshift__", "__irshift__",
])
# fmt: on
#: Functions and methods whose tensors nobody else holds: what is written into them can be left with them.
_MAKING = frozenset(["zeros", "ones", "full", "empty", "zeros_like", "ones_like", "full_like", "empty_like"])
_CHANGING_FUNCTIONS = frozenset(["setattr", "delattr", "next", "exec"])


def text_of(node: ast.expr | ast.stmt) -> str:
    """Return what is written, for messages."""
    try:
        return ast.unparse(node)
    except ValueError:  # some nested f-strings, until Python 3.11
        return "…"


def own(node: ast.AST) -> Iterator[ast.AST]:
    """Walk a node in order, without what is in functions and classes of its own."""
    yield node
    if not isinstance(node, _SCOPES):
        for child in ast.iter_child_nodes(node):
            yield from own(child)


def indexes(body: Iterable[ast.stmt], names: Iterable[str]) -> bool:
    """Whether statements take elements at one of the names, ``x[:, t]`` or ``x[t - 1]``."""
    found = (n.slice for s in body for n in own(s) if isinstance(n, ast.Subscript))
    parts = (p for index in found for p in (index.elts if isinstance(index, ast.Tuple) else [index]))
    read = (n for p in parts if not isinstance(p, ast.Slice) for n in own(p))
    return any(isinstance(n, ast.Name) and n.id in names for n in read)


class Block(ast.NodeVisitor):
    """What the statements or expressions of a block do.

    `elsewhere` are the names that the function declares to be global or another function's: to assign them is an
    effect.
    """

    def __init__(self, nodes: Iterable[ast.AST], elsewhere: frozenset[str] = frozenset()) -> None:
        self._elsewhere, self._loops, self._made = elsewhere, 0, set[str]()
        self._names: dict[str, None] = {}
        self.escapes: list[tuple[str, int]] = []
        self.effects: list[tuple[str, int]] = []
        self.augmented: list[tuple[str, int]] = []
        for node in nodes:
            self.visit(node)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._names)

    def _assign(self, name: str | None, line: int) -> None:
        if name is None or name[:1] == ".":
            return
        if name in self._elsewhere:
            self.effects.append((f"{name} = …", line))
        else:
            self._names[name] = None
            self._made.discard(name)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        if isinstance(node.value, ast.Call) and called_name(node.value).removeprefix("new_") in _MAKING:
            self._made |= {t.id for t in node.targets if isinstance(t, ast.Name)}

    def visit_If(self, node: ast.If) -> None:
        """What one branch makes, the other doesn't have."""
        self.visit(node.test)
        before, found = self._made.copy(), []
        for block in (node.body, node.orelse):
            self._made = before.copy()
            for statement in block:
                self.visit(statement)
            found.append(self._made)
        self._made = found[0] & found[1]

    def _effect(self, node: ast.expr | ast.stmt) -> None:
        text = text_of(node)
        effect = (text if len(text) <= 60 else text[:59] + "…", node.lineno)
        if effect not in self.effects:
            self.effects.append(effect)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._assign(node.id, node.lineno)
        elif isinstance(node.ctx, ast.Del):
            self.escapes.append(("del", node.lineno))

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._assign(node.name, node.lineno)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _definition

    def visit_Lambda(self, node: ast.Lambda) -> None:
        pass

    def _comprehension(self, node: ast.expr) -> None:
        """Only ``:=`` assigns a variable of the function's."""
        for inner in own(node):
            if isinstance(inner, ast.NamedExpr):
                self._assign(inner.target.id, inner.lineno)
            elif isinstance(inner, ast.Call):
                self._call(inner)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self._assign((alias.asname or alias.name).partition(".")[0], node.lineno)

    visit_Import = visit_ImportFrom = _import

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self._assign(node.name, node.lineno)
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        self._assign(node.name, node.lineno)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self._assign(node.rest, node.lineno)
        self.generic_visit(node)

    def _loop(self, node: ast.stmt) -> None:
        self._loops += 1
        self.generic_visit(node)
        self._loops -= 1

    visit_For = visit_While = _loop

    def _escape(self, node: ast.expr | ast.stmt) -> None:
        self.escapes.append((type(node).__name__.lower().replace("yieldfrom", "yield"), node.lineno))
        self.generic_visit(node)

    visit_Return = visit_Yield = visit_YieldFrom = visit_Await = _escape

    def _leave_loop(self, node: ast.stmt) -> None:
        if not self._loops:
            self._escape(node)

    visit_Break = visit_Continue = _leave_loop

    def _part(self, node: ast.Attribute | ast.Subscript) -> None:
        own = isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in self._made
        if not own and not isinstance(node.ctx, ast.Load):
            self._effect(node)
        self.generic_visit(node)

    visit_Attribute = visit_Subscript = _part

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.augmented.append((node.target.id, node.lineno))
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, (ast.Constant, ast.Yield, ast.YieldFrom)):
            self._effect(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self._call(node)
        self.generic_visit(node)

    def _call(self, node: ast.Call) -> None:
        if changes(node) and not any(line == node.lineno and text_of(node)[:40] in e for e, line in self.effects):
            self._effect(node)


def called_name(node: ast.Call) -> str:
    """Return the name of the function or method that is called; "" where it has none."""
    called = node.func
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def changes(node: ast.Call) -> bool:
    """Whether a call changes what it is given, judging by names: ``x.add_(1)``, ``ys.append(y)``, ``out=y``."""
    called, name = node.func, called_name(node)
    if name.endswith("_") and not name.endswith("__"):
        return True
    if name in (CHANGING if isinstance(called, ast.Attribute) else _CHANGING_FUNCTIONS):
        return True
    given = {k.arg: k.value for k in node.keywords}
    out, in_place = given.get("out", ast.Constant(None)), given.get("inplace", ast.Constant(False))
    return not (isinstance(out, ast.Constant) and out.value is None) or (
        not (isinstance(in_place, ast.Constant) and in_place.value is False)
    )


def always_raises(block: list[ast.stmt]) -> bool:
    """Whether a block ends in an exception, whatever happens in it."""
    for statement in block:
        if isinstance(statement, ast.Raise):
            return True
        if (
            isinstance(statement, ast.Assert)
            and isinstance(statement.test, ast.Constant)
            and not statement.test.value
        ):
            return True
        if isinstance(statement, (ast.Return, ast.Break, ast.Continue, ast.Try)):
            return False
        if isinstance(statement, ast.If) and always_raises(statement.body) and always_raises(statement.orelse):
            return True
        if isinstance(statement, ast.With) and always_raises(statement.body):
            return True
        if any(
            isinstance(n, (ast.Return, ast.Yield, ast.YieldFrom, ast.Break, ast.Continue)) for n in own(statement)
        ):
            return False
    return False


def reads(node: ast.AST, hidden: frozenset[str] = frozenset()) -> Iterator[str]:
    """Names of the function's that a node reads; also what functions and comprehensions within it read of them."""
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load) and node.id not in hidden:
            yield node.id
        return
    if isinstance(node, _COMPREHENSIONS):
        targets = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        yield from reads(node.generators[0].iter, hidden)
        hidden = hidden | targets
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        body = node.body if isinstance(node.body, list) else [node.body]
        local = {a.arg for a in parameters(node.args)} | {n for s in body for n in stores(s)}
        declared = {n for s in body for d in own(s) if isinstance(d, ast.Nonlocal) for n in d.names}
        for child in ast.iter_child_nodes(node):
            yield from reads(child, hidden | (local - declared) if child in body else hidden)
        return
    for child in ast.iter_child_nodes(node):
        yield from reads(child, hidden)


def stores(node: ast.AST) -> tuple[str, ...]:
    """Names of the function's that a node assigns."""
    return Block([node]).names


def parameters(args: ast.arguments) -> list[ast.arg]:
    several = (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg)
    return [a for a in several if a is not None]


class _Head:
    """Walks a loop's body in the order in which it runs; ``live`` is read before it has surely been assigned."""

    def __init__(self, assigned: Iterable[str]) -> None:
        self.live: dict[str, None] = {}
        self.done = set(assigned)

    def use(self, *nodes: ast.AST | None) -> None:
        for node in nodes:
            if node is not None:
                self.live.update((n, None) for n in reads(node) if n not in self.done)

    def store(self, *nodes: ast.AST | None) -> None:
        self.done.update(n for node in nodes if node is not None for n in stores(node))

    def branches(self, *blocks: list[ast.stmt], all_of: bool = True) -> None:
        """Blocks of which one runs, or perhaps none: what all of them assign, of those that go on, is assigned."""
        before, ends = set(self.done), []
        for block in blocks:
            self.done = set(before)
            self.block(block)
            if not (block and isinstance(block[-1], (ast.Continue, ast.Break, ast.Raise, ast.Return))):
                ends.append(self.done)
        self.done = set.intersection(*ends) if ends and all_of else before

    def block(self, statements: list[ast.stmt]) -> None:
        for s in statements:
            self.statement(s)

    def statement(self, s: ast.stmt) -> None:
        if isinstance(s, ast.Assign):
            self.use(s.value, *s.targets)
            self.store(s.value, *s.targets)
        elif isinstance(s, ast.AugAssign):
            self.use(s.value, s.target)
            if isinstance(s.target, ast.Name):
                self.use(ast.Name(s.target.id, ast.Load()))
            self.store(s.target)
        elif isinstance(s, ast.AnnAssign):
            if s.value is not None:
                self.use(s.value, s.target)
                self.store(s.target)
        elif isinstance(s, ast.If):
            self.use(s.test)
            self.branches(s.body, s.orelse)
        elif isinstance(s, (ast.For, ast.While)):
            self.use(s.iter if isinstance(s, ast.For) else s.test)
            before = set(self.done)
            if isinstance(s, ast.For):
                self.use(s.target)
                self.store(s.target)
            self.block(s.body)
            self.done = before
            self.branches(s.orelse, all_of=False)
        elif isinstance(s, ast.With):
            for item in s.items:
                self.use(item.context_expr)
                self.store(item.optional_vars)
            self.block(s.body)
        elif isinstance(s, ast.Try):
            self.branches(s.body, *(h.body for h in s.handlers), s.orelse, all_of=False)
            self.block(s.finalbody)
        elif isinstance(s, ast.Match):
            self.use(s.subject)
            for case in s.cases:
                self.use(case.guard)
            self.branches(*(c.body for c in s.cases), all_of=False)
        else:
            self.use(s)
            self.store(s)


def live_at_head(
    body: list[ast.stmt], target: ast.expr | None = None, after: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the names that a loop's body, or what stands behind it, reads before it has surely assigned them."""
    head = _Head(() if target is None else stores(target))
    head.block(body)
    if any(isinstance(n, ast.Continue) for s in body for n in own(s)):
        head.done = set()
    assigned = Block(body).names
    return tuple(dict.fromkeys((*head.live, *(n for n in after if n in assigned and n not in head.done))))


def read_behind(body: list[ast.stmt], loop: ast.For) -> Iterable[str] | None:
    """Return the names that are read behind a loop before they have surely been assigned.

    None where that isn't seen: in other loops, and in what goes on where an exception says so.
    """
    head, rest = _Head(()), [loop.orelse]
    while loop not in body:
        holder = next(s for s in body if any(n is loop for n in own(s)))
        if not isinstance(holder, (ast.If, ast.With)):
            return None
        rest.append(body[body.index(holder) + 1 :])
        inner = [holder.body, *([holder.orelse] if isinstance(holder, ast.If) else [])]
        body = next(b for b in inner if any(n is loop for s in b for n in own(s)))
    rest.insert(1, body[body.index(loop) + 1 :])
    for block in (rest[0], rest[1], *reversed(rest[2:])):
        head.block(block)
    return head.live
