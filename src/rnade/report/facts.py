"""Rows and columns of a model, and what was left out or changed, as lines of words."""

from rnade.report.findings import MOST_SHOWN, Findings
from rnade.report.fitted import Fitted
from rnade.report.words import decimals_for, fixed, number, plural

# More columns left out than this are counted, not named.
_MOST_LEFT_OUT = 12


def facts(found: Findings) -> list[tuple[str, str]]:
    """Name and words of each fact."""
    model, table = found.fitted, found.table
    lines = []
    if model.n_rows is not None:
        held = "" if model.n_held_out is None else f", of which {model.n_held_out:,} held out"
        lines.append(("Fitted to", f"{plural(model.n_rows, 'row')}{held}"))
    if model.dropped_rows:
        lines.append(("Rows left out", f"{plural(model.dropped_rows, 'row')} with a missing cell"))
    lines.append(("Columns", f"{len(model.columns)}: " + _some(model.columns, MOST_SHOWN)))
    if model.left_out:
        reasons = [f"{name}: {why}" for name, why in model.left_out.items()]
        lines.append(("Columns left out", _some(reasons, _MOST_LEFT_OUT, "; ")))
    if model.changes:
        lines.append(("What was changed", " ".join(model.changes)))
    if table.role != "fitted":
        dropped = table.dropped_rows
        extra = f", without {dropped:,} with a missing cell" if dropped else ""
        lines.append(("Judged by", f"{plural(table.n_rows, 'row')} of {table.source}{extra}"))
    if model.stored_score is not None and table.role != "fitted":
        stored = model.stored_score
        digits = decimals_for(stored.standard_error)
        score = f"{fixed(stored.mean, digits)} ± {fixed(stored.standard_error, digits)} nats a row"
        lines.append(
            ("Held-out score when fitted", f"{score} over {plural(stored.n_rows, 'row')}")
        )
    if model.seconds is not None:
        lines.append(("Training", f"{number(model.seconds)} s{_epochs(model)}"))
    return lines


def _epochs(model: Fitted) -> str:
    if model.trained is None:
        return ""
    epochs, n = model.trained.epochs, len(model.trained.epochs)
    few, many = min(epochs), max(epochs)
    span = plural(many, "epoch") if few == many else f"{few} to {plural(many, 'epoch')}"
    return f", {n} models of {span}" if model.trained.parts == "models" else f", {span}"


def _some(names: list[str], most: int, between: str = ", ") -> str:
    rest = len(names) - most
    return between.join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
