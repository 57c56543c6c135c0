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


@pytest.mark.parametrize("module", ["rnade.plot", "rnade.report"])
def test_pictures_load_matplotlib_only_when_they_draw(module):
    assert not loaded_by(f"import {module}", "matplotlib")


def test_the_test_above_can_fail():
    assert loaded_by("import json", "json")


def test_public_names_are_there():
    assert dir(rnade) == sorted(rnade.__all__)
    for name in rnade.__all__:
        assert getattr(rnade, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'RNADEE'"):
        rnade.RNADEE  # noqa: B018


# Packages and modules of the top level, lowest first: each may import what is in a line above its
# own, and nothing else. What is imported within functions counts too.
LAYERS = [
    {"_version", "checks", "chunks", "exceptions", "look", "records", "typing"},
    {"batch", "columns", "evaluation", "families", "files", "parallel"},
    {"backends", "data", "serialisation", "tables"},
    {"nn", "streams"},
    {"explore", "training"},
    {"progress"},
    {"estimators"},
    {"__init__", "onnx", "pyod", "ray", "report", "reproduce"},
    {"plot"},
    {"cli"},
    {"__main__"},
]
# Who does without others that are in lower layers.
KEPT_APART = {
    "data": {"families", "batch"},
    "tables": {"families", "batch"},
    "serialisation": {"families", "batch"},
    "report": {"tables", "data", "nn", "training", "backends"},
    "plot": {"tables", "data", "nn", "training", "backends"},
    "estimators": {"tables", "data"},
    "explore": {"tables", "data", "backends", "families"},
}


def imported(path: Path) -> set[str]:
    """Dotted names of all that a file imports, of `from rnade import x` each x."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports by a relative name"
            own = node.module == "rnade"
            found |= {f"rnade.{alias.name}" for alias in node.names} if own else {node.module}
    return found


def import_graph() -> dict[str, set[str]]:
    """What each package or module of the top level imports of the others."""
    tops = {path.stem: path for path in SOURCE.iterdir() if path.suffix == ".py"}
    tops |= {path.name: path for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    graph = {}
    for top, path in tops.items():
        names = set().union(*map(imported, path.rglob("*.py") if path.is_dir() else [path]))
        parts = [name.split(".") for name in names if name.split(".")[0] == "rnade"]
        # Public names that `rnade` itself gives, and `import rnade`, are its own.
        others = {p[1] if len(p) > 1 and p[1] in tops else "__init__" for p in parts}
        graph[top] = others - {top}
    return graph


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """The names along a cycle, or none."""
    done: set[str] = set()

    def search(path: list[str]) -> list[str]:
        if path[-1] in path[:-1]:
            return path
        if path[-1] not in done:
            for other in sorted(graph[path[-1]]):
                found = search([*path, other])
                if found:
                    return found
            done.add(path[-1])
        return []

    return next(filter(None, (search([name]) for name in graph)), [])


def test_every_module_of_the_top_level_has_a_layer():
    assert sorted(import_graph()) == sorted(name for layer in LAYERS for name in layer)


def test_imports_never_turn_back():
    graph, below = import_graph(), set()
    for layer in LAYERS:
        for name in sorted(layer):
            assert graph[name] <= below, (name, graph[name] - below)
        below |= layer


@pytest.mark.parametrize("name", KEPT_APART)
def test_packages_that_are_kept_apart(name):
    assert not import_graph()[name] & KEPT_APART[name]


@pytest.mark.parametrize("package", ["families", "backends", "nn"])
def test_the_core_needs_neither_scikit_learn_nor_pictures(package):
    names = set().union(*map(imported, (SOURCE / package).rglob("*.py")))
    assert not {name.split(".")[0] for name in names} & {"sklearn", "matplotlib", "pyarrow"}


def test_packages_do_not_import_each_other_in_circles():
    assert cycle_in(import_graph()) == []
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["a", "b", "c", "b"]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_folders_of_kernels_load_no_compiler(device):
    for module in ("numba", "triton"):
        assert not loaded_by(f"import rnade.backends.{device}", module)
