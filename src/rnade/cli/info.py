"""``rnade info``: what a model file holds."""

from typing import Any

from rnade.cli.fit import nats
from rnade.cli.options import Json, ModelFile
from rnade.cli.terminal import print_json
from rnade.columns import column_names


def info(model: ModelFile, as_json: Json = False) -> None:
    """Say what a model is: its class, settings, columns, training and held-out score."""
    from rnade import load
    from rnade.serialisation import read_model

    estimator = load(model, device="cpu")
    _, stored = read_model(model)
    held_out = estimator.held_out_score()
    last = estimator.history_[-1]
    described: dict[str, Any] = {
        "model": model,
        "class": type(estimator).__name__,
        "columns": column_names(estimator),
        "has_column_names": hasattr(estimator, "feature_names_in_"),
        "n_rows": estimator.n_rows_,
        "held_out": {
            "mean": held_out.mean,
            "standard_error": held_out.standard_error,
            "n_rows": held_out.n_rows,
        },
        "training": {
            "epochs": last["epoch"],
            "best_epoch": estimator.best_epoch_,
            "seconds": estimator.fit_seconds_,
            "skipped_updates": last["skipped"],
        },
        "settings": stored["parameters"],
        "library_version": stored["library_version"],
        "format_version": stored["format_version"],
    }
    if as_json:
        print_json(described)
        return
    columns = described["columns"]
    training = described["training"]
    shown = ", ".join(columns[:20]) + (", ..." if len(columns) > 20 else "")
    settings = ", ".join(f"{name}={value}" for name, value in described["settings"].items())
    print(f"{described['class']}, fitted to {described['n_rows']} rows")
    print(f"columns ({len(columns)}): {shown}")
    print(f"held-out log-likelihood: {nats(held_out)}")
    print(
        f"training: {training['epochs']} epochs, best {training['best_epoch']},"
        f" {training['seconds']:.1f} s, {training['skipped_updates']} updates skipped"
    )
    print(f"settings: {settings}")
    print(
        f"written by rnade {described['library_version']},"
        f" file format {described['format_version']}"
    )
