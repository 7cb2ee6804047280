"""What the source checks share: which files there are, and C text without comments and strings."""

import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
NOT_SOURCES = {"build", "dist", "_openblas", "__pycache__", ".git"}
ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")  # lie in folders of virtual environments, whatever those are called
C_SUFFIXES = {".c", ".h", ".inc", ".def"}


def files(root: Path = ROOT) -> list[Path]:
    """Files that git tracks or would track; in an unpacked source distribution: all of them.

    What lies in a virtual environment is somebody else's.
    """
    if (root / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True)
        if done.returncode == 0:
            found = (root / name for name in done.stdout.split("\0") if name)
            inside = functools.cache(
                lambda folder: is_environment(folder) or (folder != root and inside(folder.parent))
            )
            return sorted(path for path in found if path.is_file() and not inside(path.parent))
    return sorted(path for path in _walk(root) if not path.name.endswith((".so", ".pyc")))


def is_environment(folder: Path) -> bool:
    return any((folder / name).exists() for name in ENVIRONMENTS)


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir():
            ours = path.name not in NOT_SOURCES and not path.name.endswith((".egg-info", "_cache"))
            if ours and not is_environment(path):
                yield from _walk(path)
        else:
            yield path


def c_files(root: Path) -> list[Path]:
    """All C sources, headers and included fragments below `root`."""
    return sorted(path for path in root.rglob("*") if path.suffix in C_SUFFIXES)


_C_TOKEN = re.compile(
    r"""(?P<include>^[ \t]*\#[ \t]*include[^\n]*)  # may hold "//" between its quotes
      | (?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
      | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)


def c_code(text: str) -> str:
    """C text with comments and strings blanked, lines kept."""

    def blank(match: re.Match[str]) -> str:
        if match["include"]:
            return match[0]
        return re.sub(r"[^\n]", " ", match[0])

    return _C_TOKEN.sub(blank, text)
