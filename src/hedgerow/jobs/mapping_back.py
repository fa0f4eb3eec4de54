"""Mapping back: from the file of a network to that of forests."""

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
from hedgerow.jobs.inputs import checked_output, images_for
from hedgerow.progress import Report

if TYPE_CHECKING:
    from hedgerow.deep.deepstack import DeepStack
    from hedgerow.network.stacknet import StackNet

MOST_COMPARED = 4  # images that show what a tolerance changes: the network without one is slow


@dataclass(frozen=True)
class MappedBack:
    """The forests, the size of their file, and what the tolerance of soft splits costs.

    n_compared: images on which that was measured; 0 if there are none, or no tolerance
    changed:    part of their pixels that are labelled otherwise than by the network without a tolerance
    """

    stack: ForestStack
    n_bytes: int
    n_compared: int = 0
    changed: float = 0.0


def back(
    model: PathLike,
    output: PathLike,
    images: FilesSpec | None = None,
    method: str = "fitted",
    *,
    stride: int = 1,
    tolerance: float | None = None,
    pages: Pages = None,
    device: str = "cpu",
    overwrite: bool = False,
    progress: Report | None = None,
) -> MappedBack:
    """Map the network of a file back to forests, as `to_forest` does, or a deep stack, as `distil` does, and write them
    to `output`."""
    extras.require("torch", "mapping back")
    from hedgerow.deep.deepstack import DeepStack
    from hedgerow.network.mapping import to_forest

    loaded = model_file.load(model)
    if isinstance(loaded, ForestStack):
        raise InputError(f"{model} holds forests already; give a network, e.g. of `hedgerow refine`.")
    files = find_files(images) if images is not None else []
    output = checked_output(output, [model, *files], overwrite=overwrite)
    pictures = images_for(loaded, files, pages)
    if isinstance(loaded, DeepStack):
        stack = _distilled(loaded.to(device), pictures, method, stride, tolerance, progress)
        return MappedBack(stack, model_file.save(stack, output))
    net = loaded.to(device)
    stack = to_forest(net, pictures, method, stride=stride, tolerance=tolerance, progress=progress)
    n_bytes = model_file.save(stack, output)
    if not files or not stack.tolerance:
        return MappedBack(stack, n_bytes)
    some = pictures[:MOST_COMPARED]
    return MappedBack(stack, n_bytes, len(some), _changed(loaded, stack, some))


def _distilled(
    deep: DeepStack,
    pictures: Sequence[np.ndarray],
    method: str,
    stride: int,
    tolerance: float | None,
    progress: Report | None,
) -> ForestStack:
    from hedgerow.deep.distilling import distil

    if method != "fitted" or tolerance is not None:
        raise InputError(
            f"the convolutional level of this model has no weights to map back by {method!r}; leave the method and the "
            "tolerance out: votes are then fitted to what the model says of images."
        )
    return distil(deep, pictures, stride=stride, progress=progress)


def _changed(net: StackNet, stack: ForestStack, pictures: Sequence[np.ndarray]) -> float:
    """The part of all pixels that the stack, with its tolerance, labels otherwise than the network without one."""
    net.set_tolerance(0.0)
    pairs = [(net.predict(picture), stack.predict(picture)) for picture in pictures]
    return sum(int((a != b).sum()) for a, b in pairs) / sum(a.size for a, _ in pairs)
