"""One self-contained page on which a fitted table can be asked: any columns given any others."""

import base64
import hashlib
import html
import json
import os
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from rnade._version import __version__
from rnade.columns import Schema
from rnade.explore.contents import (
    facts_of,
    network_blocks,
    part_of,
    table_block,
)
from rnade.explore.packing import Block, pack
from rnade.files import write_whole
from rnade.look import Markup, Parts, style_of
from rnade.nn.table import TableDensity
from rnade.typing import Array

# Bytes beyond which a page has fewer networks; and cells of a table that it has at most.
LARGEST_PAGE, MOST_CELLS = 5_000_000, 200_000
# The page's own script in parts, each of which knows those before it.
SCRIPTS = (
    *("tensors", "cells", "network", "density", "gaussians", "model", "walk", "slots"),
    *("questions", "words", "state", "pictures", "schedule", "card"),
    *("card_levels", "card_numbers", "pair", "page", "start"),
)
GLANCE = {
    "density": "Log density of what is set",
    "p": "p-value",
    "surprise": "Most surprising value",
    "set": "Columns set",
}
# Kept free for names, levels and words, and for rows that are asked for, in bytes.
ROOM_FOR_FACTS, ROOM_FOR_ROWS = 100_000, 1_000_000
_PARTS = Parts("rnade.explore")
_DRAWN = "100 rows drawn from the model"
_LEFT_OUT = "those rows of the table that some network left out of training"
_NO_ROWS = "The page holds no row of any table: what it shows comes from the model alone."
_ABOUT = (
    "A distribution of one column given others is exact. Log densities are in nats; that of"
    " several columns is averaged over orders of the columns, as the model averages them, and ±"
    " is how much these differ. Levels, whole numbers, days and single values that many rows"
    " share have probabilities, other numbers densities per unit.",
    "The p-value is the share of rows drawn from the model that are at most as likely, in the"
    " columns that are set, as what is set, all along one order of the columns. The most"
    " surprising value is the one that is the furthest below the mean log density of its column,"
    " each given all others that are set.",
    f"Everything is computed in this page, which sends and fetches nothing; what is set is kept in"
    f" its address. Escape forgets a column. Made by rnade {__version__}.",
)


@dataclass(frozen=True)
class TableRows:
    """Rows of a table, (N, D), that are put into the page, to start from; NaN where missing.

    Of their log densities the page knows the middle and the lowest; NaN where a row has none.
    """

    values: Array
    scores: Array | None = None


@dataclass(frozen=True)
class Exploration:
    """A page on which a model can be explored; in a notebook it shows itself.

    Attributes
    ----------
    html : str
        The whole page: it needs no other file, and no network.
    notes : list of str
        What is said at its foot: which networks it has, and whether rows.
    """

    html: str
    notes: list[str]

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the page to a file, whole or not at all.

        Parameters
        ----------
        path : path
        overwrite : bool
            Replace a file that exists already.
        """
        write_whole(path, self.html.encode(), overwrite=overwrite)

    def __repr__(self) -> str:
        return f"<Exploration, {len(self.html.encode()) / 1e6:.1f} MB; save(path) writes it>"

    def _repr_html_(self) -> str:
        page = html.escape(self.html, quote=True)
        style = "width:100%;height:60rem;border:0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'


def render(
    table: TableDensity,
    schema: Schema,
    title: str,
    rows: TableRows | None = None,
    *,
    beside: bool = False,
) -> Exploration:
    """Make the page of a fitted table, by default without a row of any table.

    `beside` says that these networks only answer questions, beside a model that scores whole rows.
    """
    style, script = style_of("page.css", "tables.css") + _read("explore.css"), _script()
    networks, blocks, notes = network_blocks(table), [table_block(table)], [_NO_ROWS]
    sizes = np.cumsum([len(block.text) for block in networks])
    room = LARGEST_PAGE - ROOM_FOR_FACTS - len(style) - len(script) - len(blocks[0].text)
    n_rows, typical, oddest = 0, None, None
    if rows is not None:
        own, n_rows = _fitting(rows.values, max(room - int(sizes[0]), ROOM_FOR_ROWS))
        blocks.append(own)
        notes = [_said_of_rows(n_rows, len(rows.values))]
        typical, oddest = _ranked(rows.scores, n_rows)
        room -= len(own.text)
    fits = int((sizes <= room).sum())
    shown = part_of(table, max(1, fits))
    blocks += networks[: shown.networks.n_models]
    notes.append(_said_of_networks(shown, table, beside=beside))
    facts = facts_of(shown, schema) | {
        "typical": typical,
        "oddest": oddest,
        "directories": [block.directory for block in blocks],
    }
    fill = _PARTS.fill
    page = fill(
        "page",
        policy=Markup(_policy(script, style)),
        version=__version__,
        title=title,
        style=Markup(style),
        glance=[fill("glance", id=at, name=name) for at, name in GLANCE.items()],
        whence=_DRAWN if oddest is None else _LEFT_OUT,
        rows=fill("rows", n_rows=n_rows) if n_rows else "",
        notes=[fill("note", words=words) for words in [*notes, *_ABOUT]],
        facts=Markup(_embedded(facts)),
        blocks=[fill("block", text=Markup(block.text)) for block in blocks],
        script=Markup(script),
    )
    return Exploration(str(page), notes)


def _fitting(values: Array, room: int) -> tuple[Block, int]:
    """The first rows of a table as text that fits, and how many they are."""
    n = min(len(values), max(1, MOST_CELLS // values.shape[1]))
    block = pack({"rows": values[:n]}, {})
    if len(block.text) > room:
        n = max(1, int(n * room / len(block.text)))
        block = pack({"rows": values[:n]}, {})
    return block, n


def _ranked(scores: Array | None, n: int) -> tuple[int | None, int | None]:
    """Places of the middle and the least likely of the first rows; None if none has a score."""
    if scores is None or np.isnan(scores[:n]).all():
        return None, None
    order = np.argsort(scores[:n])  # NaN last
    n_scored = int((~np.isnan(scores[:n])).sum())
    return int(order[n_scored // 2]), int(order[0])


def _script() -> str:
    """The page's script: its parts one after the other, in a scope of their own."""
    parts = "\n".join(_read(f"{name}.js") for name in SCRIPTS)
    return f'"use strict";\n{{\n{parts}}}\n'


def _read(name: str) -> str:
    return files("rnade.explore").joinpath(name).read_text("utf-8")


def _policy(script: str, style: str) -> str:
    """Nothing is fetched, and nothing runs but the page's own script, whatever a table holds."""

    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    return (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)};"
        " base-uri 'none'; form-action 'none'"
    )


def _embedded(facts: dict[str, Any]) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(facts, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _said_of_rows(n: int, n_all: int) -> str:
    first = "the" if n == n_all else f"the first {n:,} of"
    return (
        f"The page holds {first} {n_all:,} rows of a table, as you asked: whoever has the page can"
        " read them."
    )


def _said_of_networks(shown: TableDensity, table: TableDensity, *, beside: bool) -> str:
    n, n_all = shown.networks.n_walkers, table.networks.n_walkers
    if n == n_all and beside:
        return (
            "Densities are those of the network that answers questions, as log_density gives them;"
            " score_samples scores complete rows by other networks, and differs."
        )
    if n == n_all:
        return "Densities are those of the model itself."
    return (
        f"The model averages {n_all} networks, of which this page has {n}, so that it stays small:"
        " densities differ a little from those of the model."
    )
