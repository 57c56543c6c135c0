"""Scikit-learn estimators over models, training and preprocessing."""

from rnade.estimators.binary import FVSBN, NADE
from rnade.estimators.fvbn import FVBN
from rnade.estimators.gaussian import Gaussian
from rnade.estimators.imputer import RNADEImputer
from rnade.estimators.latent_classes import MixtureOfColumns
from rnade.estimators.mfa import MixtureOfFactorAnalyzers
from rnade.estimators.mog import MixtureOfGaussians
from rnade.estimators.persistence import load
from rnade.estimators.rnade import RNADE
from rnade.estimators.search import RNADESearchCV

__all__ = [
    "FVBN",
    "FVSBN",
    "NADE",
    "RNADE",
    "Gaussian",
    "MixtureOfColumns",
    "MixtureOfFactorAnalyzers",
    "MixtureOfGaussians",
    "RNADEImputer",
    "RNADESearchCV",
    "load",
]
