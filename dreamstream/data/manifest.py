"""Manifests: tables of recordings and targets, as comma- or tab-separated values or lines of JSON."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import FormatError

KINDS = (".csv", ".tsv", ".jsonl")


def read_manifest(path: Any, columns: Sequence[str]) -> Iterator[tuple[str, str, Any]]:
    """Yield id, path and target of each row; None for the target of a row that has none.

    `columns` are the names of the column of paths, which count from the manifest's folder, and of that of targets.
    A column ``id`` names the streams; without it they have the paths as they are written.
    """
    path = Path(path)
    lines = path.suffix.lower() == ".jsonl"
    where, what = columns
    try:
        rows = list(_json_rows(path) if lines else _table_rows(path))
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: a manifest is UTF-8: {error}") from None
    if not rows:
        raise FormatError(f"{path}: there are no recordings in this manifest (a table's first line names columns)")
    if what != "target" and not any(what in row for _, row in rows):
        raise FormatError(f"{path}: there is no column {what!r} of targets, which columns=(paths, targets) names")
    for number, row in rows:
        if not isinstance(row.get(where), str) or not row[where]:
            found = ", ".join(map(repr, row))
            raise FormatError(
                f"{path}: line {number} has no path in the column {where!r}; it has {found or 'nothing'}, of "
                "which columns=(paths, targets) may name others"
            )
    targets = [row.get(what) for _, row in rows]
    if not lines and all(map(_is_number, targets)):
        targets = [json.loads(str(t)) for t in targets]
    for (_, row), target in zip(rows, targets):
        yield str(row.get("id", row[where])), os.path.join(path.parent, row[where]), target


def _is_number(text: Any) -> bool:
    """Whether a cell of a table is a number of JSON's; a column is one of numbers where all of its cells are."""
    try:
        return isinstance(text, str) and type(json.loads(text)) in (int, float)
    except ValueError:
        return False


def _json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise FormatError(f"{path}: line {number} is no JSON: {error}") from None
            if not isinstance(row, dict):
                raise FormatError(f"{path}: line {number}: expected an object, got {type(row).__name__}")
            yield number, row


def _table_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        table = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", skipinitialspace=True)
        names = [name.strip() for name in next(table, [])]
        for cells in filter(None, table):
            number, n = table.line_num, len(names)
            if len(cells) != n:
                raise FormatError(f"{path}: line {number}: expected {n} cells, as the first line has")
            yield number, dict(zip(names, cells))
