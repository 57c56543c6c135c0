"""Checks of single arguments, with errors that say what was expected, what came and what to do."""

import difflib
import math
from numbers import Real
from operator import index
from typing import SupportsIndex


def positive_int(value: object, name: str) -> int:
    """Return `value` as an int if it is a whole number of at least 1, else raise a ValueError."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex) or index(value) < 1:
        raise ValueError(f"{name} must be a whole number >= 1; got {value!r}.")
    return index(value)


def number_between(value: object, name: str, low: float, high: float, *, open_low: bool) -> float:
    """Return `value` as a float if it lies between `low` and `high`, else raise a ValueError.

    `open_low` says that `low` itself is not allowed; `high` itself always is.
    """
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not (math.isfinite(number) and low <= number <= high) or (open_low and number == low):
        bound = f"{'>' if open_low else '>='} {low:g}"
        bound += f" and <= {high:g}" if math.isfinite(high) else ""
        raise ValueError(f"{name} must be a number {bound}; got {value!r}.")
    return number


def unknown_name(given: object, known: list[str], what: str) -> ValueError:
    """Build the error for an unknown name: what is known, and the nearest right name."""
    message = f"Unknown {what} {given!r}; expected one of {', '.join(map(repr, known))}."
    near = difflib.get_close_matches(str(given).lower(), known, n=1, cutoff=0.4)
    return ValueError(message + (f" Did you mean {near[0]!r}?" if near else ""))
