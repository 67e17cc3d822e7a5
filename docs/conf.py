"""Configure the documentation site: Sphinx reads this file, and needs no network."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

project = "hagmeta"
author = "The hagmeta contributors"
copyright = f"2026, {author}"
version = release = import_module("hagmeta.common.version").__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "commands",
    "generated",
    "mathml",
    "percent",
]
exclude_patterns = ["_build", "_ext", "example"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

default_role = "code"  # `name` in a docstring is code
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # signatures stay short; docstrings name the arguments
nitpick_ignore_regex = [("py:.*", ".*")]  # types of other packages, which offline builds cannot look up

html_math_renderer = "mathml"
html_theme = "furo"
html_title = "hagmeta"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_show_sphinx = False
html_copy_source = False
html_use_index = False
html_domain_indices = False
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "monokai"


def _keep_colons(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Put an empty comment before the docstring of a property, in which napoleon takes `a: b` for a type."""
    if what == "property":
        lines[:0] = ["..", ""]


def setup(app: Sphinx) -> None:
    """Register what this file defines; a priority below 500 comes before napoleon."""
    app.connect("autodoc-process-docstring", _keep_colons, priority=400)
