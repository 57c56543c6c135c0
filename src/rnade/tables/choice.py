"""Which columns of a file are meant, by name or by position."""

import difflib
from collections import Counter
from collections.abc import Sequence

from rnade.exceptions import TableError
from rnade.tables.opening import TableFile


def choose(file: TableFile, columns: Sequence[str] | None, exclude: Sequence[str]) -> list[str]:
    """Give the names of the columns to look at, in order, or say which are not there."""
    refuse_repeated(file.source, file.names)
    known = set(file.names)
    positions = {} if file.has_header else {str(d): n for d, n in enumerate(file.names, start=1)}

    def resolve(wanted: Sequence[str]) -> list[str]:
        resolved = [positions.get(name, name) for name in wanted]
        unknown = [name for name in resolved if name not in known]
        if unknown:
            raise TableError(_unknown_columns(unknown, file))
        for name in _repeated(resolved):
            raise TableError(f"Column {name!r} is asked for more than once.")
        return resolved

    out = set(resolve(exclude))
    chosen = file.names if columns is None else resolve(columns)
    kept = [name for name in chosen if name not in out]
    if not kept:
        raise TableError(f"{file.source}: no column is left to use.")
    return kept


def refuse_repeated(source: str, names: Sequence[str]) -> None:
    """Raise an error where columns of a file share a name."""
    twice = _repeated(names)
    if twice:
        raise TableError(
            f"{source} has more than one column called {listed(twice)}: rename the duplicates."
        )


def _repeated(names: Sequence[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _unknown_columns(unknown: Sequence[str], file: TableFile) -> str:
    # Names differ most often by case and blanks, which cost difflib's ratio like any letter.
    folded = {name.casefold().strip(): name for name in file.names}
    near = [difflib.get_close_matches(name.casefold().strip(), folded, n=1) for name in unknown]
    guesses = [folded[match] for matches in near for match in matches]
    if not file.has_header:
        hint = f"it has no header, so its columns are {listed(file.names)}."
    elif guesses:
        hint = f"did you mean {listed(guesses)}?"
    else:
        hint = f"it has {listed(file.names)}."
    plural = "columns" if len(unknown) > 1 else "column"
    return f"{file.source} has no {plural} {listed(unknown)}; {hint}"


def listed(names: Sequence[str], most: int = 10) -> str:
    """Quote names for a message, the first few of many."""
    text = ", ".join(map(repr, names[:most]))
    return text if len(names) <= most else f"{text} and {len(names) - most} more"
