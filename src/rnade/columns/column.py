"""One column of a table: what it holds, and how its values are given back."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from rnade.columns.kinds import Level


@dataclass(frozen=True)
class Column:
    """One column that a model sees.

    Attributes
    ----------
    name : str
    kind : {"real", "integer", "category", "date"}
    levels : tuple of str, bool, int or float, or None
        Of a category, in order; code i stands for ``levels[i]``.
    ordered : bool
        Whether the order of the levels has a meaning.
    atoms : tuple of float
        Single values of a real column that hold a share of the rows of their own.
    low, high : float or None
        Bounds that no value may cross.
    dtype : str
        How values are given back: the type in the words of the library the table came from.
    unit : {"day", "second"} or None
        Of dates: what their numbers count since 1970-01-01. Dates with a time are counted in
        days if all are at midnight, in their own time zone.
    step : int or None
        Of dates in seconds, times of day and durations: how many seconds they are multiples of,
        a whole day, hour, minute or second; None if they are finer. Those given back are
        multiples too.
    missing : float
        Share of the rows in which the cell is missing.
    indicates : str or None
        Name of the column whose missing cells this one tells.
    """

    name: str
    kind: str
    levels: tuple[Level, ...] | None = None
    ordered: bool = False
    atoms: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None
    dtype: str = "float64"
    unit: str | None = None
    step: int | None = None
    missing: float = 0.0
    indicates: str | None = None

    def describe(self) -> tuple[str, str, str]:
        """Give the name, the kind and the details in words."""
        if self.indicates is not None:
            return self.name, "indicator", f"tells the missing cells of {self.indicates!r}"
        kind = "ordered category" if self.ordered else self.kind
        details = []
        if self.levels is not None:
            shown = ", ".join(map(str, self.levels[:5])) + (", ..." if self.levels[5:] else "")
            plural = "level" if len(self.levels) == 1 else "levels"
            details.append(f"{len(self.levels)} {plural}: {shown}")
        if self.atoms:
            details.append("single values " + ", ".join(f"{atom:.6g}" for atom in self.atoms))
        if self.low is not None:
            details.append(f"at least {self.low:.6g}")
        if self.high is not None:
            details.append(f"at most {self.high:.6g}")
        if self.unit is not None:
            whole = {3600: "whole hours", 60: "whole minutes", 1: "whole seconds"}
            finest = whole.get(self.step or 0, "seconds")
            details.append("in days" if self.unit == "day" else f"in {finest}")
        if self.missing:
            details.append(f"{self.missing:.1%} missing")
        return self.name, kind, "; ".join(details)

    def to_json(self) -> dict[str, Any]:
        """Give the column as plain JSON values."""
        lists = {"atoms": list(self.atoms), "levels": self.levels and list(self.levels)}
        return asdict(self) | lists

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Rebuild the column that `to_json` gave."""
        levels = record["levels"]
        tuples = {
            "atoms": tuple(map(float, record["atoms"])),
            "levels": None if levels is None else tuple(levels),
        }
        return cls(**{**record, **tuples})
