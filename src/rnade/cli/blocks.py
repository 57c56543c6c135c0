"""Small pictures of block characters for the terminal: bars that lie, and bars that stand."""

from collections.abc import Sequence

_LYING = " ▏▎▍▌▋▊▉█"
_STANDING = " ▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """Draw a share of 1 as a bar of at most so many characters.

    >>> bar(0.55, 5)
    '██▊'
    """
    eighths = round(8 * width * min(max(share, 0.0), 1.0))
    return _LYING[-1] * (eighths // 8) + _LYING[eighths % 8].strip()


def skyline(heights: Sequence[float], n_lines: int) -> list[str]:
    """Draw heights, 0 or more, as bars side by side; the highest fills all lines.

    Any height above 0 shows as a low block at least, so that a thin tail can be told from none.

    >>> skyline([0, 1, 4, 16], 2)
    ['   █', ' ▁▄█']
    """
    highest = max(heights, default=0.0) or 1.0
    eighths = [max(round(8 * n_lines * h / highest), int(h > 0)) for h in heights]
    return [
        "".join(_STANDING[min(max(e - 8 * line, 0), 8)] for e in eighths)
        for line in reversed(range(n_lines))
    ]


def span(low: int, middle: int, high: int) -> str:
    """Draw an interval and a point in it, by their places in a line.

    >>> span(2, 5, 10)
    '  ├──┼────┤'
    """
    line = [" "] * low + ["─"] * (high + 1 - low)
    line[low], line[high], line[middle] = "├", "┤", "┼"
    return "".join(line)
