"""Functions of every construct, with arguments to call them with: a copy must do what the original does.

``CALLS`` lists them. They are laid out as users write, and are meant to be read line by line: a traceback or a
tracer names these lines.
"""

from . import conditions, functions
from .calls import CALLS

MODULES = conditions, functions
FILES = {m.__file__ for m in MODULES}

__all__ = ["CALLS", "FILES", "MODULES"]
