"""Writes the demo's record as the README's table: python examples/demo_table.py."""

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "results" / "demo.json"
PLACE = re.compile(r"(<!-- demo table -->\n).*(<!-- end of demo table -->)", re.DOTALL)


def table(record: dict[str, Any]) -> str:
    lines = ["| unseen image patches, 35 dimensions | nats | ± |", "| --- | ---: | ---: |"]
    for row in record["patches"]["rows"]:
        lines.append(f"| {row['model']} | {row['nats']:.2f} | {row['standard_error']:.2f} |")
    lines += [
        "",
        "| benign tumours, 30 columns, 267 rows to learn from | nats | ± | AUROC of malignant |",
        "| --- | ---: | ---: | ---: |",
    ]
    for row in record["odd_rows"]["rows"]:
        figures = f"{row['nats']:.2f} | {row['standard_error']:.2f} | {row['auroc']:.3f}"
        lines.append(f"| {row['model']} | {figures} |")
    return "\n".join(lines) + "\n"


def with_table(readme: str) -> str:
    """The README's text with the table of the stored record in its place."""
    text = table(json.loads(RECORD.read_text()))
    return PLACE.sub(lambda m: m[1] + text + m[2], readme)


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(with_table(readme.read_text()))
