"""Estimators' parameters as options of the command line, their help from the docstrings.

The parameters are read from the estimators' source: to import them takes seconds, and help should
not.
"""

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

# Set by the command line's own options.
_NOT_OFFERED = frozenset({"ensemble", "search", "verbose"})
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

    Parameters
    ----------
    estimators : mapping of str to str
        Names of classes, by the name that ``--model`` takes.

    Returns
    -------
    dict of dict of Setting
        By the name of ``--model``, then by the name of the parameter.
    """
    package = Path(__file__).parents[1] / "estimators"
    classes = {
        node.name: node
        for path in package.glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }

    def docstring(name: str) -> str:
        # Names of base classes in braces stand for their entries; see `estimators.parameters`.
        text = ast.get_docstring(classes[name]) or ""
        for base in re.findall(r"(?m)^\{(\w+)\}$", text):
            text = text.replace(f"{{{base}}}", docstring(base).partition("----------\n")[2])
        return text

    def defaults(name: str) -> dict[str, Any]:
        node = classes.get(name)
        found: dict[str, Any] = {}
        for base in reversed(node.bases if node else []):
            found |= defaults(base.id) if isinstance(base, ast.Name) else {}
        for field in node.body if node else []:
            if isinstance(field, ast.AnnAssign) and field.value is not None:
                found[ast.unparse(field.target)] = _default(field.value)
        return found

    return {
        model: {
            name: Setting(kind, text, DEFAULTS.get(name, defaults(class_name).get(name)))
            for name, (kind, text) in documented_parameters(docstring(class_name)).items()
        }
        for model, class_name in estimators.items()
    }


def _default(value: ast.expr | None) -> Any:
    """The constant that an attribute is set to, or that is the default of ``field(...)``."""
    if isinstance(value, ast.Call):
        value = next((word.value for word in value.keywords if word.arg == "default"), None)
    return value.value if isinstance(value, ast.Constant) else None


def documented_parameters(docstring: str) -> dict[str, tuple[str, str]]:
    """Read the section "Parameters" of a NumPy-style docstring: type lines and texts."""
    lines = inspect.cleandoc(docstring).splitlines()
    found: dict[str, tuple[str, str]] = {}
    names: list[str] = []
    inside = False
    for line, below in pairwise([*lines, ""]):
        if re.fullmatch(r"-{3,}", below):
            inside = line.strip() == "Parameters"
            names = []
        elif not inside or re.fullmatch(r"-{3,}", line):
            continue
        elif line and not line.startswith(" "):
            heads, _, kind = line.partition(" : ")
            names = [name.strip() for name in heads.split(",")]
            found.update({name: (kind.strip(), "") for name in names})
        else:
            for name in names:
                kind, text = found[name]
                found[name] = (kind, f"{text} {line.strip()}".strip())
    return found


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

    Parameters
    ----------
    settings : mapping of mappings
        What `declared_settings` gives. Where two estimators have the same parameter, the first
        describes it; a parameter that not all have is marked with the names of those that do.
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
    is_switch = isinstance(setting.default, bool)
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
    types = [name.upper() for name in ("int", "float", "path") if re.search(rf"\b{name}\b", kind)]
    if "permutation" in kind:
        types.append("NUMBERS")
    if not words:
        return types[0] if types else "TEXT"
    return f"[{'|'.join(words + types)}]"


def with_settings(
    command: Callable[..., None], settings: Mapping[str, Mapping[str, Setting]]
) -> Callable[..., None]:
    """Give a command whose last parameter is `settings` an option for each estimator parameter.

    The command is called with `settings`, a dict of those options that were given.
    """
    own = [
        parameter
        for parameter in inspect.signature(command).parameters.values()
        if parameter.name != "settings"
    ]
    options = settings_parameters(settings)
    names = {option.name for option in options}

    def with_options(**given: Any) -> None:
        settings = {
            name: value_of(value) if isinstance(value, str) else value
            for name, value in given.items()
            if name in names and value is not None
        }
        rest = {name: value for name, value in given.items() if name not in names}
        command(**rest, settings=settings)

    with_options.__doc__ = command.__doc__
    with_options.__name__ = command.__name__
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *options)]
    with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_options
