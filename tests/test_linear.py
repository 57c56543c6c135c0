"""The linear part of conditionals: what is taken out, put back, and what it adds to densities."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Generator

from rnade.columns.linear import LinearPart
from rnade.exceptions import SingularDataError


@pytest.fixture
def rows(seed):
    """Rows of 6 columns that depend linearly on each other."""
    generator = Generator().manual_seed(seed)
    mixing = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    return torch.randn(200, 6, generator=generator, dtype=torch.float64) @ mixing + 3


@pytest.fixture(params=["own", "random"])
def order(request, seed):
    return (
        torch.randperm(6, generator=Generator().manual_seed(seed + 10))
        if request.param == "random"
        else None
    )


def test_a_standard_normal_density_is_the_gaussian_of_the_rows(rows, order):
    linear = LinearPart.fit(rows, order)
    y = linear.transform(rows)
    gaussian = stats.multivariate_normal(rows.numpy().mean(0), np.cov(rows.T, ddof=0))
    ours = stats.norm.logpdf(y.numpy()).sum(1) + linear.log_determinant
    np.testing.assert_allclose(ours, gaussian.logpdf(rows.numpy()))
    _, log_determinant = np.linalg.slogdet(linear.A.numpy())
    assert float(linear.log_determinant_terms.sum()) == pytest.approx(log_determinant)
    torch.testing.assert_close(linear.inverse(y), rows)


def test_columns_are_errors_of_the_best_linear_predictions(rows, order):
    """As least squares finds them from the columns before in the order, in their own units."""
    linear = LinearPart.fit(rows, order)
    y, X = linear.transform(rows).numpy(), rows.numpy()
    places = range(6) if order is None else order.tolist()
    for i, d in enumerate(places):
        before = np.column_stack([np.ones(len(X)), X[:, list(places)[:i]]])
        coefficients, *_ = np.linalg.lstsq(before, X[:, d], rcond=None)
        error = X[:, d] - before @ coefficients
        np.testing.assert_allclose(y[:, d], error / error.std(), atol=1e-8)


def test_a_column_depends_on_none_that_come_after_it(rows, order):
    linear = LinearPart.fit(rows, order)
    jacobian = torch.autograd.functional.jacobian(lambda x: linear.transform(x[None])[0], rows[0])
    along = jacobian if order is None else jacobian[order][:, order]
    assert torch.equal(along.triu(1), torch.zeros(6, 6, dtype=torch.float64))


def test_a_weight_is_worth_as_many_rows(rows):
    weights = torch.arange(200) % 4
    weighted = LinearPart.fit(rows, weights=weights)
    repeated = LinearPart.fit(rows.repeat_interleave(weights, 0))
    torch.testing.assert_close(weighted.A, repeated.A)
    torch.testing.assert_close(weighted.mean, repeated.mean)


def test_the_rows_precision_is_kept(rows):
    linear = LinearPart.fit(rows.float())
    assert linear.A.dtype == torch.float64
    y = linear.transform(rows.float())
    assert y.dtype == torch.float32
    torch.testing.assert_close(linear.inverse(y), rows.float(), rtol=1e-4, atol=1e-4)


def test_one_column_is_standardised(rows):
    y = LinearPart.fit(rows[:, :1]).transform(rows[:, :1])
    np.testing.assert_allclose(y, stats.zscore(rows[:, :1].numpy()))


def test_columns_that_others_determine_are_told(rows):
    with pytest.raises(SingularDataError, match="5 rows of 6 dimensions is singular"):
        LinearPart.fit(rows[:5])
    with pytest.raises(SingularDataError, match="200 rows of 6 dimensions is singular"):
        LinearPart.fit(torch.cat([rows[:, :5], torch.zeros(200, 1)], 1))
