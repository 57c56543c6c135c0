"""What a column can be told to hold: real numbers, whole numbers, categories or dates."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real as Number
from typing import Any

from rnade.checks import unknown_name

Level = str | bool | int | float


def plain(value: object) -> Any:
    """Give a NumPy scalar as the Python value that it holds, and all else as it is."""
    item = getattr(value, "item", None)
    return item() if type(value).__module__ == "numpy" and item is not None else value


def _is_number(value: object) -> bool:
    return isinstance(value, Number) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class Real:
    """A column of real numbers, some of whose values may hold a share of the rows of their own.

    Parameters
    ----------
    atoms : "auto" or sequence of numbers
        Single values that hold a share of the rows, such as the zeros of rainfall. With "auto"
        they are found in the data; an empty sequence says that there are none.
    low, high : float, optional
        Bounds that no value may cross.
    """

    atoms: str | Sequence[float] = "auto"
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            bound = getattr(self, name)
            if bound is not None:
                if not _is_number(bound):
                    raise ValueError(
                        f"{name} must be a finite number, or None for no bound; got {bound!r}."
                    )
                object.__setattr__(self, name, float(bound))
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(
                f"low must be less than high; got low={self.low:g} and high={self.high:g}. Swap"
                " them, or leave one out."
            )
        if isinstance(self.atoms, str):
            if self.atoms != "auto":
                raise ValueError(
                    f'atoms must be "auto" or a sequence of numbers; got {self.atoms!r}.'
                )
            return
        object.__setattr__(self, "atoms", self._checked_atoms())

    def _checked_atoms(self) -> tuple[float, ...]:
        atoms: list[Any] = list(self.atoms)
        for atom in atoms:
            if not _is_number(atom):
                raise ValueError(
                    f"atoms must be finite numbers; got {atom!r}. Leave it out; missing cells"
                    " need no atom."
                )
            outside = (self.low is not None and atom < self.low) or (
                self.high is not None and atom > self.high
            )
            if outside:
                raise ValueError(
                    f"The atom {atom:g} lies outside the bounds low={self.low} and"
                    f" high={self.high}: leave it out, or widen them."
                )
        # Adding 0 turns -0 into 0, which it equals.
        return tuple(sorted({float(atom) + 0.0 for atom in atoms}))


@dataclass(frozen=True)
class Integer:
    """A column of whole numbers."""


@dataclass(frozen=True)
class Category:
    """A column of categories.

    Parameters
    ----------
    levels : sequence of str, bool, int or float, optional
        All values that may occur, in order. By default those that the data declare or hold.
    ordered : bool
        Whether the order of the levels has a meaning.
    """

    levels: Sequence[Level] | None = None
    ordered: bool = False

    def __post_init__(self) -> None:
        if self.levels is None:
            return
        if isinstance(self.levels, str):
            raise ValueError(
                f"levels must be a sequence of levels; got the text {self.levels!r}. Pass a list"
                " with one entry per level."
            )
        levels = tuple(plain(level) for level in self.levels)
        if not levels:
            raise ValueError(
                "levels is empty: name at least one level, or pass levels=None to take those of"
                " the data."
            )
        for level in levels:
            if not isinstance(level, str | bool | int | float) or level != level:
                raise ValueError(
                    f"levels must be text, numbers or booleans; got {level!r}. Leave it out;"
                    " missing cells need no level."
                )
        if len({isinstance(level, str) for level in levels}) > 1:
            raise ValueError("levels mix text and numbers: use one type for all levels.")
        twice = [level for i, level in enumerate(levels) if level in levels[:i]]
        if twice:
            raise ValueError(f"levels holds {twice[0]!r} more than once: name each level once.")
        object.__setattr__(self, "levels", levels)


@dataclass(frozen=True)
class Date:
    """A column of dates, or of dates with a time of day."""


@dataclass(frozen=True)
class LeaveOut:
    """A column that the model does not see."""


Kind = Real | Integer | Category | Date | LeaveOut

_KINDS: dict[str, Kind] = {
    "real": Real(),
    "integer": Integer(),
    "category": Category(),
    "ordinal": Category(ordered=True),
    "boolean": Category(levels=(False, True)),
    "date": Date(),
    "leave-out": LeaveOut(),
}


def make_kind(value: object) -> Kind:
    """Give the kind that a name stands for; a kind itself is given back as it is.

    Parameters
    ----------
    value : Real, Integer, Category, Date, LeaveOut or str
        As a name: "real", "integer", "category", "ordinal" (an ordered category), "boolean" (a
        category of False and True), "date" or "leave-out".

    Examples
    --------
    >>> make_kind("ordinal")
    Category(levels=None, ordered=True)
    """
    if isinstance(value, Kind):
        return value
    if isinstance(value, type) and issubclass(value, Kind):
        return value()
    if not isinstance(value, str) or value not in _KINDS:
        raise unknown_name(value, list(_KINDS), "kind of column")
    return _KINDS[value]
