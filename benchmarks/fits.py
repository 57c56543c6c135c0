"""How long `RNADE().fit` takes, with its models trained beside each other and one after the other.

    python -m benchmarks.fits

Tables of correlated normal columns, one of them bent, each fitted in a fresh process both ways,
which have to end with the same score. Writes results/package/fits.json, and from it fits.md.
"""

from typing import Any

from benchmarks import study
from benchmarks.measure import OtherLoad
from benchmarks.pages import markdown
from benchmarks.scale import in_process
from rnade.records import run_facts

RESULTS = study.folder_of("package")
SHAPES = [(500, 8), (2000, 5), (5000, 20), (20_000, 10)]

PROGRAM = """
    import json, sys, time, warnings
    import numpy as np
    from rnade import RNADE
    from rnade.training import bank
    n, d, apart = (int(word) for word in sys.argv[1:])
    if apart:
        bank.small_parts = lambda *_: []
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    X[:, 0] = np.tanh(X[:, 0]) + 0.1 * rng.normal(size=n)
    warnings.simplefilter("ignore")
    RNADE(epochs=1, random_state=0).fit(X[:200])  # compiles kernels, where none are kept
    began, used = time.perf_counter(), time.process_time()
    model = RNADE(random_state=0).fit(X)
    print(json.dumps({
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - used,
        "held_out": model.held_out_score().mean,
    }))
"""


def fit(n: int, d: int, *, apart: bool) -> dict[str, Any]:
    """Time a fit in a fresh process."""
    (found,) = in_process(PROGRAM, str(n), str(d), str(int(apart)))
    return {"rows": n, "columns": d, "apart": apart, **found}


def table(record: dict[str, Any]) -> str:
    """The record as a Markdown table."""
    fits = {(row["rows"], row["columns"], row["apart"]): row for row in record["fits"]}
    lines = []
    for n, d in SHAPES:
        beside, apart = (fits[n, d, own]["seconds"] for own in (False, True))
        ratio = f"{apart / beside:.2f}"
        lines.append([f"{n:,} x {d}", f"{apart:.1f}", f"{beside:.1f}", ratio])
    head = ["table", "one after the other, s", "beside each other, s", "times as fast"]
    return markdown(head, lines) + "\n"


def main() -> None:
    load, fits = OtherLoad(), []
    for n, d in SHAPES:
        pair = [fit(n, d, apart=apart) for apart in (False, True)]
        if pair[0]["held_out"] != pair[1]["held_out"]:
            raise SystemExit(f"The two ways differ: {pair}")
        print(pair, flush=True)
        fits += pair
    facts = run_facts("python -m benchmarks.fits", cores_used_by_others=load.cores())
    record = {**facts, "fits": fits}
    study.write_record(RESULTS / "fits.json", record, table(record), "fits.md")


if __name__ == "__main__":
    main()
