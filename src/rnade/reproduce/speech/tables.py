"""Tables of Table 3's records: the figures, their errors, differences between models, splits."""

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rnade.evaluation import mean_score, standard_error_by_group
from rnade.reproduce.core.layout import Cell, ResultTable
from rnade.reproduce.core.plans import read_plan, targets
from rnade.reproduce.core.runner import Record
from rnade.reproduce.core.statistics import best_group
from rnade.reproduce.speech.rows import ROWS
from rnade.training import Recipe
from rnade.typing import Array

WORDS = read_plan("speech")["tables"]
DATASETS: dict[str, str] = read_plan("speech")["datasets"]
# Splits that a row must have to be compared, where others have them, and rows for a test between
# them: a run that was stopped leaves rows with fewer.
ENOUGH_SPLITS = 3
# A row's record for each split, by model.
Chosen = Mapping[str, Mapping[int, Record]]
Lines = dict[str, list[Cell]]


def lay_out(dataset: str, models: Sequence[str], records: Sequence[Record]) -> list[ResultTable]:
    """Lay out the records of one data set."""
    chosen = chosen_of(dataset, models, records)
    shown = _far_enough(chosen)
    tables = [_figures(dataset, shown), _errors(shown)]
    if len(common_splits(shown)) > 1:
        tables += [_differences(shown), _by_split(chosen)]
    mine = [r for r in records if r["job"]["dataset"] == dataset]
    return [*tables, _times(chosen, mine)]


def chosen_of(dataset: str, models: Sequence[str], records: Iterable[Record]) -> Chosen:
    """The chosen records of a data set, by model and split."""
    mine = [r for r in records if r["job"]["dataset"] == dataset]
    return {m: choose(r for r in mine if r["job"]["model"] == m) for m in models}


def table_of(
    name: str, found: Chosen, lines: Lines, columns: Sequence[str] | None = None, **facts: Any
) -> ResultTable:
    """Lay out lines under the plan's words; its title says what the records are of."""
    words = WORDS[name] if columns is None else {**WORDS[name], "columns": columns}
    return ResultTable.of(words, lines, data=_data(found), **facts)


def _data(found: Chosen) -> str:
    """What the records are of, in words."""
    records = [record for folds in found.values() for record in folds.values()]
    if not records:
        return "no records yet"
    facts = ChainMap(*[record["result"]["data"] for record in records])
    return DATASETS[records[0]["job"]["dataset"]].format_map(facts)


def choose(records: Iterable[Record]) -> dict[int, Record]:
    """For each split, the record of the setting that the validation speakers like best."""
    best: dict[int, Record] = {}
    for record in records:
        fold = record["job"]["fold"]
        if fold not in best or _validation(record) > _validation(best[fold]):
            best[fold] = record
    return dict(sorted(best.items()))


def _validation(record: Record) -> float:
    return float(record["result"]["validation"]["mean"])


def common_splits(chosen: Chosen) -> list[int]:
    """Splits that all of the rows have; those without records have no say."""
    found = [set(folds) for folds in chosen.values() if folds]
    return sorted(set.intersection(*found)) if found else []


def _far_enough(chosen: Chosen) -> Chosen:
    """Rows that have enough splits to stand beside others; the rest as if they had none."""
    enough = min(ENOUGH_SPLITS, max((len(folds) for folds in chosen.values()), default=0))
    return {m: folds if len(folds) >= enough else {} for m, folds in chosen.items()}


def means(folds: Mapping[int, Record], part: str, splits: Sequence[int]) -> Array:
    """A part's figure in each split."""
    return np.array([folds[k]["result"][part]["mean"] for k in splits])


def _figures(dataset: str, chosen: Chosen) -> ResultTable:
    is_timit, splits, words = dataset == "timit", common_splits(chosen), WORDS["figures"]
    several = len(splits) > 1
    tests = {m: means(folds, "test", splits) for m, folds in chosen.items() if folds}
    # Of few splits the highest: from two figures each, a test tells hardly anything apart.
    tested = len(splits) >= ENOUGH_SPLITS
    bold = best_group(tests) if tested else {*sorted(tests, key=lambda m: -tests[m].mean())[:1]}
    lines: Lines = {ROWS[model].label: [] for model in chosen}
    for model, folds in chosen.items():
        line, paper = lines[ROWS[model].label], _published(model)
        for part in ("train", "test"):
            beside = paper.get(part) if is_timit else None
            if not folds:
                line.append(Cell(published=beside))
                continue
            mean = mean_score(means(folds, part, splits))
            error = mean.standard_error
            if not several:
                error = folds[splits[0]]["result"][part]["error_by_utterance"]
            line.append(Cell(mean.mean, error, beside, part == "test" and model in bold))
        line.append(Cell(paper.get("test") if folds else None))
    over = "splits" if several else "utterances"
    return table_of(
        "figures",
        chosen,
        lines,
        words["columns"][: 2 if is_timit else 3],
        over=words["over"][over].format(n=len(splits)),
        meant=words["meant"]["timit" if is_timit else "others"],
        tested=words["tested"]["splits" if tested else "few"],
        left_out=_left_out(chosen),
    )


def _published(model: str) -> dict[str, float]:
    found: dict[str, float] = targets("table3")["figures"].get(ROWS[model].label, {})
    return found


def _left_out(chosen: Chosen) -> str:
    """Name the sound files that could not be used."""
    names = {
        name
        for folds in chosen.values()
        for record in folds.values()
        for name in record["result"]["data"]["skipped"]
    }
    return f" Sound files left out: {', '.join(sorted(names))}." if names else ""


def _errors(chosen: Chosen) -> ResultTable:
    """Three standard errors: the smallest takes windows for independent, which they are not."""
    splits = common_splits(chosen)
    lines: Lines = {ROWS[model].label: [] for model in chosen}
    for model, folds in ((model, folds) for model, folds in chosen.items() if folds):
        line = lines[ROWS[model].label]
        for key in ("error_by_window", "error_by_utterance"):
            found = [folds[k]["result"]["test"][key] for k in splits]
            known = [e for e in found if e is not None]
            line.append(Cell(float(np.mean(known)) if known else None))
        line.append(Cell(Cell.mean_of(means(folds, "test", splits)).standard_error))
    columns = WORDS["errors"]["columns"][: 3 if len(splits) > 1 else 2]
    return table_of("errors", chosen, lines, columns)


def _differences(chosen: Chosen) -> ResultTable:
    """What the paper's claims come to: RNADE-MoG beside the best mixture, and MoG beside MoL."""
    known = {m: folds for m, folds in chosen.items() if folds}
    common = common_splits(known)
    tests = {m: float(means(folds, "test", common).mean()) for m, folds in known.items()}

    def best(start: str, *, of_the_paper: bool = False) -> str | None:
        found = [
            m for m in tests if m.startswith(start) and (ROWS[m].of_the_paper or not of_the_paper)
        ]
        return max(found, key=lambda m: tests[m]) if found else None

    paper = best("rnade-mog", of_the_paper=True)
    pairs = [
        ("rnade-mog-orders", best("mog")),
        ("rnade-mog", best("mog")),
        ("rnade-mog", "rnade-mol"),
        (paper, best("mog", of_the_paper=True)),
        (paper, best("rnade-mol", of_the_paper=True)),
    ]
    lines: Lines = {}
    for a, b in pairs:
        if a not in known or b not in known:
            continue
        splits = common_splits({a: known[a], b: known[b]})
        gaps = means(known[a], "test", splits) - means(known[b], "test", splits)
        over = mean_score(gaps)
        lines[f"{ROWS[a].label} less {ROWS[b].label}, {len(splits)} splits"] = [
            Cell(over.mean, over.standard_error),
            Cell(float(gaps.min())),
            Cell(float(gaps.max())),
            _gap_by_utterance(known[a], known[b], splits),
        ]
    return table_of("differences", chosen, lines)


def _gap_by_utterance(
    a: Mapping[int, Record], b: Mapping[int, Record], splits: Sequence[int]
) -> Cell:
    counts, gaps = [], []
    for k in splits:
        ours, theirs = (folds[k]["result"]["utterances"] for folds in (a, b))
        counts += ours["n_windows"]
        gaps += list(np.array(ours["mean"]) - np.array(theirs["mean"]))
    utterance_of = np.repeat(np.arange(len(counts)), counts)
    per_window = np.asarray(gaps)[utterance_of]
    return Cell(float(per_window.mean()), standard_error_by_group(per_window, utterance_of))


def _by_split(chosen: Chosen) -> ResultTable:
    splits = sorted({k for folds in chosen.values() for k in folds})
    lines = {
        ROWS[m].label: [
            Cell(folds[k]["result"]["test"]["mean"] if k in folds else None) for k in splits
        ]
        for m, folds in chosen.items()
    }
    picked = [
        f"{ROWS[m].label}: {_choices(folds)}."
        for m, folds in chosen.items()
        if folds and len(ROWS[m].grid_for(_dataset_of(folds))) > 1
    ]
    columns = [f"split {k + 1}" for k in splits]
    return table_of("splits", chosen, lines, columns, chosen=" ".join(picked))


def _dataset_of(folds: Mapping[int, Record]) -> str:
    dataset: str = next(iter(folds.values()))["job"]["dataset"]
    return dataset


def _choices(folds: Mapping[int, Record]) -> str:
    """Settings, and the splits in which they were chosen."""
    by_setting: dict[str, list[str]] = {}
    for k, record in folds.items():
        by_setting.setdefault(_setting(record), []).append(str(k + 1))
    return "; ".join(f"{what} (split {', '.join(k)})" for what, k in by_setting.items())


def _setting(record: Record) -> str:
    """What was chosen, in a few words."""
    s = record["settings"]
    if s["model"] == "mog":
        return f"{s['n_components']} components, shrinkage {s['shrinkage']:g}"
    recipe = Recipe(**s["recipe"])
    return (
        f"{s['n_hidden']} units, {s['n_components']} components, decay"
        f" {recipe.weight_decay:g}, minibatches of {recipe.batch_size}"
    )


def _times(chosen: Chosen, records: Sequence[Record]) -> ResultTable:
    """How long all settings of each row took, and what it comes to for one split."""
    total = "all rows"
    lines: Lines = {label: [] for label in (*(ROWS[m].label for m in chosen), total)}
    everything = one = 0.0
    for model, folds in chosen.items():
        mine = [r for r in records if r["job"]["model"] == model]
        if not mine:
            continue
        seconds = sum(r["seconds"] for r in mine)
        everything, one = everything + seconds, one + seconds / len(folds)
        lines[ROWS[model].label] = [
            Cell(len({str(r["settings"]) for r in mine})),
            Cell(seconds),
            Cell(seconds / len(folds)),
        ]
    if records:
        lines[total] = [Cell(), Cell(everything), Cell(one)]
    machines = sorted({r["hardware"]["gpu"] or r["hardware"]["processor"] for r in records})
    return table_of("seconds", chosen, lines, machines=", ".join(machines) or "no machine yet")
