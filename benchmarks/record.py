"""The stored record of a benchmark: sections, each with its own facts, limits and rows.

    {"step": {"command": ..., "hardware": ..., "limits": {...}, "rows": [...]}, "density": ...}

Sections may be run one at a time; each replaces its own part of the record and leaves the others.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.measure import Timing
from benchmarks.providers import Shape

RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]
Record = dict[str, Any]


def timed_row(work: str, provider: str, shape: Shape, n: int, timing: Timing, **more: Any) -> Row:
    """A row of the record: what was done, by whom, on how many rows, and its seconds."""
    sizes = {"D": shape.D, "H": shape.H, "K": shape.K, "rows": n}
    return {"work": work, "provider": provider, **sizes, "seconds": asdict(timing), **more}


def line(row: Row) -> str:
    """A row in words, for the table on the screen."""
    if "bytes" in row:
        return f"  {row['provider']:28}{row['bytes'] / 1e6:12.0f} MB"
    fastest, median = (1e3 * row["seconds"][name] for name in ("fastest", "median"))
    words = f"  {row['provider']:28}{fastest:12.3f} ms, median {median:.3f}"
    if "times_fused" in row:
        words += f"  {row['times_fused']:8.1f} x fused"
    if "share_of_product_rate" in row:
        words += f"  {row['share_of_product_rate']:5.0%} of product"
    if "share_of_copy_rate" in row:
        words += f"  {row['share_of_copy_rate']:5.0%} of copy"
    return words


def load(path: Path) -> Record:
    """The record at `path`, or an empty one."""
    record: Record = json.loads(path.read_text()) if path.exists() else {}
    return record


def store(path: Path, sections: Record) -> Record:
    """Put sections into the record at `path`, in place of those of the same name."""
    record = load(path) | sections
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    return record


def rows(record: Record, work: str) -> list[Row]:
    """All rows of one kind of work, whichever section they stand in."""
    return [row for section in record.values() for row in section["rows"] if row["work"] == work]
