"""Parts of the page with what goes into them; every word that comes from data is escaped."""

import html
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from string import Template


class Markup(str):
    """Text that is markup already; any other is escaped before it enters a page."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Escape what comes from the data, for markup and for attributes; join what are several."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, Iterable) and not isinstance(value, str):
        return Markup("".join(map(text, value)))
    return Markup(html.escape(str(value), quote=True))


def fill(part: str, /, **values: object) -> Markup:
    """Fill the slots of a part of ``page.html``; a part or a value that is missing is an error.

    >>> fill("caution", severity="note", title="a < b", words=Markup("<b>c</b>"))
    '<li class="note"><strong>a &lt; b</strong><p><b>c</b></p></li>'
    """
    return Markup(_parts()[part].substitute({name: text(v) for name, v in values.items()}))


@cache
def _parts() -> dict[str, Template]:
    source = files("rnade.report").joinpath("page.html").read_text(encoding="utf-8")
    found = re.findall(r'<template id="([a-z-]+)">(.*?)</template>', source, re.DOTALL)
    return {name: Template(part.replace("\n", " ")) for name, part in found}
