"""Parts of the training rows, each left out by some models of an average."""

# Parts that there are, unless fewer models are to leave out all rows between them: then at least
# as many as below.
N_FOLDS, FEWEST_FOLDS = 8, 4
# Rows of a part that stop training; of smaller parts, the rows that `fit` held out do.
FEWEST_TO_STOP = 5
# How much longer a fit may take so that every row is left out by some model.
MOST_TIMES_LONGER = 1.5


def fold_rows(n_rows: int, fold: int, n_folds: int) -> slice:
    """Which of the training rows are one of several parts; together the parts are all rows."""
    return slice(fold * n_rows // n_folds, (fold + 1) * n_rows // n_folds)


def stop_themselves(n_rows: int, n_folds: int = N_FOLDS) -> bool:
    """Whether models stop by the parts that they leave out, which are large enough for that."""
    return n_rows >= n_folds * FEWEST_TO_STOP


def covering(n_models: int) -> tuple[int, float]:
    """How many models leave out all rows between them, and how much of its training each keeps.

    Parameters
    ----------
    n_models : int
        Of those that a fit would have: each could leave out one of `N_FOLDS` parts.

    Returns
    -------
    int
        Models, and parts of the rows.
    float
        Share of the updates, so that the fit takes `MOST_TIMES_LONGER` at most.

    >>> covering(8), covering(6), covering(1)
    ((8, 1.0), (6, 1.0), (4, 0.375))
    """
    wanted = max(FEWEST_FOLDS, n_models)
    return wanted, min(1.0, MOST_TIMES_LONGER * n_models / wanted)
