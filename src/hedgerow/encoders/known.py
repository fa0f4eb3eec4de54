"""Encoders by the names that users type: lite0, mobilesam, timm:NAME, or the path of an ONNX file."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from hedgerow.encoders import store
from hedgerow.encoders.onnx_network import OnnxNetwork
from hedgerow.encoders.protocol import Encoder
from hedgerow.errors import ConfigError, ModelError
from hedgerow.extras import require

if TYPE_CHECKING:
    from torch import Tensor

TIMM = "timm:"


def find(name: str, layers: Sequence[str] = ()) -> Encoder:
    """The encoder of this name with its weights, ready to run.

    layers: those that will be read; an ONNX file must be told
    """
    if name.endswith(".onnx"):
        path = _onnx_file(name)
        # Changed files are noticed: what is kept is kept for this content.
        return _onnx(str(path), tuple(layers), path.stat().st_mtime_ns if path.is_file() else 0)
    if name.startswith(TIMM):
        return _timm(name.removeprefix(TIMM))
    if name not in store.PUBLISHED:
        known = ", ".join(store.PUBLISHED)
        raise ConfigError(
            f"there is no encoder {name[:60]!r}; choose {known}, timm:NAME, or the path of a file that ends in .onnx."
        )
    place = store.place_of(store.PUBLISHED[name])
    return _published(name, str(place))


def _onnx_file(name: str) -> Path:
    """The file itself or, for a model that comes from elsewhere, one of its name in the folder of encoders."""
    kept = store.folder() / Path(name).name
    return kept if kept.is_file() and not Path(name).is_file() else Path(name)


@lru_cache(maxsize=4)
def _published(name: str, place: str) -> Encoder:
    make, fold = _parts(name)
    published = store.PUBLISHED[name]
    return make(store.weights_of(published, fold), published.checksum)


def _parts(name: str) -> tuple[Callable[[Mapping[str, "Tensor"], str], Encoder], store.Fold]:
    """What makes an encoder of its weights, and what makes these of the published ones."""
    require("torch", f"the encoder {name}")
    from hedgerow.encoders import lite0, mobilesam

    table = {"lite0": (lite0.Lite0, lite0.folded), "mobilesam": (mobilesam.MobileSam, mobilesam.folded)}
    return table[name]


@lru_cache(maxsize=2)
def _onnx(name: str, layers: tuple[str, ...], changed: int) -> Encoder:
    return OnnxNetwork(Path(name), layers)


@lru_cache(maxsize=2)
def _timm(name: str) -> Encoder:
    require("torch", f"the encoder timm:{name}")
    from hedgerow.encoders.timm_network import TimmNetwork

    return TimmNetwork(name)


def find_again(name: str, layers: Sequence[str], checksum: str) -> Encoder:
    """The encoder that a model was trained with; other weights of the same name are refused."""
    encoder = find(name, layers)
    if encoder.checksum != checksum:
        raise ModelError(
            f"the model was trained with other weights of the encoder {name} (their checksum begins {checksum[:8]}, "
            f"that of those on this machine {encoder.checksum[:8]}); put the same ones in place, or train again."
        )
    return encoder


def add(name: str, path: Path) -> Path:
    """Keep the weights of a published file for this user; returns the file that holds them from now on."""
    if name not in store.PUBLISHED:
        raise ConfigError(f"there is no encoder {name[:60]!r} to add; choose one of {', '.join(store.PUBLISHED)}.")
    return store.add(name, path, _parts(name)[1])
