"""A full-covariance Gaussian as a scikit-learn estimator."""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from rnade.batch import Batch
from rnade.checks import number_between
from rnade.columns import Standardiser
from rnade.columns.spikes import dependent_in
from rnade.estimators.inputs import check_not_constant, column_labels, some
from rnade.estimators.missing import AbstractMissingEstimator
from rnade.estimators.parameters import estimator
from rnade.exceptions import SingularDataError
from rnade.nn import GaussianModule
from rnade.training import EMSettings, Outcome, fit_mixture
from rnade.training.em.matrices import not_below_floor
from rnade.typing import Array

# Where cells are missing. The floor, of variances, lets EM go on to where it can be told which
# columns have no variance of their own.
_EM, _EM_FLOOR = EMSettings(max_iter=2000, tol=1e-9, patience=None), 1e-13


@estimator
class Gaussian(AbstractMissingEstimator):
    """Gaussian with full covariance: mean and covariance of the rows, in closed form.

    The simplest model of a table, and the one to beat. Nothing is added to the covariance unless
    asked for; where it has no inverse, `fit` says why. Where cells are missing, mean and
    covariance are those under which the observed cells are likeliest, by EM.

    Parameters
    ----------
    shrinkage : float
        From 0 to 1: how far to shrink correlations towards 0.
    sigma_floor : float
        Smallest standard deviation in any direction, in units of the columns' own.
    {FitParameters}

    Attributes
    ----------
    module_ : rnade.nn.GaussianModule
        The fitted torch module, in float64, on standardised columns.
    mean_ : array of shape (D,)
        In the data's units.
    covariance_ : array of shape (D, D)
        In the data's units.
    n_features_in_, feature_names_in_, n_rows_, validation_scores_, fit_seconds_
        As of `RNADE`.

    Examples
    --------
    >>> import numpy as np
    >>> from rnade import Gaussian
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = Gaussian(random_state=0).fit(X)
    >>> bool(np.allclose(model.mean_, X.mean(0)))
    True
    """

    dtype = "float64"

    shrinkage: float = 0.0
    sigma_floor: float = 0.0
    retrain: bool = True

    @property
    def mean_(self) -> Array:
        """Mean of the fitted density, in the data's units."""
        return self.standardiser_.inverse(self.module_.mu[0, 0].cpu().numpy())

    @property
    def covariance_(self) -> Array:
        """Covariance of the fitted density, in the data's units."""
        scale = self.standardiser_.scale
        C: Array = self.module_.covariances()[0, 0].cpu().numpy()
        return C * scale[:, None] * scale

    def _check_settings(self) -> None:
        number_between(self.shrinkage, "shrinkage", 0, 1, open_low=False)
        number_between(self.sigma_floor, "sigma_floor", 0, math.inf, open_low=False)

    def _prepare(self, X: Array, weights: Array | None) -> tuple[Standardiser, None]:
        check_not_constant(self, X)
        return Standardiser.fit(X, weights), None

    def _empty_module(self, n_dimensions: int) -> GaussianModule:
        return GaussianModule(n_dimensions)

    def _train(
        self, training: Batch, held_out: Batch | None, seed: int, target: float | None
    ) -> tuple[GaussianModule, Outcome]:
        x, D = training.x, training.x.shape[1]
        w = torch.ones_like(x[:, 0]) if training.weights is None else training.weights
        w = w / w.sum()
        floor = torch.full_like(x[0], self.sigma_floor**2)
        mean = w @ x
        covariance = ((x - mean) * w[:, None]).T @ (x - mean)
        if training.seen is not None:
            mean, covariance = _by_em(training, mean, floor)
        variance = covariance.diagonal().clone()
        covariance *= 1 - self.shrinkage
        covariance.diagonal().copy_(variance)
        covariance = not_below_floor(covariance, floor)
        self._check_not_singular(covariance, len(x))
        module = GaussianModule(D).to(x.device, x.dtype)
        module.set_components(torch.ones(1, 1), mean[None, None], covariance[None, None])
        with torch.no_grad():
            train = float((module.log_prob(x, seen=training.seen) * w).sum())
            validation = None
            if held_out is not None:
                validation = float(module.log_prob(held_out.x, seen=held_out.seen).mean())
        row = {
            "epoch": 0,
            "rate": 1.0,
            "train": train,
            "validation": validation,
            "seconds": 0.0,
            "skipped": 0,
        }
        return module, Outcome([row], 0, train if validation is None else validation, train)

    def _check_not_singular(self, covariance: Tensor, n_rows: int) -> None:
        """Raise an error that names the columns that are linear functions of those before."""
        D = len(covariance)
        if n_rows <= D and not (self.shrinkage or self.sigma_floor):
            raise SingularDataError(
                f"{n_rows} training rows (those held out do not count) are too few for the"
                f" covariance of {D} columns: at least {D + 1} are needed. Give more rows, use"
                " fewer columns, or set shrinkage or sigma_floor above 0."
            )
        dependent = dependent_in(covariance.double().cpu().numpy())
        if not dependent:
            return
        named = some([column_labels(self)[d] for d in dependent])
        raise SingularDataError(
            f"The covariance has no inverse: {named} can be computed exactly from the columns"
            " before. Leave out such columns, or set shrinkage or sigma_floor above 0."
        )


def _by_em(
    rows: Batch, mean: Float[Tensor, " D"], floor: Float[Tensor, " D"]
) -> tuple[Float[Tensor, " D"], Float[Tensor, "D D"]]:
    """Mean and covariance of standardised rows with missing cells, from a first mean."""
    module = GaussianModule(len(mean)).to(mean)
    with torch.no_grad():
        module.mu.copy_(mean)
    fit_mixture(
        module,
        rows.x,
        _EM,
        floor=floor.clamp_min(_EM_FLOOR),
        generator=Generator(mean.device),
        weights=rows.weights,
        seen=rows.seen,
    )
    return module.mu[0, 0].detach(), module.covariances()[0, 0].detach()
