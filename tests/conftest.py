"""Fixtures, and the tables of named constructors over which the property tests run."""

import os
import signal

# The test processes share the cores; threads within each would only get in each other's way.
# Before torch is imported, and for the interpreters that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator

from rnade.families import AbstractFamily, Bernoulli, GaussianMixture, LaplaceMixture
from rnade.nn import (
    AbstractDensity,
    AbstractGaussianMixture,
    DecorrelatedModule,
    EnsembleModule,
    FVBNModule,
    FVSBNModule,
    GaussianModule,
    MixtureOfFactorAnalyzersModule,
    MixtureOfGaussiansModule,
    NADEModule,
    RNADEModule,
)

FAMILIES: dict[str, AbstractFamily] = {
    "gaussian-1": GaussianMixture(1),
    "gaussian-4": GaussianMixture(4),
    "laplace-1": LaplaceMixture(1),
    "laplace-4": LaplaceMixture(4),
    "bernoulli": Bernoulli(),
}
MIXTURES = {name: f for name, f in FAMILIES.items() if name != "bernoulli"}


def decorrelated(D: int, generator: Generator) -> DecorrelatedModule:
    """A model of columns without their linear part, in a random order."""
    inner = RNADEModule(D, 5, GaussianMixture(2), order="random", generator=generator)
    module = DecorrelatedModule(inner)
    mixing = torch.eye(D) + 0.5 * torch.randn(D, D, generator=generator)
    module.start_from(torch.randn(50, D, generator=generator) @ mixing + 0.3)
    return module


# Constructors of modules of D dimensions; every property is tested on every entry.
MODULES: dict[str, Callable[[int, Generator], AbstractDensity]] = {
    "rnade-mog": lambda D, g: RNADEModule(D, 7, GaussianMixture(3), generator=g),
    "rnade-mol": lambda D, g: RNADEModule(D, 7, LaplaceMixture(3), generator=g),
    "rnade-sigmoid": lambda D, g: RNADEModule(
        D, 6, GaussianMixture(2), activation="sigmoid", generator=g
    ),
    "rnade-random-order": lambda D, g: RNADEModule(
        D, 7, GaussianMixture(2), order="random", generator=g
    ),
    "rnade-deep": lambda D, g: RNADEModule(D, 6, GaussianMixture(2), n_layers=3, generator=g),
    "rnade-deep-random-order": lambda D, g: RNADEModule(
        D, 4, GaussianMixture(2), activation="sigmoid", n_layers=2, order="random", generator=g
    ),
    "rnade-one-unit": lambda D, g: RNADEModule(D, 1, GaussianMixture(1), generator=g),
    "decorrelated": lambda D, g: decorrelated(D, g),
    "nade": lambda D, g: NADEModule(D, 5, generator=g),
    "nade-tied": lambda D, g: NADEModule(D, 5, tied_weights=True, generator=g),
    "nade-random-order": lambda D, g: NADEModule(D, 5, order="random", generator=g),
    "fvsbn": lambda D, g: FVSBNModule(D, generator=g),
    "fvsbn-random-order": lambda D, g: FVSBNModule(D, order="random", generator=g),
    "fvbn": lambda D, g: FVBNModule(D, 6, GaussianMixture(2), generator=g),
    "fvbn-random-order": lambda D, g: FVBNModule(
        D, 6, LaplaceMixture(2), activation="sigmoid", order="random", generator=g
    ),
    "ensemble": lambda D, g: _ensemble(D, g, "random"),
    "ensemble-one-order": lambda D, g: _ensemble(D, g, None),
    "gaussian": lambda D, g: GaussianModule(D),
    "mog": lambda D, g: MixtureOfGaussiansModule(D, 3),
    "mfa": lambda D, g: MixtureOfFactorAnalyzersModule(D, 3, min(2, D)),
    "mfa-full": lambda D, g: MixtureOfFactorAnalyzersModule(D, 2, D),
}


def _ensemble(D: int, generator: Generator, order: str | None) -> EnsembleModule:
    """A bank of two models and one of another kind, with weights of their own."""
    bank = RNADEModule(D, 5, GaussianMixture(2), order=order, n_models=2, generator=generator)
    other = RNADEModule(D, 4, LaplaceMixture(2), order=order, generator=generator)
    return EnsembleModule([bank, other], [0.2, 0.5, 0.3])


BINARY_MODULES = [name for name in MODULES if name.startswith(("nade", "fvsbn"))]
REAL_MODULES = [name for name in MODULES if name not in BINARY_MODULES]
# Those that are one chain of conditionals, which an average of models is not.
CHAINS = [name for name in MODULES if not name.startswith("ensemble")]
TIED_MODULES = [name for name in MODULES if name.startswith(("rnade", "nade", "fvsbn"))]


def random_components(
    M: int, K: int, D: int, generator: Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Fractions, means and covariances of M mixtures."""
    alpha = torch.rand(M, K, generator=generator, dtype=torch.float64) + 0.2
    mu = torch.randn(M, K, D, generator=generator, dtype=torch.float64)
    root = torch.randn(M, K, D, D, generator=generator, dtype=torch.float64)
    eye = torch.eye(D, dtype=torch.float64)
    return alpha / alpha.sum(1, keepdim=True), mu, root @ root.mT / D + 0.3 * eye


def make_module(name: str, D: int, seed: int = 0) -> AbstractDensity:
    """A float64 module whose parameters are all far from their starting values."""
    generator = Generator().manual_seed(seed)
    module = MODULES[name](D, generator).double()
    if isinstance(module, AbstractGaussianMixture):
        module.set_components(*random_components(1, module.n_components, D, generator))
        return module
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.4 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return module


def make_rows(module: AbstractDensity, n: int, seed: int = 1) -> torch.Tensor:
    """Rows of the kind that the module takes."""
    generator = Generator().manual_seed(seed)
    x = torch.randn(n, module.n_dimensions, generator=generator, dtype=torch.float64)
    family = getattr(module, "family", None)
    return (x > 0).double() if family is not None and family.discrete else x


@pytest.fixture(params=range(2), ids=lambda s: f"seed{s}")
def seed(request: pytest.FixtureRequest) -> int:
    """Seeds for tests of chance, which must hold for any."""
    return int(request.param)


@pytest.fixture(autouse=True)
def _global_state_is_left_alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail any test after which a global random state or torch setting has changed.

    Python's own `random` is left out: the type checker that runs under test draws from it.
    """

    def state() -> tuple[object, ...]:
        return (
            np.random.get_state()[1].tobytes(),  # type: ignore[union-attr,index]
            torch.get_rng_state().numpy().tobytes(),
            torch.get_default_dtype(),
            torch.get_num_threads(),
            torch.is_grad_enabled(),
        )

    before = state()
    yield
    if request.node.get_closest_marker("changes_global_state"):
        return
    assert state() == before, "the test changed global random state or torch's settings"


@pytest.fixture
def data_folder() -> Path:
    """The folder of data sets, or a counted skip where RNADE_DATA does not name one."""
    folder = os.environ.get("RNADE_DATA")
    if not folder:
        pytest.skip("RNADE_DATA names no data folder")
    return Path(folder)


@pytest.fixture(autouse=True, scope="session")
def heed_interrupts():
    """Have Ctrl-C raise, also where the shell that started the tests has it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def rnade(capsys, folder):
    """Run the command in this process, in the `folder` of the test's own file.

    Gives its exit code, stdout and stderr.
    """
    from rnade.cli import main

    def rnade(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return (code, *capsys.readouterr())

    return rnade
