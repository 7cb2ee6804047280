"""Whether an answer leads to an exception and to nothing else, read off the instructions that follow a test.

It works without source text, over several lines, and on what pytest makes of an ``assert``: from the
instruction that asks for the truth, the code is followed with each of the two answers. Only what moves the
answer about is understood; everything else may do anything, so that wherever the way parts, all ways must end
in an exception.
"""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

__all__ = ["answer_that_raises", "asks_where_ways_part"]

_MOST = 2000  # instructions looked at


def answer_that_raises(frame: FrameType, asked: object) -> bool | None:
    """Return which answer to the test that a frame makes leads to an exception; None: neither must.

    Parameters
    ----------
    frame : FrameType
        In the midst of an instruction that asks for a truth.
    asked : object
        Whose it is; the variables that hold it may be asked again.
    """
    code = _read(frame.f_code)
    at = code.places.get(frame.f_lasti)
    if at is None:
        return None
    held = [name for name, value in frame.f_locals.items() if value is asked]
    for answer in (False, True):
        if _Walk(code).from_test(at, answer, dict.fromkeys(held, answer)):
            return answer
    return None


def asks_where_ways_part(frame: FrameType) -> bool:
    """Whether a frame asks for a truth in order to go one way or another, and not within a call."""
    code = _read(frame.f_code)
    at = code.places.get(frame.f_lasti)
    name = "" if at is None else code.instructions[at].opname
    return "JUMP" in name or name in ("UNARY_NOT", "TO_BOOL")


class _Code:
    """Instructions of a function, and where exceptions that they raise go to."""

    def __init__(self, code: CodeType) -> None:
        self.instructions = list(dis.get_instructions(code))
        self.places = {i.offset: n for n, i in enumerate(self.instructions)}
        entries = getattr(dis.Bytecode(code), "exception_entries", ())  # from 3.11 on
        self.handlers = [(e.start, e.end, e.target) for e in entries]
        self.handlers += [
            (i.offset, i.argval, i.argval) for i in self.instructions if i.opname == "SETUP_FINALLY"
        ]  # before 3.11

    def handler(self, offset: int) -> int | None:
        """Return the place of what catches an exception raised there."""
        around = [(b - a, target) for a, b, target in self.handlers if a <= offset < b]
        return self.places.get(min(around)[1]) if around else None


@lru_cache(maxsize=512)
def _read(code: CodeType) -> _Code:
    return _Code(code)


class _Walk:
    """One answer, followed: what is on the stack and in variables is True, False or not known (None)."""

    def __init__(self, code: _Code) -> None:
        self.code = code
        self.looked = 0

    def from_test(self, at: int, answer: bool, variables: dict[str, Any]) -> bool:
        """Whether all ways from a test with this answer end in an exception."""
        name, argument = self.code.instructions[at].opname, str(self.code.instructions[at].argrepr)
        if name == "COMPARE_OP":  # of tuples or lists, which ask for each element
            if answer or not ("==" in argument or "!=" in argument):
                return False
            return self.raises(at + 1, ["!=" in argument], variables)
        if name in ("UNARY_NOT", "TO_BOOL") or "JUMP" in name:
            return self.raises(at, [answer], variables)
        return False

    def raises(self, at: int, stack: list[Any], variables: dict[str, Any]) -> bool:
        """Whether all ways from an instruction end in an exception."""
        while at < len(self.code.instructions):
            self.looked += 1
            step = self.code.instructions[at]
            name = step.opname
            if self.looked > _MOST or name.startswith(("RETURN", "YIELD", "SEND")):
                return False
            if name in ("RAISE_VARARGS", "RERAISE"):
                catcher = self.code.handler(step.offset)
                return catcher is None or self.raises(catcher, [], variables)
            if "JUMP" in name:
                ways = self._jump(at, step, stack)
                if not all(self.raises(to, list(left), dict(variables)) for to, left in ways[1:]):
                    return False
                at, stack = ways[0]
                if at <= self.code.places[step.offset]:
                    return False
                continue
            self._do(step, stack, variables)
            at += 1
        return False

    def _jump(self, at: int, step: dis.Instruction, stack: list[Any]) -> list[tuple[int, list[Any]]]:
        """Return where a jump may lead, and what is left on the stack."""
        to, name = self.code.places[step.argval], step.opname
        if "_IF_" not in name:
            return [(to, stack)]
        answer = stack.pop() if stack else None
        if "NONE" in name:  # an answer is not None; what isn't known may be
            answer = None
        jumps = "TRUE" in name
        ways = []
        if answer is not (not jumps):
            ways.append((to, [*stack, answer] if name.endswith("OR_POP") else stack))
        if answer is not jumps:
            ways.append((at + 1, stack))
        return ways

    def _do(self, step: dis.Instruction, stack: list[Any], variables: dict[str, Any]) -> None:
        name = step.opname
        if name in ("NOP", "CACHE", "EXTENDED_ARG", "RESUME", "NOT_TAKEN", "TO_BOOL"):
            return
        if name == "UNARY_NOT":
            answer = stack.pop() if stack else None
            stack.append(None if answer is None else not answer)
        elif name in ("DUP_TOP", "COPY") and (name == "DUP_TOP" or step.arg == 1):
            stack.append(stack[-1] if stack else None)
        elif name == "STORE_FAST":
            variables[step.argval] = stack.pop() if stack else None
        elif name in ("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK"):
            stack.append(variables.get(step.argval))
        elif name == "STORE_FAST_LOAD_FAST":
            kept, wanted = step.argval
            variables[kept] = stack.pop() if stack else None
            stack.append(variables.get(wanted))
        elif name == "WITH_EXCEPT_START":  # a context that swallows no exceptions
            stack.append(False)
        elif name == "POP_TOP":
            del stack[-1:]
        else:
            effect = dis.stack_effect(
                step.opcode, step.arg if step.opcode >= dis.HAVE_ARGUMENT else None, jump=False
            )
            size = max(len(stack) + effect, 0)
            stack[:] = [None] * size
