"""The section of single images: the image, the truth, and each model's prediction and errors, side by side."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.legend import hex_of
from hedgerow.images.pictures import grey_picture, painted
from hedgerow.report.embed import EmbeddedImage, embed_png
from hedgerow.report.formatting import percent
from hedgerow.report.layer_maps import thinning
from hedgerow.report.measure import MAX_STORED_SIDE, MeasuredModel
from hedgerow.report.sections import Comparison, Section

NO_LABEL = (146, 146, 152)
# Errors of both the model and the first one, of the first one alone, and of the model alone. People with any colour
# vision can tell these colours apart, even on the dimmed image below them.
BOTH_WRONG, FIRST_WRONG, NEWLY_WRONG = (232, 93, 4), (86, 180, 233), (240, 228, 66)
DIMMED = 0.42  # of the image's brightness, under the errors
DIMMED_BITS = np.uint8(0xF8)  # kept of a dimmed pixel: noise in the other bits would be most of the page's size
COARSE_BELOW = 240  # an image with shorter sides, in pixels, is shown with square pixels


@dataclass(frozen=True)
class Column:
    """One model's prediction and its errors; or the image or the truth, which have no errors."""

    name: str
    note: str
    picture: EmbeddedImage
    errors: EmbeddedImage | None = None


@dataclass(frozen=True)
class Example:
    title: str
    columns: tuple[Column, ...]
    is_coarse: bool
    is_partly_labelled: bool

    @property
    def n_wide(self) -> int:
        """Columns side by side on a wide page; more than six form two rows."""
        return len(self.columns) if len(self.columns) <= 6 else -(-len(self.columns) // 2)


def image_examples(comparison: Comparison) -> list[Section]:
    classes, best = comparison.classes, comparison.best
    palette = index_palette(classes.palette)
    examples = [example(number, title, comparison, palette) for number, title in chosen_images(best).items()]
    class_key = list(zip(classes.names, comparison.swatches, strict=True))
    if any(shown.is_partly_labelled for shown in examples):
        class_key.append(("no label", hex_of(NO_LABEL)))
    data = {
        "examples": examples,
        "best": best.name,
        "class_key": class_key,
        "error_key": error_key(comparison.first.name, len(comparison.models)),
    }
    return [Section("examples", "Image by image", template="examples.html", data=data)]


def chosen_images(model: MeasuredModel) -> dict[int, str]:
    """Numbers and titles of the images to show: the typical, best and worst one by the mean Dice of a model."""
    order = np.argsort([scores.mean_dice for scores in model.per_image], kind="stable").tolist()
    if len(order) == 1:
        return {order[0]: "The image"}
    typical = {order[(len(order) - 1) // 2]: "Typical image"} if len(order) > 2 else {}
    return typical | {order[-1]: "Best image", order[0]: "Worst image"}


def example(number: int, title: str, comparison: Comparison, palette: Mapping[int, np.ndarray]) -> Example:
    """The columns of one image. palette: colours by class index"""
    image, first = comparison.labelled.images[number], comparison.first
    title = f"{title}: {image.name}"
    step = thinning(image.target.shape, MAX_STORED_SIDE)
    picture = grey_picture(image.planes, first.model.features.blank)[::step, ::step]
    target = image.target[::step, ::step]
    unlabelled = target == UNLABELLED_INDEX
    first_wrong = (first.label_maps[number] != target) & ~unlabelled
    columns = [
        Column("image", "", embed_png(picture, f"{title}: the image itself")),
        Column("truth", "", embed_png(painted(target, palette), f"{title}: the true classes, by colour")),
    ]
    for model in comparison.models:
        labels, scores = model.label_maps[number], model.per_image[number]
        errors = error_picture(picture, (labels != target) & ~unlabelled, first_wrong, unlabelled)
        wrong = percent(1 - scores.accuracy, 1)
        columns.append(
            Column(
                model.name,
                f"Dice {scores.mean_dice:.3f}, {wrong} wrong",
                embed_png(painted(labels, palette), f"{title}: classes that {model.name} predicts, by colour"),
                embed_png(errors, f"{title}: where {model.name} errs; {wrong} of the labelled pixels wrong"),
            )
        )
    return Example(title, tuple(columns), max(target.shape) < COARSE_BELOW, bool(unlabelled.any()))


def error_picture(picture: np.ndarray, wrong: np.ndarray, first: np.ndarray, unlabelled: np.ndarray) -> np.ndarray:
    """(H,W,3) uint8: errors on the dimmed picture, coloured by whether the first model made them too; masks (H,W)."""
    errors = (picture * DIMMED).astype(np.uint8) & DIMMED_BITS
    errors[unlabelled] = NO_LABEL
    errors[wrong & first] = BOTH_WRONG
    errors[wrong & ~first] = NEWLY_WRONG
    errors[~wrong & first] = FIRST_WRONG
    return errors


def index_palette(palette: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """The colours of class values, in order, by class index; pixels without a label are grey."""
    return dict(enumerate(palette.values())) | {UNLABELLED_INDEX: np.array(NO_LABEL, np.uint8)}


def error_key(first: str, n_models: int) -> dict[str, str]:
    """The meaning of the colours of an error map."""
    if n_models == 1:
        return {"wrong": hex_of(BOTH_WRONG)}
    return {
        f"wrong, as in {first}": hex_of(BOTH_WRONG),
        f"wrong where {first} is right": hex_of(NEWLY_WRONG),
        f"right where {first} is wrong": hex_of(FIRST_WRONG),
    }
