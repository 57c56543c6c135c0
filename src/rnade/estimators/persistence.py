"""Fitted estimators to model files and back."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rnade.columns import (
    Category,
    Date,
    Integer,
    LeaveOut,
    Real,
    Resolution,
    Schema,
    Standardiser,
)
from rnade.columns.links import Link
from rnade.columns.partition import ColumnCells
from rnade.estimators.binary import FVSBN, NADE
from rnade.estimators.density import AbstractDensityEstimator
from rnade.estimators.fitted_rows import FittedRows
from rnade.estimators.fvbn import FVBN
from rnade.estimators.gaussian import Gaussian
from rnade.estimators.latent_classes import MixtureOfColumns
from rnade.estimators.mfa import MixtureOfFactorAnalyzers
from rnade.estimators.mog import MixtureOfGaussians
from rnade.estimators.rnade import RNADE
from rnade.estimators.scoring import for_scoring
from rnade.estimators.settings import DTYPES, resolve_device
from rnade.estimators.two_scales import Scale, TwoScales
from rnade.evaluation import Calibration
from rnade.exceptions import ModelFileError
from rnade.nn.coarse import CoarseModule
from rnade.nn.mog import MixtureOfGaussiansModule
from rnade.nn.table import AbstractTableDensity, TableDensity
from rnade.serialisation import read_model, write_model

KINDS = (
    RNADE,
    NADE,
    FVSBN,
    FVBN,
    Gaussian,
    MixtureOfGaussians,
    MixtureOfFactorAnalyzers,
    MixtureOfColumns,
)
CLASSES: dict[str, type[AbstractDensityEstimator]] = {kind.__name__: kind for kind in KINDS}

# Parameters that files of earlier versions call otherwise.
RENAMED = {"RNADE": {"search": "ensemble"}}

# Parts of a fitted estimator that are dataclasses of arrays, by the prefix of their tensors.
PARTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "standardiser": ("standardiser_", Standardiser),
    "calibration": ("calibration_", Calibration),
    "resolution": ("resolution_", Resolution),
    "rows": ("fitted_rows_", FittedRows),
}
# Those that an estimator or a file of an earlier version may lack.
OPTIONAL_PARTS = ("resolution", "rows")
# What is kept of each row of the fitted table, by the names of the tensors; files of earlier
# versions have none.
FITTED_ROWS = {"fit.scores": "fit_scores_", "fit.pvalues": "fit_pvalues_"}
# Parts of what judges rows at two scales, by the prefix of their tensors.
TWO_SCALES: dict[str, Callable[..., Any]] = {
    "fine": Scale,
    "coarse": Scale,
    "calibration": Calibration,
}
# Fitted attributes that are numbers and lists, by their names in a file, and those not always set.
PLAIN = {
    "n_columns": "n_features_in_",
    "n_rows": "n_rows_",
    "fit_seconds": "fit_seconds_",
    "best_epoch": "best_epoch_",
    "history": "history_",
}
OPTIONAL = {"origin": "origin_", "retrain_history": "retrain_history_"}


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
        f"{prefix}.{name}": t.to(dtype) if t.is_floating_point() else t
        for prefix, module in (("module", estimator.module_), ("judges", estimator.judges_))
        if module is not None
        for name, t in module.state_dict().items()
    }
    tensors["validation.scores"] = torch.as_tensor(estimator.validation_scores_)
    for name, attribute in FITTED_ROWS.items():
        if (own := getattr(estimator, attribute)) is not None:
            tensors[name] = torch.as_tensor(own)
    for prefix, (attribute, _) in PARTS.items():
        part = getattr(estimator, attribute)
        arrays = {} if part is None else {k: v for k, v in vars(part).items() if k != "digest"}
        tensors |= {
            f"{prefix}.{name}": torch.as_tensor(a) for name, a in arrays.items() if a is not None
        }
    names = getattr(estimator, "feature_names_in_", None)
    fitted = estimator.fitted_rows_
    schema = getattr(estimator, "schema_", None)
    questions = getattr(estimator, "questions_", None)
    if questions is not None:
        tensors |= {
            f"questions.{name}": t.float() if t.is_floating_point() else t
            for name, t in questions.state_dict().items()
        }
    for prefix, module in (("cells", estimator.module_), ("questions-cells", questions)):
        if isinstance(module, AbstractTableDensity):
            for d, column in enumerate(module.columns):
                for name, array in column.arrays().items():
                    tensors[f"{prefix}.{d}.{name}"] = torch.as_tensor(array)
    if isinstance(estimator.module_, TableDensity):
        for i, link in enumerate(estimator.module_.links):
            for name, array in link.arrays().items():
                tensors[f"links.{i}.{name}"] = torch.as_tensor(array)
    if estimator.coarse_ is not None and estimator.two_scales_ is not None:
        tensors |= {
            f"coarse.{name}": t.float() for name, t in estimator.coarse_.state_dict().items()
        }
        for scale in TWO_SCALES:
            arrays = vars(getattr(estimator.two_scales_, scale))
            tensors |= {
                f"two-scales.{scale}.{name}": torch.as_tensor(a)
                for name, a in arrays.items()
                if a is not None
            }
    settings = {
        "class": type(estimator).__name__,
        "parameters": {k: _plain(v) for k, v in estimator.get_params(deep=False).items()},
        "fitted": {name: getattr(estimator, name, None) for name in estimator._kept},
        "columns": None if names is None else [str(name) for name in names],
        **({} if schema is None else {"schema": schema.to_json()}),
        **({} if estimator.coarse_ is None else {"coarse_levels": estimator.coarse_.levels}),
        "rows_digest": None if fitted is None else fitted.digest,
        **{name: getattr(estimator, attribute) for name, attribute in PLAIN.items()},
        **{name: getattr(estimator, attribute, None) for name, attribute in OPTIONAL.items()},
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
    if estimator.judges_ is not None:
        estimator.judges_ = estimator.judges_.to(target)
    questions = getattr(estimator, "questions_", None)
    if questions is not None:
        questions.to(target)
    if estimator.coarse_ is not None:
        estimator.coarse_.to(target)
    return estimator


def _rebuilt(tensors: dict[str, Tensor], settings: dict[str, Any]) -> AbstractDensityEstimator:
    kind: Any = CLASSES.get(settings["class"])
    if kind is None:
        raise ValueError(f"it holds a {settings['class']!r}, which this version does not know")
    renamed = RENAMED.get(settings["class"], {})
    given = {renamed.get(k, k): v for k, v in settings["parameters"].items()}
    if isinstance(given.get("columns"), dict):
        given["columns"] = {name: _kind(value) for name, value in given["columns"].items()}
    estimator: Any = kind(**given)
    D = settings["n_columns"]
    for name in kind._kept:
        setattr(estimator, name, settings.get("fitted", {}).get(name))
    schema = settings.get("schema")
    if schema is not None:
        estimator.schema_ = Schema.from_json(schema)
    mixed = "cells.0.measure" in tensors
    D_model = len(estimator.schema_.columns) if mixed else D
    if tensors["standardiser.mean"].shape != (D_model,):
        raise ValueError(f"it claims {D} columns, and its tensors have another number")
    if mixed:
        sizes = getattr(estimator, "network_", {})
        estimator.module_ = _table(estimator, tensors, "module", "cells", sizes)
    else:
        for prefix, attribute in (("module", "module_"), ("judges", "judges_")):
            own = _under(prefix, tensors)
            if own or prefix == "module":
                with torch.device("meta"):
                    module = estimator._empty_module(D)
                module.load_state_dict(own, assign=True)
                setattr(estimator, attribute, for_scoring(module))
    if "questions.orders" in tensors:
        estimator.questions_ = _table(
            estimator, tensors, "questions", "questions-cells", estimator.questions_network_
        )
    estimator.validation_scores_ = tensors["validation.scores"].numpy()
    for name, attribute in FITTED_ROWS.items():
        setattr(estimator, attribute, tensors[name].numpy() if name in tensors else None)
    for prefix, (attribute, make) in PARTS.items():
        arrays: dict[str, Any] = {k: t.numpy() for k, t in _under(prefix, tensors).items()}
        if prefix == "rows" and arrays:
            arrays["digest"] = settings["rows_digest"]
        lacks = prefix in OPTIONAL_PARTS and not arrays
        setattr(estimator, attribute, None if lacks else make(**arrays))
    if "coarse_levels" in settings:
        estimator.coarse_ = _coarse(settings["coarse_levels"], _under("coarse", tensors))
        parts = {
            scale: make(
                **{k: t.numpy() for k, t in _under(f"two-scales.{scale}", tensors).items()}
            )
            for scale, make in TWO_SCALES.items()
        }
        estimator.two_scales_ = TwoScales(**parts)
    for name, attribute in PLAIN.items():
        setattr(estimator, attribute, settings[name])
    for name, attribute in OPTIONAL.items():
        if settings.get(name) is not None:
            setattr(estimator, attribute, settings[name])
    if settings["columns"] is not None:
        estimator.feature_names_in_ = np.asarray(settings["columns"], dtype=object)
    rebuilt: AbstractDensityEstimator = estimator
    return rebuilt


def _table(
    estimator: Any, tensors: dict[str, Tensor], name: str, cells: str, sizes: Mapping[str, Any]
) -> AbstractTableDensity:
    """The density of a table, from the tensors under two prefixes."""
    columns = _cells(_under(cells, tensors))
    # On the meta device nothing is allocated, whatever sizes the settings claim.
    with torch.device("meta"):
        links = _links(tensors) if name == "module" else ()
        module: AbstractTableDensity = estimator._empty_table(columns, sizes, links)
    module.load_state_dict(_under(name, tensors), assign=True)
    return module.double().requires_grad_(False)


def _coarse(levels: Any, tensors: dict[str, Tensor]) -> CoarseModule:
    """The coarse density, from its tensors."""
    G, K, D = tensors["mixtures.mu"].shape
    with torch.device("meta"):
        module = CoarseModule(levels, MixtureOfGaussiansModule(D, K, n_models=G))
    module.load_state_dict(tensors, assign=True)
    return module.double().requires_grad_(False)


def _kind(value: Any) -> Any:
    """The kind of a column that `_plain` wrote; a name stays a name."""
    if not isinstance(value, dict):
        return value
    classes = {each.__name__.lower(): each for each in (Real, Integer, Category, Date, LeaveOut)}
    return classes[value["kind"]](**{k: v for k, v in value.items() if k != "kind"})


def _cells(tensors: dict[str, Tensor]) -> list[ColumnCells]:
    """The columns of a table, as they were cut into cells."""
    n_columns = sum(name.endswith(".measure") for name in tensors)
    found = []
    for d in range(n_columns):
        arrays = {name: t.numpy() for name, t in _under(str(d), tensors).items()}
        found.append(ColumnCells.from_arrays(arrays))
    return found


def _links(tensors: dict[str, Tensor]) -> list[Link]:
    """The links between the columns of a table."""
    found: list[Link] = []
    while arrays := _under(f"links.{len(found)}", tensors):
        found.append(Link.from_arrays({name: t.numpy() for name, t in arrays.items()}))
    return found


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix and a point, by the rest of their names."""
    start = f"{prefix}."
    return {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}


def _plain(value: Any) -> Any:
    """A parameter as JSON holds it; a RandomState instance has no such form and becomes None."""
    if isinstance(value, np.random.RandomState):
        return None
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, Real | Integer | Category | Date | LeaveOut):
        settings = {name: _plain(setting) for name, setting in vars(value).items()}
        return {"kind": type(value).__name__.lower(), **settings}
    if isinstance(value, type):  # a kind by its class
        return value.__name__.lower()
    if isinstance(value, tuple | range | list | set):
        return [_plain(v) for v in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic | Tensor) else value
