"""Text that is written into pages, between marks: `<!-- NAME -->` and `<!-- end of NAME -->`."""

import re
from collections.abc import Iterable, Sequence


def put(page: str, name: str, text: str) -> str:
    """The page with `text`, which ends in a new line, between the marks called `name`."""
    place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    return place.sub(lambda found: found[1] + text + found[2], page)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """A table whose first columns, as many as `left`, are words and the others numbers."""
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    first, *lines = (f"| {' | '.join(row)} |" for row in (head, rule, *rows))
    return "\n".join([first.replace("|  |", "| |"), *lines])  # an empty corner has one blank
