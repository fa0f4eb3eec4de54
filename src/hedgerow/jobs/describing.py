"""Describing a model file, this machine, and the pretrained networks on it; adding a pretrained network."""

from pathlib import Path
from typing import Any

from hedgerow.encoders import catalogue, store
from hedgerow.files import PathLike
from hedgerow.io import model_file
from hedgerow.io.describe import description
from hedgerow.predict.devices import system


def describe(model: Path) -> dict[str, Any]:
    """Classes, features, forests, held-out scores, layers and members of a model."""
    return description(model_file.load(model))


def describe_system() -> dict[str, Any]:
    """The devices and the optional packages that are available."""
    return dict(system())


def encoders() -> list[dict[str, Any]]:
    """The pretrained networks that have a name, JSON-ready.

    place:  file with their weights on this machine; None: there is none
    source: where to get the weights
    layers: each with its stride and channels, e.g. "s1 (2, 16)"
    """
    return [
        {
            "name": encoder.name,
            "title": encoder.title,
            "n_bytes": encoder.n_bytes,
            "licence": encoder.licence,
            "sha256": encoder.sha256,
            "source": encoder.source,
            "place": None if (place := store.place_of(encoder)) is None else str(place),
            "layers": [f"{layer.name} ({layer.stride}, {layer.n_channels})" for layer in encoder.layers],
        }
        for encoder in catalogue.PUBLISHED.values()
    ]


def add_encoder(name: str, file: PathLike) -> Path:
    """Store the weights from a published file, or an ONNX file, on this machine; returns the stored file."""
    return catalogue.add(name, Path(file))
