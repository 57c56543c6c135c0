"""What `import rnade` loads, and who may import whom."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import rnade

SOURCE = Path(rnade.__file__).parent


def loaded_by(statement: str, module: str) -> bool:
    """Whether a fresh interpreter has `module` loaded after `statement`."""
    program = f"{statement}\nimport sys\nsys.exit(10 + ({module!r} in sys.modules))"
    code = subprocess.run([sys.executable, "-c", program], check=False).returncode
    assert code in (10, 11)
    return code == 11


HEAVY = [
    "torch",
    "sklearn",
    "triton",
    "matplotlib",
    "numba",
    "pandas",
    "pooch",
    "PIL",
    "soundfile",
]


@pytest.mark.parametrize("module", [*HEAVY, "rnade.data"])
def test_import_is_light(module):
    assert not loaded_by("import rnade", module)


@pytest.mark.parametrize("module", ["triton", "matplotlib", "rnade.data"])
def test_estimators_do_without(module):
    assert not loaded_by("from rnade import RNADE; import rnade.nn", module)


def test_the_test_above_can_fail():
    assert loaded_by("import json", "json")


def test_public_names_are_there():
    assert dir(rnade) == sorted(rnade.__all__)
    for name in rnade.__all__:
        assert getattr(rnade, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'RNADEE'"):
        rnade.RNADEE  # noqa: B018


# Lower layers know nothing of higher ones: each may import those before it in its list.
TOP = ["estimators", "cli", "tables", "serialisation", "data", "reproduce"]
FORBIDDEN = {
    "families": ["backends", "nn", "training", *TOP],
    "backends": ["nn", "training", *TOP],
    "nn": ["training", *TOP],
    # Checkpoints are files of the same kind as models.
    "training": [name for name in TOP if name != "serialisation"],
    "tables": ["nn", "training", "estimators", "cli", "data", "reproduce"],
    "data": ["backends", "nn", "training", *(name for name in TOP if name != "data")],
    "estimators": ["cli", "tables", "data", "reproduce"],
    "reproduce": ["cli"],
}


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_never_turn_back(package):
    for path in (SOURCE / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            for name in names:
                parts = name.split(".")
                assert not (parts[0] == "rnade" and parts[1:2] and parts[1] in FORBIDDEN[package])
                if package in ("families", "backends", "nn"):
                    assert parts[0] not in ("sklearn", "matplotlib", "pyarrow")
