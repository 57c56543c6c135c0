"""Text that is written into pages, between marks: `<!-- NAME -->` and `<!-- end of NAME -->`."""

import re


def put(page: str, name: str, text: str) -> str:
    """The page with `text`, which ends in a new line, between the marks called `name`."""
    place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    return place.sub(lambda found: found[1] + text + found[2], page)
