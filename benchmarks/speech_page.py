"""Puts the tables of results/table3 into docs/explanation/speech.md.

python -m benchmarks.speech_page
"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "explanation" / "speech.md"
TABLES = ROOT / "results" / "table3" / "table.md"
PLACE = re.compile(r"(<!-- table3 -->\n).*(<!-- end of table3 -->)", re.DOTALL)


def page_with(tables: str, page: str) -> str:
    """Give the page with these tables in their place."""
    return PLACE.sub(lambda found: f"{found[1]}{tables.strip()}\n{found[2]}", page)


if __name__ == "__main__":
    PAGE.write_text(page_with(TABLES.read_text(), PAGE.read_text()))
