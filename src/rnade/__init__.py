"""Exact densities of tables and other data by neural autoregressive models.

``RNADE``, ``NADE`` and the baselines beside them are scikit-learn estimators, ``RNADESearchCV``
searches over settings, and ``RNADEImputer`` fills missing cells in pipelines; ``Real``,
``Integer``, ``Category`` and ``Date`` are kinds of columns; ``rnade.nn`` holds the torch modules
behind them; ``load`` reads a saved model. Everything loads on first use.
"""

from typing import TYPE_CHECKING, Any

from rnade._version import __version__

if TYPE_CHECKING:
    from rnade.columns import Category, Date, Integer, Real
    from rnade.estimators import (
        FVBN,
        FVSBN,
        NADE,
        RNADE,
        Gaussian,
        MixtureOfColumns,
        MixtureOfFactorAnalyzers,
        MixtureOfGaussians,
        RNADEImputer,
        RNADESearchCV,
        load,
    )

__all__ = [
    "FVBN",
    "FVSBN",
    "NADE",
    "RNADE",
    "Category",
    "Date",
    "Gaussian",
    "Integer",
    "MixtureOfColumns",
    "MixtureOfFactorAnalyzers",
    "MixtureOfGaussians",
    "RNADEImputer",
    "RNADESearchCV",
    "Real",
    "__version__",
    "load",
]


def __getattr__(name: str) -> Any:
    if name in ("Category", "Date", "Integer", "Real"):
        from rnade import columns

        return getattr(columns, name)
    if name in __all__:
        from rnade import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
