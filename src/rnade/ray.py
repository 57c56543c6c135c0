"""Scores of Ray data sets (extra ``ray``).

Banks and searches train on a Ray cluster too: see `rnade.RNADESearchCV` (``engine="ray"``).
"""

import os
from collections.abc import Sequence
from typing import Any

from rnade.estimators import load
from rnade.training.engines import import_ray

__all__ = ["score"]


class _Scorer:
    """A model in a process of its own, loaded once."""

    def __init__(self, model: Any, keep: Sequence[str] | None) -> None:
        self.model = load(model) if isinstance(model, str) else model
        self.keep = keep

    def __call__(self, table: Any) -> Any:
        return self.model.score_table(table, keep=self.keep)


def score(
    dataset: Any,
    model: Any,
    *,
    keep: Sequence[str] | None = None,
    batch_size: int = 65_536,
    concurrency: int | tuple[int, int] | None = None,
) -> Any:
    """Score the rows of a Ray data set, lazily, as its `map_batches` does.

    Parameters
    ----------
    dataset : ray.data.Dataset
    model : path or fitted estimator
        A path must be readable by all workers; each loads the model once.
    keep : sequence of str, optional
        Names of the columns to give back; all by default.
    batch_size : int
        Rows that are scored at a time.
    concurrency : int or (int, int), optional
        Number of processes, or the fewest and the most; by default at most one less than the
        cluster has processors, since reading takes some.

    Returns
    -------
    ray.data.Dataset
        The columns kept, then ``log_density`` (nats) and ``p_value``.
    """
    ray = import_ray()
    given = os.fspath(model) if isinstance(model, str | os.PathLike) else model
    most = max(1, int(ray.cluster_resources().get("CPU", 1)))
    return dataset.map_batches(
        _Scorer,
        fn_constructor_args=(given, keep),
        batch_format="pyarrow",
        batch_size=batch_size,
        concurrency=(1, max(1, most - 1)) if concurrency is None else concurrency,
    )
