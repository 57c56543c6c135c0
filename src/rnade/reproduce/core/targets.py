"""Published figures, by table, row and column."""

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def targets(table: str) -> dict[str, Any]:
    """What ``targets.json`` holds of a table: its source, unit and figures."""
    content = json.loads(files("rnade.reproduce.core").joinpath("targets.json").read_text())
    found: dict[str, Any] = content[table]
    return found
