"""Densities as torch modules: torch in, torch out."""

from rnade.nn.autoregressive import AbstractAutoregressive
from rnade.nn.bank import AbstractBank, AbstractTrainable
from rnade.nn.base import AbstractDensity
from rnade.nn.chain import AbstractChain
from rnade.nn.decorrelated import DecorrelatedModule
from rnade.nn.ensemble import EnsembleModule
from rnade.nn.fvbn import FVBNModule
from rnade.nn.fvsbn import FVSBNModule
from rnade.nn.mfa import MixtureOfFactorAnalyzersModule
from rnade.nn.mixture import AbstractGaussianMixture
from rnade.nn.mog import GaussianModule, MixtureOfGaussiansModule
from rnade.nn.nade import NADEModule
from rnade.nn.rnade import RNADEModule

__all__ = [
    "AbstractAutoregressive",
    "AbstractBank",
    "AbstractChain",
    "AbstractDensity",
    "AbstractGaussianMixture",
    "AbstractTrainable",
    "DecorrelatedModule",
    "EnsembleModule",
    "FVBNModule",
    "FVSBNModule",
    "GaussianModule",
    "MixtureOfFactorAnalyzersModule",
    "MixtureOfGaussiansModule",
    "NADEModule",
    "RNADEModule",
]
