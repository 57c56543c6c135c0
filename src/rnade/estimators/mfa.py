"""A mixture of factor analysers as a scikit-learn estimator."""

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

import torch

from rnade.batch import Batch
from rnade.estimators.mixtures import AbstractMixtureEstimator
from rnade.estimators.parameters import estimator
from rnade.nn import AbstractGaussianMixture, MixtureOfFactorAnalyzersModule
from rnade.progress import training_bar
from rnade.training import Outcome
from rnade.training.em import Size, fit_sizes


@estimator
class MixtureOfFactorAnalyzers(AbstractMixtureEstimator):
    """Mixture of factor analysers, fitted by EM (Ghahramani and Hinton, 1996).

    Each component explains the columns by a few factors and independent noise. Columns are
    standardised inside; all densities are of the data as given. Cells may be missing: a row's
    density is then that of its observed cells.

    Parameters
    ----------
    n_components : int, list of int, or "search"
        Components. Of a list, the number that scores best on the held-out rows is taken;
        "search" is the paper's range, all even numbers from 2 to 50.
    n_factors : int, list of int, or "search"
        Factors of each component, at most the number of columns, which gives a mixture of
        Gaussians; "search" is the paper's range, all even numbers from 2 to that. With both
        searched for, all pairs are tried.
    {MixtureParameters}

    Attributes
    ----------
    module_ : rnade.nn.MixtureOfFactorAnalyzersModule
        The fitted torch module, in float64, on standardised columns.
    n_components_, n_factors_ : int
        Of the model kept.
    weights_, means_, covariances_, search_, history_, best_epoch_, validation_scores_
        As of `MixtureOfGaussians`.

    References
    ----------
    Ghahramani and Hinton (1996), The EM algorithm for mixtures of factor analyzers.

    Examples
    --------
    >>> import numpy as np
    >>> from rnade import MixtureOfFactorAnalyzers
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> model = MixtureOfFactorAnalyzers(2, n_factors=2, random_state=0).fit(X)
    >>> model.sample(3, random_state=0).shape
    (3, 5)
    """

    _sizes = ("n_components", "n_factors")
    _kept = ("n_components_", "n_factors_", "search_")

    n_components: Any = field(default=10, kw_only=False)
    n_factors: Any = field(default=1, kw_only=False)

    def _make_module(
        self, n_dimensions: int, sizes: dict[str, int], n_models: int = 1
    ) -> MixtureOfFactorAnalyzersModule:
        return MixtureOfFactorAnalyzersModule(n_dimensions, **sizes, n_models=n_models)

    def _train_sizes(
        self, training: Batch, held_out: Batch, seed: int, candidates: Sequence[dict[str, int]]
    ) -> Iterator[tuple[AbstractGaussianMixture, Outcome]]:
        """Train mixtures of all sizes at once, where that is exact and fits the search."""
        x, floor = training.x, self._floor()
        plain = self.init == "k-means++" and self.n_init == 1 and self.batch_size is None
        plain &= training.seen is None and held_out.seen is None
        if not (
            plain and len(candidates) > 1 and x.dtype == torch.float64 and bool((floor > 0).all())
        ):
            yield from super()._train_sizes(training, held_out, seed, candidates)
            return
        sizes = [Size(**candidate) for candidate in candidates]
        for size in sizes:  # raises on sizes that cannot be
            self._make_module(x.shape[1], size._asdict())
        settings = self._settings()
        what = f"{len(sizes)} sizes"
        with training_bar(what, settings.max_iter, shown=self.verbose > 0) as on_epoch:
            found = fit_sizes(
                [training],
                sizes,
                settings,
                seeds=[seed],
                held_out=[held_out],
                floor=floor,
                on_epoch=on_epoch,
            )
        for g in range(len(sizes)):
            yield found.module(0, g), found.outcome(0, g)
