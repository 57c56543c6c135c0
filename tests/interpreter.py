"""Tests of kernels without a GPU: run again in a process where Triton interprets them."""

import os
import re
import subprocess
import sys
from pathlib import Path


def assert_passes_under_the_interpreter(file, *arguments, more_than):
    """Run a file's tests under the interpreter: more than so many pass, the caller is skipped."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file, *arguments],
        env={**environment, "TRITON_INTERPRET": "1"},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed, run.stdout[-2000:]
    assert int(passed[1]) > more_than
    # Only the test that calls this may be skipped inside.
    assert "1 skipped" in run.stdout, run.stdout[-2000:]
