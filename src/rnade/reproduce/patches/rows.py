"""The rows of Table 2 as plain settings: the paper's models, and ours beside them."""

import dataclasses
from dataclasses import dataclass

from rnade.reproduce.core.experiment import Settings
from rnade.reproduce.core.plans import read_plan
from rnade.training import PAPER_EM


@dataclass(frozen=True)
class Row:
    """A row of the table: its label, as the paper has it if it does, and its settings.

    Its result depends on these; ``plan.toml`` says what "kind" there is.
    """

    label: str
    settings: Settings


def _rows(group: str) -> dict[str, Row]:
    rows = {name: Row(**entry) for name, entry in read_plan("patches")[group].items()}
    for row in rows.values():
        if row.settings["kind"] == "mixture":
            row.settings["em"] = dataclasses.asdict(PAPER_EM)
    return rows


PAPER_ROWS, OUR_ROWS, REMARK_ROWS = (_rows(group) for group in ("paper", "ours", "remarks"))
ROWS: dict[str, Row] = {**PAPER_ROWS, **OUR_ROWS, **REMARK_ROWS}


def settings_of(name: str, *, quick: bool) -> Settings:
    """Settings of a row; for the quick version small and soon done, in the same form."""
    settings = ROWS[name].settings
    return _small(settings) if quick else settings


def _small(settings: Settings) -> Settings:
    small = {**settings, "quick": True}
    for name, value in {"n_hidden": 16, "n_components": 3, "n_runs": 2, "n_layers": 2}.items():
        if name in small:
            small[name] = value
    if settings["kind"] == "flow":
        small |= {"transforms": 1, "hidden": [16], "seconds": 0.5}
    if "em" in small:
        small["em"] = {**small["em"], "max_iter": 20, "batch_size": 500}
    if "recipe" in small:
        small["recipe"] = {**small["recipe"], "epochs": 3, "batches_per_epoch": 30}
    return small
