"""The paper's Table 1: five UCI data sets, ten folds.

    rnade reproduce table1 --data-dir FOLDER

Columns are standardised by the mean and population standard deviation of a fold's training rows
(validation rows among them), and log-likelihoods are of the standardised data, as in the paper.
Each fold's model is fitted to all its training rows and scored on its test rows. Beside the
paper's columns stand `RNADE()` with no settings at all, and estimators of other libraries.
"""

from rnade.data import DataStore, UciSet, load_uci
from rnade.reproduce.targets import targets
from rnade.reproduce.uci_table import AbstractUciTable


class Table1(AbstractUciTable):
    """The data as they are."""

    name = "table1"
    title = "Table 1: five UCI data sets"
    note = (
        "Test log-likelihood, nats per row of standardised data: mean over folds, ± its standard"
        " error. In brackets the paper's figure and the difference. Bold: not significantly worse"
        " than any other (paired t-test over folds, 0.05)."
    )
    figures = targets("table1")["figures"]

    def load(self, dataset: str, store: DataStore) -> UciSet:
        """Read a data set."""
        return load_uci(dataset, store)


EXPERIMENT = Table1()
