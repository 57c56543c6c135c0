"""Optimisers of M models at once: the rules of update, and fused kernels for CPU and GPU."""

from rnade.training.optim.optimiser import Optimiser

__all__ = ["Optimiser"]
