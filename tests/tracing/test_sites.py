"""What a site says of the source: names, escapes, effects, what a loop carries."""

import ast
import textwrap

import pytest
from turns import in_blocks

from dreamstream.tracing.block import always_raises
from dreamstream.tracing.transform import transform


def sites(text):
    """The sites of a function of x, y, ys, d, self with these statements."""
    tree = ast.parse("def f(x, y, ys, d, self, **kw):\n" + textwrap.indent(text, "    "))
    return transform(tree.body[0], "a.py", "f")


def if_with(statement):
    return next(s for s in sites(f"if x:\n    {statement}\nelse:\n    pass") if s.kind == "if")


EFFECTS = [
    "self.n = 1", "self.n += 1", "self.a.b = 1", "del self.n", "d['a'] = 1", "d['a'] += 1", "del d['a']",
    "x[:, 0] = y",
    "self.a, y = 1, 2", "for self.i in ys: pass", "for d[0] in ys: pass", "with y as self.a: pass",
    "f(x)", "self.f(x)", "print(x)", "x and y.f()", "[f(i) for i in ys]",
    "y = x.add_(1)", "y = x.add_(1).mul(2)", "y = x.mul(2).add_(1)", "y = f(x.add_(1))", "y = nn.init.zeros_(x)",
    "y = zeros_(x)", "y = x.copy_(y)", "y = x.index_fill_(0, y, 1)", "y = x.data.zero_()",
    "y = x.requires_grad_()",
    "y = ys.append(x)", "y = ys.pop()", "y = ys.extend(d)", "y = ys.insert(0, x)", "y = ys.remove(x)",
    "y = ys.clear()", "y = ys.reverse()", "y = d.update(a=1)", "y = d.setdefault('a', [])", "y = d.popitem()",
    "y = d.discard(1)", "y = ys.popleft()", "y = ys.appendleft(1)", "y = d.__setitem__(0, 1)",
    "y = x.__iadd__(1)", "y = next(ys)", "y = setattr(self, 'n', 1)", "y = delattr(self, 'n')", "y = ys.send(1)",
    "y = exec('z = 1')", "y = self.register_buffer('b', x)", "y = ys.__next__()",
    "y = torch.add(x, 1, out=y)", "y = torch.add(x, 1, out=self.b)", "y = relu(x, inplace=True)",
    "y = relu(x, inplace=self.inplace)", "y = [ys.append(i) for i in x]", "y = {i: d.pop(i) for i in x}",
    "y = f'{ys.pop()}'", "y = (x, ys.pop())", "y = -ys.pop()", "y = ys.pop() if y else 1", "y = y or ys.pop()",
    "y = 0 < 1 < ys.pop()", "y = d[ys.pop()]", "y += ys.pop()", "z: int = ys.pop()", "y = (z := ys.pop())",
    "assert ys.pop()", "with ys.pop(): pass", "import os; os.environ['a'] = y", "raise ys.pop()",
    "return ys.pop()",
    "for z in ys.pop(): pass", "while ys.pop(): pass", "try: ys.pop()\n    finally: pass",
    "y = self.mean.fill_(0) + 1",
    "y = x.__itruediv__(2)", "y = it.throw(E)", "y = q.rotate(1)", "y = s.symmetric_difference_update(d)",
]  # fmt: skip

NO_EFFECTS = [
    "y = 1", "y = x + 1", "x += 1", "x, y = y, x", "y = self.n", "y = d['a']", "y = f(x)", "y = self.conv(x)",
    "pass",
    "y = x.__add__(1)", "y = x._private()", "y = x.__init__", "y = lambda: ys.append(1)", "'text'",
    "y = F.relu(x)",
    "y = relu(x, inplace=False)", "y = torch.add(x, 1, out=None)", "y = [i for i in ys]", "y = (z := x)",
    "y = d.copy()",
    "with torch.no_grad(): y = x", "for z in ys: y = z", "try: y = 1\n    except E as e: y = 2", "import os",
    "z: int",
    "y = sorted(ys)", "y = x.add(1)", "y = x.sort()", "y = d.get('a')", "y = x.T_", "assert x", "y = x.size(0)",
    "y = __name__",
]  # fmt: skip


@in_blocks("statement", EFFECTS, 39)
def test_effects(statement):
    assert if_with(statement).effects, statement


@in_blocks("statement", NO_EFFECTS, 33)
def test_no_effects(statement):
    assert not if_with(statement).effects, statement


def test_effects_of_functions_inside_are_not_its_own():
    assert not if_with("def g(): ys.append(1); self.n = 1").effects


@pytest.mark.parametrize("statement", ["global G; G = 1", "global G; G += 1", "global G\n    for G in ys: pass"])
def test_global_names_are_effects(statement):
    site = if_with(statement)
    assert site.effects
    assert site.effects[0][0] == "G = …"
    assert "G" not in site.names


ESCAPES = {
    "return x": "return", "return": "return", "yield x": "yield", "y = yield": "yield", "yield from ys": "yield",
    "del y": "del", "for z in ys:\n        return z": "return",
}  # fmt: skip


@in_blocks("statement", ESCAPES, 30)
def test_escapes(statement):
    assert [what for what, _ in if_with(statement).escapes] == [ESCAPES[statement]]


@pytest.mark.parametrize("word", ["break", "continue"])
def test_escapes_of_loops(word):
    found = {s.kind: s.escapes for s in sites(f"for i in ys:\n    if x:\n        {word}")}
    assert found == {"for": ((word, 4),), "if": ((word, 4),)}


def test_a_loops_own_escapes_stay_in_it():
    assert not if_with("for i in ys:\n        if i: break\n        continue").escapes


NAMES = {
    "y = 1": ("y",), "a = b = 1": ("a", "b"), "(a, [b, *c]), d.e = x": ("a", "b", "c"), "a += 1": ("a",),
    "for a, b in ys: c = 1": ("a", "b", "c"), "with x as (a, b): pass": ("a", "b"), "import a.b, c as e": ("a",
    "e"),
    "from m import a, b as c": ("a", "c"), "def g(): z = 1": ("g",), "class A: z = 1": ("A",),
    "y = (z := 1)": ("z", "y"),
    "y = [q := i for i in x]": ("q", "y"), "y = [i for i in x]": ("y",), "y = lambda: (z := 1)": ("y",),
    "try: a = 1\n    except E as e: b = 1\n    else: c = 1\n    finally: g = 1": ("a", "b", "c", "g"),
    "a: int = 1": ("a",),
    "match x:\n        case (a, *b): pass\n        case {'k': c, **e}: pass\n        case A(g) as h: pass": ("a",
    "b", "c", "e", "g", "h"),
}  # fmt: skip


@in_blocks("statement", NAMES, 30)
def test_names(statement):
    assert set(if_with(statement).names) == set(NAMES[statement])


def test_augmented_names():
    assert if_with("x += 1; self.n += 1; y = 2; y *= 3").augmented == (("x", 3), ("y", 3))


def test_sites_know_text_and_line():
    (site,) = [s for s in sites("y = 1\nif x > 3 and y:\n    y = 2") if s.kind == "if"]
    assert (site.text, site.line, site.file, site.function) == ("x > 3 and y", 3, "a.py", "f")
    assert {s.kind: s.text for s in sites("y = [f(i) for i in g(x)] if h(y) else 1")} == {
        "comprehension": "g(x)",
        "conditional": "h(y)",
    }
    assert {s.kind: s.text for s in sites("f(1) < g(2) < h(3)")} == {"and": "f(1) < g(2) < h(3)"}
    assert {s.kind: s.text for s in sites("assert f(x), g(y)")} == {"assert": "f(x)"}
    assert {s.kind: s.text for s in sites("while f(x): pass")} == {"while": "f(x)"}


UNUSED = {
    "x and d.add(1)": 1, "x or ys.sort()": 1, "f(x) if y else None": 1, "x and (y or f(x))": 2,
    "x and f(y) and f(d)": 2,
    "None if x else f(x) if y else g(x)": 2, "y = x and d.add(1)": 0, "y = f(x) if y else None": 0,
    "x < d.add(1) < 2": 0,
}  # fmt: skip


@pytest.mark.parametrize("statement", UNUSED)
def test_calls_whose_value_is_not_used(statement):
    assert sum(bool(s.effects) for s in sites(statement)) == UNUSED[statement]


def test_operands_have_effects_of_their_own():
    found = [(s.kind, s.text, [e for e, _ in s.effects]) for s in sites("y = a() and ys.pop() or d.pop()")]
    assert found == [("or", "a() and ys.pop() or d.pop()", ["d.pop()"]), ("and", "a() and ys.pop()", ["ys.pop()"])]


RAISES = {
    "raise E": True, "m = 1\nraise E(m)": True, "if y: raise E\nelse: raise F": True, "if y: raise E": False,
    "with y: raise E": True, "return 1": False, "assert False": True, "assert 0, 'text'": True, "assert y": False,
    "try: raise E\nexcept E: pass": False, "for i in y: raise E": False, "if y: return\nraise E": False,
    "for i in y:\n    return i\nraise E": False, "while y: pass\nraise E": True, "def g(): raise E": False,
    "yield 1\nraise E": False, "print(1)\nraise E": True, "if y:\n    pass\nelif z: pass\nraise E": True,
}  # fmt: skip


@pytest.mark.parametrize("text", RAISES)
def test_what_always_raises(text):
    assert always_raises(ast.parse(text).body) is RAISES[text]


LOOPS = {  # names, live, later, held
    "h = 0\nfor t in x:\n    h = g(h, t)\nreturn h": ("h", "h", "h", ""),
    "for t in x:\n    z = t\n    y = z": ("", "", "", ""),
    "for t in x:\n    z = t\nreturn z": ("z", "", "z", ""),
    "for t in x:\n    ys.append(t)\nreturn ys": ("", "ys", "ys", "ys"),
    "for t in x:\n    y[t] = t\nreturn y": ("", "y", "y", "y"),
    "for t in x:\n    y += t\nreturn y": ("y", "y", "y", ""),
    "for t in x:\n    if t: z = 1\n    y = z": ("z", "z", "", ""),
    "for t in x:\n    if t: z = 1\n    else: z = 2\n    y = z": ("", "", "", ""),
    "for t in x:\n    if t: continue\n    else: z = 2\n    y = z": ("", "", "", ""),
    "for t in x:\n    if t:\n        z = 1\n        continue\n    y = z": ("z", "z", "", ""),
    "for t in x:\n    y = [h for h in d]\n    h = t": ("", "d", "", "d"),
    "for t in x:\n    y = [t + h for q in d]\n    h = t": ("h", "d h", "", "d"),
    "for t in x:\n    y = (lambda h: h + q)(1)\n    h = t\n    q = 1": ("q", "q", "", ""),
    "for t in x:\n    y = lambda: h\n    h = t": ("h", "h", "", ""),
    "def g(): return z\nfor t in x:\n    z = t": ("z", "", "z", ""),
    "for t in x:\n    for u in t:\n        z = u\n    y = z": ("z", "z", "", ""),
    "for t in x:\n    while t:\n        z = 1\n        t = z\n": ("", "", "", ""),
    "for t in x:\n    try:\n        z = 1\n    except E:\n        pass\n    y = z": ("z", "z", "", ""),
    "for t in x:\n    with t as z:\n        y = z": ("", "", "", ""),
    "for t in x:\n    (z := t)\n    y = z": ("", "", "", ""),
    "for t in x:\n    a, (b, self.c) = b, t": ("b", "b self", "", "self"),
    "for t in x:\n    g(t)\n": ("", "", "", ""),
    "for t in x:\n    z = print\n    print(z)": ("", "", "", ""),
}


@pytest.mark.parametrize("text", LOOPS)
def test_what_loops_look_at(text):
    site = next(s for s in sites(text) if s.kind == "for")
    found = tuple(" ".join(sorted(n)) for n in (site.names, site.live, site.later, site.held))
    assert found == LOOPS[text]


def test_loops_in_loops_look_at_what_the_outer_one_reads_again():
    found = sites("for s in x:\n    d = h\n    for t in s:\n        h = t\n")
    assert {s.line: s.names for s in found if s.kind == "for"} == {2: ("h",), 4: ("h",)}
    found = sites("while x:\n    d = h\n    for t in s:\n        h = t\n")
    assert {s.line: s.names for s in found if s.kind == "for"} == {4: ("h",)}


def test_comprehensions():
    texts = [
        "[a for a in x]",
        "[a for a in x if a]",
        "[a for a in x for b in a]",
        "{a for a in x}",
        "{a: 1 for a in x}",
    ]
    single = [[s.single for s in sites(f"y = {t}") if s.kind == "comprehension"] for t in texts]
    assert single == [[True], [False], [False, False], [False], [False]]
