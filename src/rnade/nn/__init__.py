"""Densities as torch modules: torch in, torch out."""

from rnade.nn.autoregressive import AbstractAutoregressive
from rnade.nn.bank import AbstractBank, AbstractTrainable
from rnade.nn.base import AbstractDensity
from rnade.nn.ensemble import EnsembleModule
from rnade.nn.fvsbn import FVSBNModule
from rnade.nn.nade import NADEModule
from rnade.nn.rnade import RNADEModule

__all__ = [
    "AbstractAutoregressive",
    "AbstractBank",
    "AbstractDensity",
    "AbstractTrainable",
    "EnsembleModule",
    "FVSBNModule",
    "NADEModule",
    "RNADEModule",
]
