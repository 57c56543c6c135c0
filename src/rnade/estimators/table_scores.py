"""Scores of Arrow tables, as engines that work on batches of them call for."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

# Columns that `score_table` adds.
LOG_DENSITY, P_VALUE = "log_density", "p_value"


class TableScoresMixin:
    """Scores of Arrow tables, for estimators that `judge` rows."""

    def score_table(self, table: Any, *, keep: Sequence[str] | None = None) -> pa.Table:
        """Score the rows of an Arrow table and give them back with two columns more.

        A function of nothing but the table and the model, which can be pickled: it is what Spark's
        ``mapInArrow``, Ray Data's ``map_batches`` and the like take.

        Parameters
        ----------
        table : pyarrow Table or RecordBatch
            With the columns that were fitted, and maybe others.
        keep : sequence of str, optional
            Names of the columns to give back; all by default.

        Returns
        -------
        pyarrow Table
            The columns kept, then ``log_density`` (nats) and ``p_value``.

        Raises
        ------
        ValueError
            If the table has columns of these names already.
        """
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not isinstance(table, pa.Table):
            raise TypeError(
                f"Expected a pyarrow Table or RecordBatch; got {type(table).__name__}. Use judge"
                " for other tables."
            )
        kept = table if keep is None else table.select(list(keep))
        for name in (LOG_DENSITY, P_VALUE):
            if name in kept.column_names:
                raise ValueError(f"The table has a column {name!r} already: rename it first.")
        scores = p_values = pa.array([], pa.float64())
        if table.num_rows:
            judged = self.judge(table)  # type: ignore[attr-defined]
            scores, p_values = pa.array(judged.scores), pa.array(judged.p_values)
        return kept.append_column(LOG_DENSITY, scores).append_column(P_VALUE, p_values)
