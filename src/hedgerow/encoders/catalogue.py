"""Encoders by name: published ones such as lite0, timm:NAME, or the path of an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from hedgerow.choices import ENCODER_NAMES, ENCODERS, load
from hedgerow.config import EncoderConfig
from hedgerow.encoders import store
from hedgerow.encoders.onnx_network import OnnxNetwork, onnx_content
from hedgerow.encoders.protocol import Encoder, EncoderLayer
from hedgerow.encoders.published import PublishedEncoder, Shapes
from hedgerow.errors import ConfigError, ModelError, one_path, refuse_unless
from hedgerow.extras import is_there, require
from hedgerow.progress import Report, silent

TIMM, ONNX = "timm:", ".onnx"
DEFAULT = EncoderConfig().name
ADVISED = "mobilesam"  # for photographs, and if no other is installed
PUBLISHED: dict[str, type[PublishedEncoder]] = {name: load(place) for name, place in ENCODERS.items()}
_allowed: set[str] = set()  # the ONNX files that the user has named in this process


def register(encoder: type[PublishedEncoder]) -> type[PublishedEncoder]:
    """Register an encoder defined elsewhere; also usable as a class decorator."""
    if encoder.name in PUBLISHED:
        raise ConfigError(f"there is already an encoder {encoder.name!r}; give the new one another name.")
    PUBLISHED[encoder.name] = encoder
    return encoder


def find(name: str, layers: Sequence[str] = ()) -> Encoder:
    """The encoder of this name with its weights, ready to run. The name comes from the user, never from a model file.

    layers: those that will be read; an ONNX file requires them
    """
    if name.endswith(ONNX):
        allow(name)
        stored = store.folder() / Path(name).name
        path = stored if stored.is_file() and not Path(name).is_file() else Path(name)
        # The time of the last change makes the cache notice a file that was replaced.
        return _onnx(str(path), tuple(layers), path.stat().st_mtime_ns if path.is_file() else 0)
    if name.startswith(TIMM):
        return _timm(name.removeprefix(TIMM))
    if name not in PUBLISHED:
        others = ENCODER_NAMES.removeprefix(", ".join(ENCODERS))
        raise ConfigError(f"there is no encoder {name[:60]!r}; choose {', '.join(PUBLISHED)}{others}.")
    return _published(PUBLISHED[name], str(store.place_of(PUBLISHED[name])))


def allow(name: str) -> None:
    """Allow the models of this process to read an ONNX file that the user named; other names need no permission."""
    if name.endswith(ONNX):
        _allowed.add(str(Path(name)))


def allowed(name: str) -> str:
    """The name or path to open for the encoder that a model names. ONNX files are opened only if the user has named
    them in this process or if they are in the store: a model can come from anyone, and its path can lead anywhere, even
    to a server."""
    if not name.endswith(ONNX):
        return name
    if str(Path(name)) in _allowed:
        return name
    own_name = store.FOLDERS.split(name)[-1]
    stored = store.folder() / own_name
    if not stored.is_file():
        raise ModelError(
            f"the model reads the network {one_path(name)}, but a model file may not choose which files are opened; if "
            f"you have that network, run hedgerow encoders add {own_name} FILE once."
        )
    return str(stored)


@lru_cache(maxsize=4)
def _published(encoder: type[PublishedEncoder], place: str) -> Encoder:
    return encoder(store.weights_of(encoder))


@lru_cache(maxsize=2)
def _onnx(name: str, layers: tuple[str, ...], changed: int) -> Encoder:
    return OnnxNetwork(Path(name), layers)


@lru_cache(maxsize=2)
def _timm(name: str) -> Encoder:
    require("torch", f"the encoder timm:{name}")
    from hedgerow.encoders.timm_network import TimmNetwork

    return TimmNetwork(name)


def find_trained(name: str, layers: Sequence[EncoderLayer], checksum: str) -> Encoder:
    """The encoder that a model was trained with; an encoder of the same name with other weights is refused."""
    encoder = find(allowed(name), [layer.name for layer in layers])
    if encoder.checksum != checksum:
        raise ModelError(
            f"the model was trained with other weights of the encoder {name} (their checksum begins with "
            f"{checksum[:8]}, and that of the weights on this machine with {encoder.checksum[:8]}); install the same "
            "weights, or train again."
        )
    has_layers = set(layers) <= set(encoder.layers)
    refuse_unless(has_layers, f"the model reads layers that the encoder {name[:60]} does not have")
    return encoder


def can_have(name: str, layers: tuple[EncoderLayer, ...]) -> bool:
    """Whether an encoder can have these layers, each once and the finest first. If its layers are unknown until it is
    opened, `find_trained` compares them."""
    if name in PUBLISHED:
        return layers == tuple(layer for layer in PUBLISHED[name].layers if layer in layers)
    return (name.startswith(TIMM) or name.endswith(ONNX)) and len({layer.name for layer in layers}) == len(layers)


def last_shapes(name: str, layers: Sequence[str]) -> Shapes:
    """Name -> shape of the weights just before the last of these layers, which a model may have changed; empty if
    unknown."""
    if name not in PUBLISHED or not layers:
        return {}
    is_known = set(layers) <= {layer.name for layer in PUBLISHED[name].layers}
    return PUBLISHED[name].layer_shapes(layers[-1]) if is_known else {}


def is_installed(name: str) -> bool:
    """Whether a published encoder can run here."""
    return store.place_of(PUBLISHED[name]) is not None and is_there("torch")


def is_advised(n_channels: int) -> bool:
    """Whether another network than those installed is likely to help with images of so many channels: for colour images
    `ADVISED`, for others any."""
    return (
        is_there("torch") and not is_installed(ADVISED) and (n_channels == 3 or not any(map(is_installed, PUBLISHED)))
    )


def add(name: str, path: Path | None, progress: Report = silent) -> Path:
    """Store a published file, or the user's own network, for this user; returns the stored file.

    path: None: downloads the published file
    """
    if name.endswith(ONNX):
        if path is None:
            raise ConfigError(f"give the file of your network: hedgerow encoders add {one_path(name)} FILE.")
        return store.keep_onnx(name, path, onnx_content(path))
    if name not in PUBLISHED:
        known = ", ".join(PUBLISHED)
        raise ConfigError(f"there is no encoder {name[:60]!r} to add; choose {known}, or a name that ends in .onnx.")
    return store.add(PUBLISHED[name], path, progress)
