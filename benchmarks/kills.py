"""Kill the training of a bank again and again and see that it ends with the same numbers.

    python -m benchmarks.kills --times 100 --json kills.json

A process trains a bank with a checkpoint each epoch and is killed (SIGKILL) at a random moment,
resumed, killed again, until it ends; then a new bank begins, until there were enough kills. Each
end is compared with that of an undisturbed run, bit for bit.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import Generator

from rnade.batch import Batch
from rnade.families import GaussianMixture
from rnade.nn import RNADEModule
from rnade.records import run_facts
from rnade.training import Bank, Member, Recipe, ShuffledRows


def make_members() -> list[Member]:
    """Models of two shapes on two sets of rows, some of which stop early."""
    sets = []
    for i in range(2):
        x = torch.randn(300, 4, generator=Generator().manual_seed(i))
        x[:, 1] += x[:, 0].square()
        sets.append((ShuffledRows(x[:250], i), Batch(x[250:])))
    recipe = Recipe(epochs=60, batches_per_epoch=5, batch_size=25, patience=8)
    members = []
    for i in range(12):
        module = RNADEModule(
            4, 10, GaussianMixture(2 + i % 2), generator=Generator().manual_seed(i)
        )
        module.start_from(sets[i // 6][0].x)
        rate = 0.003 * 2 ** (i // 2)
        members.append(Member(module, recipe.with_changes(learning_rate=rate), *sets[i // 6]))
    return members


def train(folder: str) -> None:
    """What the killed process does."""
    bank = Bank(make_members(), checkpoint=folder, checkpoint_every=0.0)
    print("ready", flush=True)
    bank.advance()
    print(digest(bank), flush=True)


def digest(bank: Bank) -> str:
    results = bank.results()
    weights = [p.double().sum().item().hex() for r in results for p in r.module.parameters()]
    return json.dumps([weights, [r.best_score for r in results], [r.best_epoch for r in results]])


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.kills", "--train", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--train", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        train(arguments.train)
        return
    chance = random.Random(arguments.seed)
    work = Path(tempfile.mkdtemp())
    whole = start(work / "whole")
    began = time.perf_counter()
    expected = whole.communicate()[0]
    seconds = time.perf_counter() - began
    kills = ends = resumed_late = 0
    while kills < arguments.times:
        folder = work / f"bank-{ends}"
        while True:
            process = start(folder)
            time.sleep(chance.uniform(0, seconds / 3))
            if process.poll() is None and kills < arguments.times:
                process.kill()
                process.communicate()
                kills += 1
                resumed_late += any(folder.glob("bank-*"))
                continue
            break
        found = process.communicate()[0]
        if found != expected:
            raise SystemExit(f"After {kills} kills a run ended with other numbers.")
        ends += 1
        print(f"{kills} kills, {ends} runs ended as the undisturbed one", flush=True)
    shutil.rmtree(work)
    record = {
        "kills": kills,
        "kills_after_a_checkpoint": resumed_late,
        "runs": ends,
        "all_equal": True,
        "undisturbed_seconds": round(seconds, 1),
        **run_facts(f"python -m benchmarks.kills --times {kills}", seed=arguments.seed),
    }
    print(json.dumps({k: record[k] for k in list(record)[:5]}))
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
