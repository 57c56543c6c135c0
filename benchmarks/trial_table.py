"""Lays out the short runs behind Table 2's settings: python -m benchmarks.trial_table.

Reads results/table2/trials.jsonl, one run a line, and writes trials.md beside it.
"""

import json
from pathlib import Path

from benchmarks.pages import markdown

FOLDER = Path(__file__).parent.parent / "results" / "table2"


def table(lines: list[str]) -> str:
    rows = []
    for run in map(json.loads, lines):
        where = "GPU" if run["gpu"] else "CPU"
        validation = "" if run["validation"] is None else f"{run['validation']:.2f}"
        scores = [validation, f"{run['test']:.2f}"]
        rows.append([run["group"], run["setting"], where, f"{run['updates']:,}", *scores])
    head = ["what", "setting", "on", "updates", "validation", "test"]
    return markdown(head, rows, left=6) + "\n"


if __name__ == "__main__":
    runs = (FOLDER / "trials.jsonl").read_text().splitlines()
    (FOLDER / "trials.md").write_text(table(runs))
