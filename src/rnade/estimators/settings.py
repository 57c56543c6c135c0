"""Settings that users give by name, as torch and NumPy take them."""

import math
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

from rnade.checks import number_between, unknown_name
from rnade.columns import Resolution, Standardiser
from rnade.typing import Array

DTYPES = {"float32": torch.float32, "float64": torch.float64}


def make_rng(random_state: Any) -> np.random.RandomState:
    """Like scikit-learn's `check_random_state`, but None draws a fresh seed.

    NumPy's global random state is never touched.
    """
    fresh = np.random.RandomState() if random_state is None else random_state
    rng: np.random.RandomState = check_random_state(fresh)
    return rng


def make_generator(random_state: Any, device: torch.device | str = "cpu") -> torch.Generator:
    """Give a torch generator from scikit-learn's form of a seed."""
    seed = int(make_rng(random_state).randint(2**31 - 1))
    return torch.Generator(device).manual_seed(seed)


def resolve_device(device: str) -> torch.device:
    """Return the torch device for "auto", "cpu" or "cuda", or say why it cannot be had."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not isinstance(device, str) or device.split(":")[0] not in ("cpu", "cuda"):
        raise unknown_name(device, ["auto", "cpu", "cuda"], "device")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(
            f"device={device!r} was asked for, but torch {torch.__version__} sees no CUDA device."
            " Use device='cpu' or device='auto'."
        )
    return torch.device(device)


def named_dtype(name: str, parameter: str) -> torch.dtype:
    """Return the torch dtype called `name`, which `parameter` was given as."""
    if name not in DTYPES:
        raise unknown_name(name, list(DTYPES), parameter)
    return DTYPES[name]


def scale_floors(sigma_floor: object, resolution: Resolution, standardiser: Standardiser) -> Array:
    """Smallest scale of a component in each standardised column, from what the user gave."""
    if isinstance(sigma_floor, str):
        if sigma_floor != "auto":
            raise ValueError(f"sigma_floor must be 'auto' or a number >= 0; got {sigma_floor!r}.")
        return resolution.floors(standardiser.scale)
    floor = number_between(sigma_floor, "sigma_floor", 0, math.inf, open_low=False)
    return np.full(len(resolution.steps), floor)


def noise_width(
    dequantize: bool, resolution: Resolution | None, standardiser: Standardiser
) -> Array | None:
    """Width of the uniform noise on each standardised column, or None where there is none."""
    if not dequantize or resolution is None or not resolution.steps.any():
        return None
    return resolution.steps / standardiser.scale


def changes_of_family(family: str) -> dict[str, Any]:
    """What a family of mixtures changes of a recipe; raises on one of no real values."""
    if family not in ("gaussian", "laplace"):
        raise unknown_name(family, ["gaussian", "laplace"], "family")
    # The paper's heuristic is for mixtures of Gaussians only.
    return {} if family == "gaussian" else {"scale_mean_gradient": False}
