"""Scikit-learn estimators over models, training and preprocessing."""

from rnade.estimators.binary import FVSBN, NADE
from rnade.estimators.persistence import load
from rnade.estimators.rnade import RNADE

__all__ = ["FVSBN", "NADE", "RNADE", "load"]
