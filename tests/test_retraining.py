"""When a model trained again on all rows takes the place of the one before."""

import math

import pytest

from rnade.training.retraining import least_after_retraining, retraining_took


@pytest.mark.parametrize(("training", "held_out"), [(-1.0, -3.0), (-3.0, -1.0)])
def test_it_must_reach_the_lower_of_both_scores_less_the_slack(training, held_out):
    assert least_after_retraining(training, held_out) == -3.0
    assert least_after_retraining(training, held_out, slack=0.5) == -3.5


@pytest.mark.parametrize(
    ("reached", "least", "took"),
    [
        (-3.0, -3.0, True),
        (-3.1, -3.0, False),
        (-3.0, -math.inf, True),
        (-1e6, math.nan, True),  # without a standard error nothing can be asked for
        (math.nan, -3.0, False),
        (math.inf, -3.0, False),
        (-math.inf, -math.inf, False),
    ],
)
def test_what_it_reached_must_be_finite_and_enough(reached, least, took):
    assert retraining_took(reached, least) == took
