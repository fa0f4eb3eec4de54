"""The paper's figure of internal activation layers: stack beside network, level by level, class by class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hedgerow import extras
from hedgerow.errors import InputError
from hedgerow.features.protocol import FeatureSet
from hedgerow.files import PathLike, atomic_path, check_folder_writable
from hedgerow.forest.arrays import ForestStack
from hedgerow.images.arrays import check_pair, to_labels, to_planes
from hedgerow.images.pictures import grey_picture, painted
from hedgerow.report.rows import level_maps, most_frequent, plan_rows
from hedgerow.report.shown import shown_classes

if TYPE_CHECKING:
    from hedgerow.network.stacknet import StackNet

ENDINGS = (".png", ".pdf", ".svg")


def look(
    model: ForestStack | StackNet,
    image: np.ndarray,
    path: PathLike,
    *,
    classes: Sequence[int] | None = None,
    truth: np.ndarray | None = None,
    title: str = "",
) -> None:
    """Draw what each level of a stack, or of a network and the stack it came from, makes of an image.

    image:   (H,W[,C]), or (F,H,W) for a model of the user's own channels, as for `predict`
    path:    a name that ends in .png, .pdf or .svg
    classes: class values to show, in this order; None: the most frequent in the prediction, at most MAX_SHOWN
    truth:   (H,W) class values
    """
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"cannot write {path}: the name of a figure must end in {', '.join(ENDINGS)}")
    for value in classes or ():
        if value not in model.classes:
            raise InputError(
                f"class {value} is not one of the model's; choose from {', '.join(map(str, model.classes))}"
            )
    known = shown_classes(model.classes, model.legend)
    planes = to_planes(image, layout=model.features.layout)
    sides = {"image": input_picture(planes, model.features)}
    if truth is not None:
        truth = to_labels(truth, "the truth")
        check_pair(planes, truth, "the truth")
        sides["truth"] = painted(truth, known.palette)
    extras.require("matplotlib", "a figure")
    check_folder_writable(Path(path).parent)  # before the prediction, which may take minutes

    outputs = model.level_outputs(image)
    forests, nets = (outputs, []) if isinstance(model, ForestStack) else (model.stack.level_outputs(image), outputs)
    winners = np.bincount(outputs[-1].argmax(axis=0).ravel(), minlength=model.n_classes)
    shown = list(dict.fromkeys(classes or most_frequent(winners, model.classes)))
    levels = [[level_maps(one, model.classes, shown) for one in some] for some in (forests, nets)]
    from hedgerow.report import panels  # needs matplotlib

    figure = panels.draw(plan_rows(*levels), shown, known, sides, title)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format=ending[1:])


def input_picture(planes: np.ndarray, features: FeatureSet) -> np.ndarray:
    """(H,W,3) uint8 of an image (C,H,W) that these features read."""
    if features.blank is None:
        return grey_picture(planes)
    known = planes != features.blank
    if known.any():
        # What is near is bright, what is far dark, but not as dark as where nothing was seen.
        near, far = np.percentile(planes[known], (0.5, 99.5))
        planes = -np.where(known, np.clip(planes, near, far), far + max(far - near, 1) / 2)
    return grey_picture(planes)
