"""Estimators' parameters as options of the command line, their help from the docstrings.

The parameters are read from the estimators' source: to import them takes seconds, and help should
not.
"""

import ast
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

# Set by the command line's own options.
_NOT_OFFERED = frozenset({"columns", "ensemble", "missing", "na", "search", "verbose"})
# Where the command line has another default: it never turns real values into bits unasked.
DEFAULTS: Mapping[str, Any] = {"binarize": None}
# Letters of choices that leave room for flags and help in 80 columns.
_WIDEST = 20


@dataclass(frozen=True)
class Setting:
    """A parameter as its class declares it: the type line and text of the docstring, a default."""

    kind: str
    text: str
    default: Any = None


def declared_settings(estimators: Mapping[str, str]) -> dict[str, dict[str, Setting]]:
    """Read the parameters of estimators from the source of `rnade.estimators`.

    Both the classes and what is found go by the names that ``--model`` takes.
    """
    package = Path(__file__).parents[1] / "estimators"
    classes = {
        node.name: node
        for path in package.glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }

    def declared(name: str) -> dict[str, Setting]:
        """Those that a class documents, those of its bases, and the defaults that it sets."""
        node = classes.get(name)
        if node is None:
            return {}
        documented = documented_parameters(ast.get_docstring(node) or "")
        found = {name: Setting(*texts) for name, texts in documented.items()}
        for base in node.bases:
            for inherited, setting in declared(ast.unparse(base)).items():
                found.setdefault(inherited, setting)
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and (own := ast.unparse(line.target)) in found:
                found[own] = replace(found[own], default=DEFAULTS.get(own, _default(line.value)))
        return found

    return {model: declared(class_name) for model, class_name in estimators.items()}


def _default(value: ast.expr | None) -> Any:
    """The constant that an attribute is set to, or that is the default of ``field(...)``."""
    if isinstance(value, ast.Call):
        value = next((word.value for word in value.keywords if word.arg == "default"), None)
    try:
        return ast.literal_eval(value) if value is not None else None
    except ValueError:
        return None


def documented_parameters(docstring: str) -> dict[str, tuple[str, str]]:
    """Read the section "Parameters" of a NumPy-style docstring: type lines and texts."""
    sections = re.split(r"(?m)^(.+)\n-{3,}\n", inspect.cleandoc(docstring))
    section = dict(zip(sections[1::2], sections[2::2], strict=True)).get("Parameters", "")
    return {
        name.strip(): (kind.strip(), " ".join(text.split()))
        for names, kind, text in re.findall(r"(?m)^(\S.*?) : (.*)((?:\n(?: .*)?)*)", section)
        for name in names.split(",")
    }


def plain(text: str) -> str:
    """Take the marks of reStructuredText out of a docstring's text, for a terminal."""
    text = re.sub(r":\w+:`([^`]*)`", r"\1", text)
    return re.sub(r"`{1,2}([^`]*)`{1,2}", r"\1", text)


def value_of(text: str) -> Any:
    """Give the value that a word of the command line means: number, list, yes or no, or itself.

    >>> value_of("50"), value_of("1e-3"), value_of("none"), value_of("2,0,1"), value_of("relu")
    (50, 0.001, None, [2, 0, 1], 'relu')
    """
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    if "," in text:
        return [value_of(part.strip()) for part in text.split(",")]
    return text


def settings_parameters(settings: Mapping[str, Mapping[str, Setting]]) -> list[inspect.Parameter]:
    """Make an option for each parameter of any of the estimators, as typer reads a signature.

    Where two estimators have the same parameter, the first describes it; a parameter that not all
    have is marked with the names of those that do.
    """
    offered: dict[str, list[str]] = {}
    first: dict[str, Setting] = {}
    for model, own in settings.items():
        for name, setting in own.items():
            if name not in _NOT_OFFERED:
                offered.setdefault(name, []).append(model)
                first.setdefault(name, setting)
    return [
        _option(name, setting, offered[name] if len(offered[name]) < len(settings) else [])
        for name, setting in first.items()
    ]


def _option(name: str, setting: Setting, models: list[str]) -> inspect.Parameter:
    flag = name.replace("_", "-")
    is_switch = setting.kind.startswith("bool")
    help_text, choices = plain(setting.text), metavar(setting.kind)
    if len(choices) > _WIDEST:
        help_text += f" Choices: {choices[1:-1].replace('|', ', ')}."
        choices = "CHOICE"
    if setting.default is not None and not is_switch:
        help_text += f" Default: {setting.default}."
    if models:
        help_text += f" (Only with --model {' or '.join(models)}.)"
    option = typer.Option(
        f"--{flag}/--no-{flag}" if is_switch else f"--{flag}",
        help=help_text,
        metavar=None if is_switch else choices,
        show_default=False,
        # Apart, since their two flags would narrow the help of all options beside them.
        rich_help_panel=f"{'Switches' if is_switch else 'Settings'} of the model",
    )
    # Words are turned into values here, not by typer: a setting may be a number or a word.
    kind: Any = bool | None if is_switch else str | None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


def metavar(kind: str) -> str:
    """Show a type line in a few letters, with all of its choices.

    >>> metavar("int or None"), metavar('{"relu", "sigmoid"}'), metavar('"auto" or float')
    ('INT', '[relu|sigmoid]', '[auto|FLOAT]')
    """
    words = re.findall(r'"([^"]+)"', kind)
    types = [
        name.upper()
        for name in ("int", "float", "path", "size")
        if re.search(rf"\b{name}\b", kind)
    ]
    if "permutation" in kind:
        types.append("NUMBERS")
    if not words:
        return types[0] if types else "TEXT"
    return f"[{'|'.join(words + types)}]"
