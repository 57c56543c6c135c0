"""Exact densities for real-valued data by neural autoregressive models.

``RNADE``, ``NADE`` and the baselines beside them are scikit-learn estimators and ``RNADESearchCV``
searches over settings; ``rnade.nn`` holds the torch modules behind them; ``load`` reads a saved
model. Everything loads on first use.
"""

from typing import TYPE_CHECKING, Any

from rnade._version import __version__

if TYPE_CHECKING:
    from rnade.estimators import (
        FVBN,
        FVSBN,
        NADE,
        RNADE,
        Gaussian,
        MixtureOfFactorAnalyzers,
        MixtureOfGaussians,
        RNADESearchCV,
        load,
    )

__all__ = [
    "FVBN",
    "FVSBN",
    "NADE",
    "RNADE",
    "Gaussian",
    "MixtureOfFactorAnalyzers",
    "MixtureOfGaussians",
    "RNADESearchCV",
    "__version__",
    "load",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from rnade import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
