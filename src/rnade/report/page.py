"""Findings as one self-contained page: no network, no scripts, every word from data escaped."""

from importlib.resources import files

from rnade.report import sections
from rnade.report.chart import text
from rnade.report.findings import Findings

# Nothing is fetched and no script runs, whatever a table's header may hold.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render(found: Findings) -> str:
    """Write findings as an HTML page.

    Parameters
    ----------
    found : Findings

    Returns
    -------
    str
        The whole page: it needs no other file, and no network.
    """
    style = files("rnade.report").joinpath("page.css").read_text(encoding="utf-8")
    title = f"{found.table.source}: what {found.fitted.kind} found"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="rnade {text(found.version)}">
<title>{text(title)}</title>
<style>
{style}</style>
</head>
<body>
{sections.head(found)}
<main>
{sections.glance(found)}
{sections.cautions(found)}
{sections.fitted(found)}
{sections.right(found)}
{sections.odd(found)}
{sections.depends(found)}
</main>
{sections.foot(found)}
</body>
</html>
"""
