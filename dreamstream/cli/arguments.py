"""How commands read their arguments."""

from __future__ import annotations

import argparse
import math
from typing import Any, NoReturn

__all__ = ["Commands", "Parser", "add_threads", "at_least"]

Commands = Any
"""What `argparse` calls the group of sub-commands; it has no public name."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message, exit with status 2."""
        self.exit(2, f"{self.prog}: {message} (try {self.prog} --help)\n")


def at_least(lowest: float, kind: type) -> Any:
    """Return a reader of finite numbers that are `lowest` or more."""

    def read(text: str) -> Any:
        value = kind(text)
        if not lowest <= value < math.inf:
            raise argparse.ArgumentTypeError(f"expected {lowest} or more, got {text}")
        return value

    read.__name__ = "number"
    return read


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Add ``--threads N``."""
    parser.add_argument(
        "--threads",
        type=at_least(1, int),
        metavar="N",
        help="of the engine; DREAMSTREAM_THREADS or 1 by default",
    )
