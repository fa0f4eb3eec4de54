"""The pretrained networks on this machine, and adding one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hedgerow.encoders import catalogue, store
from hedgerow.files import PathLike


@dataclass(frozen=True)
class KnownEncoder:
    """A pretrained network that has a name here.

    place:  its file of weights on this machine; None: there is none, and `source` says where to get it
    layers: each with its stride and channels, e.g. "s1 (2, 16)"
    """

    name: str
    title: str
    n_bytes: int
    licence: str
    sha256: str
    source: str
    place: Path | None
    layers: tuple[str, ...]

    def described(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**vars(self), "place": None if self.place is None else str(self.place), "layers": list(self.layers)}


def encoders() -> list[KnownEncoder]:
    """The encoders that have a name, whether or not their weights are here."""
    return [
        KnownEncoder(
            *(encoder.name, encoder.title, encoder.n_bytes, encoder.licence, encoder.sha256, encoder.source),
            store.place_of(encoder),
            tuple(f"{layer.name} ({layer.stride}, {layer.n_channels})" for layer in encoder.layers),
        )
        for encoder in catalogue.PUBLISHED.values()
    ]


def add_encoder(name: str, file: PathLike) -> Path:
    """Keep the weights in a published file, or an ONNX file, for later; returns where they are kept."""
    return catalogue.add(name, Path(file))
