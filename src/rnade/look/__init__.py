"""What pages share: style sheets, and markup that escapes every word that comes from data."""

from importlib.resources import files

from rnade.look.markup import Markup, Parts, text

__all__ = ["Markup", "Parts", "style_of", "text"]


def style_of(*names: str) -> Markup:
    """Style sheets of this package by name, one after the other."""
    sheets = files("rnade.look")
    return Markup("".join(sheets.joinpath(name).read_text("utf-8") for name in names))
