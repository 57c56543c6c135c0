"""Lays out the short runs behind Table 2's settings: python -m benchmarks.trial_table.

Reads results/table2/trials.jsonl, one run a line, and writes trials.md beside it.
"""

import json
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "results" / "table2"


def table(lines: list[str]) -> str:
    rows = ["| what | setting | on | updates | validation | test |", "|" + " --- |" * 6]
    for run in map(json.loads, lines):
        where = "GPU" if run["gpu"] else "CPU"
        validation = "" if run["validation"] is None else f"{run['validation']:.2f}"
        scores = f"{validation} | {run['test']:.2f}"
        rows.append(
            f"| {run['group']} | {run['setting']} | {where} | {run['updates']:,} | {scores} |"
        )
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    runs = (FOLDER / "trials.jsonl").read_text().splitlines()
    (FOLDER / "trials.md").write_text(table(runs))
