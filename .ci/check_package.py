"""Looks at an installed rnade as a stranger would: run by a clean environment's own Python.

    build/clean/bin/python .ci/check_package.py

It needs nothing of the checkout but its README.
"""

import re
import subprocess
import sys
import tempfile
from importlib import metadata, resources
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CUDA = re.compile(r"^(nvidia|cuda|triton)", re.IGNORECASE)


def main() -> None:
    """Raise if anything is wrong."""
    import rnade

    where = Path(rnade.__file__)
    assert where.is_relative_to(sys.prefix), f"{where} is not the installed package"
    installed = metadata.distribution("rnade")
    files = ("py.typed", "look/page.css", "explore/page.js", "data/manifest.json", "onnx/graph.py")
    for name in files:
        assert resources.files("rnade").joinpath(name).is_file(), f"{name} is not in the package"

    core = [line for line in installed.requires or () if "extra ==" not in line]
    assert core
    assert not any(CUDA.match(line) for line in core), core
    from torch import version

    others = sorted(d.name for d in metadata.distributions() if CUDA.match(d.name))
    # Where torch is one for GPUs, CUDA comes with it, whoever asks for torch.
    assert version.cuda is not None or not others, others
    print(
        f"rnade {installed.version}: {len(core)} requirements; CUDA packages: {others or 'none'}"
    )

    blocks = ROOT / "examples" / "page_blocks.py"
    commands = Path(sys.executable).parent / "rnade"
    with tempfile.TemporaryDirectory() as folder:

        def run(*command: object) -> str:
            words = [str(word) for word in command]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, (words, done.stderr)
            return done.stdout

        print(run(sys.executable, "-P", blocks, ROOT / "README.md").strip())
        rows = "\n".join(f"{i % 7},{i * 0.37 % 1:.4f},{'xy'[i % 2]}" for i in range(80))
        (Path(folder) / "t.csv").write_text(f"a,b,c\n{rows}\n")
        run(commands, "fit", "t.csv", "--epochs", 2, "--n-hidden", 8, "-q")
        assert len(run(commands, "sample", "t.rnade", "-n", 5).splitlines()) == 6
        assert run(commands, "info", "t.rnade", "--card").startswith("# Model card: t.rnade")
        assert run(commands, "--version").strip() == f"rnade {installed.version}"
    print("the installed package works")


if __name__ == "__main__":
    main()
