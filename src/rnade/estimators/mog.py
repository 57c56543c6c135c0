"""A mixture of Gaussians as a scikit-learn estimator."""

from typing import Any

from rnade.estimators.mixtures import MOST_COMPONENTS, AbstractMixtureEstimator, even_numbers
from rnade.nn import MixtureOfGaussiansModule


class MixtureOfGaussians(AbstractMixtureEstimator):
    """Mixture of Gaussians with full covariances, fitted by EM.

    Columns are standardised inside; all densities are of the data as given. EM runs over all rows
    or, with `batch_size`, in minibatches as in the paper: 1,000 iterations of 20,000 random rows,
    each a step towards the parameters that fit those rows best, are
    ``MixtureOfGaussians(200, batch_size=20_000, max_iter=1000, patience=None)``.

    Parameters
    ----------
    n_components : int, list of int, or "search"
        Components. Of a list, the number that scores best on the held-out rows is taken;
        "search" is the paper's range, all even numbers from 2 to 50.
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
        Smallest standard deviation of a component in any direction, in units of the columns' own.
        "auto" ties it to the column's resolution where values are rounded; 0 is none.
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

    def __init__(
        self,
        n_components: Any = 10,
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
    ) -> MixtureOfGaussiansModule:
        return MixtureOfGaussiansModule(n_dimensions, **sizes, n_models=n_models)

    def _empty_module(self, n_dimensions: int) -> MixtureOfGaussiansModule:
        return MixtureOfGaussiansModule(n_dimensions, self.n_components_)

    def _search_range(self, name: str, n_rows: int, n_dimensions: int) -> range:
        return even_numbers(min(MOST_COMPONENTS, n_rows // 2))
