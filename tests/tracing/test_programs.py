"""Programs of Python's own library, run through copies of all functions that they call, give what they give."""

# ruff: noqa: E501

import argparse
import ast
import collections
import contextlib
import dataclasses
import enum
import functools
import inspect
import io
import json
import json.decoder
import json.encoder
import json.scanner
import re
import sys
import textwrap
import tokenize
import traceback
import typing

import pytest

from dreamstream.tracing import Hooks, callees, why_not
from dreamstream.tracing.copies import is_copy

pydecimal = pytest.importorskip("_pydecimal")
PROGRAMS = []
TEXT = inspect.getsource(sys.modules[__name__]) if __name__ in sys.modules else inspect.getsource(textwrap)
DATA = {"a": [1, 2.5, None, True], "b": {"c": 'é\n"', "d": [[], {}, [{"e": -1e300}]]}, "f": "x" * 30}


def program(f):
    PROGRAMS.append(f)
    return f


@program
def json_both_ways():
    encoder = json.encoder.JSONEncoder(indent=2, sort_keys=True)
    pieces = list(encoder.iterencode(DATA))
    decoder = json.decoder.JSONDecoder()
    decoder.parse_string = json.decoder.py_scanstring
    decoder.scan_once = json.scanner.py_make_scanner(decoder)
    back = decoder.decode("".join(pieces))
    try:
        decoder.decode('{"a": [1, 2')
    except ValueError as error:
        return pieces, back, str(error)


@program
def arguments():
    parser = argparse.ArgumentParser(prog="p", description="does things")
    parser.add_argument("files", nargs="*")
    parser.add_argument("-n", "--number", type=int, default=3, choices=[1, 2, 3])
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--on", action="store_true")
    group.add_argument("--off", action="store_const", const=5)
    sub = argparse.ArgumentParser(add_help=False, parents=[])
    sub.add_argument("--x", action="append")
    wrong = io.StringIO()
    with contextlib.redirect_stderr(wrong), contextlib.suppress(SystemExit):
        parser.parse_args(["--on", "--off"])
    known = parser.parse_args(["a", "b", "-n2", "--off"])
    return vars(known), parser.format_help(), wrong.getvalue(), vars(sub.parse_args(["--x", "1", "--x=2"]))


@program
def regular_expressions():
    compiler = getattr(re, "_compiler", None) or sys.modules["sre_compile"]
    patterns = [
        r"(?P<a>\w+)\s*=\s*(?:\d+|'[^']*')(?!x)",
        r"(?i)a{2,5}?b|[^\W\d_]+$",
        r"(?<=ab)c(?(1)d|e)|(f)",
        "(",
        "a**",
    ]
    out = []
    for pattern in patterns:
        try:
            out.append(repr(compiler.compile(pattern).groupindex))
        except re.error as error:
            out.append(str(error))
    return out


@program
def trees_and_tokens():
    tree = ast.parse(TEXT)
    text = ast.unparse(tree)
    again = ast.dump(ast.parse(text)) == ast.dump(tree)
    tokens = [(t.type, t.string) for t in tokenize.generate_tokens(io.StringIO(TEXT).readline)]
    return text, again, tokens[:300], ast.literal_eval("{'a': [1, -2, (3,)]}")


@program
def decimals():
    context = pydecimal.Context(prec=30)
    a, b = pydecimal.Decimal("1.2345678901234567890"), pydecimal.Decimal("-7e-3")
    values = [
        a + b,
        a * b,
        context.divide(a, b),
        context.sqrt(a),
        a.exp(context),
        a.ln(context),
        a.quantize(b),
        a % b,
    ]
    return (
        [str(v) for v in values],
        f"{a:.5f} {b:e}",
        a > b,
        hash(a) == hash(+a),
        pydecimal.Decimal("nan").is_nan(),
    )


@program
def classes_that_make_classes():
    @dataclasses.dataclass(order=True)
    class Point:
        x: int
        y: list = dataclasses.field(default_factory=list, compare=False)

    class Flag(enum.Flag):
        A = 1
        B = 2
        C = A | B

    Pair = collections.namedtuple("Pair", "a b", defaults=[3])
    point = Point(1, [2])
    counts = collections.Counter("abracadabra")
    return (
        point, dataclasses.asdict(point), dataclasses.replace(point, x=5) > point, Flag.A | Flag.B, list(Flag),
        Pair(1)._asdict(), counts.most_common(2), counts - collections.Counter("aab"), collections.ChainMap({"a": 1}, {"b": 2}),
        typing.get_type_hints(Point), typing.Literal[1], typing.Callable[[int], str],
    )  # fmt: skip


@program
def looking_at_functions():
    def f(a, /, b: int = 2, *c, d, e=None, **g) -> str:
        return a

    signature = inspect.signature(f)
    bound = signature.bind(1, 2, 3, d=4, z=5)
    bound.apply_defaults()
    wrapped = functools.wraps(f)(lambda *a: None)
    return str(signature), bound.arguments, inspect.signature(wrapped) == signature, inspect.getdoc(str.join)


@program
def tracebacks():
    def fails(n):
        return fails(n - 1) if n else {}["key"]

    try:
        fails(3)
    except KeyError:
        return [
            line.split(", in")[-1]
            for line in traceback.format_exc().splitlines()
            if "~" not in line and "^" not in line
        ]


class Everything(Hooks):
    """A tracer by which all functions are converted, those of the standard library too."""

    def __init__(self):
        super().__init__()
        self.strange, self.copies = [], set()

    def of(self, f):
        found = super().of(f)
        code = getattr(getattr(found, "__func__", found), "__code__", None)
        if code is not None and is_copy(code):
            self.copies.add(code)
        return found

    def not_copied(self, f, why):
        if "no source" not in str(why) and "asynchronous" not in str(why):
            self.strange.append(str(why))


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda f: f.__name__)
def test_programs(run, monkeypatch):
    monkeypatch.setattr(callees, "_is_standard", lambda code: False)
    want = run()
    hooks = Everything()
    copy = hooks.of(run)
    assert is_copy(copy.__code__), why_not(run.__code__)
    got = copy()
    assert repr(got) == repr(want)
    assert len(hooks.copies) >= 4
    assert not hooks.strange
