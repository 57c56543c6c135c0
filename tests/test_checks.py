"""Checks of single arguments."""

import math

import numpy as np
import pytest

from rnade.checks import number_between, positive_int, unknown_name


def test_whole_numbers_of_any_kind_are_taken():
    assert positive_int(np.int32(3), "n") == 3


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "3", True, None])
def test_what_is_no_positive_whole_number_is_refused(wrong):
    with pytest.raises(ValueError, match=r"n must be a whole number >= 1; got"):
        positive_int(wrong, "n")


def test_numbers_in_range_are_taken():
    assert number_between(np.float32(0.5), "f", 0, 1, open_low=True) == 0.5
    assert number_between(0, "f", 0, 1, open_low=False) == 0


@pytest.mark.parametrize("wrong", [0, 1.1, math.nan, math.inf, "0.5", True, None])
def test_what_is_out_of_range_is_refused(wrong):
    with pytest.raises(ValueError, match=r"f must be a number > 0 and <= 1; got"):
        number_between(wrong, "f", 0, 1, open_low=True)


def test_unknown_names_get_the_nearest():
    error = unknown_name("realu", ["relu", "sigmoid"], "activation")
    assert str(error) == (
        "Unknown activation 'realu'; expected one of 'relu', 'sigmoid'. Did you mean 'relu'?"
    )
    assert "Did you mean" not in str(unknown_name("xyz", ["relu"], "activation"))
