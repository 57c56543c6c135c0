"""What was fitted: rows, columns, what was changed, settings, training, and how well it scores."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from rnade.columns.names import is_mixed
from rnade.evaluation import MeanScore, mean_score, networks_of, weights_by_kind
from rnade.report.asked import Asked, is_binary
from rnade.typing import Array


@dataclass(frozen=True)
class ScoreLine:
    """A model's mean log-likelihood over the judged rows, and the fitted model's lead over it.

    The lead is of the differences row by row; None for the model itself.
    """

    model: str
    score: MeanScore
    lead: MeanScore | None


@dataclass(frozen=True)
class Trained:
    """What was trained by epochs, and which rows ended it.

    Attributes
    ----------
    parts : "model", "models" or "columns"
        One model, several that are averaged, or a network for each column.
    best_epochs, epochs : list of int
        For each of them the epoch whose weights were kept, and the last one.
    own_folds : bool
        Whether each early-stopped on its own 1/8 fold of the training rows. The held-out rows then
        had no part in training; otherwise they chose the epoch.
    kinds : dict
        Share of the average that each kind of model has, in words; empty for one kind.
    """

    parts: Literal["model", "models", "columns"]
    best_epochs: list[int]
    epochs: list[int]
    own_folds: bool
    kinds: dict[str, float] = field(default_factory=dict)

    @property
    def n_unfinished(self) -> int:
        """How many were at their best in the last epoch."""
        ends = zip(self.best_epochs, self.epochs, strict=True)
        return sum(best == last > 0 for best, last in ends)


@dataclass(frozen=True)
class LearningCurve:
    """Mean log-likelihood after each epoch, in nats per row and in the data's units.

    Of an average it is the curve of one model: the best of them on its own fold.

    Attributes
    ----------
    epochs : list of int
    train : list of float
    held_out : list of float
        Of the rows that stop training: those held out, or the model's own fold. NaN for an epoch
        without.
    best_epoch : int
        Whose weights were kept.
    skipped : int
        Updates left out for a gradient that was not finite.
    """

    epochs: list[int]
    train: list[float]
    held_out: list[float]
    best_epoch: int
    skipped: int


@dataclass(frozen=True)
class Fitted:
    """What was fitted.

    Attributes
    ----------
    kind : str
        The estimator's class.
    binary : bool
        Whether its columns are bits.
    n_rows : int or None
        Rows fitted, held-out ones included; None if the model does not say.
    n_held_out : int or None
    columns : list of str
    source : str or None
        Name of the table that was fitted.
    left_out : dict of str to str
        Columns of it that were not used, each with the reason.
    dropped_rows : int
        Rows of it with a missing cell.
    changes : list of str
        What was done to the columns, in sentences.
    settings : dict
    seconds : float or None
    stored_score : MeanScore or None
        Of the held-out rows when the model was fitted.
    retrained : bool
        Whether it was afterwards trained again on all rows.
    judged_before : bool
        Whether its own rows are judged by the models before that, which had left them out.
    trained : Trained or None
        None where nothing was trained by epochs.
    curve : LearningCurve or None
    """

    kind: str
    binary: bool
    n_rows: int | None
    n_held_out: int | None
    columns: list[str]
    source: str | None
    left_out: dict[str, str]
    dropped_rows: int
    changes: list[str]
    settings: dict[str, Any]
    seconds: float | None
    stored_score: MeanScore | None
    retrained: bool
    judged_before: bool
    trained: Trained | None
    curve: LearningCurve | None


def describe(asked: Asked) -> Fitted:
    """Gather what a model says of itself; what it does not say is left out."""
    estimator, names = asked.estimator, asked.names
    origin = getattr(estimator, "origin_", None) or {}
    validation = getattr(estimator, "validation_scores_", None)
    schema = getattr(estimator, "schema_", None)
    curve = learning_curve(estimator)
    return Fitted(
        kind=type(estimator).__name__,
        binary=is_binary(estimator),
        n_rows=getattr(estimator, "n_rows_", None),
        n_held_out=None if validation is None else len(validation),
        columns=names,
        source=origin.get("source"),
        left_out={**(schema.left_out if schema else {}), **origin.get("left_out", {})},
        dropped_rows=int(origin.get("dropped_rows", 0)),
        changes=_changes(estimator, len(names)),
        settings=estimator.get_params(deep=False),
        seconds=getattr(estimator, "fit_seconds_", None),
        stored_score=None if validation is None else estimator.held_out_score(),
        retrained=(again := hasattr(estimator, "retrain_history_")),
        judged_before=again and estimator.calibration_.models is not None,
        trained=None if curve is None else _trained(estimator, curve),
        curve=curve,
    )


def _trained(estimator: Any, curve: LearningCurve) -> Trained:
    last = curve.epochs[-1]
    if hasattr(estimator, "chosen_"):
        best = [int(column["epoch"]) for column in estimator.chosen_]
        return Trained("columns", best, [last] * len(best), own_folds=False)
    members = getattr(estimator, "members_", None) or []
    several = len(members) > 1
    # Files of earlier versions do not name the fold: averages of theirs had folds.
    folds = [member.get("fold", 0 if several else None) for member in members]
    own_folds = any(fold is not None for fold in folds) and all(
        member.get("stopped_by_fold", True) for member in members
    )
    if not several:
        return Trained("model", [curve.best_epoch], [last], own_folds)
    networks = networks_of(members)
    best, epochs = (
        [int(member[name]) for member in networks] for name in ("best_epoch", "epochs")
    )
    kinds = weights_by_kind(members)
    return Trained("models", best, epochs, own_folds, kinds if len(kinds) > 1 else {})


def learning_curve(estimator: Any) -> LearningCurve | None:
    """The training history in the data's units; None if the model has none by epochs."""
    history = getattr(estimator, "history_", None)
    if not history or not all({"epoch", "train"} <= set(row) for row in history):
        return None
    standardiser = getattr(estimator, "standardiser_", None)
    shift = 0.0 if standardiser is None else float(standardiser.log_determinant_terms.sum())
    return LearningCurve(
        epochs=[int(row["epoch"]) for row in history],
        train=(np.array([row["train"] for row in history]) + shift).tolist(),
        # None, of an epoch without, is NaN as a number.
        held_out=(np.array([row.get("validation") for row in history], float) + shift).tolist(),
        best_epoch=int(getattr(estimator, "best_epoch_", history[-1]["epoch"])),
        skipped=int(history[-1].get("skipped", 0)),
    )


def compare(scores: dict[str, Array]) -> list[ScoreLine]:
    """Set models side by side over the same rows; the first is the fitted one."""
    own, *_ = scores.values()
    return [
        ScoreLine(name, mean_score(one), None if one is own else mean_score(own - one))
        for name, one in scores.items()
    ]


def _changes(estimator: Any, n_columns: int) -> list[str]:
    """What was done to the columns, in sentences."""
    if is_binary(estimator):
        at = estimator.binarize
        return [] if at is None else [f"Values above {at:g} count as 1, all others as 0."]
    sentences = []
    if is_mixed(estimator):
        return [
            "Numbers and dates were cut into intervals inside the model; every figure here is in"
            " the data's own units."
        ]
    if getattr(estimator, "standardiser_", None) is not None:
        sentences.append(
            "Columns were standardised inside the model; every figure here is in the data's own"
            " units."
        )
    resolution = getattr(estimator, "resolution_", None)
    rounded = 0 if resolution is None else int((resolution.steps > 0).sum())
    if rounded:
        columns = "1 column is" if rounded == 1 else f"{rounded} of {n_columns} columns are"
        floor = getattr(estimator, "sigma_floor", "auto")
        if getattr(estimator, "dequantize", False):
            done = "noise as wide as the rounding was added in training"
        elif isinstance(floor, str):
            done = "there no component of the density is narrower than the rounding"
        elif floor > 0:
            done = f"no component is narrower than {floor:g} standard deviations"
        else:
            done = "nothing keeps the density from spiking there"
        sentences.append(f"{columns} rounded or full of repeated values: {done}.")
    if hasattr(estimator, "retrain_history_"):
        sentences.append("After early stopping, the model was trained again on all rows.")
    return sentences
