"""Packages that are installed on request only."""

from __future__ import annotations

import importlib
import importlib.util

from hedgerow.errors import HedgerowError

# Which of pyproject.toml's extras brings a package; "net" brings the others.
EXTRAS = {"onnx": "onnx", "sklearn": "sklearn"}


def require(package: str, what: str) -> None:
    """Raise a HedgerowError with the remedy unless `package`, which `what` needs, can be imported."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        extra = EXTRAS.get(package, "net")
        raise HedgerowError(
            f"{what} needs {package}, which is not installed: pip install 'hedgerow[{extra}]'"
        ) from error


def is_there(package: str) -> bool:
    """Whether `package` is installed; it is not imported."""
    return importlib.util.find_spec(package) is not None
