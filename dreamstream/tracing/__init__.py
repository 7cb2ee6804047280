"""Private copies of functions, in which control flow and calls go through hooks.

A forward is ordinary Python. Where a tracer has to see what operators can't (a length that is asked for a truth, a
loop over frames), a *copy* of the function runs in its place, made once from its source. Nothing of the user's is
changed.
"""

from .copies import why_not
from .hooks import Hooks, Loop, Symbolic, Undecided, variables
from .site import Site
from .source import NoCopy

__all__ = ["Hooks", "Loop", "NoCopy", "Site", "Symbolic", "Undecided", "variables", "why_not"]
