"""Banks that an experiment trains to their end."""

from collections.abc import Sequence

from rnade.training import Bank, Member, Trained


def trained_bank(members: Sequence[Member]) -> Bank:
    """Train models as one bank; Ctrl-C is raised, since models half trained are no result."""
    bank = Bank(members)
    if not bank.advance():
        raise KeyboardInterrupt
    return bank


def train_all(members: Sequence[Member]) -> list[Trained]:
    """Train models as one bank, and give each."""
    return trained_bank(members).results()
