"""Many models trained as one program: a grid of settings, folds, orders and seeds.

Members of one shape and one kind of recipe are stacked into one module and trained by one `Run`;
others form runs of their own, one after the other or, on a CPU, beside each other. Members are
independent: each ends as it would have ended alone, whoever trains beside it.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from rnade import parallel
from rnade.training.beside import advance_beside, small_parts
from rnade.training.checkpoint import Checkpoint
from rnade.training.engines import advance_on_ray, check_engine, n_workers
from rnade.training.member import Member, Trained
from rnade.training.part import Part, grouped


class Bank:
    """Many models in training at once, as one or more runs.

    Parameters
    ----------
    members : sequence of Member
        Their modules are on one device.
    memory : int, optional
        Bytes that a run may take, or several that train at the same time; a larger one is split
        into several. None for half of the device's free memory.
    checkpoint : path, optional
        A folder of checkpoints to resume from and to write, one file a run.
    checkpoint_every : float
        Seconds between two checkpoints of a run; 0 for one each epoch.
    engine : {"local", "ray"}, optional
        Where runs are trained: here; or as tasks of a Ray cluster, all at once, which has more
        of them. None for that of `bank_engine`.

    Attributes
    ----------
    interrupted : bool
        Whether Ctrl-C ended `advance`.
    parts : list of Part
        The runs.
    """

    def __init__(
        self,
        members: Sequence[Member],
        *,
        memory: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 30.0,
        engine: str | None = None,
    ) -> None:
        self.engine = check_engine(engine)
        self.members = list(members)
        self.interrupted = False
        self._folder = None if checkpoint is None else Path(checkpoint)
        self._every = checkpoint_every
        device = members[0].module.device
        # Processes that train together split the members in the same way.
        free = min(parallel.from_all(lambda: _free_memory(device)))
        self._memory = free // 2 if memory is None else memory
        self.parts = [
            Part(self.members, piece, f"bank-{i:03d}")
            for i, piece in enumerate(grouped(self.members, self._memory, self._most))
        ]

    @property
    def _most(self) -> int:
        """Members of a run, so that there are runs for all workers."""
        n = len(self.members)
        return n if self.engine == "local" else -(-n // n_workers())

    @property
    def epochs_done(self) -> int:
        """Epochs of all runs so far."""
        return sum(part.run.epoch for part in self.parts)

    @property
    def epochs_left(self) -> int:
        """Epochs still to come, at most."""
        return sum(
            0 if part.run.finished else part.run.recipe.epochs - part.run.epoch
            for part in self.parts
        )

    def best(self, n: int | None = None) -> tuple[float, float]:
        """Best score so far among the first n members, and that one's rate in its last update."""
        scores = self.best_scores()[:n]
        best = scores.index(max(scores))
        part = next(part for part in self.parts if best in part.first)
        return scores[best], part.run.rate_of(part.first[best])

    def advance(
        self,
        share: float = 1.0,
        on_epoch: Callable[["Bank"], None] | None = None,
    ) -> bool:
        """Train all members up to a `share` of their epochs; False if Ctrl-C ended it before."""
        if self.engine == "ray":
            self._advance_on_ray(share, on_epoch)
            return True
        together = small_parts(self.parts, self._memory)
        for part in together:
            self._resume(part)
        if together and not advance_beside(together, share, self._told(on_epoch)):
            self.interrupted = True
            return False
        waiting = [part for part in self.parts if part not in together]
        while waiting:
            part = waiting.pop(0)
            try:
                done = self._advance_part(part, share, on_epoch)
            except torch.OutOfMemoryError:
                if len(part.at) == 1:
                    raise
                done = None
            if done is None:
                # Half of the members at a time, from their start: they end as they would have.
                place = self.parts.index(part)
                pieces = part.halves()
                del self.parts[place], part  # gives the memory back first
                halves = [Part(self.members, at, name) for at, name in pieces]
                self.parts[place:place] = halves
                waiting[:0] = halves
            elif not done:
                self.interrupted = True
                return False
        return True

    def _advance_on_ray(self, share: float, on_epoch: Callable[["Bank"], None] | None) -> None:
        def on_part(part: Part) -> None:
            if part.checkpoint is not None:
                part.checkpoint.write_if_due(last=True)
            if on_epoch is not None:
                on_epoch(self)

        for part in self.parts:
            self._resume(part)
        advance_on_ray(self.parts, self.members, share, on_part)

    def _resume(self, part: Part) -> None:
        if self._folder is not None and part.checkpoint is None:
            path = self._folder / f"{part.name}.safetensors"
            part.checkpoint = Checkpoint(path, part.run, every=self._every)

    def _advance_part(
        self, part: Part, share: float, on_epoch: Callable[["Bank"], None] | None
    ) -> bool:
        self._resume(part)
        return part.advance(share, self._told(on_epoch))

    def _told(self, on_epoch: Callable[["Bank"], None] | None) -> Callable[[], None]:
        return lambda: None if on_epoch is None else on_epoch(self)

    def stop(self, members: Sequence[int]) -> None:
        """Stop some members where they are; they keep their best weights."""
        for part in self.parts:
            part.run.stop(
                [
                    part.first[m] + model
                    for m in members
                    if m in part.first
                    for model in self.members[m].models
                ]
            )

    def best_scores(self) -> list[float]:
        """Best validation score of each member so far: of several models, their sum."""
        return [sum(scores) for scores in self.scores_of_models()]

    def scores_of_models(self) -> list[list[float]]:
        """Best validation score of each model of each member so far."""
        scores: list[list[float]] = [[]] * len(self.members)
        for part in self.parts:
            best = part.run.best_score.tolist()
            for m, first in part.first.items():
                scores[m] = best[first : first + len(self.members[m].models)]
        return scores

    def best_of_each_model(self, members: Sequence[int]) -> list[tuple[int, int]]:
        """For each model of some members, which have as many, the member in which it scores best.

        Gives pairs of member and model, as `results` takes them.
        """
        scores = self.scores_of_models()
        best = torch.tensor([scores[m] for m in members], dtype=torch.float64).argmax(0)
        return [(members[i], model) for model, i in enumerate(best.tolist())]

    def results(self, wanted: Sequence[tuple[int, int]] | None = None) -> list[Trained]:
        """Each member with the weights kept for it.

        Parameters
        ----------
        wanted : sequence of (member, model), optional
            The models to give; by default the first of each member, which has no others.
        """
        wanted = [(m, 0) for m in range(len(self.members))] if wanted is None else list(wanted)
        found: dict[tuple[int, int], Trained] = {}
        for part in self.parts:
            here = [pair for pair in wanted if pair[0] in part.first]
            if here:
                found |= zip(here, part.results(here), strict=True)
        return [found[pair] for pair in wanted]


def _free_memory(device: torch.device) -> int:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    try:
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # not told by this system
        return 2**32
