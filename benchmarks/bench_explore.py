"""Weigh the page of `rnade explore`, time how it is written, and how fast it redraws.

    python -m benchmarks.bench_explore [--record FOLDER]

Two default fits of 10,000 rows and 20 columns: real-valued columns alone, and columns of all
kinds. The page is opened in chromium (Debian: apt install chromium), where sliders are moved 200
times; and its log densities of random settings are compared with Python's.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tests.browser import Browser
from tests.explored import pages_answers, pythons_answers, random_settings

from benchmarks import study
from benchmarks.pages import markdown
from rnade import RNADE, load
from rnade.records import run_facts

N_ROWS, N_COLUMNS, N_CHANGES, N_COMPARED = 10_000, 20, 200, 200
COMMAND = "import sys; from rnade.cli import main; sys.exit(main())"
START_UP = "from rnade import load, RNADE; import rnade.cli.given"

# Each change moves one of three sliders, so that others are set meanwhile. A redraw is all that
# follows at once: distributions, pictures, words and the layout; to the paint, what chromium needs
# until the frame is there.
REDRAWS = """rnade.then(async (p) => {
  const sliders = p.cards.filter((card) => card.slider).slice(0, 3), found = [];
  const update = p.update.bind(p);
  let began = 0, redraw = 0;
  p.update = () => {
    began = performance.now();
    update();
    document.body.offsetHeight;
    redraw = performance.now() - began;
  };
  const painted = () => new Promise((done) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => done(performance.now());
    channel.port2.postMessage(null);
  }));
  for (let i = 0; i < N; i++) {
    const { slider } = sliders[i % 3];
    slider.value = Math.floor(Math.random() * 500);
    slider.dispatchEvent(new Event("input"));
    const end = await painted();
    found.push([redraw, end - began]);
    await new Promise((done) => setTimeout(done, 20));
  }
  return found;
})"""


def real_table(rng: np.random.Generator) -> pd.DataFrame:
    z = rng.normal(size=(N_ROWS, N_COLUMNS))
    x = z + np.tanh(z @ rng.normal(size=(N_COLUMNS, N_COLUMNS)) / 4)
    return pd.DataFrame(x, columns=[f"measure {d}" for d in range(1, N_COLUMNS + 1)])


def mixed_table(rng: np.random.Generator) -> pd.DataFrame:
    z = rng.normal(size=(N_ROWS, 4))

    def hidden() -> Any:
        return z @ rng.normal(size=4)

    columns: dict[str, Any] = {f"real {d}": hidden() + rng.normal(size=N_ROWS) for d in range(6)}
    columns |= {f"count {d}": rng.poisson(np.exp(1 + 0.25 * hidden())) for d in range(5)}
    for d in range(4):
        odds = np.exp(z @ rng.normal(size=(4, 5)))
        ends = odds.cumsum(1) / odds.sum(1, keepdims=True)
        levels = (rng.random((N_ROWS, 1)) > ends).sum(1).clip(max=4)
        columns[f"level {d}"] = np.array(list("abcde"))[levels]
    columns |= {f"flag {d}": rng.random(N_ROWS) < 1 / (1 + np.exp(-hidden())) for d in range(2)}
    columns["rain"] = np.maximum(0, 3 * hidden())
    days = np.round(300 + 100 * z[:, 0] + 30 * rng.normal(size=N_ROWS))
    columns["since"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(days, "D")
    columns["gaps"] = np.where(rng.random(N_ROWS) < 0.1, np.nan, np.abs(10 * z[:, 1]))
    return pd.DataFrame(columns)


def seconds_of(program: str, *arguments: str, folder: Path) -> float:
    """Median of three runs, each a process of its own."""
    found = []
    for _ in range(3):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", program, *arguments], cwd=folder, check=True)
        found.append(time.perf_counter() - began)
    return round(float(np.median(found)), 2)


def measured(name: str, table: pd.DataFrame, folder: Path, kept: Path | None) -> dict[str, Any]:
    path = folder / f"{name}.rnade" if kept is None else kept / f"{name}.rnade"
    if not path.exists():
        RNADE(random_state=0, verbose=1).fit(table).save(path)
    page = folder / f"{name}.html"
    arguments = ["explore", str(path.absolute()), "-o", page.name, "--quiet", "--force"]
    command = seconds_of(COMMAND, *arguments, folder=folder)
    start_up = seconds_of(START_UP, folder=folder)
    model = load(path)
    known, asked = random_settings(model, N_COMPARED)
    expected = pythons_answers(model, known, asked)
    with Browser() as browser:
        tab = browser.open(page)
        found = pages_answers(tab, known, asked)
        tab.evaluate("rnade.then((p) => p.schedule.done())")
        times = np.array(tab.evaluate(REDRAWS.replace("N;", f"{N_CHANGES};")))
        version = browser.call("Browser.getVersion")["product"]
    quantiles = np.quantile(times, [0.5, 0.95], axis=0).round(2)
    networks = model._answering.networks
    return {
        "table": name,
        "n_rows": len(table),
        "n_columns": table.shape[1],
        "n_networks": networks.n_models,
        "n_weights": sum(t.numel() for t in networks.parameters()),
        "page_bytes": page.stat().st_size,
        "command_seconds": command,
        "start_up_seconds": start_up,
        "redraw_ms": {"median": quantiles[0, 0], "95 %": quantiles[1, 0]},
        "to_paint_ms": {"median": quantiles[0, 1], "95 %": quantiles[1, 1]},
        "largest_difference_nats": max(
            float(np.abs(found[key] - expected[key]).max()) for key in ("log_prob", "joint")
        ),
        "browser": version,
    }


def table_of(record: dict[str, Any]) -> str:
    """The figures of a record as docs/how-to/explore.md shows them."""
    rows, n_changes = record["rows"], record["settings"]["n_changes"]
    after = (row["command_seconds"] - row["start_up_seconds"] for row in rows)
    lines = [
        ["networks on the page", *(f"{row['n_networks']}" for row in rows)],
        ["weights", *(f"{row['n_weights']:,}" for row in rows)],
        ["page, MB", *(f"{row['page_bytes'] / 1e6:.2f}" for row in rows)],
        ["`rnade explore` after start-up, s", *(f"{seconds:.1f}" for seconds in after)],
    ]
    for what, name in (("redraw_ms", "redraw of all columns"), ("to_paint_ms", "until painted")):
        both = (f"{row[what]['median']:.1f} / {row[what]['95 %']:.1f}" for row in rows)
        lines.append([f"{name}, median / 95 % of {n_changes} changes, ms", *both])
    most = (f"{row['largest_difference_nats']:.0e}" for row in rows)
    lines.append(["largest difference from Python, nats", *most])
    head = ["10,000 rows, 20 columns, default fit", "real columns", "columns of all kinds"]
    hardware = record["hardware"]
    where = f"{hardware['processor']}, {hardware['cores']} cores, {rows[0]['browser']}"
    return f"{markdown(head, lines)}\n\n{where}. Record: results/explore/record.json.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=Path, help="folder for the figures and their table")
    parser.add_argument("--models", type=Path, help="folder of fitted models, kept between runs")
    arguments = parser.parse_args()
    if arguments.models:
        arguments.models.mkdir(parents=True, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for kind, make in {"real": real_table, "mixed": mixed_table}.items():
            table = make(np.random.default_rng(0))
            rows.append(measured(kind, table, Path(name), arguments.models))
            print(json.dumps(rows[-1], indent=1))
    if arguments.record:
        command = "python -m benchmarks.bench_explore"
        facts = run_facts(command, random_state=0, n_changes=N_CHANGES, n_compared=N_COMPARED)
        record = facts | {"rows": rows}
        study.write_record(arguments.record / "record.json", record, table_of(record))


if __name__ == "__main__":
    main()
