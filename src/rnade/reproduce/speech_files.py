"""Model files of Table 3 that Figure 2 draws samples from, next to the records."""

import hashlib
from pathlib import Path

import torch

from rnade.reproduce.runner import Job
from rnade.reproduce.speech_models import SpeechDensity
from rnade.reproduce.speech_rows import SHOWN
from rnade.serialisation import read_model, write_model


def file_of(job: Job, folder: Path) -> Path:
    """Where a job's model is kept: a job with other settings has another file."""
    digest = hashlib.sha256(job.identity.encode()).hexdigest()[:12]
    return folder / f"{job.key['model']}-{digest}.safetensors"


def keep(density: SpeechDensity, job: Job, folder: Path) -> None:
    """Write a model to its file, if it is of a row that Figure 2 shows and of the first fold."""
    if job.key["model"] not in SHOWN or job.key["fold"]:
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_model(file_of(job, folder), density.tensors(), job.settings, overwrite=True)


def kept(job: Job, folder: Path, device: torch.device) -> SpeechDensity | None:
    """Give a job's model from its file, or None where there is none."""
    if not file_of(job, folder).exists():
        return None
    tensors, settings = read_model(file_of(job, folder))
    return SpeechDensity.from_tensors(tensors, settings, device)
