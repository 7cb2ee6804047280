"""Functions by the thousand can be converted: those of the standard library, and of torch.

All of them are converted with ``pytest -m slow tests/tracing/test_mass.py``, a part of them in every run.
"""

import importlib
import sys
import types
import warnings

import pytest

from dreamstream.tracing import NoCopy
from dreamstream.tracing.copies import converted

#: What of Python's own stands for users' code: old and new, short and long, classes, generators, decorators.
STANDARD = [
    "argparse", "ast", "bdb", "calendar", "cmd", "codecs", "collections", "configparser", "contextlib", "copy",
    "csv", "dataclasses", "datetime", "decimal", "difflib", "dis", "doctest", "email", "enum", "fileinput",
    "fractions", "ftplib", "functools", "gettext", "gzip", "heapq", "html", "http", "imaplib", "inspect",
    "ipaddress", "json", "locale", "logging", "mailbox", "mimetypes", "multiprocessing", "netrc", "numbers",
    "optparse", "os", "pathlib", "pdb", "pickle", "pickletools", "platform", "plistlib", "pprint", "profile",
    "pstats", "pydoc", "queue", "random", "sched", "selectors", "shelve", "shlex", "shutil", "smtplib",
    "socket", "socketserver", "sqlite3", "statistics", "string", "subprocess", "tarfile", "tempfile",
    "textwrap", "threading", "timeit", "tokenize", "trace", "traceback", "turtle", "types", "typing",
    "unittest", "urllib", "uuid", "warnings", "wave", "weakref", "xml", "zipfile",
]  # fmt: skip
SAMPLE = ["argparse", "contextlib", "json", "statistics"]
SAMPLE_OF_TORCH = ["torch.nn.modules.rnn", "torch.nn.modules.activation", "torch.nn.modules.module"]

#: Reasons that are right: nothing of the user's is behind them.
EXPECTED = ("asynchronous", "there is no source of it")


def functions_of(modules):
    """The functions of modules that have been imported, those of their classes too, each code once."""
    found = {}
    for module in modules:
        for value in list(vars(module).values()):
            of_class = isinstance(value, type) and value.__module__ == module.__name__
            for f in list(vars(value).values()) if of_class else [value]:
                f = getattr(f, "__func__", getattr(f, "fget", f))
                if isinstance(f, types.FunctionType) and f.__module__ == module.__name__:
                    found.setdefault(id(f.__code__), f)
    return list(found.values())


def convert_all(names):
    """How many functions of these packages were converted, of how many, and why others were not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            try:
                importlib.import_module(name)
            except ImportError:  # what this system hasn't
                continue
    modules = [m for n, m in list(sys.modules.items()) if m is not None and n.startswith(tuple(names))]
    functions, reasons = functions_of(modules), []
    for f in functions:
        try:
            converted(f)
        except NoCopy as reason:
            reasons.append(str(reason))
    return len(functions) - len(reasons), len(functions), reasons


def check(names, least):
    done, of, reasons = convert_all(names)
    strange = [r for r in reasons if not any(e in r for e in EXPECTED)]
    print(f"{done} of {of} converted, {len(strange)} not though there is a source:", *strange[:20], sep="\n")
    assert of >= least
    assert len(strange) <= 0.03 * of, strange


def test_a_part_of_the_standard_library():
    check(SAMPLE, 200)


@pytest.mark.slow
def test_the_standard_library():
    check(STANDARD, 5000)


def test_a_part_of_torch():
    pytest.importorskip("torch")
    check(SAMPLE_OF_TORCH, 100)


@pytest.mark.slow
def test_torch():
    pytest.importorskip("torch")
    check(["torch.nn", "torch.optim", "torch.utils", "torch.distributions"], 2000)
