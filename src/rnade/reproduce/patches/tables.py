"""How the results on image patches are laid out: the paper's table, ours, and the two remarks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnade.reproduce.core.layout import Cell, Cells, ResultTable, with_best_bold
from rnade.reproduce.core.targets import targets
from rnade.reproduce.patches.rows import OUR_ROWS, PAPER_ROWS, REMARK_ROWS, ROWS

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
        COLUMNS,
        _cells(names, results),
    )


def _our_table(names: Sequence[str], results: Results) -> ResultTable:
    published = targets("table2-later")
    others = {label: {TEST: Cell(published=v)} for label, v in published["figures"].items()}
    return ResultTable(
        "Beyond the paper",
        f"{NOTE} Ours are trained by Adam with averaged weights on minibatches of 512 patches, in"
        " columns from which the best linear prediction from the pixels before is taken away."
        " The mean density of several orders, or over the symmetries of the square, is a density."
        f" In brackets what others have published ({published['source']}).",
        "model",
        COLUMNS,
        _cells(names, results) | others,
    )


def _cells(names: Sequence[str], results: Results) -> Cells:
    cells: Cells = {}
    for name in names:
        label, result = ROWS[name].label, results.get(name, {})
        published = targets("table2")["figures"].get(label, {})
        test, train = result.get("test", {}), result.get("train", {})
        size = result.get("n_parameters")
        cells[label] = {
            TRAIN: Cell(train.get("mean"), train.get("standard_error"), published.get("train")),
            TEST: Cell(test.get("mean"), test.get("standard_error"), published.get("test")),
            BY_IMAGE: Cell(test.get("by_image")),
            SIZE: Cell(None if size is None else size / 1e6),
            SECONDS: Cell(result.get("fit_seconds")),
        }
    return with_best_bold(cells, TEST)


def _order_table(names: Sequence[str], results: Results) -> ResultTable:
    """Means and spread over runs of raster order and of random orders, and their difference."""
    raster, random, gap = "raster order, other seeds", "random orders", "random less raster"
    cells: Cells = {raster: {}, random: {}, gap: {}}
    result = results.get("orders")
    if result is not None:
        tests = [np.array([run["mean"] for run in result[kind]]) for kind in ("raster", "random")]
        for row, test in zip((raster, random), tests, strict=True):
            cells[row] = {
                TEST: Cell.mean_of(test),
                "spread between runs": Cell(float(test.std(ddof=1))),
                "lowest": Cell(float(test.min())),
                "highest": Cell(float(test.max())),
            }
        error = sum(test.var(ddof=1) / len(test) for test in tests) ** 0.5
        cells[gap] = {TEST: Cell(float(tests[1].mean() - tests[0].mean()), float(error))}
    return ResultTable(
        "Order of the pixels",
        "RNADE-MoG with 10 components by the paper's recipe. Test log-likelihood, nats per patch:"
        " mean over runs, ± its standard error over runs; the standard deviation between runs. Of"
        " raster order, runs differ in their starting weights; of random orders, in the order too."
        " All see the same patches.",
        "order",
        (TEST, "spread between runs", "lowest", "highest"),
        cells,
    )


def _range_table(names: Sequence[str], results: Results) -> ResultTable:
    """What limiting the range does to likelihoods and samples."""
    gains = {
        "gain, range [-1, 1]": "fixed",
        "gain, range left by the pixels before": "running",
    }
    shares = {
        "% of samples out of range": "free",
        "% after limiting": "limited",
        "% of test patches": "data",
    }
    cells: Cells = {ROWS[name].label: {} for name in names}
    for name in (name for name in names if name in results):
        result, line = results[name], cells[ROWS[name].label]
        for column, part in gains.items():
            line[column] = Cell(result[part]["mean"], result[part]["by_image"])
        for column, part in shares.items():
            line[column] = Cell(100 * result["out_of_range"][part])
    return ResultTable(
        "A limited range",
        "Pixels of a patch lie within 1 of each other. Limiting each conditional to legal values"
        " raises the test log-likelihood by so many nats per patch, ± the standard error over"
        " images; and so many samples have pixels more than 1 apart. Limited draws keep 63 pixels"
        " in range; the 64th, which the others leave, may still be out of it.",
        "model",
        [*gains, *shares],
        cells,
        decimals=4,
    )
