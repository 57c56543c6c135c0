"""Which columns of a file are meant, by name or by position."""

import difflib
from collections import Counter
from collections.abc import Sequence

from rnade.exceptions import TableError


def choose(
    names: Sequence[str],
    columns: Sequence[str] | None,
    exclude: Sequence[str],
    source: str,
    *,
    has_header: bool,
) -> list[str]:
    """Give the names of the columns to look at, in order, or say which are not there."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(f"{source} has more than one column called {listed(twice)}.")
    known = set(names)
    positions = {} if has_header else {str(d): name for d, name in enumerate(names, start=1)}

    def resolve(wanted: Sequence[str]) -> list[str]:
        resolved = [positions.get(name, name) for name in wanted]
        unknown = [name for name in resolved if name not in known]
        if unknown:
            raise TableError(_unknown_columns(unknown, names, source, has_header=has_header))
        again = [name for name, count in Counter(resolved).items() if count > 1]
        if again:
            raise TableError(f"Column {again[0]!r} is asked for more than once.")
        return resolved

    out = set(resolve(exclude))
    chosen = list(names) if columns is None else resolve(columns)
    kept = [name for name in chosen if name not in out]
    if not kept:
        raise TableError(f"{source}: no column is left to use.")
    return kept


def _unknown_columns(
    unknown: Sequence[str], names: Sequence[str], source: str, *, has_header: bool
) -> str:
    # Names differ most often by case and blanks, which cost difflib's ratio like any letter.
    folded = {name.casefold().strip(): name for name in names}
    guesses = []
    for name in unknown:
        near = difflib.get_close_matches(name.casefold().strip(), folded, n=1)
        guesses += [folded[near[0]]] if near else []
    if not has_header:
        hint = f"it has no header, so its columns are {listed(names)}."
    elif guesses:
        hint = f"did you mean {listed(guesses)}?"
    else:
        hint = f"it has {listed(names)}."
    plural = "columns" if len(unknown) > 1 else "column"
    return f"{source} has no {plural} {listed(unknown)}; {hint}"


def listed(names: Sequence[str], most: int = 10) -> str:
    """Quote names for a message, the first few of many."""
    text = ", ".join(map(repr, names[:most]))
    return text if len(names) <= most else f"{text} and {len(names) - most} more"
