"""Fitted estimators to model files and back."""

import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rnade.columns import Resolution, Standardiser
from rnade.estimators.binary import FVSBN, NADE
from rnade.estimators.density import AbstractDensityEstimator
from rnade.estimators.fitted_rows import FittedRows
from rnade.estimators.fvbn import FVBN
from rnade.estimators.gaussian import Gaussian
from rnade.estimators.mfa import MixtureOfFactorAnalyzers
from rnade.estimators.mog import MixtureOfGaussians
from rnade.estimators.rnade import RNADE
from rnade.estimators.scoring import for_scoring
from rnade.estimators.settings import DTYPES, resolve_device
from rnade.evaluation import Calibration
from rnade.exceptions import ModelFileError
from rnade.serialisation import read_model, write_model

CLASSES: dict[str, type[AbstractDensityEstimator]] = {
    "RNADE": RNADE,
    "NADE": NADE,
    "FVSBN": FVSBN,
    "FVBN": FVBN,
    "Gaussian": Gaussian,
    "MixtureOfGaussians": MixtureOfGaussians,
    "MixtureOfFactorAnalyzers": MixtureOfFactorAnalyzers,
}

# Parameters that files of earlier versions call otherwise.
RENAMED = {"RNADE": {"search": "ensemble"}}


def save(
    estimator: AbstractDensityEstimator,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
) -> None:
    """Write a fitted estimator to one file."""
    dtype = DTYPES[estimator.dtype]
    # Training made these values in `dtype`; scoring only widened them, so nothing is lost.
    tensors = {
        f"module.{name}": t.to(dtype) if t.is_floating_point() else t
        for name, t in estimator.module_.state_dict().items()
    }
    arrays: dict[str, NDArray[Any]] = {
        "standardiser.mean": estimator.standardiser_.mean,
        "standardiser.scale": estimator.standardiser_.scale,
        "calibration.scores": estimator.calibration_.scores,
        "calibration.weights": estimator.calibration_.weights,
        "validation.scores": estimator.validation_scores_,
    }
    if estimator.resolution_ is not None:
        arrays["resolution.steps"] = estimator.resolution_.steps
    fitted = estimator.fitted_rows_
    if fitted is not None:
        arrays |= {
            "rows.held_out": fitted.held_out,
            "rows.low": fitted.low,
            "rows.high": fitted.high,
        }
    tensors |= {name: torch.as_tensor(a) for name, a in arrays.items()}
    names = getattr(estimator, "feature_names_in_", None)
    settings = {
        "class": type(estimator).__name__,
        "parameters": _plain_parameters(estimator),
        "fitted": {name: getattr(estimator, name) for name in estimator._kept},
        "n_columns": estimator.n_features_in_,
        "columns": None if names is None else [str(name) for name in names],
        "n_rows": estimator.n_rows_,
        "rows_digest": None if fitted is None else fitted.digest,
        "origin": getattr(estimator, "origin_", None),
        "fit_seconds": estimator.fit_seconds_,
        "best_epoch": estimator.best_epoch_,
        "history": estimator.history_,
        "retrain_history": getattr(estimator, "retrain_history_", None),
    }
    write_model(path, tensors, settings, overwrite=overwrite)


def load(path: str | os.PathLike[str], *, device: str = "auto") -> AbstractDensityEstimator:
    """Read a fitted estimator from a file that its `save` wrote. Runs no code from the file.

    Parameters
    ----------
    path : path
    device : {"auto", "cpu", "cuda"}
        Where the estimator is to compute.

    Returns
    -------
    An estimator of the class that was saved
        It scores and samples exactly as the one that was saved.

    Raises
    ------
    ModelFileError
        If the file is damaged, foreign or of a newer format.
    """
    target = resolve_device(device)
    tensors, settings = read_model(path)
    try:
        estimator = _rebuilt(tensors, settings)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[-1].strip()
        raise ModelFileError(f"{path} does not describe a model: {reason}") from error
    estimator.module_ = estimator.module_.to(target)
    return estimator


def _rebuilt(tensors: dict[str, Tensor], settings: dict[str, Any]) -> AbstractDensityEstimator:
    kind = CLASSES.get(settings["class"])
    if kind is None:
        raise ValueError(f"it holds a {settings['class']!r}, which this version does not know")
    renamed = RENAMED.get(settings["class"], {})
    estimator = kind(**{renamed.get(k, k): v for k, v in settings["parameters"].items()})
    D = settings["n_columns"]
    if tensors["standardiser.mean"].shape != (D,):
        raise ValueError(f"it claims {D} columns, and its tensors have another number")
    for name in kind._kept:
        setattr(estimator, name, settings.get("fitted", {}).get(name))
    # On the meta device nothing is allocated, whatever sizes the settings claim.
    with torch.device("meta"):
        module = estimator._empty_module(D)
    state = {
        name.removeprefix("module."): t
        for name, t in tensors.items()
        if name.startswith("module.")
    }
    module.load_state_dict(state, assign=True)
    estimator.module_ = for_scoring(module)
    arrays = {name: t.numpy() for name, t in tensors.items() if not name.startswith("module.")}
    estimator.standardiser_ = Standardiser(
        arrays["standardiser.mean"], arrays["standardiser.scale"]
    )
    estimator.calibration_ = Calibration(
        arrays["calibration.scores"], arrays["calibration.weights"]
    )
    steps = arrays.get("resolution.steps")
    estimator.resolution_ = None if steps is None else Resolution(steps)
    estimator.validation_scores_ = arrays["validation.scores"]
    # Files of before these were stored have neither digest nor origin.
    digest = settings.get("rows_digest")
    estimator.fitted_rows_ = (
        None
        if digest is None
        else FittedRows(digest, *(arrays[f"rows.{part}"] for part in ("held_out", "low", "high")))
    )
    if settings.get("origin") is not None:
        estimator.origin_ = settings["origin"]
    estimator.n_features_in_ = D
    if settings["columns"] is not None:
        estimator.feature_names_in_ = np.asarray(settings["columns"], dtype=object)
    estimator.n_rows_ = settings["n_rows"]
    estimator.fit_seconds_ = settings["fit_seconds"]
    estimator.best_epoch_ = settings["best_epoch"]
    estimator.history_ = settings["history"]
    if settings["retrain_history"] is not None:
        estimator.retrain_history_ = settings["retrain_history"]
    return estimator


def _plain_parameters(estimator: AbstractDensityEstimator) -> dict[str, Any]:
    """Parameters as JSON holds them; a RandomState instance has no such form and becomes None."""
    plain = {}
    for name, value in estimator.get_params(deep=False).items():
        if isinstance(value, np.ndarray | Tensor):
            value = value.tolist()
        elif isinstance(value, np.generic):
            value = value.item()
        elif isinstance(value, np.random.RandomState):
            value = None
        elif isinstance(value, os.PathLike):
            value = os.fspath(value)
        elif isinstance(value, tuple | range):
            value = [int(v) for v in value]
        plain[name] = value
    return plain
