"""The models that are timed, ours and others', behind the same three calls."""

import importlib.util
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from rnade.backends import dispatch, reference, vectorised
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec
from rnade.batch import Batch
from rnade.chunks import rows_at_a_time
from rnade.families import GaussianMixture, make_family

FLOW_LAYERS, FLOW_HIDDEN = 5, (512, 512)


@dataclass(frozen=True)
class Shape:
    """D dimensions, H hidden units, K components."""

    D: int
    H: int
    K: int

    def operations(self, rows: int, products: int) -> float:
        """Operations of `products` matrix products for each row and dimension (3 in a step)."""
        return 2.0 * products * rows * self.D * self.H * 3 * self.K

    def traffic(self, rows: int, passes: int) -> float:
        """Bytes that must move at least: rows, and parameters once (2 with their gradients)."""
        parameters = self.H + self.D * (self.H + 1 + (self.H + 1) * 3 * self.K)
        return 4.0 * (rows * self.D + passes * parameters)


@dataclass(frozen=True)
class Provider:
    """What a model offers; None where it does not.

    Attributes
    ----------
    density : function of rows (B, D)
    step : function of rows (B, D)
        Value and gradient of all parameters, as torch.autograd.grad hands it over. The caller
        lets go of it before the next step, as training does, so that all may use memory again.
    sample : function of n
    """

    density: Callable[[Any], object]
    step: Callable[[Any], object] | None = None
    sample: Callable[[int], object] | None = None


def make_parameters(
    shape: Shape, device: str, *, models: int = 1, family: str = "gaussian"
) -> Parameters:
    """Random parameters as training makes them: outputs of order 1, scales near 0.4."""
    generator = Generator().manual_seed(0)
    M, D, H, K = models, shape.D, shape.H, shape.K

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    P = make_family(family, K).n_outputs
    b = 0.3 * draw(M, D, P)
    b[..., 2 * K :] -= 1
    W, c, rho = 0.05 * draw(M, D, H), 0.05 * draw(M, H), 1 + 0.1 * draw(M, D)
    tensors = (W, c, rho, draw(M, D, H, P) / math.sqrt(H), b)
    return Parameters(*[t.to(device).requires_grad_() for t in tensors])


def ours(shape: Shape, device: str, backend: str) -> Provider:
    """RNADE by one of our backends."""
    parameters = make_parameters(shape, device)
    spec = Spec(GaussianMixture(shape.K), backend=backend)
    generator = Generator(device).manual_seed(0)
    ones = torch.ones(1, device=device)

    def density(x: Tensor) -> Tensor:
        with torch.no_grad():
            return dispatch.log_prob(Batch(x[None]), parameters, spec)

    def step(x: Tensor) -> object:
        weights = torch.full((1, len(x)), -1.0 / len(x), device=device)
        loss = dispatch.weighted_log_likelihood(Batch(x[None], weights), parameters, spec)
        return torch.autograd.grad(loss, parameters.trained, ones)

    def sample(n: int) -> Tensor:
        with torch.no_grad():
            return dispatch.sample(n, parameters, spec, generator=generator)

    return Provider(density, step, sample)


def compiled(shape: Shape, device: str) -> Provider:
    """The vectorised functions through torch.compile."""
    parameters = make_parameters(shape, device)
    spec = Spec(GaussianMixture(shape.K))

    def terms(x: Tensor, *tensors: Tensor) -> Tensor:
        return vectorised.log_prob(Batch(x), Parameters(*tensors), spec)

    function = torch.compile(terms, dynamic=False)

    def density(x: Tensor) -> object:
        with torch.no_grad():
            rows = rows_at_a_time(shape.D * shape.H)
            return [function(piece[None], *parameters.trained) for piece in torch.split(x, rows)]

    def step(x: Tensor) -> object:
        return torch.autograd.grad(
            -function(x[None], *parameters.trained).mean(), parameters.trained
        )

    return Provider(density, step)


def paper_reference(shape: Shape) -> Provider:
    """The paper's algorithms as float64 NumPy loops."""
    parameters, spec = make_parameters(shape, "cpu"), Spec(GaussianMixture(shape.K))

    def density(x: Tensor) -> object:
        return reference.log_conditionals(Batch(x[None]), parameters, spec)

    def step(x: Tensor) -> object:
        return reference.gradients(Batch(x[None]), parameters, spec)

    return Provider(density, step)


def flow_provider(
    parameters: Iterable[Tensor], log_prob: Callable[[Tensor], Tensor], draw: Callable[[int], Any]
) -> Provider:
    """A flow of another library, by its log density and its draws."""
    leaves = list(parameters)

    def step(x: Tensor) -> object:
        return torch.autograd.grad(-log_prob(x).mean(), leaves)

    return Provider(
        torch.no_grad()(lambda x: [log_prob(piece) for piece in torch.split(x, 10_000)]),
        step,
        torch.no_grad()(draw),
    )


def zuko_flow(shape: Shape, device: str, kind: str) -> Provider:
    """A flow of 5 autoregressive transforms of zuko, "MAF" or "NSF"."""
    import zuko

    torch_state = torch.get_rng_state()
    flow = getattr(zuko.flows, kind)(
        shape.D, transforms=FLOW_LAYERS, hidden_features=FLOW_HIDDEN
    ).to(device)
    torch.set_rng_state(torch_state)
    return flow_provider(
        flow.parameters(), lambda x: flow().log_prob(x), lambda n: flow().sample((n,))
    )


def nflows_flow(shape: Shape, device: str) -> Provider:
    """A flow of 5 affine autoregressive transforms of nflows."""
    from nflows.distributions.normal import StandardNormal
    from nflows.flows.base import Flow
    from nflows.transforms.autoregressive import MaskedAffineAutoregressiveTransform
    from nflows.transforms.base import CompositeTransform

    layers = [
        MaskedAffineAutoregressiveTransform(shape.D, hidden_features=FLOW_HIDDEN[0], num_blocks=1)
        for _ in range(FLOW_LAYERS)
    ]
    flow = Flow(CompositeTransform(layers), StandardNormal([shape.D])).to(device)
    return flow_provider(flow.parameters(), flow.log_prob, flow.sample)


def scikit_learn(shape: Shape, kind: str) -> Provider:
    """GaussianMixture of 20 components, or KernelDensity of 5,000 rows, of scikit-learn."""
    from sklearn.mixture import GaussianMixture as Mixture
    from sklearn.neighbors import KernelDensity

    rows = np.random.default_rng(0).normal(size=(5000, shape.D))
    model = (
        Mixture(20, max_iter=2, random_state=0) if kind == "GaussianMixture" else KernelDensity()
    )
    model.fit(rows)
    return Provider(
        lambda x: model.score_samples(x.double().numpy()), sample=lambda n: model.sample(n)
    )


def fitted_estimator(shape: Shape, device: str) -> Any:
    """An RNADE of this shape, barely trained: its times do not depend on that."""
    from rnade import RNADE

    rows = np.random.default_rng(0).normal(size=(2000, shape.D))
    sizes = {"n_hidden": shape.H, "n_components": shape.K, "ensemble": None, "epochs": 1}
    return RNADE(**sizes, device=device, columns="real", random_state=0).fit(rows)


FUSED = {"cpu": "cpu", "cuda": "gpu"}
PRODUCTS_ALONE = "products alone"  # of the fused CPU kernels: what they could reach at best


def our_backends(device: str) -> list[str]:
    """Names of our own backends on a device, the fused one first."""
    more = ["gpu-tf32", "gpu-bf16"] if device == "cuda" else []
    return [FUSED[device], "vectorised", *more]


def peers(device: str) -> list[str]:
    """Names of the other libraries' models that are installed (`pip install '.[peers]'`)."""
    found = ["zuko MAF", "zuko NSF"] if importlib.util.find_spec("zuko") else []
    found += ["nflows MAF"] if importlib.util.find_spec("nflows") else []
    scikit = ["scikit-learn GaussianMixture", "scikit-learn KernelDensity"]
    return found + (scikit if device == "cpu" else [])


def make(name: str, shape: Shape, device: str) -> Provider:
    """The provider of that name."""
    library, _, kind = name.partition(" ")
    if library == "zuko":
        return zuko_flow(shape, device, kind)
    if library == "nflows":
        return nflows_flow(shape, device)
    if library == "scikit-learn":
        return scikit_learn(shape, kind)
    if name == "torch.compile":
        return compiled(shape, device)
    if name == "reference":
        return paper_reference(shape)
    if name == PRODUCTS_ALONE:
        from benchmarks.products import products_alone

        return products_alone(shape)
    return ours(shape, device, name)
