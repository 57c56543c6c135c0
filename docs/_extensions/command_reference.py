"""The directive ``{command-reference}``: every command and option, from the program itself."""

from collections.abc import Iterator
from typing import Any

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from rnade.cli.app import app as program


class CommandReference(SphinxDirective):
    """Sections for all commands, with a table of each one's arguments and options."""

    def run(self) -> list[nodes.Node]:
        """Give the sections."""
        command = typer.main.get_command(program)
        context = typer.Context(command, info_name="rnade")
        text = "\n".join(_described(command, context))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("command-reference", CommandReference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _described(group: Any, parent: typer.Context) -> Iterator[str]:
    """Lines of Markdown."""
    for name, command in group.commands.items():
        context = typer.Context(command, info_name=name, parent=parent)
        yield f"## rnade {name}\n"
        yield f"{command.help}\n"
        usage = " ".join(command.collect_usage_pieces(context))
        yield f"```\nrnade {name} {usage}\n```\n"
        for kind in ("argument", "option"):
            own = [p for p in command.params if p.param_type_name == kind]
            yield from _table(kind, own, context)
        examples = (command.epilog or "").split("\n\n")[1:]
        yield "\n".join(["Examples:\n\n```", *examples, "```\n"])


def _table(title: str, parameters: list[Any], context: typer.Context) -> Iterator[str]:
    if not parameters:
        return
    yield f"| {title} | what it does |\n| --- | --- |"
    for parameter in parameters:
        name, text = (part.replace("|", "\\|") for part in parameter.get_help_record(context))
        yield f"| `{name}` | {text} |"
    yield ""
