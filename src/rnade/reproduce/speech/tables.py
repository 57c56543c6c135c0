"""Tables of Table 3's records: the figures, their errors, differences between models, splits."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from rnade.evaluation import mean_score, standard_error_by_group
from rnade.reproduce.core.layout import Cell, Cells, ResultTable
from rnade.reproduce.core.runner import Record
from rnade.reproduce.core.statistics import best_group
from rnade.reproduce.core.targets import targets
from rnade.reproduce.speech.rows import ROWS
from rnade.training import Recipe
from rnade.typing import Array

TITLES = {
    "sample": "a sample of TIMIT, 16 speakers",
    "timit": "TIMIT, core test set",
    "folder": "a folder of sound files",
}
# Splits that a row must have to be compared, where others have them: a run that was stopped leaves
# rows with fewer.
ENOUGH_SPLITS = 3
# A row's record for each split, by model.
Chosen = Mapping[str, Mapping[int, Record]]


def lay_out(dataset: str, models: Sequence[str], records: Sequence[Record]) -> list[ResultTable]:
    """Lay out the records of one data set."""
    mine = [r for r in records if r["job"]["dataset"] == dataset]
    chosen = {m: choose(r for r in mine if r["job"]["model"] == m) for m in models}
    shown = _far_enough(chosen)
    tables = [_figures(dataset, shown), _errors(dataset, shown)]
    if len(_splits(shown)) > 1:
        tables += [differences(dataset, shown), _by_split(dataset, chosen)]
    return [*tables, _times(dataset, chosen, mine)]


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


def _splits(chosen: Chosen) -> list[int]:
    """Splits that all of the rows have; those without records have no say."""
    found = [set(folds) for folds in chosen.values() if folds]
    return sorted(set.intersection(*found)) if found else []


def _far_enough(chosen: Chosen) -> Chosen:
    """Rows that have enough splits to stand beside others; the rest as if they had none."""
    enough = min(ENOUGH_SPLITS, max((len(folds) for folds in chosen.values()), default=0))
    return {m: folds if len(folds) >= enough else {} for m, folds in chosen.items()}


def _means(folds: Mapping[int, Record], part: str, splits: Sequence[int]) -> Array:
    return np.array([folds[k]["result"][part]["mean"] for k in splits])


def _figures(dataset: str, chosen: Chosen) -> ResultTable:
    published = targets("table3")["figures"]
    is_timit, splits = dataset == "timit", _splits(chosen)
    several = len(splits) > 1
    tests = {m: _means(folds, "test", splits) for m, folds in chosen.items() if folds}
    # Of one split the highest, since one figure each is no matter for a test.
    bold = best_group(tests) if several else {*sorted(tests, key=lambda m: -tests[m].mean())[:1]}
    cells: Cells = {ROWS[model].label: {} for model in chosen}
    for model, folds in chosen.items():
        line, paper = cells[ROWS[model].label], published.get(ROWS[model].published, {})
        for part, title in (("train", "training"), ("test", "test")):
            beside = paper.get(part) if is_timit else None
            if not folds:
                line[title] = Cell(published=beside)
                continue
            mean = mean_score(_means(folds, part, splits))
            error = mean.standard_error
            if not several:
                error = folds[splits[0]]["result"][part]["error_by_utterance"]
            line[title] = Cell(mean.mean, error, beside, part == "test" and model in bold)
        if folds and not is_timit:
            line[_PAPER_COLUMN] = Cell(paper.get("test"))
    over = (
        f"mean over {len(splits)} splits by speaker, ± its standard error over splits"
        if several
        else "± its standard error by utterance"
    )
    meant = (
        "In brackets the paper's figure and the difference."
        if is_timit
        else "The paper's column is of full TIMIT: the same comparison on far more data, not to be"
        " set against ours figure by figure."
    )
    tested = "not significantly worse than any other (paired t-test over splits, 0.05)"
    return ResultTable(
        f"Table 3: {TITLES[dataset]}",
        f"Log-likelihood, nats per window of 231 standardised dimensions: {over}. {meant} Bold:"
        f" {tested if several else 'the highest'}.{_left_out(chosen)}",
        "model",
        ["training", "test", *([] if is_timit else [_PAPER_COLUMN])],
        cells,
    )


_PAPER_COLUMN = "paper, test, full TIMIT"


def _left_out(chosen: Chosen) -> str:
    """Name the sound files that could not be used."""
    names = {
        name
        for folds in chosen.values()
        for record in folds.values()
        for name in record["result"]["data"]["skipped"]
    }
    return f" Sound files left out: {', '.join(sorted(names))}." if names else ""


_ERRORS = {"error_by_window": "by window", "error_by_utterance": "by utterance"}


def _errors(dataset: str, chosen: Chosen) -> ResultTable:
    """Three standard errors: the smallest takes windows for independent, which they are not."""
    splits = _splits(chosen)
    cells: Cells = {ROWS[model].label: {} for model in chosen}
    for model, folds in chosen.items():
        if not folds:
            continue
        line = cells[ROWS[model].label]
        for key, title in _ERRORS.items():
            found = [folds[k]["result"]["test"][key] for k in splits]
            known = [e for e in found if e is not None]
            line[title] = Cell(float(np.mean(known)) if known else None)
        line["over splits"] = Cell(Cell.mean_of(_means(folds, "test", splits)).standard_error)
    return ResultTable(
        f"Standard errors: {TITLES[dataset]}",
        "Of the test figure, in nats. By window and by utterance: of one split, mean over splits;"
        " windows of one utterance overlap and are not independent, so that the first is too"
        " small. Over splits: of the mean over splits, whose test speakers differ.",
        "model",
        [*_ERRORS.values(), *(["over splits"] if len(splits) > 1 else [])],
        cells,
        decimals=3,
    )


def differences(dataset: str, chosen: Chosen) -> ResultTable:
    """What the paper's claims come to: RNADE-MoG beside the best mixture, and MoG beside MoL."""
    known = {m: folds for m, folds in chosen.items() if folds}
    common = _splits(known)
    tests = {m: float(_means(folds, "test", common).mean()) for m, folds in known.items()}

    def best(start: str, *, of_the_paper: bool = False) -> str | None:
        found = [
            m
            for m in tests
            if m.startswith(start) and (ROWS[m].published is not None or not of_the_paper)
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
    cells: Cells = {}
    for a, b in pairs:
        if a not in known or b not in known:
            continue
        splits = _splits({a: known[a], b: known[b]})
        gaps = _means(known[a], "test", splits) - _means(known[b], "test", splits)
        over = mean_score(gaps)
        cells[f"{ROWS[a].label} less {ROWS[b].label}, {len(splits)} splits"] = {
            "over splits": Cell(over.mean, over.standard_error),
            "smallest": Cell(float(gaps.min())),
            "largest": Cell(float(gaps.max())),
            "by utterance": _gap_by_utterance(known[a], known[b], splits),
        }
    return ResultTable(
        f"Differences: {TITLES[dataset]}",
        "Test log-likelihood of one model less another's, nats per window, pair by pair on the"
        " same windows, in all splits that both have; of several rows of a kind, the one with the"
        " highest mean in the splits that all rows have. Over splits:"
        " mean and standard error of the splits' differences, with the smallest and largest. By"
        " utterance: all test windows of all splits, standard error over utterances.",
        "difference",
        ["over splits", "smallest", "largest", "by utterance"],
        cells,
    )


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


def _by_split(dataset: str, chosen: Chosen) -> ResultTable:
    cells = {
        ROWS[m].label: {
            f"split {k + 1}": Cell(float(record["result"]["test"]["mean"]))
            for k, record in folds.items()
        }
        for m, folds in chosen.items()
    }
    picked = [
        f"{ROWS[m].label}: {_choices(folds)}."
        for m, folds in chosen.items()
        if folds and len(ROWS[m].grid) > 1
    ]
    return ResultTable(
        f"Split by split: {TITLES[dataset]}",
        "Test log-likelihood in each split. What the validation speakers chose: "
        + " ".join(picked),
        "model",
        sorted({column for line in cells.values() for column in line}),
        cells,
    )


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


def _times(dataset: str, chosen: Chosen, records: Sequence[Record]) -> ResultTable:
    """How long all settings of each row took, and what it comes to for one split."""
    total = "all rows"
    cells: Cells = {label: {} for label in (*(ROWS[m].label for m in chosen), total)}
    everything = one = 0.0
    for model, folds in chosen.items():
        mine = [r for r in records if r["job"]["model"] == model]
        if not mine:
            continue
        seconds = sum(r["seconds"] for r in mine)
        everything, one = everything + seconds, one + seconds / len(folds)
        cells[ROWS[model].label] = {
            "settings": Cell(len({str(r["settings"]) for r in mine})),
            "all splits": Cell(seconds),
            "one split": Cell(seconds / len(folds)),
        }
    if records:
        cells[total] = {"all splits": Cell(everything), "one split": Cell(one)}
    machines = sorted({r["hardware"]["gpu"] or r["hardware"]["processor"] for r in records})
    return ResultTable(
        f"Seconds: {TITLES[dataset]}",
        f"On {', '.join(machines) or 'no machine yet'}: reading, training and scoring, every"
        " setting of a row counted. Rows that ran at the same time slowed each other down.",
        "model",
        ["settings", "all splits", "one split"],
        cells,
        decimals=0,
    )
