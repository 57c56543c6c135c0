"""Check a built site: every link leads somewhere, and nothing is fetched from elsewhere.

``python docs/_extensions/check_site.py build/site`` prints what is wrong; anything is an error.
"""

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser loads by itself, by tag and attribute; <a href> is for the reader to follow.
_LOADED = {("img", "src"), ("script", "src"), ("link", "href"), ("source", "srcset")}
# Made by the theme for search engines alone.
_NOT_LOADED = {"canonical", "next", "prev", "index", "search", "genindex", "author"}


class Page(HTMLParser):
    """Anchors and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[str, bool]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember what a tag names and where it leads."""
        given = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := given.get(name))}
        for name, value in attrs:
            loaded = (tag, name) in _LOADED and given.get("rel") not in _NOT_LOADED
            if value and (loaded or (tag, name) == ("a", "href")):
                self.links.append((value, loaded))


def faults(site: Path) -> Iterator[str]:
    """Sentences on links that lead nowhere, and on what would be fetched from elsewhere."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    if not pages:
        yield f"{site} has no pages."
    for path, page in pages.items():
        here = path.relative_to(site)
        for link, loaded in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if loaded and parts.scheme != "data":
                    yield f"{here} loads {link} from elsewhere."
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                yield f"{here} links to {link}, which does not exist."
            elif parts.fragment and target in pages:
                missing = unquote(parts.fragment) not in pages[target].anchors
                yield from [f"{here} links to {link}: no such place on that page."] * missing


if __name__ == "__main__":
    found = sorted(set(faults(Path(sys.argv[1]).resolve())))
    print(*found, sep="\n")
    sys.exit(bool(found))
