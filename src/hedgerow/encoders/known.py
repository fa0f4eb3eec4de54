"""Encoders by the names that users type: lite0, mobilesam, timm:NAME, or the path of an ONNX file."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from hedgerow.encoders import store
from hedgerow.encoders.onnx_network import OnnxNetwork, onnx_content
from hedgerow.encoders.protocol import Encoder, EncoderLayer
from hedgerow.errors import ConfigError, ModelError, one_path, refuse_unless
from hedgerow.extras import require

if TYPE_CHECKING:
    from torch import Tensor

TIMM, ONNX = "timm:", ".onnx"
_allowed: set[str] = set()  # the ONNX files that the user of this process named


def find(name: str, layers: Sequence[str] = ()) -> Encoder:
    """The encoder of this name with its weights, ready to run. The name comes from the user, never from a model file.

    layers: those that will be read; an ONNX file must be told
    """
    if name.endswith(ONNX):
        allow(name)
        kept = store.folder() / Path(name).name
        path = kept if kept.is_file() and not Path(name).is_file() else Path(name)
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


def allow(name: str) -> None:
    """Let the models of this process read an ONNX file that the user named; other names need nothing."""
    if name.endswith(ONNX):
        _allowed.add(str(Path(name)))


def allowed(name: str) -> str:
    """What is opened for the encoder that a model names: of ONNX files only those that the user named in this process
    or that lie in the store. A model may come from anybody, and its path may lead anywhere, to a server too."""
    if not name.endswith(ONNX):
        return name
    if str(Path(name)) in _allowed:
        return name
    own_name = store.FOLDERS.split(name)[-1]
    kept = store.folder() / own_name
    if not kept.is_file():
        raise ModelError(
            f"the model reads the network {one_path(name)}, and a model file may not choose which files are opened; if "
            f"you have that network, run hedgerow encoders add {own_name} FILE once, with its file."
        )
    return str(kept)


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


def find_again(name: str, layers: Sequence[EncoderLayer], checksum: str) -> Encoder:
    """The encoder that a model was trained with; other weights of the same name are refused."""
    encoder = find(allowed(name), [layer.name for layer in layers])
    if encoder.checksum != checksum:
        raise ModelError(
            f"the model was trained with other weights of the encoder {name} (their checksum begins {checksum[:8]}, "
            f"that of those on this machine {encoder.checksum[:8]}); put the same ones in place, or train again."
        )
    refuse_unless(
        set(layers) <= set(encoder.layers), f"the model reads layers that the encoder {name[:60]} does not have"
    )
    return encoder


def add(name: str, path: Path) -> Path:
    """Keep a published file, or a network of the user's own, for this user; returns the file that holds it from now
    on."""
    if name.endswith(ONNX):
        return store.keep_onnx(name, path, onnx_content(path))
    if name not in store.PUBLISHED:
        known = ", ".join(store.PUBLISHED)
        raise ConfigError(f"there is no encoder {name[:60]!r} to add; choose {known}, or a name that ends in .onnx.")
    return store.add(name, path, _parts(name)[1])
