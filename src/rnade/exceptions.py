"""The errors and warnings of this library."""

import sys
import warnings


class RnadeError(Exception):
    """Base of the errors that only this library raises."""


class TableError(RnadeError, ValueError):
    """A table could not be read, or holds what a model cannot take."""


class DataError(RnadeError, ValueError):
    """A file of a data set is missing, damaged, or cannot be downloaded."""


class ModelFileError(RnadeError, ValueError):
    """A model file is damaged, foreign, or of a newer format."""


class TrainingDivergedError(RnadeError, RuntimeError):
    """Training met non-finite gradients again and again, at smaller and smaller rates."""


class SingularDataError(RnadeError, ValueError):
    """A covariance has no inverse: the rows lie in a plane of fewer dimensions."""


class CheckpointError(RnadeError, ValueError):
    """A checkpoint is damaged, or of another run. It is never overwritten."""


class RankLostError(RnadeError, RuntimeError):
    """A process that trained with this one was lost, so that training could not go on."""


class SpikeWarning(UserWarning):
    """Repeated values, or columns that follow from others: a density can spike without bound."""


class TableWarning(UserWarning):
    """A column may not hold what its type says, such as a code for missing cells."""


class TrainingWarning(UserWarning):
    """Training finished with problems, or had too few rows."""


def warn_caller(text: str, category: type[Warning]) -> None:
    """Warn at the line outside this package that called it, however deep the warning arises."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("rnade."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)
