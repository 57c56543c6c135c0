"""What a stored figure must say about the run that made it."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

_LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "numba", "triton", "zuko", "nflows")


def run_facts(command: str, **settings: Any) -> dict[str, Any]:
    """Command, settings, time, revision, hardware and versions, as plain JSON values.

    Parameters
    ----------
    command : str
        What a reader types to make the figures again.
    **settings
        Seeds and whatever else the figures depend on.
    """
    return {
        "command": command,
        "settings": settings,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "revision": _revision(),
        "hardware": hardware(),
        "versions": _versions(),
    }


def hardware() -> dict[str, Any]:
    """Processor, usable cores and GPU."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"processor": _processor(), "cores": usable_cores(), "gpu": gpu}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _revision() -> dict[str, Any] | None:
    """The checkout's revision and whether it had changes; None outside a checkout.

    A copy without its repository is told its revision by the environment variable RNADE_REVISION.
    """
    here = Path(__file__).parent
    told = os.environ.get("RNADE_REVISION")
    if told:
        return {"commit": told, "clean": True}

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=here, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "clean": not git("status", "--porcelain")}
    except (OSError, subprocess.CalledProcessError):
        return None


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "platform": sys.platform}
    for name in ("rnade", *_LIBRARIES):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
