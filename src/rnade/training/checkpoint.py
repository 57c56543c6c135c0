"""Checkpoints: a run killed at any moment goes on from the last one, to the same numbers.

A checkpoint is a safetensors file written whole or not at all, so that the one before it is there
until the new one is. It holds a fingerprint of what the run was made of (rows, starting weights,
recipes, seeds); a run made of anything else refuses it.
"""

import dataclasses
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import torch

from rnade import parallel
from rnade.batch import Batch
from rnade.exceptions import CheckpointError, ModelFileError
from rnade.serialisation import read_model, write_model
from rnade.training.run import Run

KIND = "checkpoint"
# Of what a checkpoint holds; another version of rnade may have another.
LAYOUT = 3


def fingerprint(run: Run) -> str:
    """Digest of a run that has not begun: equal for runs that will end with the same numbers."""
    tensors, _ = run.state()
    for i, source in enumerate(run.sources):
        tensors |= {f"rows.{i}.{name}": t for name, t in source.contents().items()}
    for name in ("training", "validation"):
        for part, t in zip(Batch._fields, getattr(run, name) or (), strict=False):
            if t is not None:
                tensors[f"{name}.{part}"] = t
    tensors |= dict(run.module.named_buffers())
    tensors["source_of"] = run.source_of
    recipes = [dataclasses.asdict(recipe) for recipe in run.recipes]
    targets = None if run.targets is None else run.targets.tolist()
    digest = hashlib.sha256(json.dumps([recipes, targets, run.module.signature()]).encode())
    for name in sorted(tensors):
        t = tensors[name].detach().cpu().contiguous()
        digest.update(f"\n{name} {t.dtype} {tuple(t.shape)}\n".encode())
        digest.update(t.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class Checkpoint:
    """The checkpoint file of one run.

    Parameters
    ----------
    path : path
    run : Run
        Not yet begun; if the file exists, the run goes on from it.
    every : float
        Seconds between two checkpoints; 0 for one each epoch.

    Raises
    ------
    CheckpointError
        If there is a file that is damaged, or of another run. It is left as it is.
    """

    def __init__(self, path: str | os.PathLike[str], run: Run, *, every: float = 30.0) -> None:
        self.path, self.run, self.every = Path(path), run, every
        self._fingerprint = fingerprint(run)
        self._written = time.perf_counter()
        self._kept: tuple[dict[str, torch.Tensor], dict[str, Any]] | None = None
        # One process reads, as one writes: others may have no such file.
        found = parallel.from_first(lambda: self._read() if self.path.exists() else None)
        if found is not None:
            self.run.restore(*found)

    def _read(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        advice = "Delete it to start afresh, or give another place for checkpoints."
        try:
            tensors, settings = read_model(self.path)
        except (ModelFileError, OSError) as error:
            raise CheckpointError(f"The checkpoint cannot be used: {error} {advice}") from error
        if settings.get("kind") != KIND:
            raise CheckpointError(f"{self.path} is a model file, not a checkpoint. {advice}")
        if settings.get("layout") != LAYOUT:
            raise CheckpointError(
                f"The checkpoint {self.path} was written by another version of rnade, and this one"
                f" cannot go on from it. {advice}"
            )
        if settings["fingerprint"] != self._fingerprint:
            raise CheckpointError(
                f"The checkpoint {self.path} is of another run: its rows, settings or seed differ"
                f" from these. {advice}"
            )
        return tensors, settings["run"]

    def write_if_due(self, *, last: bool = False) -> None:
        """Write a checkpoint if the last one is old enough, or this is to be the `last`."""
        if parallel.rank() > 0:
            return
        if parallel.size() > 1:
            self._kept = self.run.state()
        if not last and time.perf_counter() - self._written < self.every:
            return
        self._write(*(self._kept or self.run.state()))

    def write_kept(self) -> None:
        """Write the last complete epoch, of several processes that train together."""
        if self._kept is not None:
            self._write(*self._kept)

    def _write(self, tensors: dict[str, torch.Tensor], plain: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for left_by_a_kill in self.path.parent.glob(f".{self.path.name}.*"):
            left_by_a_kill.unlink(missing_ok=True)
        settings = {
            "kind": KIND,
            "layout": LAYOUT,
            "fingerprint": self._fingerprint,
            "run": plain,
        }
        write_model(self.path, tensors, settings, overwrite=True)
        self._written = time.perf_counter()
