"""The errors and warnings of this library."""


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


class SpikeWarning(UserWarning):
    """Columns of repeated or whole-number values, on which a density can spike without bound."""


class TrainingWarning(UserWarning):
    """Training ended, but not as one would wish."""
