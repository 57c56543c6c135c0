"""Some members of a bank as one run, and which members can be one."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

from rnade import parallel
from rnade.backends.threads import threads_for
from rnade.exceptions import RankLostError
from rnade.nn.bank import AbstractTrainable
from rnade.training.checkpoint import Checkpoint
from rnade.training.interrupt import interruptible
from rnade.training.member import Member, Trained
from rnade.training.run import OWN_SETTINGS, Run
from rnade.training.scoring import mean_log_likelihoods

# Copies of the parameters that a run holds: the weights, their gradients, what the optimiser
# remembers (two), the running average, the best so far, and two for what is made on the way.
PARAMETER_COPIES = 8


@contextmanager
def interrupts() -> Iterator[Callable[[], bool]]:
    """Ctrl-C as `interruptible` has it; one of several processes cannot end alone."""
    if parallel.size() > 1:
        yield lambda: False
    else:
        with interruptible() as cancelled:
            yield cancelled


class Part:
    """Members that train as one run.

    Parameters
    ----------
    members : sequence of Member
        All members of the bank.
    at : sequence of int
        Places of those that are in this run.
    name : str
        Of its checkpoint.

    Attributes
    ----------
    first : dict
        Where in the run the models of each member begin, by its place.
    checkpoint : Checkpoint or None
        To be set before the run begins.
    """

    def __init__(self, members: Sequence[Member], at: Sequence[int], name: str) -> None:
        self.at, self.name = list(at), name
        self.checkpoint: Checkpoint | None = None
        mine = [members[m] for m in at]
        sizes = (len(member.models) for member in mine)
        self.first = dict(zip(at, itertools.accumulate(sizes, initial=0), strict=False))
        self.run = Run(mine)

    def halves(self) -> list[tuple[list[int], str]]:
        """Places and names of two parts that are this one together."""
        middle = len(self.at) // 2
        return [(self.at[:middle], f"{self.name}-0"), (self.at[middle:], f"{self.name}-1")]

    @property
    def bytes(self) -> int:
        """Memory that it takes, about."""
        return _bytes_of(self.run.module)

    def advance(
        self,
        share: float,
        on_epoch: Callable[[], None],
        cancelled: Callable[[], bool] | None = None,
    ) -> bool:
        """Train up to a `share` of the epochs; False if it was cancelled before, by Ctrl-C."""
        run = self.run
        until = max(1, round(share * run.recipe.epochs))
        given = interrupts() if cancelled is None else nullcontext(cancelled)
        with threads_for(run.n_torch_products), self._endings_told(), given as cancelled:
            if not run.marks:
                run.start()
                on_epoch()
            while not run.finished and run.epoch < until:
                if not run.one_epoch(cancelled):
                    return False
                on_epoch()
                if self.checkpoint is not None:
                    self.checkpoint.write_if_due()
            if self.checkpoint is not None:
                self.checkpoint.write_if_due(last=True)
        return True

    @contextmanager
    def _endings_told(self) -> Iterator[None]:
        """Within it, a process that is lost ends training with a checkpoint of the last epoch."""
        try:
            yield
        except RankLostError as error:
            what = "Pass checkpoint=FOLDER to go on from where training was."
            if self.checkpoint is not None:
                self.checkpoint.write_kept()
                what = (
                    f"{self.checkpoint.path} holds the last epoch that was complete: start again,"
                    " with any number of processes, to go on from it."
                )
            raise RankLostError(f"{error} {what}") from error

    def results(self, wanted: Sequence[tuple[int, int]]) -> list[Trained]:
        """Some models, given as pairs of member and model, with the weights kept for them."""
        run = self.run
        if not run.marks:
            run.start()  # Ctrl-C ended the bank before its turn: its starting weights
        run.finish()
        at = [self.first[m] + model for m, model in wanted]
        module = run.module if at == list(range(run.module.n_models)) else run.module[at]
        with threads_for(run.n_torch_products):
            train = mean_log_likelihoods(module, run.known, run.source_of[at])
        return [
            Trained(
                history,
                int(run.best_epoch[place]),
                float(run.best_score[place]),
                float(train[i]),
                module=module[i],
                diverged=run.diverged.get(place),
            )
            for i, (place, history) in enumerate(zip(at, run.histories(at), strict=True))
        ]


def grouped(members: Sequence[Member], memory: int, most: int | None = None) -> list[list[int]]:
    """Places of the members that can be one run, group by group, each within a memory budget.

    Of no group are there more than `most` members.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for m, member in enumerate(members):
        recipe, n = member.recipe, len(member.source.known().x)
        common = recipe.with_changes(**dict.fromkeys(OWN_SETTINGS, 0.5))
        key = (
            *member.module.signature(),
            common,
            min(recipe.batch_size, n),
            recipe.updates_per_epoch(n),
            member.held_out is None,
            member.target is None,
        )
        groups.setdefault(key, []).append(m)
    return [piece for group in groups.values() for piece in _split(group, members, memory, most)]


def _split(
    group: Sequence[int], members: Sequence[Member], memory: int, limit: int | None
) -> list[list[int]]:
    """Cut a group into pieces that fit the memory, of nearly equal sizes."""
    module = max((members[m].module for m in group), key=lambda module: module.n_models)
    most = max(1, memory // max(_bytes_of(module), 1))
    most = most if limit is None else min(most, limit)
    n_pieces = -(-len(group) // most)
    cuts = [i * len(group) // n_pieces for i in range(n_pieces + 1)]
    return [list(group[low:high]) for low, high in itertools.pairwise(cuts)]


def _bytes_of(module: AbstractTrainable) -> int:
    return PARAMETER_COPIES * sum(p.numel() * p.element_size() for p in module.parameters())
