"""What studies share: their arguments, records and tables, and how rows are prepared."""

import json
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.mixture import GaussianMixture

from benchmarks.pages import put

ROOT = Path(__file__).parent.parent


def folder_of(name: str) -> Path:
    """Where the records and the table of a study are."""
    return ROOT / "results" / name


def parse(parser: ArgumentParser, folder: Path, *, needs_data: bool = True) -> Namespace:
    """Read the command line of a study whose fits are records in `folder`."""
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("RNADE_DATA"))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--output", type=Path, default=folder)
    parser.add_argument("--page", action="store_true", help="lay out what is stored, fit nothing")
    given = parser.parse_args()
    if needs_data and given.data_dir is None:
        parser.error("name the folder of the data with --data-dir or RNADE_DATA")
    return given


def stored(path: Path) -> list[dict[str, Any]]:
    """All records of a file of JSON lines, none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def write_table(lines: Iterable[str], folder: Path) -> str:
    """Write a study's table.md, and print it."""
    text = "\n".join([*lines, "Records: records.jsonl.", ""])
    (folder / "table.md").write_text(text)
    print(text)
    return text


def write_record(path: Path, record: Any, table: str, name: str = "table.md") -> None:
    """Write a record, and beside it the table that it gives, which is printed too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    path.with_name(name).write_text(table)
    print(table)


def show_in(page: Path, name: str, text: str) -> None:
    """Put text into a page of the documentation, between the marks called `name`."""
    page.write_text(put(page.read_text(), name, text))


def split(X: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from, and one in ten that is left out."""
    rows = rng.permutation(len(X))
    return X[rows[len(X) // 10 :]], X[rows[: len(X) // 10]]


def standardised(train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Rows in the units of the first ones."""
    mean, scale = train.mean(0), train.std(0)
    scale[scale == 0] = 1
    return [(rows - mean) / scale for rows in (train, *others)]


def best_mixture(X: np.ndarray, sizes: Iterable[int], seed: int, **more: Any) -> GaussianMixture:
    """Of mixtures of Gaussians of these sizes that which scores best on a tenth of the rows."""
    left = max(1, len(X) // 10)
    fits = [GaussianMixture(K, random_state=seed, **more).fit(X[left:]) for K in sizes]
    return max(fits, key=lambda mixture: mixture.score(X[:left]))
