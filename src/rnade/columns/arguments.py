"""Arguments that say how to read a table, checked: kinds of columns, marks of missing cells."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rnade.columns.cells import Mark
from rnade.columns.kinds import Kind, Real, make_kind, plain
from rnade.columns.sources import Source

Columns = None | str | Mapping[Any, Any]


def key_of(source: Source, d: int) -> str | int:
    """What `columns` calls column d of a table."""
    return d if source.frame == "array" else source.names[d]


def check_marks(na: Sequence[Mark] | Mark) -> tuple[Mark, ...]:
    """Check marks of missing cells; a single one need not be in a list."""
    marks = [na] if isinstance(na, str | int | float) else list(na)
    marks = [plain(mark) for mark in marks]
    for mark in marks:
        if isinstance(mark, bool) or not isinstance(mark, str | int | float):
            raise ValueError(
                f"na must hold text or numbers that mark missing cells; got {mark!r}. None and NaN"
                " always do."
            )
    return tuple(mark for mark in marks if mark == mark)


def check_kinds(columns: Columns, source: Source) -> dict[int, Kind]:
    """Give the kinds that the user asked for, by position of the column."""
    n_columns = len(source.names)
    if columns is None or columns == "auto":
        return {}
    if columns == "real":
        return dict.fromkeys(range(n_columns), Real(atoms=()))
    if not isinstance(columns, Mapping):
        raise ValueError(
            f'columns must be "auto", "real" or a mapping of names to kinds; got {columns!r}.'
        )
    places: dict[object, int] = {str(name): d for d, name in enumerate(source.names)}
    places |= {name: d for d, name in enumerate(source.names)}
    if source.frame == "array":
        places |= {d: d for d in range(n_columns)}
    for key in columns:
        if plain(key) not in places:
            raise ValueError(
                f"columns names {key!r}, which is no column of X."
                f"{nearest(str(key), [str(name) for name in places])}"
            )
    return {places[plain(key)]: make_kind(kind) for key, kind in columns.items()}


def nearest(name: str, known: Iterable[str]) -> str:
    """Ask whether the nearest of some names was meant, if one is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.4)
    return f" Did you mean {near[0]!r}?" if near else ""


def nearest_or_all(name: str, known: Sequence[str]) -> str:
    """Ask whether the nearest of some names was meant, or say which there are."""
    names = [repr(other) for other in known]
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if names[10:] else "")
    return nearest(name, known) or f" It has {shown}."
