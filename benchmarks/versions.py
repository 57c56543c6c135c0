"""Records with which versions the tests were run, beside those of constraints.txt.

    python -m benchmarks.versions LABEL PYTHON LOG

PYTHON is the interpreter of an environment in which rnade was installed from its wheel, and LOG is
what pytest wrote there. Adds an entry to results/package/record.json, in place of one with the
same label, and writes table.md from all of them.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import study
from benchmarks.pages import markdown
from rnade.records import run_facts

RESULTS = study.folder_of("package")
PACKAGES = [
    "torch",
    "numpy",
    "scipy",
    "scikit-learn",
    "numba",
    "pyarrow",
    "narwhals",
    "safetensors",
    "jaxtyping",
    "threadpoolctl",
    "typer",
    "rich",
    "onnx",
    "onnxruntime",
    "pandas",
    "polars",
]
_ASKED = """
import json, platform
from importlib import metadata
found = {"python": platform.python_version()}
for name in NAMES:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def entry(label: str, python: str, log: Path) -> dict[str, Any]:
    """What an environment has, and what pytest said there."""
    program = _ASKED.replace("NAMES", repr(PACKAGES))
    versions = subprocess.run([python, "-c", program], capture_output=True, check=True, text=True)
    summary = log.read_text().rstrip().splitlines()[-1]
    counts = {name: int(n) for n, name in re.findall(r"(\d+) (passed|failed|errors?)", summary)}
    if "passed" not in counts:
        raise ValueError(f"The last line of {log} is no summary of pytest: {summary!r}.")
    failed = re.findall(r"^FAILED (\S+)", log.read_text(), re.MULTILINE)
    return {
        **run_facts(f"python -m benchmarks.versions {label} PYTHON LOG"),
        "label": label,
        "installed": json.loads(versions.stdout),
        "counts": counts,
        "failed": failed,
    }


def table(entries: list[dict[str, Any]]) -> str:
    """Versions and outcomes as a Markdown table."""
    rows = []
    for name in ("python", *PACKAGES):
        own = [e["installed"].get(name, "-") for e in entries]
        if any(version != "-" for version in own):
            rows.append([name, *own])
    counts = [e["counts"] for e in entries]
    rows.append(["tests passed", *(str(c["passed"]) for c in counts)])
    rows.append(["failed", *(str(sum(c.values()) - c["passed"]) for c in counts)])
    head = ["", *(e["label"].replace("-", " ") for e in entries)]
    return markdown(head, rows, left=len(head)) + "\n"


def main() -> None:
    label, python, log = sys.argv[1:]
    path = RESULTS / "record.json"
    entries = json.loads(path.read_text()) if path.exists() else []
    entries = [e for e in entries if e["label"] != label] + [entry(label, python, Path(log))]
    study.write_record(path, entries, table(entries))


if __name__ == "__main__":
    main()
