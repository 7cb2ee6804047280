"""The public header, read: its declarations, each with the comment before it."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
HEADER = ROOT / "csrc" / "include" / "dreamstream.h"


class Function(NamedTuple):
    """A declaration: its name, what it returns, its parameters, and what is said of it."""

    name: str
    returns: str
    parameters: list[str]
    comment: str


def functions(text: str) -> list[Function]:
    """All that are exported."""
    comment = r"/\*((?:(?!\*/).)*)\*/\s*"
    found = re.finditer(rf"(?:{comment})?^DS_API ([^;(]*?)(\w+)\(([^;]*)\);", text, re.DOTALL | re.MULTILINE)
    out = []
    for match in found:
        said = re.sub(r"\s*\n \* ?", " ", match[1] or "").strip()
        parameters = [" ".join(one.split()) for one in match[4].split(",")]
        out.append(Function(match[3], match[2].strip(), parameters, said))
    return out


def unsaid(function: Function) -> list[str]:
    """What a caller needs to know of a function and is not told."""
    missing = []

    def expect(words: str, where: str) -> None:
        if not re.search(words, function.comment, re.IGNORECASE):
            missing.append(f"{function.name}: {where}: expected {words!r} in its comment")

    expect(r"\bThread: (any|one per stream)\b", "threads")
    fails = function.returns == "ds_status"
    expect(r"\bErrors: " if fails else r"\bCannot fail\b", "failure")
    if "*" in function.returns:
        expect(r"\breturns (view|owned)\b", "ownership of what it returns")
    for parameter in function.parameters:
        name = re.findall(r"\w+", parameter)[-1]
        if re.fullmatch(r"ds_(model|stream) \*\*\w+", parameter):
            expect(rf"`\*?{name}` \((returns owned|views)\b", name)
        elif re.fullmatch(r"(ds_\w+_info|size_t|int64_t|ds_output|void) \*\w+", parameter) and name != "context":
            expect(r"\bfills\b", name)
            expect(rf"`\*?{name}\b", name)
        elif name in {"context", "callback", "write", "allocator"}:
            expect(r"\((copied|kept|keeps)\b", name)
    return missing
