"""Settings of the site: `make docs` builds it into build/site, without network."""

import inspect
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))

project = "rnade"
author = "The rnade developers"
copyright = author
release = version = metadata.version("rnade")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "command_reference",
    "mathml",
    "repository_links",
]
exclude_patterns = ["_extensions", "_templates"]
templates_path = ["_templates"]

myst_enable_extensions = ["dollarmath", "attrs_block"]
myst_heading_anchors = 4
# Blocks of a shell, of output and of a layout are shown as they are.
highlight_language = "none"
suppress_warnings = ["ref.python"]  # a `name` that several classes have is no link

autosummary_generate = True
autosummary_imported_members = False
autodoc_default_options = {"members": True, "inherited-members": True}
autodoc_member_order = "groupwise"
autodoc_typehints = "none"  # types stand in the docstrings, in NumPy's form
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
# `name` in a docstring is a link where there is such a name, and one only.
default_role = "py:obj"
smartquotes = False  # --flags are not dashes

html_theme = "furo"
html_title = f"rnade {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"top_of_page_buttons": []}
# Signatures of a dozen settings are read one a line.
maximum_signature_line_length = 88

linkcheck_anchors = True


def setup(app: Any) -> None:
    """Leave out what classes have from scikit-learn and torch, whose documentation has it."""

    def is_foreign(_: Any, __: str, ___: str, member: Any, skip: bool, ____: Any) -> bool | None:
        module = getattr(inspect.unwrap(member), "__module__", None) or "rnade"
        return True if not module.startswith("rnade") else None

    app.connect("autodoc-skip-member", is_foreign)
