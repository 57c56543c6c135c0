"""Parts of a page with what goes into them; every word that comes from data is escaped."""

import html
import re
from collections.abc import Iterable
from functools import cached_property
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


class Parts:
    """The parts of a page: templates with slots, in the file ``page.html`` of a package.

    Parameters
    ----------
    package : str
    """

    def __init__(self, package: str) -> None:
        self.package = package

    def fill(self, part: str, /, **values: object) -> Markup:
        """Fill the slots of a part; a part or a value that is missing is an error."""
        return Markup(self._parts[part].substitute({name: text(v) for name, v in values.items()}))

    @cached_property
    def _parts(self) -> dict[str, Template]:
        source = files(self.package).joinpath("page.html").read_text(encoding="utf-8")
        found = re.findall(r'<template id="([a-z-]+)">(.*?)</template>', source, re.DOTALL)
        return {name: Template(part.replace("\n", " ")) for name, part in found}
