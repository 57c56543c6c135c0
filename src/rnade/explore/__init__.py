"""One page on which a fitted model can be asked: set some columns, and all others follow.

`render` makes the page of a `TableDensity`; the page carries the networks and computes in the
browser, by the JavaScript of this folder, what `rnade.nn` computes in Python.
"""

from rnade.explore.page import Exploration, TableRows, render

__all__ = ["Exploration", "TableRows", "render"]
