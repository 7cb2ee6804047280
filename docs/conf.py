"""Sphinx: ``pip install -e '.[docs]' && sphinx-build -W docs build/html``; nothing is fetched."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

sys.path.insert(0, str(Path(__file__).parent))

import generate

import dreamstream

project = "DreamStream"
author = "DreamStream developers"
copyright = author
version = release = dreamstream.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_heading_anchors = 3
suppress_warnings = ["ref.python"]  # `dtype` as a type names nothing of ours

default_role = "literal"  # `x` in a docstring is code
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"DreamStream {version}"
html_show_sphinx = False
html_copy_source = False

generate.write(Path(__file__).parent / "generated")


def setup(app: Any) -> None:
    """Show the lists that layers.md holds for its checker as they are."""
    for name in ("c-rooms", "python-rooms"):
        app.add_lexer(name, TextLexer)
