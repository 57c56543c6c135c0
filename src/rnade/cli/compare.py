"""``rnade compare``: which of several models gives the rows of a table the higher density."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any

import typer

from rnade.cli import options
from rnade.cli.reading import read_for
from rnade.cli.reasons import as_given, say_judges
from rnade.cli.terminal import print_json


def compare(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL MODEL... DATA",
            help="Two or more files that rnade fit wrote, and last the table to compare them by.",
            show_default=False,
        ),
    ],
    *,
    weight: options.Weight = None,
    reading: options.Reading,
    device: options.Device = "auto",
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Compare models by the mean log density of the same rows, in nats per row.

    Differences to the first model are paired, row by row, and so are their standard errors, which
    are far smaller than those of the means: a difference of more than two of them is no chance.
    The rows should be new to all models; those of a table that a model was fitted to are scored
    by networks that left them out of training, where there are such.

    Log densities compare only if all models take the same columns as the same kinds.
    """
    from rnade import load
    from rnade.evaluation import mean_score

    *models, data = files
    if len(models) < 2:
        raise ValueError(
            "Expected two or more models and a table, such as rnade compare a.rnade b.rnade"
            f" test.csv; got {', '.join(files)}."
        )
    if data == "-":
        raise ValueError("The table is read once for each model, so that - cannot be one.")
    estimators = {path: load(path, device=device) for path in models}
    if len(estimators) < len(models):
        raise ValueError("The same model is given more than once.")
    measures = {path: _measures(estimator) for path, estimator in estimators.items()}
    for one, other in pairwise(measures):
        _check_measures(one, measures[one], other, measures[other])
    scores: dict[str, Any] = {}
    weights = None
    for path, estimator in estimators.items():
        table = read_for(estimator, data, reading, weight=weight, quiet=quiet or bool(scores))
        judged = estimator.judge(as_given(estimator, table))
        say_judges(judged, quiet=quiet, of=f"{path}: ")
        scores[path], weights = judged.scores, table.weights
    first = next(iter(scores))
    means = {path: mean_score(own, weights) for path, own in scores.items()}
    differences = {
        path: mean_score(own - scores[first], weights)
        for path, own in scores.items()
        if path != first
    }
    if as_json:
        print_json(
            {
                "data": data,
                "n_rows": len(scores[first]),
                "models": [{"model": path, **vars(mean)} for path, mean in means.items()],
                "differences": [
                    {"model": path, "less": first, **vars(mean)}
                    for path, mean in differences.items()
                ],
            }
        )
        return
    width = max(map(len, models))
    for path, mean in means.items():
        line = f"{path:<{width}}  {mean.mean:.3f} ± {mean.standard_error:.3f} nats per row"
        if path in differences:
            more = differences[path]
            line += f"  {more.mean:+.3f} ± {more.standard_error:.3f}"
        print(line)


def _measures(estimator: Any) -> dict[str, str]:
    """Give what the density of each column is relative to, in words."""
    from rnade.columns.names import column_names, is_mixed

    if not is_mixed(estimator):
        bits = getattr(estimator, "binarize", False)
        words = "real numbers" if bits is False else "bits"
        if isinstance(bits, float | int) and bits is not False:
            words = f"bits (1 above {bits:g})"
        return dict.fromkeys(column_names(estimator), words)
    found = {}
    kinds = {"integer": "integers", "category": "levels", "real": "real numbers"}
    for column in estimator.schema_.columns:
        words = kinds.get(column.kind, f"dates by the {column.unit}")
        if column.atoms:
            atoms = ", ".join(f"{atom:g}" for atom in column.atoms[:3])
            words += f" with probabilities of single values ({atoms})"
        found[column.name] = words
    return found


def _check_measures(
    one: str, first: Mapping[str, str], other: str, second: Mapping[str, str]
) -> None:
    """Refuse models whose log densities are of different things."""
    for path, own, beside, others in ((one, first, other, second), (other, second, one, first)):
        missing = [name for name in own if name not in others]
        if missing:
            raise ValueError(
                f"{path} has a column {missing[0]!r}, which {beside} does not have: log densities"
                " of different columns do not compare. Fit both to the same columns (--columns)."
            )
    for name, measure in first.items():
        if second[name] != measure:
            raise ValueError(
                f"{one} takes column {name!r} as {measure}, {other} as {second[name]}: their log"
                " densities do not compare. Fit both with the same --kind."
            )
