"""What files beside the code say: settings, labels, words of tables, published figures."""

import json
import tomllib
from collections.abc import Mapping
from functools import cache, reduce
from importlib.resources import files
from operator import getitem
from typing import Any


@cache
def read_plan(folder: str) -> dict[str, Any]:
    """Read ``plan.toml`` of an experiment's folder."""
    text = files(f"rnade.reproduce.{folder}").joinpath("plan.toml").read_text(encoding="utf-8")
    return parse_plan(text)


def parse_plan(text: str) -> dict[str, Any]:
    """Read a plan in TOML.

    A table that says ``like = "a.b"`` takes over what table ``b`` of ``a`` has and it has not,
    and so do the tables in it. TOML has no null: "none" stands for it.

    Examples
    --------
    >>> plan = parse_plan('''
    ... small = { units = 8, recipe = { rate = 0.1, decay = "none" } }
    ... large = { like = "small", units = 512, recipe = { rate = 0.02 } }
    ... ''')
    >>> plan["large"]
    {'units': 512, 'recipe': {'rate': 0.02, 'decay': None}}
    """
    content = tomllib.loads(text)
    return {name: _filled(value, content) for name, value in content.items()}


@cache
def targets(table: str) -> dict[str, Any]:
    """What ``targets.json`` holds of a published table: its source, unit and figures."""
    content = json.loads(files("rnade.reproduce.core").joinpath("targets.json").read_text())
    found: dict[str, Any] = content[table]
    return found


def _filled(value: Any, content: Mapping[str, Any]) -> Any:
    """A value of the file with all that its tables take over from others."""
    if isinstance(value, list):
        return [_filled(each, content) for each in value]
    if not isinstance(value, dict):
        return None if value == "none" else value
    own = {name: _filled(each, content) for name, each in value.items() if name != "like"}
    if "like" not in value:
        return own
    return _over(_filled(reduce(getitem, value["like"].split("."), content), content), own)


def _over(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Give a table with changes, made table by table."""
    both = dict(base)
    for name, value in changes.items():
        within = isinstance(value, dict) and isinstance(base.get(name), dict)
        both[name] = _over(base[name], value) if within else value
    return both
