"""What all display objects share: axes, colours, and a clear word where matplotlib is missing."""

import abc
import math
from typing import Any, Self

import numpy as np

REAL, MODEL, QUIET, ODD = "#33658f", "#c9641c", "#8a919b", "#b3261e"


def pyplot() -> Any:
    """Load matplotlib, or say how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "rnade.plot draws with matplotlib, which is not installed: pip install 'rnade[plot]'"
        ) from error
    return plt


class AbstractDisplay(abc.ABC):
    """A picture on one pair of axes, from what was computed.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn last.
    figure_ : matplotlib Figure
    """

    ax_: Any
    figure_: Any

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


def subplot_grid(n: int, n_across: int = 4) -> Any:
    """Axes for n small pictures; those left over are hidden."""
    across = min(n, n_across)
    down = math.ceil(n / across)
    _, axes = pyplot().subplots(
        down, across, figsize=(3 * across, 2.2 * down), squeeze=False, layout="constrained"
    )
    for ax in axes.flat[n:]:
        ax.set_visible(False)
    return axes.flat[:n]


def draw_each(displays: list[Any], ax: Any) -> Any:
    """Draw one display on `ax`, or several on an array of axes; give back what was drawn on."""
    if ax is None:
        axes = list(subplot_grid(len(displays)))
    else:
        axes = list(np.ravel(ax))
        if len(axes) != len(displays):
            raise ValueError(f"Expected {len(displays)} axes, one a column; got {len(axes)}.")
    for display, one in zip(displays, axes, strict=True):
        display.plot(one)
    if len(axes) == 1 and (ax is None or not isinstance(ax, np.ndarray | list | tuple)):
        return axes[0]
    return np.array(axes, dtype=object)
