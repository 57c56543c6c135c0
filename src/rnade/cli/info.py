"""``rnade info``: what a model file holds."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from rnade.cli import options
from rnade.cli.card import card
from rnade.cli.fit import held_out_line, kinds_of
from rnade.cli.terminal import counted, print_json

# What the densities of a table are relative to.
_MEASURE = (
    "levels and integers have probabilities, real columns densities per unit, single values"
    " (atoms) probabilities"
)
_OF_BITS = "columns have two levels, each with a probability"


def info(
    model: options.ModelFile,
    as_card: Annotated[
        bool,
        typer.Option(
            "--card",
            help="Print a model card in Markdown: what the model was fitted to, how good it is,"
            " and what it must not be used for.",
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show what a model is: its class, settings, columns, training and held-out score."""
    if as_card and as_json:
        raise ValueError("--card and --json are two forms of the same: choose one.")
    # The estimator itself is not needed, and would take seconds to load, as would torch.
    from rnade.evaluation import Calibration, mean_score, networks_of, weights_by_kind
    from rnade.serialisation import read_arrays

    arrays, stored = read_arrays(model)
    names = stored["columns"]
    calibration = Calibration(
        **{
            name.removeprefix("calibration."): array
            for name, array in arrays.items()
            if name.startswith("calibration.")
        }
    )
    held_out = mean_score(*calibration.group(0))
    last = stored["history"][-1]
    # Of an average, the history is that of one model; files of one model may say nothing of it.
    members = stored.get("fitted", {}).get("members_") or []
    described: dict[str, Any] = {
        "model": model,
        "class": stored["class"],
        "columns": names or [f"x{d}" for d in range(1, stored["n_columns"] + 1)],
        "has_column_names": names is not None,
        "n_rows": stored["n_rows"],
        "data": stored.get("fitted", {}).get("data_"),
        "source": (stored.get("origin") or {}).get("source"),
        "dropped_rows": (stored.get("origin") or {}).get("dropped_rows", 0),
        "held_out": vars(held_out),
        "p_values": {"n_rows": len(calibration.scores), "smallest": calibration.smallest},
        "training": {
            "models": max(1, len(members)),
            "kinds": weights_by_kind(members),
            "epochs": last["epoch"],
            "best_epoch": stored["best_epoch"],
            "seconds": stored["fit_seconds"],
            "skipped_updates": last["skipped"],
            "again_on_all_rows": stored.get("retrain_history") is not None,
        },
        "multiplications_per_row": _work_of_a_row(arrays, stored["n_columns"]),
        "settings": stored["parameters"],
        **_table(arrays, stored),
        "library_version": stored["library_version"],
        "format_version": stored["format_version"],
    }
    if as_card:
        print(card(described))
        return
    if as_json:
        print_json(described)
        return
    columns, training = described["columns"], described["training"]
    shown = ", ".join(columns[:20]) + (", ..." if len(columns) > 20 else "")
    settings = ", ".join(f"{name}={value}" for name, value in described["settings"].items())
    print(f"{described['class']}, fitted to {counted(described['n_rows'], 'row')}")
    if data := described["data"]:
        print(
            f"streamed from {counted(data['files'], 'file')} with"
            f" {counted(data['row_groups'], 'row group')}; columns measured on a sample of"
            f" {counted(data['sampled_rows'], 'row')}"
        )
    print(f"columns ({len(columns)}): {shown}")
    _print_table(described)
    print(held_out_line(held_out, again=training["again_on_all_rows"]))
    compared = counted(len(calibration.scores), "row")
    print(f"p-values: by {compared}, at least {calibration.smallest:.2g}")
    epochs = f"{counted(training['epochs'], 'epoch')}, best {training['best_epoch']}"
    if len(members) > 1:
        most = max(member["epochs"] for member in networks_of(members))
        epochs = f"average of {len(members)} models, at most {counted(most, 'epoch')} each"
    skipped = counted(training["skipped_updates"], "update")
    print(f"training: {epochs}, {training['seconds']:.1f} s, {skipped} skipped")
    kinds = training["kinds"]
    if len(kinds) > 1:
        print("weights: " + ", ".join(f"{share:.0%} {words}" for words, share in kinds.items()))
    work = described["multiplications_per_row"]
    if work is not None:
        print(f"scoring: about {work:,} multiplications a row")
    print(f"settings: {settings}")
    print(
        f"written by rnade {described['library_version']},"
        f" file format {described['format_version']}"
    )


def _work_of_a_row(arrays: Mapping[str, Any], n_columns: int) -> int | None:
    """Multiplications to score a row, about: each weight once, those of hidden layers D times.

    None for tables whose networks are asked once for each column and order.
    """
    if any(name.startswith("cells.") for name in arrays):
        return None
    own = {name: array for name, array in arrays.items() if name.startswith("module.")}
    return sum(
        int(array.size) * (n_columns if name.endswith(".U") else 1) for name, array in own.items()
    )


def _table(arrays: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Describe what the columns of the fitted table hold, if the model knows."""
    record = stored.get("schema")
    origin = stored.get("origin") or {}
    if record is None:
        return {"left_out": origin.get("left_out", {})}
    from rnade.columns import Schema

    schema = Schema.from_json(record)
    # The first of the numbers "outside": the log of what is kept for levels that are new.
    reserved = {
        column.name: math.exp(arrays[f"cells.{d}.outside"][0])
        for d, column in enumerate(schema.columns)
        if column.kind == "category"
        and column.indicates is None
        and f"cells.{d}.outside" in arrays
    }
    return {
        "kinds": kinds_of(schema),
        "base_measure": _OF_BITS if stored["class"] in ("NADE", "FVSBN") else _MEASURE,
        "left_out": {**schema.left_out, **origin.get("left_out", {})},
        "missing": {
            column.name: column.missing
            for column in (*schema.columns, *schema.constants)
            if column.missing
        },
        "na": list(schema.na),
        "new_level_probability": reserved,
        "network": stored.get("fitted", {}).get("network_"),
    }


def _print_table(described: Mapping[str, Any]) -> None:
    """Print what `_table` found."""
    for column in described.get("kinds", ()):
        details = f" ({column['details']})" if column["details"] else ""
        print(f"  {column['name']}: {column['kind']}{details}")
    left_out = {k: why for k, why in described["left_out"].items() if why != "not chosen"}
    if left_out:
        print("left out: " + "; ".join(f"{name}: {why}" for name, why in left_out.items()))
    if "base_measure" in described:
        print(f"log densities: {described['base_measure']}")
    if described.get("missing"):
        shares = ", ".join(f"{name} {share:.1%}" for name, share in described["missing"].items())
        print(f"missing cells: {shares}")
    if described.get("new_level_probability"):
        kept = described["new_level_probability"].items()
        print("kept for new levels: " + ", ".join(f"{name} {p:.2g}" for name, p in kept))
    if described.get("network"):
        sizes = ", ".join(f"{name}={value}" for name, value in described["network"].items())
        print(f"networks: {sizes}")
