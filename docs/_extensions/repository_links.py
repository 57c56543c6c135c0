"""Links that leave the pages: records, tables and code of the repository.

Pages are written to be read in a checkout as well as on the site. A link to a file beside the
docs, such as a stored record, gives that very file: it becomes a part of the site.
"""

import re
from typing import Any

from sphinx.application import Sphinx

_OUTSIDE = re.compile(r"(?<!!)(\[[^\]]*\])\(((?:\.\./)+(?:results|benchmarks|src)/[^)#\s]+)\)")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what happens to a page when it is read."""
    app.connect("source-read", _name_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _name_files(_: Sphinx, __: str, source: list[str]) -> None:
    """Say of links to other files that they are no pages: some end in .md, too."""
    source[0] = _OUTSIDE.sub(r"\1(path:\2)", source[0])
