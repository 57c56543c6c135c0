"""The page on which a fitted model can be explored."""

from typing import Any

import numpy as np

from rnade.explore import Exploration, TableRows, render


def explore(estimator: Any, rows: Any, title: str | None) -> Exploration:
    """Make the page of a model that answers questions.

    Parameters
    ----------
    estimator : fitted estimator
    rows : table or None
        Whose rows to put into the page. Of the fitted table, those are ranked that `fit` has
        scored by models that left them out.
    title : str or None
        By default the name of the file that was fitted, or of the model's class.
    """
    table = estimator._answering
    found = None
    if rows is not None:
        values, seen = estimator._asked_schema.encode(rows)
        values = np.where(seen, values, np.nan)
        kept = estimator._kept_of(values)
        found = TableRows(values, None if kept is None else kept[0])
    origin = getattr(estimator, "origin_", None) or {}
    title = title or str(origin.get("source") or type(estimator).__name__)
    return render(
        table, estimator._asked_schema, title, found, beside=table is not estimator.module_
    )
