"""What users call: a fitted model in, an ONNX file out."""

import json
import os
from typing import Any

import numpy as np
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator
from sklearn.utils.validation import check_is_fitted

from rnade._version import __version__
from rnade.estimators.given import find_column
from rnade.files import write_whole
from rnade.nn.questions import column_given
from rnade.nn.table import AbstractTableDensity
from rnade.onnx import table as tables
from rnade.onnx import tied
from rnade.onnx.graph import Graph
from rnade.typing import Array

# Rows drawn from the model on which a file is tried, and how far in nats it may be off.
TRIED_ROWS, LARGEST_ERROR = 16, 1e-6


def export_scores(model: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write the `score_samples` of a fitted model as an ONNX file.

    The file has the input ``x`` of shape (rows, columns), float64 numbers and codes of levels (in
    the order and coding that its properties tell), NaN where a cell of a table with columns of
    several kinds is missing; and the output ``log_density`` of shape (rows,), in nats and in the
    data's units. It is tried before it is written, on rows drawn from the model.

    Parameters
    ----------
    model : fitted estimator
        RNADE, NADE, FVSBN, Gaussian or a mixture of Gaussians or factor analysers.
    path : path of the file
    overwrite : bool
        Whether to replace a file that exists.

    Raises
    ------
    TypeError
        If this kind of model has no ONNX form.
    """
    check_is_fitted(model)
    g = Graph()
    x = g.input("x", "rows", _width(model))
    module = model.module_
    if isinstance(module, AbstractTableDensity):
        found = tables.log_density(g, x, module)
    else:
        mean, scale = (np.asarray(t, np.float64) for t in model._mean_and_scale())
        inside = tied.log_density(g, (x - mean) / scale, module)
        found = inside + float(model.standardiser_.log_determinant)
    g.output("log_density", found, "rows")
    file = g.model(**_properties(model, "log density of each row, in nats"))
    rows = model.sample_values(TRIED_ROWS, random_state=0)
    _try(file, rows, model._score(rows))
    write_whole(path, file.SerializeToString(), overwrite=overwrite)


def export_conditional(
    model: Any, column: Any, path: str | os.PathLike[str], *, overwrite: bool = False
) -> None:
    """Write the density of one column given others as an ONNX file.

    The file has the input ``x`` as that of `export_scores`, NaN in columns that are not known, and
    the output ``log_density``: log density, or log probability of a level or an integer, of what
    ``x`` holds in this column given all other cells that are known, as ``model.conditional(column,
    given).log_pdf`` gives it. To get the probabilities of all levels, repeat a row once for each.

    Parameters
    ----------
    model : fitted estimator
        One that answers questions: RNADE with its defaults.
    column : str
        Its name; of a model fitted to an array also its position.
    path : path of the file
    overwrite : bool
        Whether to replace a file that exists.
    """
    networks = model._answering if hasattr(model, "_answering") else model.module_
    schema = model._asked_schema
    d = find_column(schema, column)
    g = Graph()
    x = g.input("x", "rows", len(schema.columns))
    g.output("log_density", tables.log_conditional(g, x, networks, d), "rows")
    what = f"log density of {schema.columns[d].name} given all other known columns, in nats"
    file = g.model(**_properties(model, what))
    rows = model.sample_values(TRIED_ROWS, random_state=0)
    rows = rows[~np.isnan(rows[:, d])]
    _try(file, rows, column_given(networks, d, rows).log_prob(rows[:, d]))
    write_whole(path, file.SerializeToString(), overwrite=overwrite)


def _width(model: Any) -> int:
    return int(model.module_.n_dimensions)


def _properties(model: Any, what: str) -> dict[str, str]:
    """What a file says of itself: names of the columns, and codes of their levels."""
    schema = getattr(model, "schema_", None)
    names = getattr(model, "feature_names_in_", None)
    names = (
        [f"x{d}" for d in range(1, _width(model) + 1)] if names is None else list(map(str, names))
    )
    columns: list[dict[str, Any]] = [{"name": name, "kind": "real"} for name in names]
    if schema is not None and len(schema.columns) == _width(model):
        columns = [
            {"name": c.name, "kind": c.kind, **({"levels": list(c.levels)} if c.levels else {})}
            for c in schema.columns
        ]
    return {
        "rnade_version": __version__,
        "model": type(model).__name__,
        "output": what,
        "columns": json.dumps(columns, default=str),
    }


def _try(file: ModelProto, rows: Array, expected: Array) -> None:
    """Compute a file's densities of some rows, and raise if they are not the model's own."""
    with np.errstate(all="ignore"):  # logarithms of shares that are 0
        outputs: Any = ReferenceEvaluator(file).run(None, {"x": np.asarray(rows, np.float64)})
    found: Array = outputs[0]
    error = np.abs(found - expected).max(initial=0.0)
    if not error < LARGEST_ERROR:
        raise RuntimeError(
            f"The ONNX graph of this model is off by {error:.2g} nats, and was not written: a bug"
            " in rnade. Please report it."
        )
