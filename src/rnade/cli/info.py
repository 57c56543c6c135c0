"""``rnade info``: what a model file holds."""

from typing import Any

from rnade.cli import options
from rnade.cli.fit import nats
from rnade.cli.terminal import counted, print_json


def info(model: options.ModelFile, as_json: options.Json = False) -> None:
    """Show what a model is: its class, settings, columns, training and held-out score."""
    # The estimator itself is not needed, and would take seconds to load.
    from rnade.evaluation import mean_score
    from rnade.serialisation import read_arrays

    arrays, stored = read_arrays(model)
    names = stored["columns"]
    held_out = mean_score(arrays["calibration.scores"], arrays["calibration.weights"])
    last = stored["history"][-1]
    # Of an average, the history is that of one model; files of one model may say nothing of it.
    members = stored.get("fitted", {}).get("members_") or []
    described: dict[str, Any] = {
        "model": model,
        "class": stored["class"],
        "columns": names or [f"x{d}" for d in range(1, stored["n_columns"] + 1)],
        "has_column_names": names is not None,
        "n_rows": stored["n_rows"],
        "held_out": vars(held_out),
        "training": {
            "models": max(1, len(members)),
            "epochs": last["epoch"],
            "best_epoch": stored["best_epoch"],
            "seconds": stored["fit_seconds"],
            "skipped_updates": last["skipped"],
        },
        "settings": stored["parameters"],
        "library_version": stored["library_version"],
        "format_version": stored["format_version"],
    }
    if as_json:
        print_json(described)
        return
    columns, training = described["columns"], described["training"]
    shown = ", ".join(columns[:20]) + (", ..." if len(columns) > 20 else "")
    settings = ", ".join(f"{name}={value}" for name, value in described["settings"].items())
    print(f"{described['class']}, fitted to {counted(described['n_rows'], 'row')}")
    print(f"columns ({len(columns)}): {shown}")
    print(f"held-out log-likelihood: {nats(held_out)}")
    epochs = f"{counted(training['epochs'], 'epoch')}, best {training['best_epoch']}"
    if len(members) > 1:
        most = max(member["epochs"] for member in members)
        epochs = f"average of {len(members)} models, at most {counted(most, 'epoch')} each"
    skipped = counted(training["skipped_updates"], "update")
    print(f"training: {epochs}, {training['seconds']:.1f} s, {skipped} skipped")
    print(f"settings: {settings}")
    print(
        f"written by rnade {described['library_version']},"
        f" file format {described['format_version']}"
    )
