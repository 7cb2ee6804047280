"""Sphinx: ``pip install -e '.[docs]' && sphinx-build -W docs build/html``; nothing is fetched."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer
from sphinx.addnodes import pending_xref

sys.path.insert(0, str(Path(__file__).parent))

import generate

import dreamstream
from dreamstream import nn

project = "DreamStream"
author = "DreamStream developers"
copyright = author
version = release = dreamstream.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_heading_anchors = 3

default_role = "literal"  # `x` in a docstring is code
highlight_language = "text"  # where a block doesn't say
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_type_aliases = {"npt.ArrayLike": "ArrayLike"}
python_maximum_signature_line_length = 110
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_title = f"DreamStream {version}"
html_show_sphinx = False
html_copy_source = False

generate.write(Path(__file__).parent / "generated")


def hide_signature(app: Any, what: str, name: str, obj: Any, options: Any, signature: Any, returned: Any) -> Any:
    """Of classes that users don't make, which are those that document no parameters."""
    if what not in ("class", "exception") or not signature or issubclass(obj, nn.Module):
        return None
    return None if "Parameters\n" in (obj.__doc__ or "") else ("", None)


def unlink(app: Any, doctree: Any) -> None:
    """`dtype` as the type of an argument is no attribute of that name."""
    for node in list(doctree.findall(pending_xref)):
        if node["reftarget"] == "dtype":
            node.replace_self(node.children)


def setup(app: Any) -> None:
    """Add what Sphinx lacks."""
    for name in ("c-rooms", "python-rooms", "header", "hex"):  # what pages hold for tests to read
        app.add_lexer(name, TextLexer)
    app.connect("autodoc-process-signature", hide_signature)
    app.connect("doctree-read", unlink)
