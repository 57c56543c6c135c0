"""A mixture of factor analysers as a scikit-learn estimator."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from rnade.estimators.density import Rows
from rnade.estimators.mixtures import MOST_COMPONENTS, AbstractMixtureEstimator, even_numbers
from rnade.nn import AbstractGaussianMixture, MixtureOfFactorAnalyzersModule
from rnade.progress import training_bar
from rnade.training import Outcome, RowSet
from rnade.training.em_bank import fit_sizes
from rnade.training.sized import Size


class MixtureOfFactorAnalyzers(AbstractMixtureEstimator):
    """Mixture of factor analysers, fitted by EM (Ghahramani and Hinton, 1996).

    Each component explains the columns by a few factors and independent noise. Columns are
    standardised inside; all densities are of the data as given.

    Parameters
    ----------
    n_components : int, list of int, or "search"
        Components. Of a list, the number that scores best on the held-out rows is taken;
        "search" is the paper's range, all even numbers from 2 to 50.
    n_factors : int, list of int, or "search"
        Factors of each component, at most the number of columns, which gives a mixture of
        Gaussians; "search" is the paper's range, all even numbers from 2 to that. With both
        searched for, all pairs are tried.
    init : {"k-means++", "random"}
        Where EM starts: clusters of rows, or random rows.
    n_init : int
        Starts; the best on the held-out rows is kept.
    max_iter : int
        Largest number of iterations.
    tol : float
        Stop once an iteration raises the mean log-likelihood by less (nats per row). Not used
        with minibatches.
    patience : int, optional
        Looks at the held-out rows without a better score after which EM stops: a look each
        iteration, or each tenth with minibatches.
    batch_size : int, optional
        Rows of a minibatch; by default all rows.
    step_size : float
        With minibatches, how far to go towards each minibatch's own parameters; it falls linearly
        to 0.
    sigma_floor : "auto" or float
        Smallest standard deviation of the noise, in units of the column's own. "auto" ties it to
        the column's resolution where values are rounded; 0 is none.
    validation_fraction : float
        Share of the rows held out, for early stopping, the search and p-values.
    retrain : bool
        Afterwards train again on all rows, until the training log-likelihood of the best
        iteration is reached.
    device : {"auto", "cpu", "cuda"}
        Where to compute.
    dtype : {"float64", "float32"}
        Precision of training; sums over rows are added up, and scores computed, in float64 always.
    random_state : int, RandomState instance or None
        Seed of starts, held-out rows and minibatches.
    verbose : int
        1 shows a progress bar on stderr.

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

    n_factors_: int
    _sizes = ("n_components", "n_factors")
    _kept = ("n_components_", "n_factors_", "search_")

    def __init__(
        self,
        n_components: Any = 10,
        n_factors: Any = 1,
        *,
        init: str = "k-means++",
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-4,
        patience: int | None = 10,
        batch_size: int | None = None,
        step_size: float = 0.1,
        sigma_floor: str | float = "auto",
        validation_fraction: float = 0.1,
        retrain: bool = False,
        device: str = "auto",
        dtype: str = "float64",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_factors = n_factors
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.patience = patience
        self.batch_size = batch_size
        self.step_size = step_size
        self.sigma_floor = sigma_floor
        self.validation_fraction = validation_fraction
        self.retrain = retrain
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def _make_module(
        self, n_dimensions: int, sizes: dict[str, int], n_models: int = 1
    ) -> MixtureOfFactorAnalyzersModule:
        return MixtureOfFactorAnalyzersModule(n_dimensions, **sizes, n_models=n_models)

    def _empty_module(self, n_dimensions: int) -> MixtureOfFactorAnalyzersModule:
        return MixtureOfFactorAnalyzersModule(n_dimensions, self.n_components_, self.n_factors_)

    def _train_sizes(
        self, training: Rows, held_out: Rows, seed: int, candidates: Sequence[dict[str, int]]
    ) -> Iterator[tuple[AbstractGaussianMixture, Outcome]]:
        """Train mixtures of all sizes at once, where that is exact and fits the search."""
        x, floor = training.x, self._floor()
        plain = self.init == "k-means++" and self.n_init == 1 and self.batch_size is None
        if not (
            plain and len(candidates) > 1 and x.dtype == torch.float64 and bool((floor > 0).all())
        ):
            yield from super()._train_sizes(training, held_out, seed, candidates)
            return
        sizes = [Size(**candidate) for candidate in candidates]
        for size in sizes:  # raises on sizes that cannot be
            self._make_module(x.shape[1], size._asdict())
        rows = RowSet(
            x,
            seed,
            weights=training.weights,
            validation=held_out.x,
            validation_weights=held_out.weights,
        )
        settings = self._settings()
        what = f"{len(sizes)} sizes"
        with training_bar(what, settings.max_iter, shown=self.verbose > 0) as on_epoch:
            found = fit_sizes([rows], sizes, settings, floor=floor, on_epoch=on_epoch)
        for g in range(len(sizes)):
            yield found.module(0, g), found.outcome(0, g)

    def _search_range(self, name: str, n_rows: int, n_dimensions: int) -> range:
        if name == "n_factors":
            return even_numbers(n_dimensions)
        return even_numbers(min(MOST_COMPONENTS, n_rows // 2))
