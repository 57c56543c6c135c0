"""Puts stored tables into the pages that show them: python examples/result_pages.py.

A page names a table by a line `<!-- table: PATH -->`, with a path from the repository's root; the
text from there to `<!-- end of table -->` is what that file holds.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLACE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """The page's text with the stored tables in their places."""
    return PLACE.sub(lambda m: f"{m[1]}{(ROOT / m[2]).read_text()}{m[3]}", page)


if __name__ == "__main__":
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        path.write_text(with_tables(path.read_text()))
