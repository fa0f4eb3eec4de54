"""Describing: what a model file holds, and what this machine can run models with."""

from typing import Any

from hedgerow.files import PathLike
from hedgerow.io import model_file
from hedgerow.io.describe import description
from hedgerow.predict.devices import system

__all__ = ["describe", "system"]


def describe(model: PathLike) -> dict[str, Any]:
    """What the model of a file is, JSON-ready."""
    return description(model_file.load(model))
