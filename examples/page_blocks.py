"""Runs the Python blocks of a page, which must print what their comments say.

    python examples/page_blocks.py README.md

A line `print(...)  # text` promises that text; numbers may differ by 3 %, as float32 training
does between machines.
"""

import contextlib
import io
import re
import sys
from pathlib import Path

BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")
TOLERANCE = 0.03


def run_python(block: str, page: str, namespace: dict[str, object]) -> None:
    """Run a block and compare what it prints with what it promises."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, page, "exec"), namespace)
    promised = re.findall(r"^print\(.*\)\s+# (.*)$", block, re.MULTILINE)
    lines = printed.getvalue().splitlines()
    assert len(lines) == block.count("print("), "print one line a call"
    for said, shown in zip(promised, lines, strict=True):
        assert_same(said, shown)


def assert_same(said: str, shown: str) -> None:
    """Equal text; numbers may differ a little."""
    assert NUMBER.sub("#", said) == NUMBER.sub("#", shown), (said, shown)
    for a, b in zip(NUMBER.findall(said), NUMBER.findall(shown), strict=True):
        most = TOLERANCE * max(abs(float(a)), 1.0)
        assert abs(float(b) - float(a)) <= most, (said, shown)


if __name__ == "__main__":
    for page in sys.argv[1:]:
        names: dict[str, object] = {}
        for language, block in BLOCK.findall(Path(page).read_text(encoding="utf-8")):
            if language == "python":
                run_python(block, page, names)
                print(f"ran {len(block.splitlines())} lines of {page}")
