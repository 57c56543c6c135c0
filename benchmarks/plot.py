"""Time against D, from a record: the paper's claim of linear cost beside peers."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.record import Record, rows

PANELS = {
    "log density by D": "log density",
    "training step by D": "training step",
    "sampling by D": "sampling",
}


def plot_growth(record: Record, path: Path) -> None:
    """Draw times against the number of dimensions, to NAME-growth.svg and .png beside `path`."""
    found = {work: rows(record, work) for work in PANELS if rows(record, work)}
    if not found:
        return
    figure, axes = plt.subplots(1, len(found), figsize=(4 * len(found), 3.6), squeeze=False)
    names = list(dict.fromkeys(row["provider"] for own in found.values() for row in own))
    for axis, (work, own) in zip(axes[0], found.items(), strict=True):
        for i, name in enumerate(names):
            line = [(row["D"], 1e3 * row["seconds"]["fastest"]) for row in own
                    if row["provider"] == name]  # fmt: skip
            if line:
                axis.loglog(*zip(*line, strict=True), "o-", color=f"C{i}", ms=3, label=name)
        axis.set_title(f"{PANELS[work]} of {own[0]['rows']:,} rows", fontsize=10)
        axis.set_xlabel("dimensions D")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("ms, fastest run")
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    for suffix in ("svg", "png"):
        # No date and fixed ids, so that the same record gives the same file.
        with mpl.rc_context({"svg.hashsalt": "rnade"}):
            metadata = {"Date": None} if suffix == "svg" else {}
            figure.savefig(path.with_name(f"{path.stem}-growth.{suffix}"), metadata=metadata)
    plt.close(figure)
