"""Writes the stored records of Table 1 into docs/explanation/table1.md.

python -m benchmarks.table1_page
"""

import functools
import itertools
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.pages import markdown, put
from benchmarks.table1_records import ROOT, by_fold, mean, numbers, picked, records_of
from rnade.evaluation import mean_score
from rnade.reproduce import get_experiment
from rnade.reproduce.core.experiment import Choice
from rnade.reproduce.core.layout import to_markdown
from rnade.reproduce.core.plans import targets
from rnade.reproduce.core.runner import Record, RecordFile
from rnade.reproduce.core.statistics import SIGNIFICANCE, best_group, paired_p_value
from rnade.reproduce.table1.columns import COLUMNS
from rnade.reproduce.table1.ensembles import CANDIDATES, WITH_KERNELS
from rnade.reproduce.table1.table import SET_LABELS, scores_by_model
from rnade.reproduce.table1.variants import ROW_RULES, RULES, VARIANTS, by_rule
from rnade.typing import Array

PAGE = ROOT / "docs" / "explanation" / "table1.md"
# Written by python -m benchmarks.common_values.
COMMON_VALUES = ROOT / "results" / "table1" / "common_values.json"
# The same by other protocols, which the revisions that the records name had: RNADE and FVBN as the
# paper prints them, RNADE with momentum but a narrow start, and MFA begun afresh on all rows.
OTHER_PROTOCOLS = ROOT / "results" / "table1" / "other_protocols.jsonl"
HALF_DIGIT = 0.005
PAPERS_OWN = ("gaussian", "mfa", "fvbn", "rnade-mog", "rnade-mol")
MIXTURES = ("gaussian", "mfa")
AUTOREGRESSIVE = ("fvbn", "rnade-mog", "rnade-mol")
OURS = (*PAPERS_OWN, "rnade-default", "rnade-ensemble")
PEERS = ("gaussian-mixture", "kernel-density", "zuko-nsf", "zuko-maf")
LABELS = {name: column.label for name, column in COLUMNS.items()}


def whole_table(name: str) -> str:
    """Lay out an experiment's table, without its title."""
    (table,) = get_experiment(name).tables(Choice(), records_of(name))
    return to_markdown(table).split("\n", 2)[2]


def reached() -> str:
    """Say for each of the paper's figures whether ours is at least that, less a standard error.

    The paper prints two decimals, so that its figures are known to half of the last.
    """
    published = targets("table1")["figures"]
    rows = []
    for model in PAPERS_OWN:
        cells = []
        for dataset in SET_LABELS:
            scores = scores_by_model(records_of("table1"), dataset)
            if model not in scores:
                cells.append("not run")
                continue
            found, goal = mean_score(scores[model]), published[dataset][LABELS[model]]
            error = found.standard_error
            gap = found.mean - goal
            word = "reached" if gap >= -error - HALF_DIGIT else f"missed by {-gap:.2f}"
            cells.append(word if gap < error else f"above by {gap:.2f}")
        rows.append([LABELS[model], *cells])
    return markdown(["model", *SET_LABELS.values()], rows, left=6)


def protocols() -> str:
    """Set the whole grid as the paper prints it beside what its authors' code adds.

    Steps are compared fold by fold, before retraining too, since the rule for retraining that
    breaks is newer than the oldest records.
    """
    networks = [r for r in other_records() if r["job"]["model"] in AUTOREGRESSIVE]
    by_protocol = {
        "as printed": [r for r in networks if not r["settings"]["recipe"]["momentum"]],
        "with momentum": [r for r in networks if r["settings"]["recipe"]["momentum"]],
        "as in the table above": list(records_of("table1").values()),
    }
    published, rows = targets("table1")["figures"], []
    for model in AUTOREGRESSIVE:
        figures = [f"{published[d][LABELS[model]]:.2f}" for d in SET_LABELS]
        rows.append([LABELS[model], "*the paper's figure*", *figures])
        steps = {
            label: r
            for label, r in by_protocol.items()
            if any(picked(r, d, model) for d in SET_LABELS)
        }
        for label, records in steps.items():
            cells = [mean(numbers(records, d, model, "test")) for d in SET_LABELS]
            rows.append([LABELS[model], label, *cells])
        for (_, before), (label, after) in itertools.pairwise(steps.items()):
            gains = [
                numbers(after, d, model, "before_retraining")
                - numbers(before, d, model, "before_retraining")
                for d in SET_LABELS
            ]
            what = f"*gained by it, before retraining:* {label}"
            rows.append([LABELS[model], what, *map(mean, gains)])
    return markdown(["model", "protocol", *SET_LABELS.values()], rows, left=2)


def other_records() -> list[Record]:
    """Records of Table 1 by other protocols."""
    return list(RecordFile(OTHER_PROTOCOLS).read().values())


def mfa_protocols() -> str:
    """Mixtures of factor analysers trained on all rows from where the search ended, and afresh."""
    afresh = [r for r in other_records() if r["job"]["model"] == "mfa"]
    ways = {
        "trained further, as in the table": list(records_of("table1").values()),
        "afresh": [r for r in afresh if "broad" not in r["settings"]],
        "afresh, from all rows' covariance": [r for r in afresh if "broad" in r["settings"]],
    }
    measures = {
        "test": "test",
        "test, before training on all rows": "before_retraining",
        "validation, which chooses": "validation",
    }
    rows = []
    for (way, records), (label, name) in itertools.product(ways.items(), measures.items()):
        cells = [mean(numbers(records, d, "mfa", name)) for d in SET_LABELS]
        rows.append([way, label, *cells])
    return markdown(["on all rows", "", *SET_LABELS.values()], rows, left=2)


def kept() -> str:
    """Say in how many folds retraining fell short, so that the searched model stands."""
    records = list(records_of("table1").values())
    folds = [
        r for d in SET_LABELS for m in ("rnade-mog", "rnade-mol") for r in picked(records, d, m)
    ]
    n = sum(r["result"]["retrained_epochs"] is None for r in folds)
    networks = [
        epochs
        for d in SET_LABELS
        for r in picked(records, d, "fvbn")
        for epochs in r["result"]["retrained_epochs"]
    ]
    return (
        f"So it was in {n} of RNADE's {len(folds)} folds, and for {networks.count(None)} of FVBN's"
        f" {len(networks)} networks."
    )


def findings() -> str:
    """Put the paper's findings to its own test, among its own models; then ours and others'."""
    lines = []
    for dataset, label in SET_LABELS.items():
        scores = scores_by_model(records_of("table1"), dataset)
        own = {m: s for m, s in scores.items() if m in PAPERS_OWN}
        group = best_group(own)
        bold = ", ".join(LABELS[m] for m in PAPERS_OWN if m in group)
        inside = "in" if "rnade-mog" in group else "**not in**"
        told = f"; RNADE-MoG is {inside} it" if "rnade-mog" in own else ""
        start = f"Best group of the paper's models: {bold}{told}. " if len(own) > 1 else ""
        lines.append(f"- **{label}.** {start}".rstrip())
        missing = [LABELS[m] for m in PAPERS_OWN if m not in own]
        if missing:
            lines.append(f"  Not run yet: {', '.join(missing)}.")
        lines += _autoregressive_against_mixtures(own)
        found = {m: float(s.mean()) for m, s in scores.items()}
        lines.append("  " + _against_all(dataset, found, "Our best row of networks", OURS))
        if WITH_KERNELS in found:
            lines.append("  " + _against_all(dataset, found, "Our row", [WITH_KERNELS]))
    return "\n".join(lines)


def _autoregressive_against_mixtures(own: Mapping[str, Array]) -> list[str]:
    mixtures, neurals = ([m for m in names if m in own] for names in (MIXTURES, AUTOREGRESSIVE))
    if not mixtures or not neurals:
        return []
    mixture, neural = _best(own, mixtures), _best(own, neurals)
    p = paired_p_value(own[neural], own[mixture])
    better = own[neural].mean() > own[mixture].mean() and p < SIGNIFICANCE
    verb = "beats" if better else "does **not** significantly beat"
    return [
        f"  The best autoregressive model that was run ({LABELS[neural]}) {verb} the best mixture"
        f" ({LABELS[mixture]}): p = {p:.2g}."
    ]


def _against_all(dataset: str, ours: Mapping[str, float], what: str, rows: Sequence[str]) -> str:
    """Compare the best of our rows with the paper's, with every peer, and later ensembles."""
    best = _best(ours, rows)
    rivals = {f"the paper's {m}": v for m, v in targets("table1")["figures"][dataset].items()}
    rivals |= {LABELS[m]: ours[m] for m in PEERS if m in ours}
    later = targets("table1-later")["figures"].get(dataset, {})
    rivals |= {f"{m} (2014)": v for m, v in later.items()}
    above = {name: v for name, v in rivals.items() if v >= ours[best]}
    start = f"{what}, {LABELS[best]} ({ours[best]:.2f}), "
    if not above:
        second = max(rivals, key=lambda name: rivals[name])
        return f"{start}is above all others, of which the best is {second} ({rivals[second]:.2f})."
    return f"{start}is **below** {', '.join(f'{n} ({v:.2f})' for n, v in above.items())}."


def _best(scores: Mapping[str, object], names: Sequence[str]) -> str:
    return max((m for m in names if m in scores), key=lambda m: float(np.mean(scores[m])))


def weights() -> str:
    """Mean weight of each setting of the ensemble, and of all kernels where they compete."""
    meant = {c.label: functools.partial(operator.eq, asdict(c)) for c in CANDIDATES}
    rows = [[label, *_mean_weights("rnade-ensemble", of)] for label, of in meant.items()]
    kernels = _mean_weights(WITH_KERNELS, lambda of: "kernel" in of)
    rows.append(["all kernels, where they compete", *kernels])
    return markdown(["weight of", *SET_LABELS.values()], rows)


def twins() -> str:
    """What kernels gain on test rows that are among the training rows, and on the others."""
    records = list(records_of("table1").values())
    rows = []
    for dataset, label in SET_LABELS.items():
        plain, kernels = (
            by_fold(records, dataset, model) for model in ("rnade-ensemble", WITH_KERNELS)
        )
        common = sorted(set(plain) & set(kernels))
        if not common:
            continue
        sums = np.sum([_twin_sums(plain[k], kernels[k]) for k in common], axis=0)
        n_twins, n_others, gain_of_twins, gain_of_others = sums
        of_twins = f"{gain_of_twins / n_twins:.2f}" if n_twins else ""
        of_others = f"{gain_of_others / n_others:.2f}" if n_others else ""
        share = n_twins / (n_twins + n_others)
        rows.append([label, f"{share:.0%}", of_twins, of_others])
    head = ["data set", "rows with a twin", "kernels gain on them", "on the others"]
    return markdown(head, rows)


def _twin_sums(plain: dict[str, Any], kernels: dict[str, Any]) -> tuple[float, ...]:
    """A fold's rows with a twin and without, and the nats that kernels gain on each."""
    n_others = plain["n_test"] - plain["n_twins"]
    gain = plain["n_test"] * (kernels["test"] - plain["test"])
    # Without such rows the records have no mean of theirs.
    of_others = n_others * (kernels["without_twins"] - plain["without_twins"]) if n_others else 0.0
    return plain["n_twins"], n_others, gain - of_others, of_others


def common_values() -> str:
    """Say how much of single models' test scores on Ionosphere comes of common values."""
    folds = json.loads(COMMON_VALUES.read_text())["folds"]
    rows = []
    for c in CANDIDATES:
        mine = [split for fold in folds for split in fold if split["of"] == asdict(c)]
        epochs, common, others = (
            float(np.mean([split[name] for split in mine]))
            for name in ("epochs", "common", "others")
        )
        rows.append([c.label, f"{epochs:.0f}", f"{common:.2f}", f"{others:.2f}"])
    return markdown(["one model of", "epochs", "common values", "all others"], rows)


def _mean_weights(model: str, is_meant: Callable[[dict[str, Any]], bool]) -> list[str]:
    """Mean over folds of the weight of what is meant, for each data set."""
    records = list(records_of("table1").values())
    cells = []
    for dataset in SET_LABELS:
        sums = [
            sum(part["weight"] for part in record["result"]["weights"] if is_meant(part["of"]))
            for record in picked(records, dataset, model)
        ]
        cells.append(f"{np.mean(sums):.2f}" if sums else "")
    return cells


def variants() -> str:
    """Each variant that has records: by the paper's rule, and against the paper on its folds."""
    records = list(records_of("table1-variants").values())
    rows = []
    for dataset, label in SET_LABELS.items():
        plain = by_fold(records, dataset, "paper")
        for name, variant in VARIANTS.items():
            found = by_fold(records, dataset, name)
            if not found:
                continue
            common = sorted(set(plain) & set(found)) if name != "paper" else []
            gain = np.array([_papers_rule(found[k]) - _papers_rule(plain[k]) for k in common])
            scores = np.array([_papers_rule(result) for result in found.values()])
            rows.append([label, variant.label, str(len(found)), mean(scores), mean(gain)])
    head = ["data set", "changed", "folds", "the paper's rule", "against no change, same folds"]
    return markdown(head, rows, left=2)


def values() -> str:
    """What a test row's nats come from, for the variants whose records say it."""
    records = list(records_of("table1-variants").values())
    rows = []
    for dataset, label in SET_LABELS.items():
        for name, variant in VARIANTS.items():
            found = [r["result"].get("by_value") for r in picked(records, dataset, name)]
            told = [each for each in found if each is not None]
            if not told:
                continue
            names = ("n_repeated", "repeated", "others")
            count, repeated, others = (np.array([each[n] for each in told]) for n in names)
            cells = [f"{count.mean():.2f}", mean(repeated / count), mean(others)]
            rows.append([label, variant.label, *cells])
    head = ["such values a row", "nats of each", "nats of all other values"]
    return markdown(["data set", "changed", *head], rows, left=2)


def rules() -> str:
    """How the models of the unchanged grid may be chosen and finished."""
    records = list(records_of("table1-variants").values())
    sets = [d for d in SET_LABELS if picked(records, d, "paper")]
    published = targets("table1")["figures"]
    figures = [f"{published[d]['RNADE-MoG']:.2f}" for d in sets]
    rows = [["*the paper's RNADE-MoG*", *figures]]
    for rule, label in {**RULES, **ROW_RULES}.items():
        cells = []
        for dataset in sets:
            results = [r["result"] for r in picked(records, dataset, "paper")]
            values = [by_rule(result).get(rule) for result in results]
            cells.append("" if None in values else mean(np.array(values)))
        if any(cells):
            rows.append([label, *cells])
    return markdown(["how", *(SET_LABELS[d] for d in sets)], rows)


def _papers_rule(result: Mapping[str, Any]) -> float:
    """A variant's score where models are chosen and finished as in the paper."""
    return float(result["rules"]["paper"])


def few_rows() -> str:
    """Show how far a few rows make the means."""
    records = list(records_of("table1").values())
    rows = []
    for dataset, label in SET_LABELS.items():
        for model in LABELS:
            found = [
                r["result"] for r in picked(records, dataset, model) if "median" in r["result"]
            ]
            if not found:
                continue
            facts = [
                float(np.mean([result[name] for result in found]))
                for name in ("test", "median", "without_worst")
            ]
            worst = min(result["worst"][0] for result in found)
            rows.append([label, LABELS[model], *(f"{v:.2f}" for v in [*facts, worst])])
    head = ["mean", "median row", "without each fold's worst row", "worst row"]
    return markdown(["data set", "model", *head], rows, left=2)


def times() -> str:
    """Seconds of each column by data set, and on what."""
    records = list(records_of("table1").values())
    rows = []
    for model, label in LABELS.items():
        seconds = [sum(r["seconds"] for r in picked(records, d, model)) for d in SET_LABELS]
        on_cores = model in PEERS
        where = {_hardware(r, on_cores) for d in SET_LABELS for r in picked(records, d, model)}
        cells = [f"{s:.1f}" if s else "" for s in seconds]
        rows.append([label, *cells, "; ".join(sorted(where))])
    return markdown(["model", *SET_LABELS.values(), "on"], rows)


def _hardware(record: Record, on_cores: bool) -> str:
    hardware = record["hardware"]
    cores = f"{hardware['cores']} cores"
    return cores if on_cores else str(hardware["gpu"] or cores)


BLOCKS: dict[str, Callable[[], str]] = {
    "table1": lambda: whole_table("table1"),
    "reached": reached,
    "protocols": protocols,
    "mfa": mfa_protocols,
    "kept": kept,
    "findings": findings,
    "weights": weights,
    "twins": twins,
    "common": common_values,
    "dequantised": lambda: whole_table("table1-dequantised"),
    "rules": rules,
    "variants": variants,
    "values": values,
    "rows": few_rows,
    "times": times,
}


def with_blocks(page: str) -> str:
    """Write what the records say between the page's marks."""
    for name, make in BLOCKS.items():
        page = put(page, name, make().rstrip("\n") + "\n")
    return page


if __name__ == "__main__":
    PAGE.write_text(with_blocks(PAGE.read_text()))
