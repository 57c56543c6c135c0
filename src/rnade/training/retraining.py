"""The rule by which a model trained again on all rows takes the place of the one before.

Held-out rows choose when training stops and which setting is best; then a fresh model is trained
on all rows until its training log-likelihood is that of the first model where it stopped. That
second training can break, and nothing is held out any more to tell.
"""

import math


def least_after_retraining(training: float, held_out: float, slack: float = 0.0) -> float:
    """Smallest mean log-likelihood of all rows at which a model trained again on them is kept.

    It must give them at least what the model before gave to the rows that it was trained on, or
    to those that it had not seen, whichever is less.

    Parameters
    ----------
    training, held_out : float
        Mean log-likelihoods by the model before, in nats.
    slack : float
        How much less will do, such as two standard errors of `held_out`.
    """
    return min(training, held_out) - slack


def retraining_took(reached: float, least: float) -> bool:
    """Whether the mean log-likelihood that a model trained again has reached is good enough.

    Where `least` is NaN, as without a standard error, any finite one is.
    """
    return math.isfinite(reached) and not reached < least
