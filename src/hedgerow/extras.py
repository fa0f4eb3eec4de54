"""Packages that are installed on request only."""

from __future__ import annotations

import importlib

from hedgerow.errors import HedgerowError


def require(package: str, what: str) -> None:
    """Raise a HedgerowError with the remedy unless `package`, which `what` needs, can be imported."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise HedgerowError(f"{what} needs {package}, which is not installed: pip install 'hedgerow[net]'") from error
