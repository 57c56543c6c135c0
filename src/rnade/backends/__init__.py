"""One function several ways: the terms of log p(x), their gradient, and draws."""

from rnade.backends.dispatch import Choice, choose
from rnade.backends.parameters import Parameters
from rnade.backends.spec import Spec

__all__ = ["Choice", "Parameters", "Spec", "choose"]
