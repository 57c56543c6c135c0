"""The answer to a question as plain data: summaries, probabilities, and shares of equal bins."""

from typing import TYPE_CHECKING, Any

import numpy as np

from rnade.columns.values import numbers_of, own_terms

if TYPE_CHECKING:
    from rnade.columns import Column
    from rnade.typing import Array

# The bins of a picture leave out this share at either end, where tails are long and flat.
_TAIL = 0.005


def answer(column: "Column", conditional: Any, level: float, n_bins: int) -> dict[str, Any]:
    """Give what the distribution of one row is as plain data, with an interval of a share.

    Of levels: `likeliest` and `probabilities`, the likeliest first. Of others `mean`, `median`,
    `interval`, the probabilities of `single_values`, and at most so many `bins`, each with its
    probability without that of single values. Ordered levels have `median` and `interval` too.
    Dates and times are text.
    """
    found: dict[str, Any] = {"kind": column.kind}
    if column.levels is not None:
        found |= {"likeliest": _plain(conditional.mode()[0])}
    else:
        found |= {"mean": _plain(conditional.mean()[0])}
    if column.levels is None or column.ordered:
        low, high = (_plain(end[0]) for end in conditional.interval(level))
        found["median"] = _plain(conditional.median()[0])
        found["interval"] = {"level": level, "low": low, "high": high}
    if column.levels is not None:
        shares = conditional.probabilities()[0]
        order = np.argsort(-shares, kind="stable")
        levels = [_plain(level) for level in conditional.levels]
        found["probabilities"] = [
            {"level": levels[i], "probability": float(shares[i])} for i in order
        ]
    else:
        single = conditional.pdf(np.array(column.atoms)) if column.atoms else np.zeros(0)
        found["single_values"] = [
            {"value": atom, "probability": float(share)}
            for atom, share in zip(column.atoms, single, strict=True)
        ]
        found["bins"] = _bins(column, conditional, single, n_bins)
    return found


def _bins(column: "Column", conditional: Any, single: "Array", n_bins: int) -> list[Any]:
    """Give the probabilities of equal bins, without those of single values."""
    ends = conditional.quantile([_TAIL, 1 - _TAIL])[0]
    first, last = numbers_of(column, ends)
    if first == last:
        return []
    if column.kind == "integer" or column.unit == "day":
        step = -(-(last - first + 1) // n_bins)
        # Bins end with a number that belongs to them.
        edges = np.arange(first - 1, last + step, step)
        lows, highs = edges[:-1] + 1, edges[1:]
    else:
        edges = np.linspace(first, last, n_bins + 1)
        lows, highs = edges[:-1], edges[1:]
    shares = np.diff(conditional.cdf(own_terms(column, edges)))
    for atom, share in zip(column.atoms, single, strict=True):
        if edges[0] < atom <= edges[-1]:
            shares[np.searchsorted(edges, atom) - 1] -= share
    return [
        {"low": low, "high": high, "probability": max(float(share), 0.0)}
        for low, high, share in zip(
            map(_plain, own_terms(column, lows)),
            map(_plain, own_terms(column, highs)),
            shares,
            strict=True,
        )
    ]


def _plain(value: Any) -> Any:
    """Give a value as JSON has it: dates and times as text."""
    if isinstance(value, np.datetime64):
        return str(value).replace("T", " ")
    if isinstance(value, np.timedelta64):
        return float(value / np.timedelta64(1, "s"))
    item = value.item() if isinstance(value, np.generic) else value
    return item if isinstance(item, bool | int | float | str) else str(item)
