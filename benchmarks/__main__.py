"""One command, one table, one record: `make bench`, or python -m benchmarks [--quick].

Times of log density, training step and sampling for our backends and for peers; growth with each
size; peak memory; all as shares of the machine's own matrix product and copy rate, measured in
the same run. Writes benchmarks/results/NAME.json and NAME-growth.svg and .png; with --section only
that part of the record is made anew.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from benchmarks import providers
from benchmarks.measure import OtherLoad
from benchmarks.record import RESULTS, store
from benchmarks.sections import SECTIONS, Bench
from rnade.records import run_facts

MOST_OTHERS = 0.1  # cores; with more, ratios say little


def main() -> None:
    parser = argparse.ArgumentParser(description="Benchmarks beside peers.")
    parser.add_argument("--quick", action="store_true", help="shorter timings, fewer sizes")
    parser.add_argument(
        "--section", action="append", choices=SECTIONS, help="run this part only; may be repeated"
    )
    parser.add_argument("--name", help="name of the record; the device by default")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # those of other libraries
    device = "cuda" if torch.cuda.is_available() else "cpu"
    path = options.output / f"{options.name or device}.json"
    record = {}
    for name in options.section or SECTIONS:
        began, load = time.perf_counter(), OtherLoad()
        bench = Bench(device, options.quick)
        SECTIONS[name](bench)
        others = load.cores()
        facts = run_facts(
            f"python -m benchmarks --section {name}" + (" --quick" if options.quick else ""),
            threads=torch.get_num_threads(),
            flow_layers=providers.FLOW_LAYERS,
            flow_hidden=providers.FLOW_HIDDEN,
            seconds=round(time.perf_counter() - began, 1),
            cores_used_by_others=others,
        )
        record = store(path, {name: facts | {"limits": bench.limits, "rows": bench.rows}})
        print(f"\n{name}: {facts['settings']['seconds']:.0f} s, in {path}", flush=True)
        if others > MOST_OTHERS:
            print(f"Others used {others:.2f} cores meanwhile: run it again on a quiet machine.")
    from benchmarks.plot import plot_growth

    plot_growth(record, path)


if __name__ == "__main__":
    main()
