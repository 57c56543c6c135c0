"""Fitting a data set in files, larger than memory: one pass to look, then minibatches from it.

The estimator is fitted to a sample of the rows as to any table, which says what the columns hold
and makes the models ready to train; only that their minibatches then come from all of the data,
and that rows held out are those of the data set.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from rnade import parallel
from rnade.checks import number_between
from rnade.columns import Resolution, Standardiser
from rnade.estimators.any_order import AbstractAnyOrderEstimator
from rnade.estimators.inputs import floats, is_harmless
from rnade.estimators.parameters import estimator
from rnade.estimators.settings import make_rng
from rnade.nn import AbstractDensity
from rnade.progress import rows_bar
from rnade.streams import DataFiles, Shard, Survey, bytes_of, deal, is_data_set, survey_files
from rnade.streams.shards import MOST_SHARDS
from rnade.streams.spool import opened
from rnade.streams.survey import check_levels
from rnade.training import Member, Recipe
from rnade.training.any_order import AnyOrderRows
from rnade.training.sources import ShuffledRows
from rnade.training.streamed import AbstractStreamedRows, StreamedCells, StreamedRows
from rnade.typing import Array

# Bytes that a fit in memory takes for each cell of a table, at most; those that any fit takes; and
# those of each column of a row of the sample, of a row of the buffers (of which there are two, and
# as much again while one is filled), and of a shard that is read.
IN_MEMORY, FIXED = 400, 720 * 2**20
SAMPLED, BUFFERED, READ = 300, 32, 2 * 2**20
# Numbers that are scored at a time.
SCORED_ELEMENTS = 2**14
# Rows of the sample and of the buffer, at most and at least; of the sample, the held-out share.
MOST_SAMPLED, MOST_BUFFERED, FEWEST = 200_000, 2**20, 2_000
HELD_OUT = 0.15
# Multiplications and additions that training takes if it is not said how long: one pass over the
# rows, but within these bounds, which on two cores are minutes and half an hour or so.
LEAST_WORK = {"cpu": 1e13, "cuda": 2e14}
MOST_WORK = {"cpu": 1e14, "cuda": 5e15}
# Rows of a minibatch, and updates between two looks at the held-out rows.
BATCH_ROWS, LOOK_UPDATES, FEWEST_LOOKS = 512, 2000, 25


@estimator
class MemoryParameters:
    """What estimators take that are fitted to files.

    Parameters
    ----------
    memory : str, a size
        Memory that a fit to files (Parquet, CSV) may take, such as "2GB", beside what importing
        torch takes. A data set that does not fit is streamed: read once to measure its columns,
        then in minibatches from row groups in random order. Models of a streamed data set train
        for one pass over the rows, or longer if they are few; `epochs` is the number of passes.
    """

    memory: str | int = "4GB"


@dataclass(frozen=True, eq=False)
class Stream:
    """A data set that is being fitted: its files, what was found of them, and room for buffers."""

    files: DataFiles
    found: Survey
    held_out: float
    n_held_out: int  # rows of the sample that are held out, which come last
    capacity: int  # rows of all buffers
    n_shards: int
    seed: int
    latest: list[Shard] = field(default_factory=list)  # of the training that is on

    def shards(self, convert: Any, columns: Sequence[str] | None) -> list[Shard]:
        """Deal the row groups that have training rows into shards; older ones let go of rows."""
        self.stop()
        groups = [g for g in self.files.groups if not self.files.held_out(g, self.held_out).all()]
        dealt = deal(groups, min(self.n_shards, len(groups)))
        self.latest[:] = [
            Shard(
                self.files,
                own,
                held_out=self.held_out,
                convert=convert,
                columns=columns,
                capacity=max(1, self.capacity // len(dealt)),
                seed=[self.seed, s],
            )
            for s, own in enumerate(dealt)
        ]
        return list(self.latest)

    def stop(self) -> None:
        """Give up what is read ahead: the files may be gone after the fit."""
        for shard in self.latest:
            shard.seek(0)


class AbstractStreamingEstimator(MemoryParameters, AbstractAnyOrderEstimator):
    """Estimator that takes files in place of a table, larger than memory if need be.

    Attributes
    ----------
    data_ : dict or None
        Of a data set that was streamed: rows, row groups, digest, and rows of the sample by which
        quantiles, atoms and pairs of columns were measured.
    """

    data_: dict[str, Any] | None = None

    _kept = (*AbstractAnyOrderEstimator._kept, "data_")

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model to the rows of a table, or of files.

        Parameters
        ----------
        X : data frame or array-like of shape (N, D), path, list of paths or pyarrow.dataset
            Rows. What the columns hold is found by their types (`columns`); names and types of a
            frame's columns are kept, and draws are given back in them. Files are Parquet, CSV or
            Arrow files of the same columns; a path may be a folder or a pattern such as
            ``"data/*.parquet"``. Those that do not fit into `memory` are streamed.
        y : ignored
        sample_weight : array-like of shape (N,), optional
            Weights of the rows; a row of weight 0 is ignored. Not with files.

        Returns
        -------
        self
        """
        self.data_ = None
        if not is_data_set(X):
            return super().fit(X, y, sample_weight)
        if sample_weight is not None:
            raise ValueError(
                "Row weights are for tables in memory, not for files. Read them first, e.g. with"
                " pyarrow.parquet.read_table."
            )
        memory = bytes_of(self.memory)
        with opened(X) as files:
            if files.n_rows * len(files.schema) * IN_MEMORY <= memory:
                return super().fit(files.read())
            return self._fit_stream(files, memory)

    def _fit_stream(self, files: DataFiles, memory: int) -> Self:
        if self.retrain:
            raise ValueError(
                "retrain=True, which trains again on all rows, is for tables that fit into memory."
                " Raise `memory`, or leave `retrain` out."
            )
        if self._covers:
            raise ValueError(
                "Scores of the fitted rows themselves (score_fitted, fit_predict) are for tables"
                " that fit into memory. Raise `memory`, or fit, and then score the files."
            )
        self._check_settings()
        share = number_between(
            self.validation_fraction, "validation_fraction", 0, 0.9, open_low=True
        )
        rng = parallel.from_first(lambda: make_rng(self.random_state))
        seed = int(rng.randint(2**31 - 1))
        sampled, buffered, n_shards = _room(memory, len(files.schema))
        kept = round((1 - HELD_OUT) * sampled), round(HELD_OUT * sampled)
        with rows_bar("Reading", files.n_rows, shown=self._is_shown) as on_rows:
            found = _surveyed(files, kept, share, seed, on_rows)
        sample, n_held_out = found.sample()
        if not 0 < n_held_out < sample.num_rows:
            raise ValueError(
                f"Of {files.n_rows} rows none could be held out by their row groups: there are too"
                " few to be streamed. Raise `memory`, so that they are read at once."
            )
        with self._streaming(Stream(files, found, share, n_held_out, buffered, n_shards, seed)):
            super().fit(sample)
        self.n_rows_ = found.n_rows
        self.fit_scores_ = self.fit_pvalues_ = None  # of the sample
        assert self.fitted_rows_ is not None
        none = np.empty(0, dtype=np.int64)
        self.fitted_rows_ = replace(self.fitted_rows_, digest=found.digest, held_out=none, at=None)
        self.data_ = {
            "rows": found.n_rows,
            "files": len(files.names),
            "row_groups": len(files.groups),
            "digest": found.digest,
            "sampled_rows": sample.num_rows,
            "held_out_rows_sampled": n_held_out,
        }
        return self

    @contextmanager
    def _streaming(self, stream: Stream) -> Iterator[None]:
        self._stream = stream
        try:
            yield
        finally:
            stream.stop()
            del self._stream

    # ---------------------------------------------------------------- what differs while streaming

    def _read(self, X: Any) -> None:
        super()._read(X)
        if self._stream is not None and self.schema_ is not None:
            texts = [c.name for c in self.schema_.columns if c.kind == "category"]
            check_levels(self._stream.found, texts)

    def _split(
        self, n_rows: int, fraction: float, rng: np.random.RandomState
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self._stream is None:
            return super()._split(n_rows, fraction, rng)
        places = np.arange(n_rows)
        return places[n_rows - self._stream.n_held_out :], places[: -self._stream.n_held_out]

    def _prepare(self, X: Array, weights: Array | None) -> tuple[Standardiser, Resolution | None]:
        standardiser, resolution = super()._prepare(X, weights)
        if self._stream is None or self._mixed:
            return standardiser, resolution
        moments = [self._stream.found.moments[str(name)] for name in self.feature_names_in_]
        means, scales = zip(*[(own.mean, own.scale) for own in moments], strict=True)
        return Standardiser(np.array(means), np.array(scales)), resolution

    def _fed(self, members: Sequence[Member], stage: str) -> list[Member]:
        stream = self._stream
        if stream is None:
            return super()._fed(members, stage)
        names = self._asked_schema.inputs
        left_out = self._asked_schema.left_out
        shards = stream.shards(self._numbers, [str(n) for n in names if str(n) not in left_out])
        sources: dict[int, AbstractStreamedRows] = {}
        n_rows = sum(shard.n_rows for shard in shards)
        fed = []
        for member in members:
            like: Any = member.source
            if id(like) not in sources:
                sources[id(like)] = self._streamed(shards, like, member.module)
            # What answers questions beside a model is small, and trains as long as ever.
            beside = stage == "questions"
            recipe = member.recipe if beside else self._paced(member, n_rows, len(members))
            fed.append(replace(member, source=sources[id(like)], recipe=recipe))
        return fed

    def _streamed(
        self, shards: Sequence[Shard], like: ShuffledRows, module: Any
    ) -> AbstractStreamedRows:
        assert self._stream is not None
        digest = self._stream.found.digest
        if isinstance(like, AnyOrderRows):
            return StreamedCells(shards, digest, like, module)
        return StreamedRows(shards, digest, like, *self._mean_and_scale())

    def _chunk_elements(self, module: AbstractDensity) -> int:
        return super()._chunk_elements(module) if self._stream is None else SCORED_ELEMENTS

    def _numbers(self, table: pa.Table) -> Array:
        """Rows of a batch as numbers, NaN where missing; of float32 columns in float32."""
        if self.schema_ is None or self.schema_.is_plain:
            rows = floats(table)
            if rows is not None and is_harmless(rows):
                return rows
        rows = self._check_rows(table)
        return rows.astype(np.float32) if set(table.schema.types) == {pa.float32()} else rows

    def _paced(self, member: Member, n_rows: int, n_members: int) -> Recipe:
        """How long to train, and when to look at the held-out rows."""
        recipe = member.recipe
        batch = self.batch_size or max(BATCH_ROWS, recipe.batch_size)
        if self.batches_per_epoch is not None:
            return replace(recipe, batch_size=batch)
        if self.epochs is not None:
            rows = float(self.epochs * n_rows)
        else:
            device = member.module.device.type
            work = 6 * n_members * sum(p.numel() for p in member.module.parameters())
            rows = min(max(n_rows, LEAST_WORK[device] / work), MOST_WORK[device] / work)
        updates = max(FEWEST_LOOKS, math.ceil(rows / batch))
        looks = max(FEWEST_LOOKS, math.ceil(updates / LOOK_UPDATES))
        return replace(
            recipe,
            batch_size=batch,
            epochs=looks,
            batches_per_epoch=math.ceil(updates / looks),
            # Rates fall to 0 over all of the updates, and most gain comes with that.
            patience=self.patience or max(FEWEST_LOOKS, looks // 2),
        )


def _surveyed(
    files: DataFiles, kept: tuple[int, int], share: float, seed: int, on_rows: Any
) -> Survey:
    """The survey of a data set, of which each process reads a part."""
    mine = files.groups[parallel.rank() :: parallel.size()]
    found, *others = parallel.from_all(
        lambda: survey_files(files, kept, share, seed, groups=mine, on_rows=on_rows)
    )
    for other in others:
        found.merge(other)
    survey: Survey = found
    return survey


def _room(memory: int, n_columns: int) -> tuple[int, int, int]:
    """Rows of the sample and of the buffer, and shards, that fit into the memory.

    Raises
    ------
    ValueError
        If it is too little for any.
    """
    free = (memory - FIXED) / n_columns
    sampled, buffered = int(0.4 * free / SAMPLED), int(0.2 * free / BUFFERED)
    shards = int(0.4 * free / READ)
    if min(sampled, buffered) < FEWEST or shards < 1:
        least = max(FEWEST * SAMPLED / 0.4, FEWEST * BUFFERED / 0.2, READ / 0.4)
        raise ValueError(
            f"memory={memory} bytes is too little to stream {n_columns} columns: expected at least"
            f" {math.ceil((FIXED + least * n_columns) / 2**20)}MB."
        )
    return min(sampled, MOST_SAMPLED), min(buffered, MOST_BUFFERED), min(shards, MOST_SHARDS)
