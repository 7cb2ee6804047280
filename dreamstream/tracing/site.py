"""What the source says of a place where control flow goes through a hook."""

from typing import NamedTuple


class Site(NamedTuple):
    """A place in a function: an if, a loop, a condition."""

    kind: str
    """``if``, ``while``, ``for``, ``comprehension``, ``assert``, ``guard``, ``and``, ``or``, ``conditional``."""
    file: str
    line: int
    function: str
    """The function's qualified name."""
    text: str
    """The condition, or what a loop goes over, as it is written."""
    names: tuple[str, ...] = ()
    """Local names that are assigned within; of a ``for``, those that are read at its head or after the loop."""
    escapes: tuple[tuple[str, int], ...] = ()
    """What leaves it, with lines: ``return``, ``break``, ``continue``, ``yield``, ``del``."""
    effects: tuple[tuple[str, int], ...] = ()
    """What can't be taken back, as it is written, with lines: attributes, items, calls in place, global names."""
    augmented: tuple[tuple[str, int], ...] = ()
    """Names that ``+=`` and its like assign, with lines: in place where the value is a tensor or a list."""
    then_raises: bool = False
    """Whether what runs where the condition holds always ends in an exception."""
    else_raises: bool = False
    live: tuple[str, ...] = ()
    """Names that a loop's body reads before it has surely assigned them."""
    later: tuple[str, ...] = ()
    """Names of a loop's body that are read after the loop."""
    held: tuple[str, ...] = ()
    """Names that are live and never assigned in the loop: what they hold may still be changed."""
    single: bool = False
    """Whether a comprehension is a list of one ``for`` and no ``if``."""
    end: int = 0
    """The last line of what it decides."""
    in_while: bool = False
    """Whether an if stands within a ``while``."""
    plain: bool = False
    """Whether an if's branches only assign what they pad, crop or compute of numbers, as far as names tell."""
    even: tuple[str, ...] = ()
    """Names that a ``while`` moves by the same amount in every round, with its condition."""
    indexes: bool = False
    """Whether a ``while`` takes elements at a name that it moves, ``x[:, t]``."""

    @property
    def lines(self) -> range:
        return range(self.line, self.end + 1)

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"
