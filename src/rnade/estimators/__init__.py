"""Scikit-learn estimators over models, training and preprocessing."""

from rnade.estimators.binary import FVSBN, NADE
from rnade.estimators.persistence import load
from rnade.estimators.rnade import RNADE
from rnade.estimators.search import RNADESearchCV

__all__ = ["FVSBN", "NADE", "RNADE", "RNADESearchCV", "load"]
