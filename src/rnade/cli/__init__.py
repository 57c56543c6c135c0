"""The command ``rnade``."""

from rnade.cli.app import main

__all__ = ["main"]
