"""Draw chunks.svg from what a module really does: ``python docs/figures/make_chunks.py``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import dreamstream as ds
from dreamstream import nn

PICTURE = Path(__file__).with_name("chunks.svg")
LENGTH, BACK, AHEAD = 10, 2, 2
CHUNKS = (4, 1, 3, 2, 0)

CELL, GAP, LEFT, ROW, TOP = 34, 6, 170, 104, 64
STYLES = {
    "gone": 'fill="none" stroke="#c8c8c8"',
    "kept": 'fill="url(#kept)" stroke="#3b6ea5"',
    "new": 'fill="#3b6ea5" stroke="#3b6ea5"',
    "later": 'fill="none" stroke="#c8c8c8" stroke-dasharray="3 3"',
    "out": 'fill="#d9822b" stroke="#d9822b"',
}
LIGHT = ("new", "out")


def calls() -> list[tuple[int, int, int, int, int]]:
    """Per call: frames before and after it, output frames before and after it, the first frame still kept."""
    model = ds.patch_module(nn.Conv1d(1, 1, BACK + 1 + AHEAD, padding=(BACK, AHEAD))).online()
    rows, seen, given = [], 0, 0
    for i, n in enumerate(CHUNKS):
        chunk = np.zeros((1, n), np.float32)
        last = i == len(CHUNKS) - 1
        y = model(ds.stream_tensor([chunk], ids=["anna"], sos=i == 0, eos=last))
        kept = max(0, given - BACK)
        gives = given + int(y.lengths[0])
        rows.append((seen, seen + n, given, gives, kept))
        seen, given = seen + n, gives
    return rows


def text(x: float, y: float, words: str, bold: bool = False, colour: str = "#333", anchor: str = "start") -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}" text-anchor="{anchor}"{weight}>{words}</text>'


def frame(position: int, y: float, style: str) -> list[str]:
    x = LEFT + position * (CELL + GAP)
    colour = "#fff" if style in LIGHT else "#999" if style in ("gone", "later") else "#333"
    return [
        f'<rect x="{x}" y="{y:g}" width="{CELL}" height="26" rx="4" {STYLES[style]}/>',
        text(x + CELL / 2, y + 18, str(position), colour=colour, anchor="middle"),
    ]


def picture() -> str:
    """The picture as it should be."""
    rows = calls()
    width, height = LEFT + LENGTH * (CELL + GAP) + 14, TOP + ROW * len(rows)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="13">',
        '<defs><pattern id="kept" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect width="6" height="6" fill="#e8f0f8"/>'
        '<rect width="2" height="6" fill="#a9c4e0"/></pattern></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        text(14, 24, f"A convolution over {BACK} frames back and {AHEAD} ahead: delay {AHEAD}", bold=True),
    ]
    x = 14.0
    for style, words in (("new", "frames in"), ("kept", "kept from before"), ("out", "frames out")):
        out.append(f'<rect x="{x:g}" y="36" width="16" height="16" rx="3" {STYLES[style]}/>')
        out.append(text(x + 22, 49, words))
        x += 42 + 7.5 * len(words)
    for i, (seen, now, given, gives, kept) in enumerate(rows):
        y = TOP + i * ROW
        ends = ", the end" if i == len(rows) - 1 else ""
        out.append(f'<line x1="14" x2="{width - 14}" y1="{y + 8}" y2="{y + 8}" stroke="#e4e4e4"/>')
        out.append(text(14, y + 36, f"call {i + 1}: {now - seen} in{ends}", bold=True))
        out.append(text(14, y + 70, f"{gives - given} out"))
        for p in range(LENGTH):
            style = "new" if seen <= p < now else "later" if p >= now else "kept" if p >= kept else "gone"
            out += frame(p, y + 18, style)
            out += frame(p, y + 52, "gone" if p < given else "out" if p < gives else "later")
    return "\n".join([*out, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
