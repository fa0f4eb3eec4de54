"""Describing a model file or this machine."""

from pathlib import Path
from typing import Any

from hedgerow.io import model_file
from hedgerow.io.describe import description
from hedgerow.predict.devices import system


def describe(model: Path) -> dict[str, Any]:
    """Classes, features, forests, held-out scores, layers and members of a model."""
    return description(model_file.load(model))


def describe_system() -> dict[str, Any]:
    """The devices and the optional packages that are available."""
    return dict(system())
