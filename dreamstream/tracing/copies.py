"""Private copies of Python functions in which control flow goes through hooks. Nothing of the user's is changed.

`copy_of(fn)` gives a function that shares globals, cells and defaults with `fn`; only its code is ours. Calls are
written ``H.of(f)(args)``: a callee is *looked up*, never called for the user, so no frame of ours stands between.
"""
from typing import NamedTuple
import ast, builtins, functools, linecache, math, sys, types, weakref

HOOKS = "hooks of this library"  # no identifier: nobody's variable is called so
SKIPPED = ("torch", "numpy", "scipy", "builtins", "math", "dreamstream", "_pytest", "pytest")
STDLIB = frozenset(sys.stdlib_module_names)


class NoCopy(Exception):
    """Why a function can't be converted, with file and line."""


# ------------------------------------------------------------------ hooks
class Symbolic:
    """What has no truth and no number yet. `decide` gives True, False or an object to be asked in both ways."""
    def decide(self):
        return self


UNBOUND = object()


class Hooks:
    """Plain meaning of all constructs; a tracer overrides `undecided`, `instead`, `iterate` and so on."""

    unbound = UNBOUND
    instead: dict = {}  # builtin -> ours

    def test(self, v):
        if v is True or v is False:
            return v
        if isinstance(v, Symbolic):
            return v.decide()
        return True if v else False

    def not_(self, w):
        return (not w) if w.__class__ is bool else w.negated()

    def tand(self, w, other):  # w is not False
        return other if w is True else (False if other is False else w if other is True else w.both(other))

    def tor(self, w, other):  # w is not True
        return other if w is False else (True if other is True else w if other is False else w.either(other))

    def sure(self, w, where=""):
        """A truth where only one will do: guards of comprehensions, of match."""
        return w if w.__class__ is bool else self.refuse(w, where)

    def check(self, w, where):
        return w if w.__class__ is bool else self.checked(w, where)

    def join(self, w, v, other, is_or):
        return other if w.__class__ is bool else self.joined(w, v, other, is_or)

    def pick(self, w, a, b):
        return a if w is True else b if w is False else self.picked(w, a, b)

    def contains(self, a, b):
        return self.held(a, b) if isinstance(a, Symbolic) or (type(b) in (tuple, list) and any(isinstance(e, Symbolic) for e in b)) else a in b

    def refuse(self, w, where):
        raise NoCopy(f"this can't be decided for every stream: {w} {where}")

    checked = ways = refuse

    def iterate(self, it, site, seen):
        return it

    def gathered(self, made):
        return made

    def rounds(self, loop, w, site, seen):
        return self.refuse(w, site)

    # ---------------- callees
    def of(self, f):
        kind = type(f)
        if kind is types.BuiltinFunctionType or kind is type:
            try:
                return self.instead.get(f, f)
            except TypeError:
                return f
        if kind is types.FunctionType:
            return self.of_function(f)
        if kind is types.MethodType:
            inner = self.of(f.__func__)
            return f if inner is f.__func__ else types.MethodType(inner, f.__self__)
        if kind is functools.partial:
            inner = self.of(f.func)
            return f if inner is f.func else functools.partial(inner, *f.args, **f.keywords)
        if isinstance(f, type):
            return f
        original = getattr(f, "_torchdynamo_orig_callable", None)
        if original is None and "_orig_mod" in getattr(f, "__dict__", {}).get("_modules", {}):
            original = f.__dict__["_modules"]["_orig_mod"]  # OptimizedModule
        if original is not None:
            return self.of(original)
        if kind is functools._lru_cache_wrapper:
            return _cached(self, f)
        call = getattr(kind, "__call__", None)
        if type(call) is types.FunctionType:  # nn.Module and other callable objects
            inner = self.of(call)
            return f if inner is call else types.MethodType(inner, f)
        return f

    def of_function(self, f):
        code = f.__code__
        if id(code) in _ours:
            return f
        original = f.__dict__.get("_torchdynamo_orig_callable") if f.__dict__ else None
        if original is not None:
            return self.of(original)
        if not wanted(f):
            return f
        try:
            return copy_of(f, self)
        except NoCopy as why:
            self.not_copied(f, why)
            return f

    def not_copied(self, f, why):
        self.reasons[f"{f.__code__.co_filename}:{f.__code__.co_firstlineno}"] = str(why)

    reasons: dict = {}


def _cached(hooks, f):
    inner = hooks.of(f.__wrapped__)
    def call(*a, **k):  # the user's cache never sees what is symbolic
        return inner(*a, **k) if any(isinstance(x, Symbolic) for x in (*a, *k.values())) else f(*a, **k)
    return call


#: Functions of torch that do nothing but call those of users.
GOES_ON = {("torch.nn.modules.module", "_call_impl"), ("torch.nn.modules.module", "_wrapped_call_impl"), ("torch.nn.modules.container", "forward"),
           ("torch.nn.modules.module", "inner"), ("torch.utils.checkpoint", "checkpoint")}


def wanted(f):
    module = f.__globals__.get("__name__") or ""
    top = module.partition(".")[0]
    if (module, f.__code__.co_name) in GOES_ON:
        return True
    if top in SKIPPED or (top in STDLIB and top != "__main__"):
        inner, seen = f, 0
        while hasattr(inner, "__wrapped__") and seen < 20:  # torch.no_grad() around a user's function
            inner, seen = inner.__wrapped__, seen + 1
        return inner is not f and type(inner) is types.FunctionType and wanted(inner)
    return True


# ------------------------------------------------------------------ the source of a function
_files: dict = {}


def _tree(filename, globals_):
    lines = linecache.getlines(filename, globals_)
    key = (len(lines), hash("".join(lines)))
    if filename not in _files or _files[filename][0] != key:
        try:
            tree = ast.parse("".join(lines), filename) if lines else None
        except SyntaxError:
            tree = None
        by_line: dict = {}
        def walk(node, cls):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                    by_line.setdefault((child.name, first), []).append((child, cls))
                elif isinstance(child, ast.Lambda):
                    by_line.setdefault(("<lambda>", child.lineno), []).append((child, cls))
                walk(child, child.name if isinstance(child, ast.ClassDef) else cls)
        if tree is not None:
            walk(tree, None)
        _files[filename] = key, by_line if tree is not None else None
    return _files[filename][1]


FUTURE = 0
for _n in ("annotations", "division", "generator_stop", "barry_as_FLUFL"):
    import __future__
    FUTURE |= getattr(__future__, _n).compiler_flag


class _Mangle(ast.NodeTransformer):
    def __init__(self, cls):
        self.cls = cls.lstrip("_")
    def name(self, n):
        return f"_{self.cls}{n}" if n and n.startswith("__") and not n.endswith("__") and "." not in n and self.cls else n
    def visit(self, node):
        if isinstance(node, ast.ClassDef):
            return node  # mangled by its own name
        for field in ("id", "attr", "arg", "name"):
            v = getattr(node, field, None)
            if isinstance(v, str) and not isinstance(node, (ast.alias,)):
                setattr(node, field, self.name(v))
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            node.names = [self.name(n) for n in node.names]
        return self.generic_visit(node)


INNER = "<inner>"


def _compiled(node, free, code, qualname=None):
    """Return the code of a function node, compiled where these names are cells around it."""
    if isinstance(node, ast.Lambda):
        args, body = node.args, [ast.Return(node.body)]
        inner = ast.copy_location(ast.FunctionDef(INNER, args, body, [], None), node)
        if hasattr(inner, "type_params") or sys.version_info >= (3, 12):
            inner.type_params = []
        ast.copy_location(body[0], node.body)
    else:  # under another name, so that its own is not bound around it
        inner = ast.copy_location(ast.FunctionDef(INNER, node.args, node.body, [], None), node)
        if sys.version_info >= (3, 12):
            inner.type_params = []
    outer = ast.FunctionDef("<outer>", ast.arguments([], [ast.arg(n) for n in free], None, [], [], None, []), [inner], [], None)
    if sys.version_info >= (3, 12):
        outer.type_params = []
    ast.copy_location(outer, inner)
    module = ast.fix_missing_locations(ast.Module([outer], []))
    made = compile(module, code.co_filename, "exec", code.co_flags & FUTURE, True)
    outer_code = next(c for c in made.co_consts if isinstance(c, types.CodeType))
    inner_code = next(c for c in outer_code.co_consts if isinstance(c, types.CodeType) and c.co_name == INNER)
    return _renamed(inner_code.replace(co_name=code.co_name), f"<outer>.<locals>.{INNER}", getattr(code, "co_qualname", None) or qualname or code.co_name)


def _same(a, b):
    """Whether two codes do the same, constants in them too."""
    if (a.co_code, a.co_names, a.co_varnames, a.co_freevars, a.co_argcount, a.co_kwonlyargcount) != (b.co_code, b.co_names, b.co_varnames, b.co_freevars, b.co_argcount, b.co_kwonlyargcount):
        return False
    if len(a.co_consts) != len(b.co_consts):
        return False
    return all(_same(x, y) if isinstance(x, types.CodeType) and isinstance(y, types.CodeType) else type(x) is type(y) and (x == y or x != x) for x, y in zip(a.co_consts, b.co_consts))


def _bare(node):
    import copy
    node = copy.deepcopy(node)
    args = node.args
    args.defaults = [ast.copy_location(ast.Constant(None), d) for d in args.defaults]
    args.kw_defaults = [d and ast.copy_location(ast.Constant(None), d) for d in args.kw_defaults]
    for a in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
        if a is not None:
            a.annotation = None
    if not isinstance(node, ast.Lambda):
        node.decorator_list, node.returns = [], None
        if hasattr(node, "type_params"):
            node.type_params = []
    return node


def source_of(f):
    """Return the bare node of a function, as its file says it, held against the code that runs."""
    code = f.__code__
    where = f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}"
    if code.co_flags & 0x280:
        raise NoCopy(f"{where}: async functions are not converted")
    by_line = _tree(code.co_filename, f.__globals__)
    if by_line is None:
        raise NoCopy(f"{where}: there is no source of it (made by exec, in a console, or frozen)")
    found = by_line.get((code.co_name, code.co_firstlineno), [])
    if not found:
        found = [v for (n, l), vs in by_line.items() if l == code.co_firstlineno for v in vs]
    exact, near = [], []
    for node, cls in found:
        bare = _bare(node)
        if cls:
            bare = _Mangle(cls).visit(bare)
        try:
            made = _compiled(bare, code.co_freevars, code, f.__qualname__)
        except SyntaxError:
            continue
        if _same(made, code):
            exact.append(bare)
        elif made.co_varnames[: made.co_argcount] == code.co_varnames[: code.co_argcount] and set(made.co_freevars) == set(code.co_freevars) and set(made.co_names) <= set(code.co_names):
            near.append(bare)  # another compiler's doing, as of pytest's asserts
    if exact:
        return exact[0]
    if len(near) == 1:
        return near[0]
    raise NoCopy(f"{where}: its source is not what runs (edited since it was imported, or made by another program)")


# ------------------------------------------------------------------ the transformation
def name(n, ctx=None):
    return ast.Name(n, ctx or ast.Load())


def hook(method, *args):
    return ast.Call(ast.Attribute(name(HOOKS), method, ast.Load()), list(args), [])


def const(v):
    return ast.Constant(v)


class Site(NamedTuple):
    kind: str
    file: str
    line: int
    names: tuple
    escapes: tuple
    effects: tuple
    then_raises: bool
    else_raises: bool
    lines: range
    simple: bool = True


def name_const(site):
    key = len(SITES)
    SITES.append(site)
    return hook("site", const(key))


SITES = []
_CALLED = {"pad", "cat", "concat", "zeros", "new_zeros", "zeros_like", "size", "dim", "len", "int", "float", "max", "min", "ceil", "floor", "round", "abs", "to", "type", "type_as", "cuda", "sqrt"}


def simple(block):
    """Whether statements only pad, crop and compute with numbers, as far as they say."""
    for s in block:
        if isinstance(s, ast.If):
            if not simple([*s.body, *s.orelse]):
                return False
            continue
        if not isinstance(s, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Pass)):
            return False
        for n in ast.walk(s):
            if isinstance(n, ast.Call):
                called = getattr(n.func, "attr", getattr(n.func, "id", ""))
                if called not in _CALLED:
                    return False
    return True


class _Assigned(ast.NodeVisitor):
    """What a block does: names it assigns, and what can't be taken back."""
    def __init__(self, nodes):
        self.names, self.escapes, self.effects, self.depth = [], [], [], 0
        for n in nodes:
            self.visit(n)
    def add(self, n):
        if n not in self.names:
            self.names.append(n)
    def visit_Name(self, n):
        if isinstance(n.ctx, ast.Store) and not n.id.startswith("."):
            self.add(n.id)
        elif isinstance(n.ctx, ast.Del):
            self.escapes.append(("del", n.lineno))
    def visit_FunctionDef(self, n):
        self.add(n.name)
    visit_ClassDef = visit_AsyncFunctionDef = visit_FunctionDef
    def visit_Lambda(self, n):
        pass
    def visit_ListComp(self, n):
        for g in ast.walk(n):
            if isinstance(g, ast.NamedExpr):
                self.add(g.target.id)
    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp
    def visit_Import(self, n):
        for a in n.names:
            self.add((a.asname or a.name).partition(".")[0])
    visit_ImportFrom = visit_Import
    def visit_ExceptHandler(self, n):
        self.generic_visit(n)
    def _loop(self, n):
        self.depth += 1
        self.generic_visit(n)
        self.depth -= 1
    visit_For = visit_While = _loop
    def _out(self, n):
        self.escapes.append((type(n).__name__.lower(), n.lineno))
        self.generic_visit(n)
    visit_Return = visit_Yield = visit_YieldFrom = visit_Await = visit_Global = _out
    def visit_Break(self, n):
        if not self.depth:
            self._out(n)
    visit_Continue = visit_Break
    def visit_Attribute(self, n):
        if not isinstance(n.ctx, ast.Load):
            self.effects.append((ast.unparse(n), n.lineno))
        self.generic_visit(n)
    def visit_Subscript(self, n):
        if not isinstance(n.ctx, ast.Load):
            self.effects.append((ast.unparse(n), n.lineno))
        self.generic_visit(n)
    def visit_Expr(self, n):
        if not isinstance(n.value, ast.Constant):
            self.effects.append((ast.unparse(n)[:60], n.lineno))
        self.generic_visit(n)


def always_raises(block):
    """Whether a block ends in an exception whatever happens in it: read off the source, not the bytecode."""
    for s in block:
        if isinstance(s, ast.Raise):
            return True
        if isinstance(s, (ast.Return, ast.Break, ast.Continue, ast.Try)):
            return False
        if isinstance(s, ast.If) and s.orelse and always_raises(s.body) and always_raises(s.orelse):
            return True
        if isinstance(s, ast.With) and always_raises(s.body):
            return True
    return False


def reads_first(body, also=()):
    """Names that a loop's body reads before it has surely assigned them: live at its head."""
    live, done = [], set(also)
    def use(node):
        for n in ast.walk(node):
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id not in done and n.id not in live:
                live.append(n.id)
    def store(node):
        for n in ast.walk(node):
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
                done.add(n.id)
    def block(stmts):
        for s in stmts:
            if isinstance(s, ast.Assign):
                use(s.value)
                for t in s.targets:
                    use(t); store(t)
            elif isinstance(s, ast.AugAssign):
                use(s.value)
                t = ast.Name(s.target.id, ast.Load()) if isinstance(s.target, ast.Name) else s.target
                use(t); store(s.target)
            elif isinstance(s, ast.AnnAssign):
                if s.value is not None:
                    use(s.value); use(s.target); store(s.target)
            elif isinstance(s, ast.If):
                use(s.test)
                before = set(done)
                block(s.body); one = set(done)
                done.clear(); done.update(before)
                block(s.orelse); two = set(done)
                ends = [b and isinstance(b[-1], (ast.Continue, ast.Break, ast.Raise, ast.Return)) for b in (s.body, s.orelse)]
                done.clear(); done.update(two if ends[0] else one if ends[1] else one & two)
            elif isinstance(s, (ast.For, ast.While)):
                use(s.iter if isinstance(s, ast.For) else s.test)
                before = set(done)
                if isinstance(s, ast.For):
                    store(s.target)
                block(s.body)
                done.clear(); done.update(before)
                block(s.orelse)
            elif isinstance(s, ast.With):
                for i in s.items:
                    use(i.context_expr)
                    if i.optional_vars is not None:
                        store(i.optional_vars)
                block(s.body)
            elif isinstance(s, ast.Try):
                before = set(done)
                block(s.body)
                for h in s.handlers:
                    done.clear(); done.update(before); block(h.body)
                done.clear(); done.update(before); block(s.orelse); block(s.finalbody)
            else:
                use(s)
                if not isinstance(s, (ast.FunctionDef, ast.ClassDef)):
                    store(s)
                else:
                    done.add(s.name)
    block(body)
    return live


class Transform(ast.NodeTransformer):
    def __init__(self, f_node, file):
        self.count, self.file = 0, file
        self.blocked = 0  # within iterables of comprehensions: no walrus there
        self.function = [f_node]
        self.loops = []

    def temp(self, what):
        self.count += 1
        return f".{what}{self.count}"

    # ---------------- expressions
    def walrus(self, temp, value):
        return ast.NamedExpr(name(temp, ast.Store()), value)

    def test(self, node):
        """An expression whose value is True, False or an undecided object."""
        new = self._test(node)
        return ast.fix_missing_locations(ast.copy_location(new, node))

    def _test(self, node):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return hook("not_", self.test(node.operand))
        if isinstance(node, ast.BoolOp) and not self.blocked:
            is_or = isinstance(node.op, ast.Or)
            out = self.test(node.values[-1])
            for v in reversed(node.values[:-1]):
                w = self.temp("w")
                first = ast.Compare(self.walrus(w, self.test(v)), [ast.IsNot()], [const(is_or)])
                out = ast.copy_location(ast.IfExp(first, hook("tor" if is_or else "tand", name(w), out), const(is_or)), v)
            return out
        if isinstance(node, ast.Constant):
            return const(bool(node.value))
        return hook("test", self.visit(node))

    def visit_BoolOp(self, node):
        if self.blocked:
            return self.generic_visit(node)
        is_or = isinstance(node.op, ast.Or)
        out = self.visit(node.values[-1])
        for v in reversed(node.values[:-1]):
            w, t = self.temp("w"), self.temp("v")
            first = ast.Compare(self.walrus(w, hook("test", self.walrus(t, self.visit(v)))), [ast.IsNot()], [const(is_or)])
            out = ast.IfExp(first, hook("join", name(w), name(t), out, const(is_or)), name(t))
            out = ast.copy_location(out, node)
        return ast.fix_missing_locations(out)

    def visit_UnaryOp(self, node):
        if not isinstance(node.op, ast.Not):
            return self.generic_visit(node)
        return ast.fix_missing_locations(ast.copy_location(hook("not_", self.test(node.operand)), node))

    def visit_IfExp(self, node):
        if self.blocked:
            return self.generic_visit(node)
        w = self.temp("w")
        test = self.walrus(w, self.test(node.test))
        a = ast.IfExp(hook("side", test, const(True)), self.visit(node.body), const(None))
        b = ast.IfExp(hook("side", name(w), const(False)), self.visit(node.orelse), const(None))
        args = ast.Tuple([a, b], ast.Load())
        # the tuple first, so that the test is made before it is handed on
        return ast.fix_missing_locations(ast.copy_location(hook("pick2", args, name(w)), node))

    def visit_Compare(self, node):
        parts = [node.left, *node.comparators]
        if len(node.ops) == 1:
            if isinstance(node.ops[0], (ast.In, ast.NotIn)):
                held = hook("contains", *map(self.visit, parts))
                out = held if isinstance(node.ops[0], ast.In) else hook("not_", hook("test", held))
                return ast.fix_missing_locations(ast.copy_location(out, node))
            return self.generic_visit(node)
        if self.blocked:
            return self.generic_visit(node)
        names = [self.temp("c") for _ in parts[1:-1]]  # a < b < c: b once
        out = None
        values = list(map(self.visit, parts))
        pairs = []
        for i, op in enumerate(node.ops):
            left = values[0] if i == 0 else name(names[i - 1])
            right = values[i + 1] if i == len(node.ops) - 1 else self.walrus(names[i], values[i + 1])
            if isinstance(op, (ast.In, ast.NotIn)):
                pairs.append(hook("contains", left, right) if isinstance(op, ast.In) else hook("not_", hook("test", hook("contains", left, right))))
            else:
                pairs.append(ast.Compare(left, [op], [right]))
        out = pairs[-1]
        for p in reversed(pairs[:-1]):
            w, t = self.temp("w"), self.temp("v")
            first = ast.Compare(self.walrus(w, hook("test", self.walrus(t, p))), [ast.IsNot()], [const(False)])
            out = ast.IfExp(first, hook("join", name(w), name(t), out, const(False)), name(t))
        return ast.fix_missing_locations(ast.copy_location(out, node))

    def visit_Call(self, node):
        self.generic_visit(node)
        node.func = ast.copy_location(hook("of", node.func), node.func)
        return ast.fix_missing_locations(node)

    def comprehension(self, node):
        blocked = self.blocked
        single = len(node.generators) == 1 and not node.generators[0].ifs
        for g in node.generators:
            self.blocked = 1
            it = self.visit(g.iter)
            g.iter = ast.copy_location(hook("iterate", it, const(("comprehension", self.file, node.lineno, single)), const(None)), it)
            self.blocked = blocked
            g.ifs = [ast.copy_location(hook("sure", self.test(i), const(f"{self.file}:{node.lineno}")), i) for i in g.ifs]
        for field in ("elt", "key", "value"):
            if hasattr(node, field):
                setattr(node, field, self.visit(getattr(node, field)))
        node = ast.fix_missing_locations(node)
        if isinstance(node, ast.ListComp) and single:
            return ast.fix_missing_locations(ast.copy_location(hook("gathered", node), node))
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension

    # ---------------- statements
    def block(self, stmts):
        out = []
        stmts = self.returned(list(stmts))
        for s in stmts:
            new = self.visit(s)
            out += new if isinstance(new, list) else [new]
        return out

    def returned(self, stmts):
        """``if c: …; return a`` and ``…; return b`` behind it: an if with an else, and one return."""
        for i, s in enumerate(stmts):
            if not isinstance(s, ast.If):
                continue
            after = s.orelse or stmts[i + 1 :]
            if s.orelse and stmts[i + 1 :]:
                continue
            ends = [b and isinstance(b[-1], ast.Return) and b[-1].value is not None for b in (s.body, after)]
            if not all(ends):
                continue
            if any(a.escapes for a in (_Assigned(s.body[:-1]), _Assigned(after[:-1]))) or any(isinstance(n, (ast.Return, ast.Yield, ast.YieldFrom)) for b in (s.body[:-1], after[:-1]) for st in b for n in ast.walk(st)):
                continue
            self.count += 1
            r = f"returned value {self.count}"  # seen as the user's variables are
            for b in (s.body, after):
                b[-1] = ast.copy_location(ast.Assign([name(r, ast.Store())], b[-1].value), b[-1])
            new = ast.copy_location(ast.If(s.test, s.body, after), s)
            back = ast.copy_location(ast.Return(name(r)), s.body[-1])
            return [ast.fix_missing_locations(n) for n in (*stmts[:i], new, back)]
        return stmts

    def visit_If(self, node):
        done = _Assigned([*node.body, *node.orelse])
        then_raises, else_raises = always_raises(node.body), always_raises(node.orelse)
        site = Site("if", self.file, node.lineno, tuple(done.names), tuple(done.escapes), tuple(done.effects), then_raises, else_raises, range(node.lineno, node.end_lineno + 1), simple([*node.body, *node.orelse]))
        w = self.temp("w")
        test = self.test(node.test)
        body, orelse = self.block(node.body), self.block(node.orelse)
        at = node.test
        def is_not(v):
            return ast.Compare(name(w), [ast.IsNot()], [const(v)])
        def both():
            return ast.Compare(ast.Attribute(name(w), "__class__", ast.Load()), [ast.IsNot()], [name("bool")]) if False else ast.Compare(hook("kind", name(w)), [ast.IsNot()], [const(True)])
        open_ = [] if done.escapes and not (then_raises or else_raises) else done.names
        out = [ast.Assign([name(w, ast.Store())], test),
               ast.If(both(), [ast.Assign([name(w, ast.Store())], hook("ways", name(w), name_const(site), ast.Call(hook("seer"), [], [])))], [])]
        then = [*body, ast.If(both(), [ast.Expr(ast.Call(ast.Attribute(name(w), "then", ast.Load()), [ast.Call(hook("seer"), [], [])], []))], [])]
        if body and isinstance(node.body[-1], (ast.Return, ast.Raise, ast.Break, ast.Continue)):
            then = body
        def taken(method):
            stmts = []
            for n in open_:
                value = ast.Call(ast.Attribute(name(w), method, ast.Load()), [const(n)], [])
                stmts += [ast.Assign([name(n, ast.Store())], value),
                          ast.If(ast.Compare(name(n), [ast.Is()], [ast.Attribute(name(HOOKS), "unbound", ast.Load())]), [ast.Delete([name(n, ast.Del())])], [])]
            return stmts
        back, merged = taken("back"), taken("merged")
        out.append(ast.If(is_not(False), then, []))
        otherwise = [*([ast.If(both(), back, [])] if back else []), *orelse]
        if otherwise:
            out.append(ast.If(is_not(True), otherwise, []))
        merge = [ast.Expr(ast.Call(ast.Attribute(name(w), "merge", ast.Load()), [ast.Call(hook("seer"), [], []), const(tuple(done.names))], [])), *merged]
        out.append(ast.If(both(), merge, []))
        return [self.placed(s, at) for s in out]

    def placed(self, new, at):
        """Give all new nodes the place of an old one; statements of the user within keep theirs."""
        for n in ast.walk(new):
            if "lineno" in n._attributes and not hasattr(n, "lineno"):
                ast.copy_location(n, at)
        return new

    def visit_While(self, node):
        done = _Assigned(node.body)
        site = Site("while", self.file, node.lineno, tuple(done.names), tuple(done.escapes), tuple(done.effects), False, False, range(node.lineno, node.end_lineno + 1))
        w, loop = self.temp("w"), self.temp("l")
        test = self.test(node.test)
        ask = hook("rounds", name(loop), test, name_const(site))
        body, orelse = self.block(node.body), self.block(node.orelse)
        new = ast.While(ask, body, orelse)
        out = [ast.Assign([name(loop, ast.Store())], hook("loop")), new]
        if not done.escapes:
            after = []
            for n in done.names:
                value = ast.Call(ast.Attribute(name(loop), "after", ast.Load()), [const(n)], [])
                after.append(ast.Assign([name(n, ast.Store())], value))
            if after:
                out.append(ast.If(ast.Attribute(name(loop), "solved", ast.Load()), after, []))
        return [self.placed(s, node.test) for s in out]

    def visit_For(self, node):
        done = _Assigned(node.body)
        target = _Assigned([node.target]).names
        live = reads_first(node.body, target)
        inside = {id(n) for n in ast.walk(node)}
        after = {n.id for n in ast.walk(self.function[-1]) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and id(n) not in inside and (n.lineno > node.lineno or self.loops)}
        used = {n.id for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name)}
        assigned = [n for n in done.names if n in live or n in after]
        held = [n for n in live if n not in assigned]
        site = ("for", self.file, node.lineno, tuple(n for n in assigned), tuple(live), tuple(sorted(after & used)), tuple(done.escapes), tuple(held))
        s = self.temp("s")
        it = self.visit(node.iter)
        self.loops.append(node)
        body = self.block(node.body)
        self.loops.pop()
        orelse = self.block(node.orelse)
        names = [n for n in dict.fromkeys((*assigned, *held)) ]
        local = self.local_names()
        names = [n for n in names if n in local]
        out = [ast.Assign([name(s, ast.Store())], hook("iterate", it, const(site), ast.Call(hook("seer"), [], [])))]
        def frames():
            return hook("scans", name(s))
        def give(method):
            stmts = []
            for n in names:
                value = ast.Call(ast.Attribute(name(s), method, ast.Load()), [const(n)], [])
                stmts += [ast.Assign([name(n, ast.Store())], value),
                          ast.If(ast.Compare(name(n), [ast.Is()], [ast.Attribute(name(HOOKS), "unbound", ast.Load())]), [ast.Delete([name(n, ast.Del())])], [])]
            return stmts
        begin, end = give("carried"), give("after")
        if begin:
            see = ast.Expr(ast.Call(ast.Attribute(name(s), "see", ast.Load()), [ast.Call(hook("seer"), [], [])], []))
            body = [ast.If(frames(), begin, []), *body, ]
            orelse = [ast.If(frames(), [see, *end], []), *orelse]
        new = ast.For(node.target, name(s), body, orelse)
        ast.copy_location(new, node)
        out.append(new)
        return [self.placed(x, node.iter) for x in out]

    def local_names(self):
        f = self.function[-1]
        a = f.args
        names = {x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg) if x is not None}
        if not hasattr(f, "_stored"):
            body = f.body if isinstance(f.body, list) else [f.body]
            d = _Assigned(body)
            f._stored = set(d.names) - {n for s in body for g in ast.walk(s) if isinstance(g, ast.Global) for n in g.names}
        return names | f._stored

    def visit_Assert(self, node):
        test = self.test(node.test)
        node.test = ast.copy_location(hook("check", test, const((self.file, node.lineno, ast.unparse(node.test) if False else ""))), node.test)
        if node.msg is not None:
            node.msg = self.visit(node.msg)
        return ast.fix_missing_locations(node)

    def visit_match_case(self, node):
        if node.guard is not None:
            node.guard = ast.copy_location(hook("sure", self.test(node.guard), const(f"{self.file}:{node.guard.lineno}")), node.guard)
        node.body = self.block(node.body)
        return node

    def generic_visit(self, node):
        for field, old in ast.iter_fields(node):
            if isinstance(old, list) and old and isinstance(old[0], ast.stmt):
                setattr(node, field, self.block(old))
            elif isinstance(old, list):
                setattr(node, field, [self.visit(v) if isinstance(v, ast.AST) else v for v in old])
            elif isinstance(old, ast.AST):
                setattr(node, field, self.visit(old))
        return node

    def _function(self, node):
        node.args.defaults = [self.visit(d) for d in node.args.defaults]
        node.args.kw_defaults = [d and self.visit(d) for d in node.args.kw_defaults]
        blocked, self.blocked, loops, self.loops = self.blocked, 0, self.loops, []
        self.function.append(node)
        if isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
        else:
            said = [n for st in node.body for n in _own(st) if isinstance(n, (ast.Global, ast.Nonlocal))]
            doc = 1 if _docstring(node.body) else 0
            body = self.block(node.body[doc:])
            node.body = [*node.body[:doc], *said, *[st for st in body if st not in said]] or node.body
            if said:
                node.body = [_Unsaid(said).visit(st) if st not in said else st for st in node.body]
        self.function.pop()
        self.blocked, self.loops = blocked, loops
        return node

    visit_FunctionDef = visit_Lambda = _function

    def visit_AsyncFunctionDef(self, node):
        return node

    def visit_ClassDef(self, node):
        """A class made within a function: its methods are converted, what runs in its body is left alone."""
        node.body = [self._function(s) if isinstance(s, ast.FunctionDef) else s for s in node.body]
        return node


def _own(node):
    """Walk a statement without what is in functions and classes of its own."""
    yield node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        return
    for child in ast.iter_child_nodes(node):
        yield from _own(child)


class _Unsaid(ast.NodeTransformer):
    """Leaves out declarations that stand at the function's head already."""
    def __init__(self, said):
        self.said = {id(n) for n in said}
    def visit_Global(self, node):
        return ast.copy_location(ast.Pass(), node) if id(node) in self.said else node
    visit_Nonlocal = visit_Global
    def visit_FunctionDef(self, node):
        return node
    visit_ClassDef = visit_Lambda = visit_AsyncFunctionDef = visit_FunctionDef


def _docstring(body):
    return body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and isinstance(body[0].value.value, str)


# ------------------------------------------------------------------ copies
_ours: dict = {}
_codes: dict = {}


def _register(code):
    key = id(code)
    _ours[key] = weakref.ref(code, lambda _: _ours.pop(key, None))
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            _register(c)


def _renamed(code, before, after):
    consts = tuple(_renamed(c, before, after) if isinstance(c, types.CodeType) else after + c[len(before):] if type(c) is str and c.startswith(before) else c for c in code.co_consts)
    more = {}
    if sys.version_info >= (3, 11):
        q = code.co_qualname
        more["co_qualname"] = after + q[len(before):] if q.startswith(before) else q
    return code.replace(co_consts=consts, **more)


def converted_code(f):
    code = f.__code__
    key = id(code)
    found = _codes.get(key)
    if found is not None and found[0]() is code:
        if isinstance(found[1], NoCopy):
            raise found[1]
        return found[1]
    try:
        node = source_of(f)
        Transform(node, code.co_filename)._function(node)
        made = _compiled(node, (*code.co_freevars, HOOKS), code, f.__qualname__)
        _register(made)
    except (SyntaxError, RecursionError) as error:
        made = NoCopy(f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}: {error}")
    except NoCopy as error:
        made = error
    _codes[key] = weakref.ref(code, lambda _: _codes.pop(key, None)), made
    if isinstance(made, NoCopy):
        raise made
    return made


_cells: dict = {}


def copy_of(f, hooks):
    """Return a private copy of a function whose control flow goes through hooks."""
    code = converted_code(f)
    cells = dict(zip(f.__code__.co_freevars, f.__closure__ or ()))
    if HOOKS in code.co_freevars:
        if id(hooks) not in _cells:
            _cells[id(hooks)] = types.CellType(hooks)
        cells[HOOKS] = _cells[id(hooks)]
    new = types.FunctionType(code, f.__globals__, f.__name__, f.__defaults__, tuple(cells[n] for n in code.co_freevars))
    new.__kwdefaults__ = f.__kwdefaults__ and dict(f.__kwdefaults__)
    new.__qualname__, new.__doc__, new.__module__ = f.__qualname__, f.__doc__, f.__module__
    new.__dict__.update(f.__dict__)
    return new


# small helpers that the written code uses
def _kind(self, w):
    return w is True or w is False
Hooks.kind = _kind
Hooks.pick2 = lambda self, values, w: self.pick(w, *values)
Hooks.scans = lambda self, it: getattr(type(it), "is_scan", False)


class _Loop:
    solved = False
    loop = None

    def after(self, name):
        return self.loop.after(name)
Hooks.loop = lambda self: _Loop()
Hooks.site = lambda self, k: SITES[k]


def _locals_of():
    return dict(sys._getframe(1).f_locals)
Hooks.seer = lambda self: _seen
def _seen():
    return {n: v for n, v in sys._getframe(1).f_locals.items() if n[:1] != "." and n != HOOKS}


def _dir_like(real):
    def call(*a):
        if a:
            return real(*a)
        return {n: v for n, v in sys._getframe(1).f_locals.items() if n[:1] != "." and n != HOOKS}
    return call


Hooks.instead = {locals: _dir_like(locals), vars: _dir_like(vars)}
plain = Hooks()


def loops(code):
    return "range" in code.co_names or "np" in code.co_names or any(i.opname == "FOR_ITER" for i in __import__("dis").get_instructions(code))


def why_not(code):
    found = _codes.get(id(code))
    return str(found[1]) if found is not None and found[0]() is code and isinstance(found[1], NoCopy) else ""
