"""The errors and warnings of this library."""

import difflib


class RnadeError(Exception):
    """Base of the errors that only this library raises."""


class TableError(RnadeError, ValueError):
    """A table could not be read, or holds what a model cannot take."""


class ModelFileError(RnadeError, ValueError):
    """A model file is damaged, foreign, or of a newer format."""


class TrainingDivergedError(RnadeError, RuntimeError):
    """Training met non-finite gradients again and again, at smaller and smaller rates."""


class SpikeWarning(UserWarning):
    """Columns of repeated or whole-number values, on which a density can spike without bound."""


def unknown_name(given: object, known: list[str], what: str) -> ValueError:
    """Build the error for an unknown name: what is known, and the nearest right name."""
    message = f"Unknown {what} {given!r}; expected one of {', '.join(map(repr, known))}."
    near = difflib.get_close_matches(str(given).lower(), known, n=1, cutoff=0.4)
    return ValueError(message + (f" Did you mean {near[0]!r}?" if near else ""))
