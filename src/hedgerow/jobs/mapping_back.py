"""Mapping a network back to forests, from file to file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hedgerow import extras
from hedgerow.errors import InputError
from hedgerow.files import PathLike
from hedgerow.forest.arrays import ForestStack
from hedgerow.images.pairing import FilesSpec, find_files
from hedgerow.images.reading import Pages
from hedgerow.io import model_file
from hedgerow.jobs.inputs import checked_output, images_for, save
from hedgerow.progress import Report, Say, quiet

if TYPE_CHECKING:
    from hedgerow.deep.deepstack import DeepStack
    from hedgerow.network.stacknet import StackNet

N_COMPARED = 4  # images on which the effect of a tolerance is measured; the network without a tolerance is slow


@dataclass(frozen=True)
class MappedBack:
    """The forests, the size of their file, and the effect of the tolerance of soft splits.

    n_compared: number of images on which the effect was measured; 0 without images or tolerance
    changed:    fraction of their pixels whose class differs from that of the network without a tolerance
    """

    stack: ForestStack
    n_bytes: int
    n_compared: int = 0
    changed: float = 0.0


@dataclass(frozen=True)
class BackRequest:
    """A network to map back to forests.

    images: images from which "leaf_mean" and "fitted" compute votes; labels are not needed
    method, stride, tolerance: as in `to_forest`
    pages:     which pages of image files to read, see `read_image`
    overwrite: also overwrite an existing file that Hedgerow did not write
    """

    model: PathLike
    output: PathLike
    images: FilesSpec | None = None
    method: str = "fitted"
    stride: int = 1
    tolerance: float | None = None
    pages: Pages = None
    device: str = "cpu"
    overwrite: bool = False


def back(request: BackRequest, *, say: Say = quiet, progress: Report | None = None) -> MappedBack:
    """Map a network back to forests by `to_forest`, or a deep stack by `distil`, and write them."""
    extras.require("torch", "mapping back")
    from hedgerow.deep.deepstack import DeepStack
    from hedgerow.network.mapback import to_forest

    loaded = model_file.load(request.model)
    if isinstance(loaded, ForestStack):
        raise InputError(f"{request.model} already holds forests; give a network, e.g. from `hedgerow refine`.")
    files = find_files(request.images) if request.images is not None else []
    output = checked_output(request.output, [request.model, *files], overwrite=request.overwrite)
    pictures = images_for(loaded, files, request.pages)
    if isinstance(loaded, DeepStack):
        stack = _distilled(loaded.to(request.device), pictures, request, progress)
        return MappedBack(stack, save(stack, output, say))
    stack = to_forest(
        loaded.to(request.device), pictures, request.method, stride=request.stride, tolerance=request.tolerance,
        progress=progress,
    )  # fmt: skip
    n_bytes = save(stack, output, say)
    if not files or not stack.tolerance:
        return MappedBack(stack, n_bytes)
    some = pictures[:N_COMPARED]
    return MappedBack(stack, n_bytes, len(some), _changed(loaded, stack, some))


def _distilled(
    deep: DeepStack, pictures: Sequence[np.ndarray], request: BackRequest, progress: Report | None
) -> ForestStack:
    from hedgerow.deep.distilling import distil

    if request.method != "fitted" or request.tolerance is not None:
        raise InputError(
            "a model with a convolutional level is mapped back by fitting votes to its predictions, without a "
            "tolerance; leave out --method and --tolerance."
        )
    return distil(deep, pictures, stride=request.stride, progress=progress)


def _changed(net: StackNet, stack: ForestStack, pictures: Sequence[np.ndarray]) -> float:
    """The fraction of pixels whose class by the stack, with its tolerance, differs from that by the network without."""
    net.set_tolerance(0.0)
    pairs = [(net.predict(picture), stack.predict(picture)) for picture in pictures]
    return sum(int((a != b).sum()) for a, b in pairs) / sum(a.size for a, _ in pairs)
