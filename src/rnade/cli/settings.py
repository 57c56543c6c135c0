"""Estimators' parameters as options of the command line, their help from the docstrings."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import typer

# Set by the command line's own options.
_NOT_OFFERED = frozenset({"ensemble", "search", "verbose"})


@dataclass(frozen=True)
class Documented:
    """A parameter in a NumPy-style docstring: its type line and its text, each one line."""

    kind: str
    text: str


def documented_parameters(docstring: str | None) -> dict[str, Documented]:
    """Read the section "Parameters" of a NumPy-style docstring."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    found: dict[str, Documented] = {}
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
            found.update({name: Documented(kind.strip(), "") for name in names})
        else:
            for name in names:
                entry = found[name]
                found[name] = Documented(entry.kind, f"{entry.text} {line.strip()}".strip())
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


def settings_parameters(estimators: Mapping[str, type]) -> list[inspect.Parameter]:
    """Make an option for each parameter of any of the estimators, as typer reads a signature.

    Parameters
    ----------
    estimators : mapping of str to class
        By the name that ``--model`` takes. Where two have the same parameter, the first
        describes it; a parameter that not all have is marked with the names of those that do.
    """
    offered: dict[str, list[str]] = {}
    options: dict[str, inspect.Parameter] = {}
    for model, estimator in estimators.items():
        documented = documented_parameters(estimator.__doc__)
        for parameter in inspect.signature(estimator).parameters.values():
            name = parameter.name
            if name in _NOT_OFFERED:
                continue
            offered.setdefault(name, []).append(model)
            if name not in options:
                entry = documented.get(name, Documented("", ""))
                options[name] = _option(name, parameter.default, entry)
    for name, models in offered.items():
        if len(models) < len(estimators):
            option = options[name].annotation.__metadata__[0]
            option.help += f" (Only with --model {' or '.join(models)}.)"
    return list(options.values())


def _option(name: str, default: Any, entry: Documented) -> inspect.Parameter:
    flag = name.replace("_", "-")
    is_switch = isinstance(default, bool)
    help_text = plain(entry.text)
    if default is not None and not is_switch:
        help_text += f" Default: {default}."
    option = typer.Option(
        f"--{flag}/--no-{flag}" if is_switch else f"--{flag}",
        help=help_text,
        metavar=None if is_switch else _metavar(entry.kind),
        show_default=False,
        rich_help_panel="Settings of the model",
    )
    # Words are turned into values here, not by typer: a setting may be a number or a word.
    kind: Any = bool | None if is_switch else str | None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
    )


def _metavar(kind: str) -> str:
    """Make a short word of a type line: "int or None" is INT, a set of choices TEXT."""
    first = re.match(r"(int|float)\b", kind)
    return first[1].upper() if first else "TEXT"


def with_settings(
    command: Callable[..., None], estimators: Mapping[str, type]
) -> Callable[..., None]:
    """Give a command whose last parameter is `settings` an option for each estimator parameter.

    The command is called with `settings`, a dict of those options that were given.
    """
    own = [
        parameter
        for parameter in inspect.signature(command).parameters.values()
        if parameter.name != "settings"
    ]
    options = settings_parameters(estimators)
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
