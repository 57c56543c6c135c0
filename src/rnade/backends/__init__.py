"""One function several ways: the terms of log p(x), their gradient, and draws."""

from rnade.backends.dispatch import Choice, choose
from rnade.backends.parameters import Parameters

__all__ = ["Choice", "Parameters", "choose"]
