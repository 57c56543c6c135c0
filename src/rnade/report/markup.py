"""Parts of the report's page with what goes into them."""

from rnade.look import Markup, Parts

_PARTS = Parts("rnade.report")


def fill(part: str, /, **values: object) -> Markup:
    """Fill the slots of a part of ``page.html``; a part or a value that is missing is an error.

    >>> fill("caution", severity="note", title="a < b", words=Markup("<b>c</b>"))
    '<li class="note"><strong>a &lt; b</strong><p><b>c</b></p></li>'
    """
    return _PARTS.fill(part, **values)
