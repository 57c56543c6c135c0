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

from rnade.records import run_facts

RESULTS = Path(__file__).parent.parent / "results" / "package"
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
    shown = ["python", *PACKAGES]
    head = " | ".join(e["label"].replace("-", " ") for e in entries)
    lines = [f"| | {head} |", "| --- |" + " --- |" * len(entries)]
    for name in shown:
        own = [e["installed"].get(name, "-") for e in entries]
        if any(version != "-" for version in own):
            lines.append(f"| {name} | {' | '.join(own)} |")
    passed = " | ".join(str(e["counts"]["passed"]) for e in entries)
    failed = " | ".join(
        str(sum(n for k, n in e["counts"].items() if k != "passed")) for e in entries
    )
    return "\n".join([*lines, f"| tests passed | {passed} |", f"| failed | {failed} |"]) + "\n"


def main() -> None:
    label, python, log = sys.argv[1:]
    path = RESULTS / "record.json"
    entries = json.loads(path.read_text()) if path.exists() else []
    entries = [e for e in entries if e["label"] != label] + [entry(label, python, Path(log))]
    RESULTS.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(entries, indent=1) + "\n")
    (RESULTS / "table.md").write_text(table(entries))
    print(table(entries))


if __name__ == "__main__":
    main()
