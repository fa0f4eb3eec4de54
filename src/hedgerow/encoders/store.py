"""The weights of encoders on this machine, verified by their checksums: they are data and are never run.

Some come with a Python package, such as that of the extra `pretrained`. Others are added: the published file, from the
package index or given by the user, is compared with its known sha256, read as tensors only, and stored as safetensors
in a folder of this user.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError
from safetensors.numpy import load_file
from safetensors.numpy import save as to_bytes

from hedgerow.encoders.download import download, unpack
from hedgerow.encoders.published import PublishedEncoder
from hedgerow.errors import ConfigError, InputError, ModelError, one_line, one_path
from hedgerow.extras import require
from hedgerow.files import atomic_path, make_folder, write_text
from hedgerow.overwrite_guard import check_overwriting
from hedgerow.progress import Report, silent

if TYPE_CHECKING:
    from torch import Tensor

FOLDERS = re.compile(r"[\\/:]")  # the characters that end the name of a folder on any system


def folder() -> Path:
    """The folder of added weights: $HEDGEROW_ENCODERS, or one among this user's data."""
    named = os.environ.get("HEDGEROW_ENCODERS")
    if named:
        return Path(named)
    data = os.environ.get("XDG_DATA_HOME") or os.environ.get("LOCALAPPDATA") or Path.home() / ".local" / "share"
    return Path(data) / "hedgerow" / "encoders"


def place_of(encoder: type[PublishedEncoder]) -> Path | None:
    """The file with the weights on this machine; None if there is none."""
    added = folder() / f"{encoder.name}.safetensors"
    if added.is_file():
        return added
    if encoder.package:
        package = importlib.util.find_spec(encoder.package)
        if package is not None and package.origin is not None:
            return Path(package.origin).parent / "models" / encoder.file
    return None


def weights_of(encoder: type[PublishedEncoder]) -> dict[str, Tensor]:
    """The verified tensors of an encoder on this machine, under its own names."""
    require("torch", f"the encoder {encoder.name}", "pretrained" if encoder.package else "")
    place = place_of(encoder)
    if place is None:
        file = "" if encoder.archive else f" {encoder.file}"
        raise ConfigError(
            f"the weights of the encoder {encoder.name} are not on this machine; run hedgerow encoders add "
            f"{encoder.name}{file}."
        )
    is_added = place.suffix == ".safetensors"
    weights = read_safetensors(place) if is_added else encoder.folded(read_published(encoder, place))
    if tensors_checksum(weights) != encoder.checksum:
        raise ModelError(
            f"{one_path(place)} does not hold the weights of the encoder {encoder.name}, so it is damaged or was "
            "edited; remove it, then install or add the encoder again."
        )
    return weights


def read_published(encoder: type[PublishedEncoder], path: Path) -> Mapping[str, Tensor]:
    """The tensors of a published file, or of the archive that contains it; it must be that file byte for byte."""
    archive = encoder.archive
    try:
        n_bytes = path.stat().st_size
        content = path.read_bytes() if n_bytes in (encoder.n_bytes, archive and archive.n_bytes) else b""
    except OSError as problem:
        raise InputError(f"cannot read {one_path(path)}: {one_line(problem)}; check its name.") from problem
    checksum = hashlib.sha256(content).hexdigest()
    if archive is not None and checksum == archive.sha256:
        return tensors_in(encoder, content)
    if checksum != encoder.sha256:
        raise InputError(
            f"{one_path(path)} is not the published {encoder.file} (whose sha256 begins with {encoder.sha256[:8]}); "
            "download it again."
        )
    return _tensors(encoder, content)


def tensors_in(encoder: type[PublishedEncoder], content: bytes) -> Mapping[str, Tensor]:
    """The tensors of the published file in an archive, whose sha256 was checked."""
    assert encoder.archive is not None, "callers ask only for encoders that have one"
    unpacked = unpack(encoder.archive, content, encoder.n_bytes)
    if hashlib.sha256(unpacked).hexdigest() != encoder.sha256:
        raise InputError(
            f"{encoder.file} in {encoder.archive.file} is not the published one; use another version of Hedgerow."
        )
    return _tensors(encoder, unpacked)


def _tensors(encoder: type[PublishedEncoder], content: bytes) -> Mapping[str, Tensor]:
    try:
        return encoder.read(io.BytesIO(content))
    except pickle.UnpicklingError as problem:
        raise InputError(
            f"{encoder.file} cannot be read as tensors ({one_line(problem)}); use another version of PyTorch."
        ) from problem


def read_safetensors(path: Path) -> dict[str, Tensor]:
    import torch

    try:
        return {name: torch.from_numpy(values) for name, values in load_file(path).items()}
    except (SafetensorError, OSError) as problem:
        raise ModelError(
            f"{one_path(path)} cannot be read ({one_line(problem)}), so it is damaged; remove it, then add the encoder "
            "again."
        ) from problem


def add(encoder: type[PublishedEncoder], path: Path | None, progress: Report = silent) -> Path:
    """Store the weights of a published file for this user; returns the stored file.

    path: of the file, or of the archive that contains it; None: downloads the archive
    """
    require("torch", "adding an encoder")
    if path is not None:
        tensors = read_published(encoder, path)
    elif encoder.archive is not None:
        tensors = tensors_in(encoder, download(encoder.name, encoder.archive, progress))
    else:
        raise ConfigError(f"{encoder.file} cannot be downloaded; give it: hedgerow encoders add {encoder.name} FILE.")
    weights = encoder.folded(tensors)
    assert tensors_checksum(weights) == encoder.checksum, "the file is the published one, so its tensors are known"
    in_order = {key: weights[key].contiguous().numpy() for key in sorted(weights)}
    return _stored(folder() / f"{encoder.name}.safetensors", [] if path is None else [path], to_bytes(in_order))


def is_first_offer(name: str) -> bool:
    """Whether an encoder of this name has not been offered on this machine; from now on it has. False if that cannot be
    recorded, so that nobody is asked again and again."""
    mark = folder() / f"{name}.offered"
    try:
        if mark.exists():
            return False
        make_folder(mark.parent)
        write_text(mark, f"hedgerow train has offered the encoder {name}; without this file it does so again.")
    except (OSError, InputError):
        return False
    return True


def keep_onnx(name: str, path: Path, content: bytes) -> Path:
    """Keep a copy of a network under this name; models that read a network of this name may open it."""
    if FOLDERS.search(name):
        raise ConfigError(f"the name {one_path(name)} contains a folder; give a plain name, e.g. my_model.onnx.")
    place = folder() / name
    if place.is_file():
        if place.read_bytes() == content:
            return place
        raise InputError(
            f"a different network named {one_path(name)} is already stored at {one_path(place)}; remove it, or set "
            f"HEDGEROW_ENCODERS to another folder for {one_path(path)}."
        )
    return _stored(place, [path], content)


def _stored(place: Path, sources: list[Path], content: bytes) -> Path:
    """The file in the store, once it is written; sources: the file that it comes from, if it is one"""
    make_folder(place.parent)
    check_overwriting([place], sources, overwrite=False, remedy="move it away first.")
    with atomic_path(place) as temporary:
        temporary.write_bytes(content)
    return place


def tensors_checksum(weights: Mapping[str, Tensor]) -> str:
    """The sha256 of the names, shapes and values of float32 tensors, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        values = weights[name].detach().cpu().float().contiguous().numpy()
        digest.update(f"{name}{values.shape}".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()
