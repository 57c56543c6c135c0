"""Cautions in plain words; the words themselves are in ``cautions.toml``."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from rnade.report.findings import Caution


@cache
def _words() -> dict[str, Any]:
    return tomllib.loads(files("rnade.report").joinpath("cautions.toml").read_text("utf-8"))


def caution(kind: str, variant: str = "", **values: str) -> Caution:
    """Fill in the words of a kind of caution, or of a variant of it."""
    said = _words()[kind + variant]
    title, text = (said[name].format(**values) for name in ("title", "text"))
    return Caution(kind, said["severity"], title, text)
