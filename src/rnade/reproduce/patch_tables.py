"""How the results on image patches are laid out: the paper's table, ours, and the two remarks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rnade.reproduce.layout import Cell, ResultTable
from rnade.reproduce.patch_rows import OUR_ROWS, PAPER_ROWS, REMARK_ROWS, ROWS
from rnade.reproduce.targets import targets

Results = Mapping[str, Mapping[str, Any]]

TRAIN, TEST, BY_IMAGE = "training", "test", "test, error by image"
SIZE, SECONDS = "million parameters", "seconds to train"
COLUMNS = (TRAIN, TEST, BY_IMAGE, SIZE, SECONDS)
NOTE = (
    "Log-likelihood, nats per patch of 63 dimensions: mean over a million patches, ± its standard"
    " error over patches. Patches of one image go together: the column after gives the standard"
    " error over images."
)


def patch_tables(models: Sequence[str], results: Results) -> list[ResultTable]:
    """Lay out the chosen rows."""
    tables = []
    for names, make in (
        (PAPER_ROWS, _paper_table),
        (OUR_ROWS, _our_table),
        (["orders"], _order_table),
        ([name for name in REMARK_ROWS if name != "orders"], _range_table),
    ):
        chosen = [name for name in names if name in models]
        if chosen:
            tables.append(make(chosen, results))
    return tables


def _paper_table(names: Sequence[str], results: Results) -> ResultTable:
    return ResultTable(
        "Table 2: patches of natural images",
        f"{NOTE} In brackets the paper's figure and the difference. Bold: the highest.",
        "model",
        [ROWS[name].label for name in names],
        COLUMNS,
        _cells(names, results),
    )


def _our_table(names: Sequence[str], results: Results) -> ResultTable:
    published = targets("table2-later")["figures"]
    cells = _cells(names, results)
    cells |= {(label, TEST): Cell(published=figure) for label, figure in published.items()}
    return ResultTable(
        "Beyond the paper",
        f"{NOTE} Ours are trained by Adam with averaged weights on minibatches of 512 patches, in"
        " columns from which the best linear prediction from the pixels before is taken away."
        " The mean density of several orders, or over the symmetries of the square, is a density."
        f" In brackets what others have published ({targets('table2-later')['source']}).",
        "model",
        [*(ROWS[name].label for name in names), *published],
        COLUMNS,
        cells,
    )


def _cells(names: Sequence[str], results: Results) -> dict[tuple[str, str], Cell]:
    figures = targets("table2")["figures"]
    cells = {}
    for name in names:
        label, result = ROWS[name].label, results.get(name, {})
        published = figures.get(label, {})
        for column, part in ((TRAIN, "train"), (TEST, "test")):
            score = result.get(part, {})
            cells[label, column] = Cell(
                score.get("mean"), score.get("standard_error"), published.get(part)
            )
        cells[label, BY_IMAGE] = Cell(result.get("test", {}).get("by_image"))
        size = result.get("n_parameters")
        cells[label, SIZE] = Cell(None if size is None else size / 1e6)
        cells[label, SECONDS] = Cell(result.get("fit_seconds"))
    there = [at for at, cell in cells.items() if at[1] == TEST and cell.value is not None]
    if there:
        best = max(there, key=lambda at: cells[at].value or 0.0)
        cells[best] = replace(cells[best], bold=True)
    return cells


def _order_table(names: Sequence[str], results: Results) -> ResultTable:
    """Means and spread over runs of raster order and of random orders, and their difference."""
    cells: dict[tuple[str, str], Cell] = {}
    result = results.get("orders")
    rows = ("raster order, other seeds", "random orders", "random less raster")
    if result is not None:
        tests = [np.array([run["mean"] for run in result[kind]]) for kind in ("raster", "random")]
        for row, test in zip(rows, tests, strict=False):
            cells[row, "test"] = Cell(
                float(test.mean()), float(test.std(ddof=1) / len(test) ** 0.5)
            )
            cells[row, "spread between runs"] = Cell(float(test.std(ddof=1)))
            cells[row, "lowest"], cells[row, "highest"] = (
                Cell(float(test.min())),
                Cell(float(test.max())),
            )
        error = sum(test.var(ddof=1) / len(test) for test in tests) ** 0.5
        cells[rows[2], "test"] = Cell(float(tests[1].mean() - tests[0].mean()), float(error))
    return ResultTable(
        "Order of the pixels",
        "RNADE-MoG with 10 components by the paper's recipe. Test log-likelihood, nats per patch:"
        " mean over runs, ± its standard error over runs; the standard deviation between runs. Of"
        " raster order, runs differ in their starting weights; of random orders, in the order too."
        " All see the same patches.",
        "order",
        rows,
        ("test", "spread between runs", "lowest", "highest"),
        cells,
    )


def _range_table(names: Sequence[str], results: Results) -> ResultTable:
    """What limiting the range does to likelihoods and samples."""
    columns = {
        "gain, range [-1, 1]": "fixed",
        "gain, range left by the pixels before": "running",
    }
    shares = {
        "% of samples out of range": "free",
        "% after limiting": "limited",
        "% of test patches": "data",
    }
    cells: dict[tuple[str, str], Cell] = {}
    for name in names:
        label, result = ROWS[name].label, results.get(name)
        if result is None:
            continue
        for column, part in columns.items():
            cells[label, column] = Cell(result[part]["mean"], result[part]["by_image"])
        for column, part in shares.items():
            cells[label, column] = Cell(100 * result["out_of_range"][part])
    return ResultTable(
        "A limited range",
        "Pixels of a patch lie within 1 of each other. Limiting each conditional to legal values"
        " raises the test log-likelihood by so many nats per patch, ± the standard error over"
        " images; and so many samples have pixels more than 1 apart. Limited draws keep 63 pixels"
        " in range; the 64th, which the others leave, may still be out of it.",
        "model",
        [ROWS[name].label for name in names],
        [*columns, *shares],
        cells,
        decimals=4,
    )
