"""The report's pictures for matplotlib, in the manner of scikit-learn's display objects.

Each function takes a fitted model and rows, draws on the axes given (or on new ones) and returns
the axes. The display objects behind them keep what was computed and can draw it again. Needs
matplotlib: ``pip install rnade[plot]``.
"""

from rnade.plot.columns import CalibrationDisplay, MarginalDisplay, calibration, marginals
from rnade.plot.joint import CorrelationDisplay, PairsDisplay, correlation, pairs
from rnade.plot.whole import (
    GainsDisplay,
    LearningCurveDisplay,
    ScoresDisplay,
    gains,
    learning_curve,
    scores,
)

__all__ = [
    "CalibrationDisplay",
    "CorrelationDisplay",
    "GainsDisplay",
    "LearningCurveDisplay",
    "MarginalDisplay",
    "PairsDisplay",
    "ScoresDisplay",
    "calibration",
    "correlation",
    "gains",
    "learning_curve",
    "marginals",
    "pairs",
    "scores",
]
