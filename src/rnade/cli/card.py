"""A model card: what a model is, what it was fitted to, how good it is, and what it is not for."""

from collections.abc import Iterator, Mapping
from typing import Any

from rnade.cli.terminal import counted

# Rows below which an estimate of a joint density is a rough one.
_FEW_ROWS = 500
# Held-out rows below which the score itself is a rough one.
_FEW_HELD_OUT = 50

_USES = (
    "Ranking rows by how usual they are (`rnade score`, `rnade outliers`), filling missing cells"
    " (`rnade impute`), drawing synthetic rows (`rnade sample`), asking for one column given"
    " others (`rnade ask`): for rows from the same source as the fitted table."
)
_NOT_FOR = (
    "**Decisions about single people** without a person who looks at the case. A low density"
    " means that a row is unusual in this table, not that anything is wrong with it.",
    "**Cause and effect.** What one column is given another is what goes together in the table,"
    " not what happens if one is changed.",
    "**Other sources or times.** Rows from another source, or from after a change, are judged by"
    " what was usual in the fitted table. `rnade score` on recent rows shows whether their"
    " p-values still spread evenly.",
    "**Anonymity.** The file holds ranges, quantiles, levels and frequent values of the fitted"
    " table, and drawn rows can come close to real ones. It gives no guarantee of privacy.",
)
_MEASURE = (
    "**Comparing log densities with other measures.** Units and kinds of columns decide them:"
    " compare with models of the same columns and kinds only (`rnade compare`)."
)


def card(described: Mapping[str, Any]) -> str:
    """Write what `rnade info --json` tells of a model as a Markdown page."""
    return "\n".join(_lines(described))


def _lines(described: Mapping[str, Any]) -> Iterator[str]:
    rows, n_columns = described["n_rows"], len(described["columns"])
    source = f" of `{described['source']}`" if described.get("source") else ""
    yield f"# Model card: {described['model']}\n"
    yield (
        f"{described['class']} (rnade {described['library_version']}): the joint density of"
        f" {counted(n_columns, 'column')}, fitted to {counted(rows, 'row')}{source}.\n"
    )
    yield "## What it was fitted to\n"
    yield from _columns(described)
    left_out = described.get("left_out") or {}
    if left_out:
        named = "; ".join(f"`{name}` ({why})" for name, why in left_out.items())
        yield f"Left out: {named}.\n"
    if described.get("dropped_rows"):
        yield f"{counted(described['dropped_rows'], 'row')} with missing cells were dropped.\n"
    yield "## How good it is\n"
    yield from _quality(described)
    yield "## What it is for\n"
    yield f"{_USES}\n"
    yield "## What it must not be used for\n"
    yield from (f"- {use}" for use in (*_NOT_FOR, _MEASURE))
    yield "\n## How it was made\n"
    settings = {k: v for k, v in described["settings"].items() if v not in (None, "auto", [], {})}
    yield "```\n" + "\n".join(f"{name} = {value}" for name, value in settings.items()) + "\n```\n"
    training = described["training"]
    yield (
        f"{counted(training['models'], 'model')}, {training['seconds']:.0f} s,"
        f" {counted(training['skipped_updates'], 'update')} skipped; file format"
        f" {described['format_version']}."
    )


def _columns(described: Mapping[str, Any]) -> Iterator[str]:
    kinds = {column["name"]: column for column in described.get("kinds", ())}
    if not kinds:
        names = ", ".join(f"`{_cell(name)}`" for name in described["columns"])
        yield f"Columns of numbers: {names}.\n"
        return
    yield "| column | what it holds |\n| --- | --- |"
    for name, column in kinds.items():
        details = f" ({column['details']})" if column["details"] else ""
        yield f"| {_cell(name)} | {_cell(column['kind'] + details)} |"
    yield ""


def _cell(text: str) -> str:
    """Text as a cell of a Markdown table."""
    return text.replace("|", "\\|")


def _quality(described: Mapping[str, Any]) -> Iterator[str]:
    held_out, p_values = described["held_out"], described["p_values"]
    learned = "that the model did not learn from"
    if described["training"]["again_on_all_rows"]:
        learned = "that no model had learned from, before all were trained again on all rows"
    error = held_out["standard_error"]
    shown = f" ± {error:.3f}" if held_out["n_rows"] > 1 else ""
    yield (
        f"- Held-out log-likelihood: {held_out['mean']:.3f}{shown} nats per row, on"
        f" {counted(held_out['n_rows'], 'row')} {learned}."
    )
    if "base_measure" in described:
        yield f"- Log densities: {described['base_measure']}."
    yield (
        f"- P-values compare with {counted(p_values['n_rows'], 'row')}; the smallest possible is"
        f" {p_values['smallest']:.2g}."
    )
    if described["n_rows"] < _FEW_ROWS:
        yield (
            f"- Fitted to fewer than {_FEW_ROWS} rows: the density is a rough estimate, and the"
            " tails are rougher."
        )
    if held_out["n_rows"] < _FEW_HELD_OUT:
        yield f"- Fewer than {_FEW_HELD_OUT} held-out rows: the score itself is uncertain."
    yield (
        "- How well columns are calibrated, and how it compares with a Gaussian:"
        f" `rnade report {described['model']} TABLE`.\n"
    )
