"""``rnade ask``: what a model expects of a column, given values of others."""

import shutil
import sys
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from rnade.cli import options
from rnade.cli.blocks import bar, skyline, span
from rnade.cli.conditions import parse_question, write_question, write_value
from rnade.cli.terminal import print_json

# Levels told, and the size of the picture.
MOST_LEVELS, MOST_BINS, N_LINES = 10, 60, 6
METHODS = {
    "exact": "exact",
    "weighted": "weighted (draws stand for what lies in the intervals)",
}


def ask(
    model: options.ModelFile,
    question: Annotated[
        str,
        typer.Argument(
            metavar="QUESTION",
            help="A column, alone or with | and what is given, comma-separated, such as 'income |"
            " age=40, sex=F'. LOW..HIGH is an interval, either end of which may be left out.",
        ),
    ],
    level: Annotated[float, typer.Option(help="Share of the interval.")] = 0.9,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Say what a model expects of one column, given values of others.

    It prints the mean, the median and an interval of numbers and dates, or the probabilities of
    the likeliest levels, with a small picture in a terminal. Columns that are not given are
    unknown: without conditions, it is the column among all rows.

    Names and values that hold one of | , = and .. stand in quotes, such as "'price | eur' |
    city=Rome". Dates are written as 2020-12-31, with a time as 2020-12-31 18:30.
    """
    asked = parse_question(question)
    from rnade import load
    from rnade.cli.answers import answer
    from rnade.cli.given import (
        errors_as_typed,
        find_column,
        nothing_known,
        prepared,
        values_of,
    )

    estimator = prepared(load(model, device=device))
    column = find_column(asked.column, estimator)
    given = values_of(asked.given, estimator)
    with errors_as_typed(asked.given, given):
        known = given or nothing_known(column.name, estimator)
        conditional = estimator.conditional(column.name, known)
    pictures = _shows_pictures() and not as_json
    n_bins = _room(beside=2) if pictures else MOST_BINS
    found = {
        "question": write_question(asked),
        "column": column.name,
        "given": {c.column: write_value(c.value) for c in asked.given},
        "method": conditional.method,
        **answer(column, conditional, level, n_bins),
    }
    if as_json:
        print_json(found)
    else:
        _print(found, pictures=pictures)


def _shows_pictures() -> bool:
    """Whether standard output is a terminal that has block characters."""
    try:
        "█├".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return sys.stdout.isatty()


def _room(*, beside: int) -> int:
    """Give the width that the terminal leaves for a picture."""
    return max(min(shutil.get_terminal_size().columns - beside, MOST_BINS), 1)


def _print(found: Mapping[str, Any], *, pictures: bool) -> None:
    lines = [(name, _text(found[name])) for name in ("mean", "median") if name in found]
    if "interval" in found:
        interval = found["interval"]
        ends = f"{_text(interval['low'])} to {_text(interval['high'])}"
        lines.append((f"{100 * interval['level']:g} % interval", ends))
    lines += [
        (f"exactly {_text(single['value'])}", _percent(single["probability"]))
        for single in found.get("single_values", ())
    ]
    lines.append(("method", METHODS[found["method"]]))
    print(found["question"])
    widest = max(len(name) for name, _ in lines)
    for name, text in lines:
        print(f"{name:<{widest}}  {text}")
    if "probabilities" in found:
        _print_levels(found["probabilities"], pictures=pictures)
    elif pictures and found["bins"]:
        _print_bins(found)


def _print_levels(levels: Any, *, pictures: bool) -> None:
    """Print the likeliest levels, and what the others have together."""
    shown = [(_text(one["level"]), one["probability"]) for one in levels[:MOST_LEVELS]]
    others = levels[MOST_LEVELS:]
    if others:
        rest = sum(one["probability"] for one in others)
        shown.append((f"{len(others)} others", rest))
    widest = max(len(name) for name, _ in shown)
    room = _room(beside=widest + 12)
    print()
    for name, share in shown:
        picture = f"  {bar(share, room)}" if pictures else ""
        print(f"{name:<{widest}}  {_percent(share):>7}{picture}".rstrip())


def _print_bins(found: Mapping[str, Any]) -> None:
    """Print the bins as a skyline, with the interval and the median below."""
    bins = found["bins"]
    # A few whole numbers have broader bars.
    times = min(max(_room(beside=2) // len(bins), 1), 3)
    bars = [one["probability"] for one in bins for _ in range(times)]
    print()
    for line in skyline(bars, N_LINES):
        print(line.rstrip())
    # Dates, which are text here, have an order too.
    ends = [one["high"] for one in bins]
    low, high = found["interval"]["low"], found["interval"]["high"]
    places = (_place(value, ends) for value in (low, found["median"], high))
    print(span(*(times * place + times // 2 for place in places)))
    first, last = _text(bins[0]["low"]), _text(bins[-1]["high"])
    print(f"{first}{last:>{max(len(bars) - len(first), len(last) + 1)}}")


def _place(value: Any, ends: Sequence[Any]) -> int:
    """Give the bin in which a value lies, or the nearer end."""
    return min(bisect_left(ends, value), len(ends) - 1)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _text(value: Any) -> str:
    """Write a value for a person."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)
