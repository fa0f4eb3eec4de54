"""The command line."""

from hedgerow.cli.app import main

__all__ = ["main"]
