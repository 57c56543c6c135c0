"""Fitted models as `torch.distributions` takes them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch.distributions import AffineTransform, Distribution, TransformedDistribution

from rnade.columns.arguments import nearest_or_all
from rnade.estimators.given import read_given
from rnade.nn import AbstractDensity, AbstractGaussianMixture
from rnade.nn.table import AbstractTableDensity
from rnade.typing import Array


class DistributionMixin:
    """For estimators with a `module_`: the fitted density in the data's units."""

    module_: Any
    n_features_in_: int
    _answering: Any
    _asked_schema: Any

    def distribution(self, given: Mapping[Any, Any] | None = None) -> Distribution:
        """The fitted density as a `torch.distributions.Distribution`, in the data's units.

        sbi takes such distributions as they are, and Pyro with its mixin. Draws go by torch's
        global random state (`torch.manual_seed`).

        Parameters
        ----------
        given : dict, optional
            Values of columns by name (of a model fitted to an array by position): the
            distribution is that of the other columns given these. Models that answer questions,
            mixtures and the Gaussian take any columns.

        Returns
        -------
        torch.distributions.Distribution
            Of vectors in float64: numbers, and of other columns the codes of levels and dates
            that `schema_` has. The log densities of complete real-valued columns have a gradient.
        """
        check_is_fitted(self)
        module = self.module_
        if isinstance(module, AbstractDensity) and (
            not given or isinstance(module, AbstractGaussianMixture) or not _answers(self)
        ):
            places = self._places(given or {})
            asked = [d for d in range(self.n_features_in_) if d not in places]
            mean, scale = (np.asarray(t, np.float64) for t in self._mean_and_scale())
            known = {d: (float(value) - mean[d]) / scale[d] for d, value in places.items()}
            inner = module.distribution(known or None)
            here = [torch.as_tensor(t[asked], device=module.device) for t in (mean, scale)]
            units = AffineTransform(here[0], here[1], event_dim=1)
            return inner if _is_plain(mean, scale) else TransformedDistribution(inner, [units])
        table = module if isinstance(module, AbstractTableDensity) else self._answering
        if not given:
            return table.distribution()
        read = read_given(self._asked_schema, table.columns, given)
        if read.ranges:
            raise ValueError(
                "distribution() takes values, not ranges: use conditional(), log_density() or"
                " sample(), which take both."
            )
        return table.distribution({d: float(read.values[d]) for d in sorted(read.columns)})

    def _mean_and_scale(self) -> tuple[Array, Array]:
        raise NotImplementedError

    def _places(self, given: Mapping[Any, Any]) -> dict[int, Any]:
        """What is given, by the place of its column."""
        names = [str(name) for name in getattr(self, "feature_names_in_", ())]
        names = names or [str(d) for d in range(self.n_features_in_)]
        for name in given:
            if str(name) not in names:
                raise ValueError(
                    f"The model has no column {name!r}.{nearest_or_all(str(name), names)}"
                )
        return {names.index(str(name)): value for name, value in given.items()}


def _answers(estimator: Any) -> bool:
    """Whether an estimator has networks that predict any column from any others."""
    return bool(getattr(estimator, "answers_questions", False))


def _is_plain(mean: Array, scale: Array) -> bool:
    """Whether columns are as the module takes them, such as bits."""
    return bool((mean == 0).all() and (scale == 1).all())
