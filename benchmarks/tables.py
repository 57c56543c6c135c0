"""Writes the stored records as the tables of docs/explanation/kernels.md.

python -m benchmarks.tables
"""

import itertools
from pathlib import Path

from benchmarks.pages import markdown, put
from benchmarks.record import RESULTS, Record, Row, load, rows

PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "kernels.md"
WORKS = ("training step", "log density", "sampling")
GROWING = {"log density by D": "log density", "training step by D": "training step"}


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.3g}" if seconds < 1 else f"{1e3 * seconds:,.0f}"


def _share(row: Row, name: str) -> str:
    return f"{row[name]:.0%}" if name in row else ""


def _timed(record: Record, works: tuple[str, ...], fused: str) -> list[str]:
    """A table of times, the fused backend's row first in each group of equal work and size."""
    lines = [
        "| work | by | fastest, ms | median, ms | times fused | of product | of copy |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in [row for work in works for row in rows(record, work)]:
        work = ""
        if row["provider"].startswith(fused):
            work = f"{row['work']}, D={row['D']} H={row['H']} K={row['K']}, {row['rows']:,} rows"
        times = [_milliseconds(row["seconds"][name]) for name in ("fastest", "median")]
        ratio = f"{row['times_fused']:,.1f}" if "times_fused" in row else ""
        shares = [_share(row, f"share_of_{limit}_rate") for limit in ("product", "copy")]
        lines.append("| " + " | ".join([work, row["provider"], *times, ratio, *shares]) + " |")
    return lines


def _machine(record: Record) -> str:
    """Where, when and at which limits; of several sections the best limits."""
    sections = list(record.values())
    hardware, versions = sections[0]["hardware"], sections[0]["versions"]
    product, copy = (
        max(section["limits"][name] for section in sections)
        for name in ("product_flops", "copy_bytes_per_second")
    )
    where = hardware["gpu"] or f"{hardware['processor']}, {hardware['cores']} cores"
    return (
        f"{where}; torch {versions['torch']}; {sections[0]['time'][:10]}. Its limits: float32"
        f" matrix product {product / 1e9:,.0f} GF/s, copy {copy / 1e9:,.1f} GB/s."
    )


def cpu_table(record: Record) -> str:
    """Times and shares, memory, and growth with D."""
    lines = [_machine(record), "", *_timed(record, WORKS, "cpu")]
    lines += ["", "| peak memory beyond input and model | MB |", "| --- | ---: |"]
    for row in rows(record, "log density, peak memory"):
        size = f"{row['rows']:,} rows, D={row['D']}"
        lines.append(f"| log density, {size}, {row['provider']} | {row['bytes'] / 1e6:,.0f} |")
    lines += ["", "| time when D doubles, fused | times |", "| --- | ---: |"]
    for work, name in GROWING.items():
        own = [row for row in rows(record, work) if row["provider"] == "cpu"]
        for before, after in itertools.pairwise(own):
            ratio = after["seconds"]["fastest"] / before["seconds"]["fastest"]
            lines.append(f"| {name}, D from {before['D']} to {after['D']} | {ratio:.2f} |")
    picture = "../../benchmarks/results/cpu-growth.svg"
    lines += ["", f"![Time against the number of dimensions]({picture})"]
    return "\n".join(lines) + "\n"


def other_cpu_table(record: Record) -> str:
    """Times and shares on a processor of another maker."""
    return "\n".join([_machine(record), "", *_timed(record, WORKS, "cpu")]) + "\n"


def gpu_table(record: Record) -> str:
    """Times and shares of the GPU kernels, with the error of each precision."""
    works = ("log density", "sampling", "training step with update")
    lines = [_machine(record), "", *_timed(record, works, "gpu")]
    errors = [row for row in rows(record, "log density") if "error_nats" in row]
    lines += ["", "| log density | largest error, nats a row |", "| --- | ---: |"]
    lines += [f"| {row['provider']} | {row['error_nats']:.1e} |" for row in errors]
    lines += ["", "| work | by | fastest, ms | aim, ms |", "| --- | --- | ---: | ---: |"]
    for work in works:
        for row in [row for row in rows(record, work) if "most_ms" in row]:
            fastest = row["seconds"]["fastest"] * 1e3
            what = f"{work}, D={row['D']} H={row['H']}"
            lines.append(f"| {what} | {row['provider']} | {fastest:.3g} | {row['most_ms']:g} |")
    lines += ["", _deep(record)] if "deep" in record else []
    return "\n".join(lines) + "\n"


def _deep(record: Record) -> str:
    """Training steps of deeper networks, beside the rate of large products in bf16."""
    cells = [
        [
            row["work"].split(", ", 1)[1],
            str(row["D"]),
            str(row["rows"]),
            row["provider"],
            _milliseconds(row["seconds"]["median"]),
            f"{row['flops'] / 1e12:.0f}",
            _share(row, "share_of_bf16_rate"),
        ]
        for row in record["deep"]["rows"]
    ]
    head = ["training step with update", "D", "rows", "by", "median, ms", "TF/s"]
    return markdown([*head, "of bf16 products"], cells)


def with_tables(page: str) -> str:
    """The page's text with the tables of the stored records in their places."""
    for name, table, path in (
        ("cpu", cpu_table, RESULTS / "cpu.json"),
        ("other cpu", other_cpu_table, RESULTS / "cpu-amd.json"),
        ("gpu", gpu_table, RESULTS / "h200.json"),
    ):
        text = table(load(path)) if path.exists() else "No record is stored yet.\n"
        page = put(page, f"{name} table", text)
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
