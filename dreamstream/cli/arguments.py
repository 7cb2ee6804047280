"""How commands read their arguments, and say what is wrong with one."""

from __future__ import annotations

import argparse
import math
from typing import Any, NoReturn

from .._core import shown

Commands = Any
"""What `argparse` calls the group of sub-commands; it has no public name."""


def fault_of(error: BaseException) -> str:
    """Return an error in one line, that of a file by its name."""
    named = isinstance(error, OSError) and error.filename
    said = f"{error.filename}: {error.strerror}" if named else str(error)  # type: ignore[attr-defined]
    return " ".join(said.split())


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message, exit with status 2."""
        self.exit(2, f"{self.prog}: {shown(message, True)} (try {self.prog} --help)\n")


def at_least(lowest: float, kind: type) -> Any:
    """Return a reader of finite numbers that are `lowest` or more."""

    def read(text: str) -> Any:
        value = kind(text)
        if not lowest <= value < math.inf:
            raise argparse.ArgumentTypeError(f"expected {lowest} or more, got {text}")
        return value

    read.__name__ = "number"
    return read


class _Joined(argparse.Action):
    """One list of what stands in several arguments."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, [x for part in values for x in part])


def add_numbers(parser: argparse.ArgumentParser, name: str, lowest: float, kind: type, default: list[Any]) -> None:
    """Add an option of some numbers, with spaces or commas in between."""
    one = at_least(lowest, kind)

    def read(text: str) -> list[Any]:
        return [one(part) for part in text.split(",")]

    read.__name__ = "number"
    text = f"({' '.join(f'{n:g}' for n in default)})"
    parser.add_argument(name, type=read, nargs="+", action=_Joined, default=default, metavar="N", help=text)


def add_command(commands: Commands, name: str, about: str, further: str = ".") -> argparse.ArgumentParser:
    """Add a command, of which is said what it does, and `further` in its own help; return its parser."""
    return commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}{further}")


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Add ``--threads N``."""
    parser.add_argument(
        "--threads", type=at_least(1, int), metavar="N", help="of the engine; DREAMSTREAM_THREADS or 1 by default"
    )
