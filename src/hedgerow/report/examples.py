"""Images side by side: what was seen, what is true, what each model says, and where it errs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hedgerow.images.arrays import UNLABELLED_INDEX
from hedgerow.images.legend import hex_of
from hedgerow.images.pictures import painted
from hedgerow.report.embed import Picture, png
from hedgerow.report.measure import MAX_SIDE, Measured
from hedgerow.report.rows import thinning

NO_LABEL = (146, 146, 152)
# Colours that people with any kind of sight tell apart, also on the dimmed image below them.
WRONG, MENDED, SPOILT = (232, 93, 4), (86, 180, 233), (240, 228, 66)
DIMMED = 0.42  # of the image's brightness, under the errors
SHADES = np.uint8(0xF8)  # bits that are kept of it: the noise in the others would be most of the page
COARSE = 240  # pixels of a side below which pixels are shown as squares


@dataclass(frozen=True)
class Column:
    """One model's answer and its errors, or the image or the truth without any."""

    name: str
    about: str
    picture: Picture
    errors: Picture | None = None


@dataclass(frozen=True)
class Example:
    title: str
    columns: tuple[Column, ...]
    is_coarse: bool
    is_partly_labelled: bool

    @property
    def n_wide(self) -> int:
        """Columns side by side on a wide page; more go into two rows."""
        return len(self.columns) if len(self.columns) <= 6 else -(-len(self.columns) // 2)


def chosen_images(measured: Measured) -> dict[int, str]:
    """The images that the page shows, chosen by the model's mean Dice on each alone: typical, best and worst."""
    order = np.argsort([one.mean_dice for one in measured.per_image], kind="stable").tolist()
    if len(order) == 1:
        return {order[0]: "The image"}
    typical = {order[(len(order) - 1) // 2]: "Typical image"} if len(order) > 2 else {}
    return typical | {order[-1]: "Best image", order[0]: "Worst image"}


def example(
    number: int,
    title: str,
    picture: np.ndarray,
    target: np.ndarray,
    models: Sequence[Measured],
    palette: Mapping[int, np.ndarray],
) -> Example:
    """The columns of one image. picture: (H,W,3) uint8; target: (H,W) uint8 class indices; palette: by index."""
    step = thinning(target.shape, MAX_SIDE)
    picture, target = picture[::step, ::step], target[::step, ::step]
    unlabelled = target == UNLABELLED_INDEX
    first_wrong = (models[0].found[number] != target) & ~unlabelled
    columns = [
        Column("image", "", png(picture, f"{title}: the image itself")),
        Column("truth", "", png(painted(target, palette), f"{title}: the true classes, by colour")),
    ]
    for place, one in enumerate(models):
        found, scores = one.found[number], one.per_image[number]
        wrong = (found != target) & ~unlabelled
        errors = error_picture(picture, wrong, first_wrong if place else wrong, unlabelled)
        text = f"{1 - scores.accuracy:.1%} of the labelled pixels wrong".replace("%", " %")
        columns.append(
            Column(
                one.name,
                f"Dice {scores.mean_dice:.3f}, {1 - scores.accuracy:.1%} wrong".replace("%", " %"),
                png(painted(found, palette), f"{title}: classes that {one.name} predicts, by colour"),
                png(errors, f"{title}: where {one.name} errs; {text}"),
            )
        )
    return Example(title, tuple(columns), max(target.shape) < COARSE, bool(unlabelled.any()))


def error_picture(picture: np.ndarray, wrong: np.ndarray, first: np.ndarray, unlabelled: np.ndarray) -> np.ndarray:
    """(H,W,3) uint8: errors on the dimmed picture, coloured by whether the first model made them too; masks (H,W)."""
    errors = (picture * DIMMED).astype(np.uint8) & SHADES
    errors[unlabelled] = NO_LABEL
    errors[wrong & first] = WRONG
    errors[wrong & ~first] = SPOILT
    errors[~wrong & first] = MENDED
    return errors


def index_palette(palette: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """The colours of class values, in order, by class index; pixels without a label are grey."""
    return dict(enumerate(palette.values())) | {UNLABELLED_INDEX: np.array(NO_LABEL, np.uint8)}


def error_key(first: str, n_models: int) -> dict[str, str]:
    """What the colours of an error map mean."""
    if n_models == 1:
        return {"wrong": hex_of(WRONG)}
    return {
        f"wrong, as in {first}": hex_of(WRONG),
        f"wrong where {first} is right": hex_of(SPOILT),
        f"right where {first} is wrong": hex_of(MENDED),
    }
