"""Zoran and Weiss's mixture of 200 Gaussians, from the MATLAB file that they published."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rnade.exceptions import DataError
from rnade.nn import MixtureOfGaussiansModule


def read_mixture(path: Path) -> tuple[MixtureOfGaussiansModule, dict[str, Any]]:
    """Read a mixture over whole patches and leave out the last pixel.

    The paper "removed the 64th row and column of each covariance matrix": the density of the
    other 63 pixels, since a part of a Gaussian is Gaussian.

    Parameters
    ----------
    path : path
        A MATLAB file with a structure (`GS` in the one they published) that has the fields
        `mixweights` (K), `covs` (D + 1, D + 1, K) and, if not all 0, `means` (D + 1, K).

    Returns
    -------
    MixtureOfGaussiansModule, dict
        The mixture of the first D pixels, in float64; and the file's digest, for the record.
    """
    from scipy.io import loadmat

    content = loadmat(path, squeeze_me=True, struct_as_record=False)
    found = [v for v in content.values() if hasattr(v, "covs") and hasattr(v, "mixweights")]
    if len(found) != 1:
        names = sorted(name for name in content if not name.startswith("__"))
        raise DataError(
            f"Expected one structure with the fields mixweights and covs in {path}; found"
            f" {names}. Zoran and Weiss's file is GSModel_8x8_200_2M_noDC_zeromean.mat."
        )
    (model,) = found
    weights = np.atleast_1d(np.asarray(model.mixweights, dtype=np.float64))
    covs = np.asarray(model.covs, dtype=np.float64)
    covs = np.moveaxis(covs if covs.ndim == 3 else covs[:, :, None], -1, 0)  # (K, D + 1, D + 1)
    K, whole, _ = covs.shape
    if weights.shape != (K,) or covs.shape[2] != whole:
        raise DataError(
            f"Expected covs of shape (D, D, K) and K mixweights in {path}; got"
            f" {(*covs.shape[1:], K)} and {weights.shape}."
        )
    # The published file has no means, or zeros.
    given = np.asarray(getattr(model, "means", 0.0), dtype=np.float64)
    means = given.reshape(whole, K).T if given.size > 1 else np.zeros((K, whole))
    mixture = MixtureOfGaussiansModule(whole - 1, K).double()
    parts = weights / weights.sum(), means[:, :-1], covs[:, :-1, :-1]
    mixture.set_components(*(torch.as_tensor(part)[None] for part in parts))
    return mixture, {"sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest()}
