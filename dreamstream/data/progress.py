"""What is shown on a terminal while audio is streamed."""

from __future__ import annotations

import sys
import time
from typing import Any


class Progress:
    """A bar on stderr if that is a terminal: tqdm's where it is installed, else a plain line.

    `total` is how much there is to do, in `unit`; 0 where that is not known.
    """

    def __init__(self, total: float, quiet: bool, unit: str = "s") -> None:
        self.total, self.done, self.shown, self.unit = total, 0.0, 0.0, unit
        self.bar: Any = None
        self.active = not quiet and sys.stderr is not None and sys.stderr.isatty()
        if self.active and total:
            try:
                from tqdm import tqdm
            except ImportError:
                return
            form = f"{{percentage:3.0f}} %|{{bar}}| {{n:.0f}} of {{total:.0f}} {unit} [{{elapsed}}<{{remaining}}]"
            self.bar = tqdm(total=total, bar_format=form, leave=False, mininterval=0.25)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.close()
        if self.active and self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def advance(self, amount: float) -> None:
        """Count what has been done."""
        self.done += amount
        if self.bar is not None:
            self.bar.update(amount)
        elif self.active and time.monotonic() - self.shown > 0.25:
            self.shown = time.monotonic()
            of = f" of {self.total:.0f}" if self.total else ""
            print(f"\r\x1b[K  {self.done:.0f}{of} {self.unit}", end="", file=sys.stderr, flush=True)
