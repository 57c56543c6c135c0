"""A mixture of Gaussians as a scikit-learn estimator."""

from dataclasses import field
from typing import Any

from rnade.estimators.mixtures import AbstractMixtureEstimator
from rnade.estimators.parameters import estimator
from rnade.nn import MixtureOfGaussiansModule


@estimator
class MixtureOfGaussians(AbstractMixtureEstimator):
    """Mixture of Gaussians with full covariances, fitted by EM.

    Columns are standardised inside; all densities are of the data as given. Cells may be missing:
    a row's density is then that of its observed cells, 0 nats if there are none. EM runs over all
    rows or, with `batch_size`, in minibatches as in the paper: 1,000 iterations of 20,000 random
    rows, each a step towards the parameters that fit those rows best, are
    ``MixtureOfGaussians(200, batch_size=20_000, max_iter=1000, patience=None)``.

    Parameters
    ----------
    n_components : int, list of int, or "search"
        Components. Of a list, the number that scores best on the held-out rows is taken;
        "search" is the paper's range, all even numbers from 2 to 50.
    {MixtureParameters}

    Attributes
    ----------
    module_ : rnade.nn.MixtureOfGaussiansModule
        The fitted torch module, in float64, on standardised columns.
    weights_, means_, covariances_ : array of shape (K,), (K, D), (K, D, D)
        In the data's units.
    n_components_ : int
        Components of the model kept.
    search_ : list of dict
        One row for each size tried, with its held-out score on standardised columns.
    history_ : list of dict
        One row a look, as of `RNADE`; `epoch` counts iterations, `revived` components that no row
        belonged to and that were given a new place.
    best_epoch_, n_features_in_, feature_names_in_, n_rows_, validation_scores_, fit_seconds_
        As of `RNADE`.

    Examples
    --------
    >>> import numpy as np
    >>> from rnade import MixtureOfGaussians
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> MixtureOfGaussians(3, random_state=0).fit(X).weights_.shape
    (3,)
    """

    n_components: Any = field(default=10, kw_only=False)

    def _make_module(
        self, n_dimensions: int, sizes: dict[str, int], n_models: int = 1
    ) -> MixtureOfGaussiansModule:
        return MixtureOfGaussiansModule(n_dimensions, **sizes, n_models=n_models)
