"""The package and the engine grow no further: who adds lines takes others away."""

import pytest
import source_tree

#: The most lines of a folder's files; lower it where lines have gone.
MOST = {"dreamstream": ({".py"}, 81_244), "csrc": ({*source_tree.C_SUFFIXES, ".java"}, 50_860)}


@pytest.mark.parametrize("folder", MOST)
def test_lines(folder):
    suffixes, most = MOST[folder]
    inside = source_tree.ROOT / folder
    found = [path for path in source_tree.files() if path.suffix in suffixes and inside in path.parents]
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in found)
    assert lines <= most, f"{folder} has {lines} lines of source; {most} are the most"
    assert lines > 0.95 * most, f"{folder} has {lines} lines of source only: lower its limit"
