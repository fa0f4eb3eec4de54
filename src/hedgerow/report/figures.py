"""`look`: the paper's figure of inner layers, which shows forests and network level by level, class by class."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hedgerow import extras
from hedgerow.deep.any_model import AnyModel, parts_of
from hedgerow.errors import InputError
from hedgerow.files import PathLike, atomic_path, check_folder_writable
from hedgerow.images.array_checks import check_pair, to_labels, to_planes
from hedgerow.images.labelled import LabelledSet
from hedgerow.images.pictures import grey_picture, label_picture, painted, save_sheet
from hedgerow.predict.protocol import refuse_volumes
from hedgerow.report.layer_maps import Row, level_maps, most_frequent, plan_rows
from hedgerow.report.naming import class_display

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE_ENDINGS = (".png", ".pdf", ".svg")
NOTEBOOK_DPI = 80  # low: a notebook stores the pictures that it shows


def look(
    model: AnyModel,
    image: np.ndarray,
    path: PathLike | None = None,
    *,
    classes: Sequence[int] | None = None,
    truth: np.ndarray | None = None,
    title: str = "",
) -> Drawing:
    """Draw the predictions of each level of a model on an image; those of a network next to those of its forests.

    The convolutional level of a deep stack comes last. Jupyter shows the drawing; `path` also saves it.
    image:   (H,W[,C]), or (F,H,W) for a model of the user's own channels, as for `predict`
    path:    a name that ends in .png, .pdf or .svg
    classes: class values to show, in this order; None: the most frequent ones of the prediction, at most 8
    truth:   (H,W) class values

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2))
    >>> hr.look(stack, images[0], "inside.png", truth=labels[0]).save("inside.pdf")
    """
    if path is not None:
        check_ending(path)
    for value in classes or ():
        if value not in model.classes:
            raise InputError(
                f"class {value} is not one of the model's; choose from {', '.join(map(str, model.classes))}."
            )
    refuse_volumes(model, "a drawing of levels")
    display = class_display(model.classes, model.legend)
    planes = to_planes(image, layout=model.features.layout)
    sides = {"image": grey_picture(planes, model.features.blank)}
    if truth is not None:
        truth = to_labels(truth, "the truth")
        check_pair(planes, truth, "the truth")
        sides["truth"] = painted(truth, display.palette)
    extras.require("matplotlib", "a figure")
    if path is not None:
        check_folder_writable(Path(path).parent)  # before the prediction, which may take minutes

    shown, rows = layer_rows(model, image, classes)
    from hedgerow.report import panels  # needs matplotlib

    drawing = Drawing(panels.draw(rows, shown, display, sides, title))
    if path is not None:
        drawing.save(path)
    return drawing


def layer_rows(model: AnyModel, image: np.ndarray, classes: Sequence[int] | None = None) -> tuple[list[int], list[Row]]:
    """The class values to show, and the rows of the figure of an image."""
    outputs = model.level_outputs(image)
    stack, net, _ = parts_of(model)
    winners = np.bincount(outputs[-1].argmax(axis=0).ravel(), minlength=model.n_classes)
    shown = list(dict.fromkeys(classes or most_frequent(winners, model.classes)))
    levels = [level_maps(output, model.classes, shown) for output in outputs]
    if net is None:
        return shown, plan_rows(levels)
    forests = [level_maps(output, model.classes, shown) for output in stack.level_outputs(image)]
    return shown, plan_rows(forests, levels)


def write_comparison(
    path: PathLike,
    labelled: LabelledSet,
    predictions: Mapping[str, Sequence[np.ndarray]],
    *,
    background: int | None,
    blank: float | None,
) -> None:
    """Write a sheet of pictures with a row per image: the image, its labels, and the predictions of each model.

    predictions: by name, the class indices (H,W) of each image; blank: as in `grey_picture`
    """
    rows = []
    for i, image in enumerate(labelled):
        maps = [image.target, *(of_images[i] for of_images in predictions.values())]
        panels = (label_picture(labelled.values(indices), labelled.classes, background) for indices in maps)
        rows.append([grey_picture(image.planes, blank), *panels])
    save_sheet(path, ["image", "truth", *predictions], rows)


@dataclass(frozen=True)
class Drawing:
    """A matplotlib figure that Jupyter shows with any backend."""

    figure: Figure

    def __repr__(self) -> str:
        width, height = self.figure.get_size_inches()
        return f"Drawing({width:.1f} x {height:.1f} inches)"

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.figure.savefig(file, format="png", dpi=NOTEBOOK_DPI)
        return file.getvalue()

    def save(self, path: PathLike) -> None:
        """Write the figure; the name ends in .png, .pdf or .svg."""
        ending = check_ending(path)
        with atomic_path(path) as temporary:
            self.figure.savefig(temporary, format=ending[1:])


def check_ending(path: PathLike) -> str:
    """The ending of a figure's name, which selects its format."""
    ending = Path(path).suffix.lower()
    if ending not in FIGURE_ENDINGS:
        raise InputError(f"cannot write {path}: the name of a figure must end in {', '.join(FIGURE_ENDINGS)}.")
    return ending
