"""Time against D, from a record: the paper's claim of linear cost beside peers."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt


def plot_growth(record: dict[str, Any], path: Path) -> None:
    """Draw log density and sampling time against the number of dimensions."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6))
    works = (("growth with D", "log density"), ("sampling, growth with D", "sampling"))
    for axis, (work, title) in zip(axes, works, strict=True):
        rows = [row for row in record["rows"] if row["work"] == work]
        for provider in dict.fromkeys(row["provider"] for row in rows):
            own = [row for row in rows if row["provider"] == provider]
            axis.loglog(
                [row["D"] for row in own],
                [1e3 * row["seconds"][0] for row in own],
                marker="o",
                markersize=3,
                label=provider,
            )
        axis.set_title(f"{title} of {rows[0]['rows']:,} rows")
        axis.set_xlabel("dimensions D")
        axis.set_ylabel("ms")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
