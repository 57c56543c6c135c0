"""The kinds of model that `RNADE()` trains: which, how many of each and how long, by the table."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnade.checks import unknown_name
from rnade.training.recipe import MODERN

# Orders of the columns in which a kind is trained at most, each with another part of the rows
# left out.
MOST_ORDERS = 8
# Multiplications and additions that training may take, and how many times as many by effort: of
# the kinds with one hidden layer, of those with several, and of mixtures of Gaussians.
WORK = {"cpu": 1.2e12, "cuda": 1.2e13}
SHARES = {"shallow": 1.0, "deep": 0.8, "mixture": 0.15}
EFFORTS = {"fast": 1.0, "default": 1.0, "best": 10.0}
# Epochs after which early stopping mostly ends training, by which work is reckoned; and the
# fewest that large tables get.
USUAL_EPOCHS, FEWEST_EPOCHS = 60, 8
FEW_ROWS = 4000
# Rows from which minibatches are larger, and from which several layers are tried.
MANY_ROWS, ROWS_OF_DEEP = 5000, 1500
# Units of several layers: the most that so many epochs can be afforded of.
DEEP_UNITS, EPOCHS_OF_DEEP = (256, 128, 64), 15
# Components of the mixtures that are tried, with so many rows for each at least.
SIZES, ROWS_OF_A_COMPONENT = (1, 2, 4, 8, 16, 32, 64), 10
# Iterations of EM by which its work is reckoned, and columns beyond which none is tried.
USUAL_ITERATIONS, MOST_COLUMNS = 30, 150


@dataclass(frozen=True)
class Kind:
    """Models that differ in their orders and the rows that they leave out, but in nothing else.

    Attributes
    ----------
    words : str
        What they are, for people.
    changes : dict
        Parameters of the estimator that they change.
    n_orders : int
        How many there are.
    mixture : int or None
        Components, if they are mixtures of Gaussians with full covariances.
    for_few : bool
        Whether they are tried on tables of at most `FEW_ROWS` alone, on which strong weight decay
        may earn weight.
    """

    words: str
    changes: dict[str, Any] = field(default_factory=dict)
    n_orders: int = MOST_ORDERS
    mixture: int | None = None
    for_few: bool = False


LAPLACES = [
    Kind(
        "Laplace components",
        {"family": "laplace", "n_components": 20, "weight_decay": decay},
        for_few=decay > 1,
    )
    for decay in (0.3, 10.0, 30.0)
]
DECORRELATED_LAPLACES = [
    Kind(
        "Laplace components, linear part taken out",
        {"family": "laplace", "decorrelate": True, "weight_decay": decay},
        for_few=decay > 1,
    )
    for decay in (1.0, 10.0)
]
DECORRELATED = Kind(
    "200 units, Gaussian components, linear part taken out",
    {"decorrelate": True, "n_hidden": 200, "weight_decay": 0.0},
)
DEEP_CHANGES = {"n_layers": 3, "learning_rate": 0.003, "weight_decay": 0.0}
DEEP = Kind("three hidden layers, linear part taken out", {"decorrelate": True, **DEEP_CHANGES})
DEEP_AS_IT_IS = Kind("three hidden layers", DEEP_CHANGES)
GAUSSIANS = [
    Kind("Gaussian components", {"weight_decay": decay, "learning_rate": 0.03})
    for decay in (0.0, 1.0)
]

# What each effort tries; chosen over tables of many sizes (docs/decisions/0020-members.md).
CHOICES: dict[str, list[Kind]] = {
    "fast": GAUSSIANS,
    "default": [*LAPLACES, *DECORRELATED_LAPLACES, DECORRELATED, DEEP],
    "best": [
        *LAPLACES,
        *DECORRELATED_LAPLACES,
        DECORRELATED,
        DEEP,
        DEEP_AS_IT_IS,
        *GAUSSIANS,
    ],
}


def check_effort(effort: Any) -> None:
    """Raise if there is no such effort."""
    if effort not in EFFORTS:
        raise unknown_name(effort, list(EFFORTS), "effort")


def choose_kinds(
    n_rows: int,
    n_columns: int,
    device: str,
    effort: str,
    usual: Mapping[str, Any],
    chosen: Mapping[str, Any],
) -> list[Kind]:
    """The kinds to train on a table, with as many orders and epochs as the effort allows.

    Parameters
    ----------
    n_rows, n_columns : int
        Of the training rows.
    device : "cpu" or "cuda"
    effort : "fast", "default" or "best"
    usual : mapping
        Sizes of the estimator where a kind does not change them: n_hidden, n_components, n_layers.
    chosen : mapping
        Parameters that the user has set, which hold for all kinds.
    """
    work = WORK[device] * EFFORTS[effort]
    offered = [kind for kind in CHOICES[effort] if n_rows <= FEW_ROWS or not kind.for_few]
    tried = _settled(offered, chosen)

    def layers(kind: Kind) -> int:
        return int({**usual, **kind.changes}["n_layers"])

    def cost(kinds: Sequence[Kind]) -> float:
        """Of an epoch of each kind in one order."""
        return sum(work_of_a_row({**usual, **k.changes}, n_columns) for k in kinds) * n_rows

    shallow = [kind for kind in tried if layers(kind) == 1]
    deep = [kind for kind in tried if layers(kind) > 1]
    if shallow and n_rows < ROWS_OF_DEEP:
        deep = []
    if deep and "n_hidden" not in chosen:
        wide = [[_of_units(kind, units) for kind in deep] for units in DEEP_UNITS]
        most = SHARES["deep"] * work / EPOCHS_OF_DEEP
        deep = next((kinds for kinds in wide if cost(kinds) <= most), wide[-1])
    found = []
    for kinds, share in ((shallow, SHARES["shallow"]), (deep, SHARES["deep"])):
        if kinds:
            epochs = share * work / cost(kinds)  # that can be afforded in one order
            n_orders = min(max(math.floor(epochs / USUAL_EPOCHS), 1), MOST_ORDERS)
            length = MODERN.epochs if n_orders > 1 else max(FEWEST_EPOCHS, round(epochs))
            found += [_sized(kind, n_rows, n_orders, length, chosen) for kind in kinds]
    if effort != "fast":
        found += mixtures(n_rows, n_columns, SHARES["mixture"] * work)
    return found


def _settled(kinds: Sequence[Kind], chosen: Mapping[str, Any]) -> list[Kind]:
    """Kinds without the changes that the user has settled, each once."""
    found: dict[str, Kind] = {}
    for kind in kinds:
        changes = {name: v for name, v in kind.changes.items() if name not in chosen}
        found.setdefault(str(sorted(changes.items())), Kind(kind.words, changes))
    return list(found.values())


def _of_units(kind: Kind, n_hidden: int) -> Kind:
    return Kind(kind.words, {**kind.changes, "n_hidden": n_hidden})


def _sized(kind: Kind, n_rows: int, n_orders: int, epochs: int, chosen: Mapping[str, Any]) -> Kind:
    """A kind with minibatches and epochs for a table."""
    sizes = {"batch_size": 200 if n_rows > MANY_ROWS else MODERN.batch_size}
    sizes["epochs"] = min(MODERN.epochs, epochs)
    own = {name: value for name, value in sizes.items() if name not in chosen}
    return Kind(kind.words, {**kind.changes, **own}, n_orders)


def work_of_a_row(sizes: Mapping[str, Any], n_columns: int) -> float:
    """Multiplications and additions that a row takes in training, forward and backward."""
    H, K, L = (int(sizes[name]) for name in ("n_hidden", "n_components", "n_layers"))
    return 6.0 * n_columns * (H * (1 + 3 * K) + (L - 1) * H**2)


def mixtures(n_rows: int, n_columns: int, work: float) -> list[Kind]:
    """Mixtures of Gaussians that a table has rows for, and training time."""
    found: list[Kind] = []
    if n_columns > MOST_COLUMNS:
        return found
    for size in SIZES:
        if size > 1 and n_rows < ROWS_OF_A_COMPONENT * size:
            break
        one = 2.0 * n_rows * size * n_columns**2 * USUAL_ITERATIONS
        n_orders = min(math.floor(work / len(SIZES) / one), MOST_ORDERS)
        if n_orders < 1:
            break
        words = "a Gaussian" if size == 1 else f"a mixture of {size} Gaussians"
        found.append(Kind(words, {}, n_orders, size))
    return found
