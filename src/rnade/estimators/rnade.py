"""RNADE as a scikit-learn estimator."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Generator

from rnade.columns import Resolution
from rnade.estimators.base import Planned
from rnade.estimators.kinds import FEW_ROWS, MOST_ORDERS, Kind, check_effort, choose_kinds
from rnade.estimators.parameters import RoundingParameters, estimator
from rnade.estimators.settings import changes_of_family, noise_width, scale_floors
from rnade.estimators.streaming import AbstractStreamingEstimator
from rnade.families import make_family
from rnade.nn import DecorrelatedModule, RNADEModule
from rnade.training import Recipe
from rnade.training.folds import N_FOLDS, covering
from rnade.typing import Array

# Parameters that the kinds of model of an average choose, unless the user has.
CHOSEN_BY_KINDS = (
    "family",
    "n_components",
    "n_hidden",
    "n_layers",
    "decorrelate",
    "learning_rate",
    "weight_decay",
    "batch_size",
    "epochs",
)


# Cells of a table up to which several orders of settings that the user gave are trained.
CELLS_OF_ONE_ORDER = 450_000


@estimator
class RNADE(RoundingParameters, AbstractStreamingEstimator):
    r"""Real-valued neural autoregressive density estimator.

    Models the density of a row as a product of one-dimensional mixtures, each computed from the
    columns before it by a neural network with shared weights (Uria, Murray and Larochelle, 2013).
    Densities and samples are exact; cost is linear in the number of columns. Columns are
    standardised inside; all densities are of the data as given.

    Tables with other than complete real-valued columns (categories, integers, dates, single values
    that many rows share, missing cells) are modelled by networks that predict each column from any
    of the others (Uria, Murray and Larochelle, 2014), averaged over orders of the columns. There
    `n_hidden` and `n_layers`, at their defaults, are chosen by the table; `ensemble=None` trains
    one network; and `family`, `activation`, `sigma_floor`, `dequantize`, `retrain`, `momentum`,
    `dtype` and `backend` have no effect.

    Parameters
    ----------
    family : {"gaussian", "laplace"}
        Components of each conditional mixture.
    n_components : int
        Components in each conditional mixture.
    n_hidden : int
        Hidden units.
    n_layers : int
        Hidden layers; 1 is the paper's model. More layers, which all columns share, fit harder
        data better and take longer to train.
    decorrelate : bool
        Model each column less its best linear prediction from the columns before it: densities
        stay exact, and strongly correlated columns are fitted better.
    activation : {"relu", "sigmoid"}
        Hidden units' non-linearity.
    order : {"auto", "raster", "random"} or permutation of the columns
        Which column comes first, second and so on. "auto" takes them as they are, and in an
        average gives all models but the first a random order.
    ensemble : "auto", None or list of dict
        What is fitted. "auto" trains models of several kinds, each in up to eight orders of the
        columns, and averages their densities by weights that make left-out rows most likely, which
        needs no tuning (with recipe "paper" it trains one model). Kinds choose `family`,
        `n_components`, `n_hidden`, `n_layers`, `decorrelate`, `learning_rate`, `weight_decay`,
        `batch_size` and `epochs`; those that are not at their defaults here hold for all. Mixtures
        of Gaussians are among them. None trains one model. A list of settings, each a dict of
        parameters to change, is trained and averaged likewise. Each model of an average
        early-stops on its own fold of the training rows, 1/8 of them, by which weights are found
        too; the held-out rows serve p-values and `held_out_score` alone. Where folds have fewer
        than 5 rows, the held-out rows stop training.
    effort : {"default", "fast", "best"}
        How long "auto" trains. "fast" takes seconds: two kinds of small networks, or one network
        for tables with other than complete real-valued columns. "best" trains more kinds and more
        networks, for up to ten times as long as the default, and then again on all rows.
    score_fitted : bool
        Whether to train so that every row is left out by some model of the average, to find
        outliers in the fitted table itself: then all rows have `fit_scores_` and `fit_pvalues_`.
        Most tables have that as it is. Of large tables, for which fewer than eight orders (or
        networks) are trained, at least four are, each for fewer epochs, and a fit takes up to half
        as long again. `fit_predict` does this by itself.
    {TableParameters}
    {QuestionParameters}
    {RoundingParameters}
    {MemoryParameters}
    {AutoregressiveParameters}

    Attributes
    ----------
    module_ : rnade.nn.RNADEModule or rnade.nn.EnsembleModule
        The fitted torch module, in float64, on standardised columns.
    members_ : list of dict
        For each model of the average its kind in words, its weight, what it changed, its epochs
        and its scores; models of kinds that earned no weight are not among them.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : array of shape (D,)
        Names of the columns, if X was a data frame.
    history_ : list of dict
        One row an epoch of the model with the best held-out score: epoch, rate, train,
        validation, seconds, skipped; scores in nats on standardised columns.
    best_epoch_ : int
        Epoch of the weights kept.
    validation_scores_ : array
        Log densities of the held-out rows, in the data's units.
    standardiser_, resolution_, calibration_
        What was measured of the columns and of the held-out rows.
    schema_ : rnade.columns.Schema or None
        What the columns hold, what was left out and why; None with ``columns="real"``.
    network_ : dict
        Of tables with other than complete real-valued columns: number and size of the networks.
    questions_ : rnade.nn.table.TableDensity or None
        Of complete real-valued tables: the network that answers questions.
    questions_network_ : dict or None
        Its size.
    fit_scores_ : array of shape (N,)
        Log density of each row of the fitted table by the models that left it out of training.
        NaN for rows that all models learned from (`score_fitted`) and rows of weight 0. Where one
        model is fitted, only held-out rows have one; with `retrain` they are those of the first
        training.
    fit_pvalues_ : array of shape (N,)
        The same rows' p-values: (1 + rows of these that are at most as likely) / (all of these).
    retrain_history_ : list of dict
        `history_` of the second training, where the average was trained again on all rows.
    judges_ : rnade.nn.EnsembleModule or None
        The average before that: its models left rows out, and p-values go by it.
    n_rows_ : int
        Rows fitted, held-out rows included.
    fitted_rows_ : FittedRows
        Which rows were held out, each column's range, and a digest to know the table again.
    data_ : dict or None
        Of a data set in files that was streamed: its rows, row groups and digest, and the rows of
        the sample by which quantiles, atoms and pairs of columns were measured. `fit_scores_` and
        `fit_pvalues_` are then None.
    fit_seconds_ : float

    References
    ----------
    Uria, Murray and Larochelle (2013), RNADE: The real-valued neural autoregressive
    density-estimator.

    Examples
    --------
    >>> import numpy as np
    >>> from rnade import RNADE
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = RNADE(epochs=5, random_state=0).fit(X)
    >>> model.score_samples(X[:3]).shape
    (3,)
    """

    family: str = "gaussian"
    n_components: int = 10
    n_hidden: int = 50
    n_layers: int = 1
    decorrelate: bool = False
    activation: str = "relu"
    order: Any = "auto"
    ensemble: str | Sequence[Mapping[str, Any]] | None = "auto"
    effort: str = "default"
    score_fitted: bool = False

    def _make_recipe(self, **changes: Any) -> Recipe:
        return super()._make_recipe(**changes).with_changes(**changes_of_family(self.family))

    @property
    def _retrains(self) -> bool:
        automatic = self.retrain is None and isinstance(self.ensemble, str)
        if self._mixed or not automatic or self._stream is not None:
            return super()._retrains
        # Of few rows those left out are missed most (docs/decisions/0020-members.md).
        few = self.effort == "default" and self.n_rows_ <= FEW_ROWS
        judged_before = self.calibration_.models is not None
        return judged_before and (few or self.effort == "best")

    def _check_settings(self) -> None:
        super()._check_settings()
        check_effort(self.effort)
        given = self.ensemble
        single = given is None or (isinstance(given, str) and self.recipe == "paper")
        if self.score_fitted and single:
            raise ValueError(
                "score_fitted=True is for an average of models, each of which leaves out some"
                " rows: use ensemble='auto' and recipe='modern', or score_fitted=False."
            )
        if given is None or (isinstance(given, str) and given == "auto"):
            return
        if isinstance(given, str) or not all(isinstance(s, Mapping) for s in given):
            raise ValueError(
                f"ensemble must be 'auto', None or a list of settings; got {given!r}."
            )
        for settings in given:
            self._changed({**settings, "ensemble": None})._check_settings()

    def _plan(self, n_rows: int, n_dimensions: int, device: str) -> list[Planned]:
        automatic = isinstance(self.order, str) and self.order == "auto"
        if self.ensemble is None or (self.ensemble == "auto" and self.recipe == "paper"):
            return [Planned("raster" if automatic else self.order)]
        # Held-out rows stop all models of a streamed data set, all of whose other rows are
        # trained on, as they do where a fold is too small to.
        in_folds = n_rows >= N_FOLDS and self._stream is None
        n_folds = N_FOLDS if in_folds else None
        kinds = self._kinds(n_rows, n_dimensions, device)
        most, orders, share = max(kind.n_orders for kind in kinds), 0, 1.0
        if self._covers:
            orders, share = covering(most)
            n_folds = min(orders, n_rows) if n_rows > 1 else None
        return [
            Planned(
                ("random" if i else "raster") if automatic else self.order,
                kind.changes if kind.mixture else self._shortened(kind.changes, share),
                None if n_folds is None else i % n_folds,
                n_folds or N_FOLDS,
                number,
                kind.words,
                kind.mixture,
            )
            for number, kind in enumerate(kinds)
            # Kinds that have as many models as any cover all rows, if they are to be covered.
            for i in range(orders if self._covers and kind.n_orders == most else kind.n_orders)
        ]

    def _kinds(self, n_rows: int, n_dimensions: int, device: str) -> list[Kind]:
        """The kinds of model of an average."""
        if not isinstance(self.ensemble, str):
            assert self.ensemble is not None
            most = max(1, CELLS_OF_ONE_ORDER // (n_rows * n_dimensions))
            n_orders = min(MOST_ORDERS, most)
            return [Kind("models as given", dict(s), n_orders) for s in self.ensemble]
        usual = {name: getattr(self, name) for name in ("n_hidden", "n_components", "n_layers")}
        chosen = {n: v for n in CHOSEN_BY_KINDS if (v := self._if_chosen(n)) is not None}
        # Kinds that pass over a data set in files one after the other would take as many passes.
        effort = self.effort if self._stream is None else "fast"
        return choose_kinds(n_rows, n_dimensions, device, effort, usual, chosen)

    def _shortened(self, changes: Mapping[str, Any], share: float) -> dict[str, Any]:
        """Changes that train a model for a share of its epochs too."""
        if share == 1:
            return dict(changes)
        epochs = self._changed(dict(changes))._make_recipe().epochs
        return {**changes, "epochs": max(1, round(share * epochs))}

    @property
    def _effort(self) -> str:
        return self.effort

    def _make_module(
        self, n_dimensions: int, recipe: Recipe, order: Any, generator: Generator | None
    ) -> RNADEModule | DecorrelatedModule:
        module = RNADEModule(
            n_dimensions,
            self.n_hidden,
            make_family(self.family, self.n_components),
            activation=self.activation,
            n_layers=self.n_layers,
            order=order,
            generator=generator,
            backend=self.backend,
            weight_scale=recipe.weight_scale,
        )
        return DecorrelatedModule(module) if self.decorrelate else module

    def _floors(self, resolution: Resolution) -> Array:
        return scale_floors(self.sigma_floor, resolution, self.standardiser_)

    def _noise_width(self, resolution: Resolution | None) -> Array | None:
        return noise_width(self.dequantize, resolution, self.standardiser_)
