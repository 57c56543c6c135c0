"""What all display objects share: axes, colours, and a clear word where matplotlib is missing."""

import abc
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, Self, TypeVar

import numpy as np

REAL, MODEL, QUIET, ODD = "#33658f", "#c9641c", "#8a919b", "#b3261e"

Found = TypeVar("Found")
P = ParamSpec("P")


def pyplot() -> Any:
    """Load matplotlib, or say how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "rnade.plot draws with matplotlib, which is not installed: pip install 'rnade[plot]'"
        ) from error
    return plt


class AbstractDisplay(abc.ABC, Generic[Found]):
    """A picture on one pair of axes, from what was computed.

    Parameters
    ----------
    found
        What was computed: one of the findings of `rnade.report`.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn last.
    figure_ : matplotlib Figure
    """

    ax_: Any
    figure_: Any

    def __init__(self, found: Found) -> None:
        self.found = found

    def plot(self, ax: Any = None) -> Self:
        """Draw on these axes, or on those of a new figure.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        """
        if ax is None:
            _, ax = pyplot().subplots()
        self._draw(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @abc.abstractmethod
    def _draw(self, ax: Any) -> None:
        """Draw on axes that are there."""


def as_function(from_estimator: Callable[P, Any], name: str, *, gives: str) -> Callable[P, Any]:
    """Make a display's `from_estimator` a function that returns the axes drawn on.

    Parameters
    ----------
    from_estimator : class method of a display
    name : str
        Of the function.
    gives : "ax_" or "axes_"
        The display's attribute to return.
    """

    @functools.wraps(from_estimator)
    def draw(*args: P.args, **settings: P.kwargs) -> Any:
        return getattr(from_estimator(*args, **settings), gives)

    draw.__name__ = draw.__qualname__ = name
    signature = inspect.signature(from_estimator).replace(return_annotation=Any)
    draw.__signature__ = signature  # type: ignore[attr-defined]
    axes = "matplotlib Axes" if gives == "ax_" else "array of matplotlib Axes"
    draw.__doc__ = f"{inspect.getdoc(from_estimator)}\n\nReturns\n-------\n{axes}\n"
    return draw


def draw_each(displays: list[Any], ax: Any) -> Any:
    """Draw one display on `ax`, or several on an array of axes; give back what was drawn on."""
    if ax is None:
        axes = list(_subplot_grid(len(displays)))
    else:
        axes = list(np.ravel(ax))
        if len(axes) != len(displays):
            raise ValueError(f"Expected {len(displays)} axes, one a column; got {len(axes)}.")
    for display, one in zip(displays, axes, strict=True):
        display.plot(one)
    if len(axes) == 1 and (ax is None or not isinstance(ax, np.ndarray | list | tuple)):
        return axes[0]
    return np.array(axes, dtype=object)


def _subplot_grid(n: int, n_across: int = 4) -> Any:
    """Axes for n small pictures; those left over are hidden."""
    across = min(n, n_across)
    down = math.ceil(n / across)
    _, axes = pyplot().subplots(
        down, across, figsize=(3 * across, 2.2 * down), squeeze=False, layout="constrained"
    )
    for ax in axes.flat[n:]:
        ax.set_visible(False)
    return axes.flat[:n]
