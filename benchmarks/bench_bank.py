"""Train the paper's red-wine grid as banks: 96 settings, by folds, 5,000 updates each.

    python -m benchmarks.bench_bank --data-dir FOLDER              all folds
    python -m benchmarks.bench_bank --data-dir FOLDER --folds 1    a tenth of it
    python -m benchmarks.bench_bank --data-dir FOLDER --folds 1 --epochs 20 --compare
        also one model after the other, with the fused and with the vectorised backend

Times are of training with a validation every epoch, first with whatever has to be compiled, then
again. `--json` stores a record.
"""

import argparse
import json
import time
from pathlib import Path

import torch

from rnade.data import DataStore, load_uci
from rnade.records import run_facts
from rnade.reproduce.table1.folds import FoldRows
from rnade.reproduce.table1.protocol import paper_members
from rnade.training import Bank, Member


def seconds(members: list[Member], device: torch.device) -> float:
    """Time the training of one bank, from stacking to results."""
    began = time.perf_counter()
    bank = Bank(members)
    bank.advance()
    bank.results()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir")
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    table = load_uci("red-wine", DataStore(arguments.data_dir))
    folds = [FoldRows.of(table, f, i) for i, f in enumerate(table.folds()[: arguments.folds])]

    def members(backend: str = "auto") -> list[Member]:
        made = paper_members("gaussian", folds, device)
        for member in made:
            member.module.backend = backend
        return [
            Member(m.module, m.recipe.with_changes(epochs=arguments.epochs), m.rows) for m in made
        ]

    found = {"models": len(members())}
    found["bank, first time"] = seconds(members(), device)
    found["bank"] = seconds(members(), device)
    if arguments.compare:
        for name, backend in (("fused", "auto"), ("vectorised", "vectorised")):
            alone = members(backend)
            seconds(alone[:1], device)
            found[f"one after the other, {name}"] = sum(seconds([m], device) for m in alone)
    for name, value in found.items():
        print(f"{name:34s} {value:8.1f}", flush=True)
    if arguments.json:
        command = f"python -m benchmarks.bench_bank --folds {arguments.folds}"
        command += f" --epochs {arguments.epochs}" + " --compare" * arguments.compare
        facts = run_facts(command, folds=arguments.folds, epochs=arguments.epochs)
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"seconds": found, **facts}, indent=2) + "\n")


if __name__ == "__main__":
    main()
