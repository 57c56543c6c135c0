"""Every public class and method is documented: by itself, or by what it overrides."""

import importlib
import inspect
import pkgutil

import pytest

import rnade.families
import rnade.nn
import rnade.training

PACKAGES = [rnade.families, rnade.nn, rnade.training]


def modules():
    for package in PACKAGES:
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "_gpu" not in found.name:  # needs Triton
                yield found.name


@pytest.mark.parametrize("name", list(modules()))
def test_methods_have_docstrings_of_their_own_or_inherited(name):
    module = importlib.import_module(name)
    undocumented = []
    for cls in vars(module).values():
        if not inspect.isclass(cls) or cls.__module__ != name or cls.__name__.startswith("_"):
            continue
        for method, value in vars(cls).items():
            is_method = callable(value) or isinstance(value, property | staticmethod | classmethod)
            public = not method.startswith("_")
            if is_method and public and not inspect.getdoc(getattr(cls, method)):
                undocumented.append(f"{cls.__name__}.{method}")
    assert not undocumented
