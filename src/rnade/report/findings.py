"""Everything that a page tells, as plain values."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rnade.report.asked import Role
from rnade.report.calibration import ColumnCalibration
from rnade.report.dependence import Gain
from rnade.report.fitted import Fitted, ScoreLine
from rnade.report.kinds import ColumnKind
from rnade.report.marginals import LevelMarginal
from rnade.report.oddness import Oddness
from rnade.report.resemblance import Correlation, Marginal, Pairs

# Columns that are shown one by one; of wider tables the worst, or those that gain the most.
MOST_SHOWN = 60


@dataclass(frozen=True)
class Table:
    """The table that the model is asked about.

    Attributes
    ----------
    source : str
        The file's name, for people.
    n_rows : int
    dropped_rows : int
        Rows of the file left out for a missing cell.
    role : "fitted", "other" or "unknown"
        Whether it is the table that was fitted.
    n_judged : int
        Rows by which the model is judged.
    n_sampled : int
        Rows drawn from the model to be compared with it.
    """

    source: str
    n_rows: int
    dropped_rows: int
    role: Role
    n_judged: int
    n_sampled: int


@dataclass(frozen=True)
class Caution:
    """Something to know before trusting the page.

    Attributes
    ----------
    kind : str
        One word for programs: "worse-than-gaussian", "unlike", "overfit", "leak", "spike",
        "rounded", "repeated", "outside", "few", "short", "skipped", "rows", "weighted",
        "new-levels", "missing", "missing-more", "table".
    severity : "serious", "mind" or "note"
    title, text : str
        For people.
    """

    kind: str
    severity: Literal["serious", "mind", "note"]
    title: str
    text: str


@dataclass(frozen=True)
class Findings:
    """What the model found, and how far to trust it.

    Attributes
    ----------
    fitted : Fitted
    table : Table
    scores : list of ScoreLine
        The model first, then the references; over the judged rows.
    calibration : list of ColumnCalibration
        Empty where the model cannot say.
    marginals : list of Marginal or LevelMarginal
    pairs : Pairs or None
        None for a table of one column.
    correlation : Correlation or None
        Of all columns; of a wide table, of those that gain the most from others.
    oddness : Oddness
    gains : list of Gain
        In the model's order; empty where the model cannot say.
    cautions : list of Caution
        The most serious first.
    sentences : dict of str
        The findings in one sentence each, by section.
    absent : list of str
        What could not be found out and why, in sentences.
    version : str
        Of this library.
    """

    fitted: Fitted
    table: Table
    scores: list[ScoreLine]
    calibration: list[ColumnCalibration]
    marginals: Sequence[Marginal | LevelMarginal]
    pairs: Pairs | None
    correlation: Correlation | None
    oddness: Oddness
    gains: list[Gain]
    cautions: list[Caution]
    sentences: dict[str, str]
    absent: list[str]
    version: str

    def as_json(self) -> dict[str, Any]:
        """Give everything as JSON holds it: arrays as lists, what is not finite as null."""

        def plain(value: Any) -> Any:
            return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)

        written = json.dumps(dataclasses.asdict(self), default=plain)
        read: dict[str, Any] = json.loads(written, parse_constant=lambda _: None)
        return read


@dataclass(frozen=True)
class TableFindings(Findings):
    """What a model found that knows of levels, integers, dates, atoms or missing cells.

    Attributes
    ----------
    columns : list of ColumnKind
        What each column holds, and how much of it is missing.
    """

    columns: list[ColumnKind]
