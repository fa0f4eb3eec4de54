"""Altered copies of labelled images: turned, flipped, scaled, shifted, made brighter or darker; trimmed ones."""

from dataclasses import dataclass, replace

import numpy as np

from hedgerow.config import UNALTERED, AugmentConfig
from hedgerow.errors import InputError
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledImage


def trimmed(image: LabelledImage, blank: float) -> LabelledImage:
    """An image (H,W) cropped to the part (h,w) where anything was seen, without a border of `blank` pixels."""
    is_seen = image.planes[0] != blank
    rows, columns = np.flatnonzero(is_seen.any(axis=1)), np.flatnonzero(is_seen.any(axis=0))
    if not len(rows):
        raise InputError(f"{image.name} shows nothing at all; leave it out.")
    part = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    if (image.target[part] == UNLABELLED_INDEX).all():
        raise InputError(
            f"the training labels of {image.name} all lie in its empty border, which trim leaves out; "
            "set trim to false, or label what was seen."
        )
    group = None if image.group is None else image.group[part]
    return replace(image, planes=np.ascontiguousarray(image.planes[:, *part]), target=image.target[part], group=group)


def augmented_copy(
    image: LabelledImage, config: AugmentConfig, rng: np.random.Generator, blank: float | None = None
) -> LabelledImage:
    """A copy of the same size, turned, flipped, scaled, shifted, and made brighter or darker, at random.

    Labels are looked up, never blended; what comes in from outside the image is unlabelled and shows its mirror image.
    blank: the pixel value that means "nothing was seen", for images that have one (depth): their pixels are looked up
    too, and blank comes in from outside
    """
    source = _source_places(image.target.shape, drawn_move(image.target.shape, config, rng))
    nearest = np.floor(source + 0.5).astype(np.int64)
    inside = np.ones(image.target.shape, bool)
    for axis, length in enumerate(image.target.shape):
        inside &= (nearest[axis] >= 0) & (nearest[axis] < length)
        nearest[axis] = np.clip(nearest[axis], 0, length - 1)
    target = np.where(inside, image.target[nearest[0], nearest[1]], UNLABELLED_INDEX).astype(np.uint8)
    group = None if image.group is None else image.group[nearest[0], nearest[1]]
    if blank is not None:
        planes = np.where(inside, image.planes[:, nearest[0], nearest[1]], blank).astype(np.float32)
        return replace(image, planes=planes, target=target, group=group, is_copy=True)
    planes = _bilinear(image.planes, source)
    contrast, brightness = drawn_light(config, rng)
    mean = image.planes.mean(axis=(1, 2), keepdims=True, dtype=np.float64).astype(np.float32)
    spread = image.planes.std(axis=(1, 2), keepdims=True, dtype=np.float64).astype(np.float32)
    planes = mean + (planes - mean) * np.float32(contrast) + spread * np.float32(brightness)
    return replace(image, planes=planes, target=target, group=group, is_copy=True)


def altered(
    image: LabelledImage, config: AugmentConfig, rng: np.random.Generator, blank: float | None = None
) -> LabelledImage:
    """A random copy for one step of training, with at least one labelled pixel if the image has any."""
    if config == UNALTERED:  # interpolation could change pixels by rounding
        return image
    copy = augmented_copy(image, config, rng, blank)
    return image if (copy.target == UNLABELLED_INDEX).all() else copy  # all labelled pixels were moved out of sight


def labelled_corner(target: np.ndarray, side: int, rng: np.random.Generator) -> tuple[int, int]:
    """Top row and left column of a random square of this side that holds a labelled pixel of target (H,W): elsewhere
    there is nothing to learn."""
    labelled = np.argwhere(target != UNLABELLED_INDEX)
    place = labelled[rng.integers(len(labelled))]
    last = np.maximum(np.array(target.shape) - side, 0)
    top, left = np.clip(place - rng.integers(side, size=2), 0, last)
    return int(top), int(left)


@dataclass(frozen=True)
class Move:
    """How a copy is turned, mirrored, scaled and shifted.

    matrix: (2,2) from places in the copy to places in the original, both seen from the centre (2,)
    shift:  (2,) by which the copy is moved
    """

    matrix: np.ndarray
    centre: np.ndarray
    shift: np.ndarray

    def backward(self) -> tuple[np.ndarray, np.ndarray]:
        """(2,2) and (2,): a pixel of the copy shows the first times its place, plus the second, of the original."""
        return self.matrix, self.centre - self.matrix @ (self.centre + self.shift)

    def forward(self, place: np.ndarray) -> np.ndarray:
        """(2,) where in the copy a place (2,) of the original is shown."""
        return np.linalg.solve(self.matrix, place - self.centre) + self.centre + self.shift


def drawn_move(shape: tuple[int, ...], config: AugmentConfig, rng: np.random.Generator) -> Move:
    """A random one, for an image (H,W)."""
    angle = np.deg2rad(config.rotation) * rng.uniform(-1, 1)
    zoom = 1 + config.scale * rng.uniform(-1, 1)
    mirror = -1.0 if config.flip and rng.random() < 0.5 else 1.0
    shift = config.shift * rng.uniform(-1, 1, 2) * shape
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return Move(turn @ np.diag([1.0, mirror]) / zoom, (np.array(shape) - 1) / 2, shift)


def still(shape: tuple[int, ...]) -> Move:
    """The one that changes nothing."""
    return Move(np.eye(2), (np.array(shape) - 1) / 2, np.zeros(2))


def drawn_light(config: AugmentConfig, rng: np.random.Generator) -> tuple[float, float]:
    """A random contrast, a factor; and brightness, standard deviations of the image to add."""
    contrast = 1 + config.contrast * rng.uniform(-1, 1)
    return contrast, config.brightness * rng.uniform(-1, 1)


def _source_places(shape: tuple[int, ...], move: Move) -> np.ndarray:
    """(2,H,W) float64: for each pixel of the copy, the row and column of the original that it shows."""
    centre, shift = move.centre, move.shift
    rows, columns = np.meshgrid(np.arange(shape[0]), np.arange(shape[1]), indexing="ij")
    placed = np.stack([rows - centre[0] - shift[0], columns - centre[1] - shift[1]])
    return np.einsum("ij,jhw->ihw", move.matrix, placed) + centre[:, None, None]


def _bilinear(planes: np.ndarray, source: np.ndarray) -> np.ndarray:
    """planes (C,H,W) interpolated at source (2,h,w); beyond the border the image is mirrored."""
    corner = np.floor(source).astype(np.int64)
    part = (source - corner).astype(np.float32)
    low, high = [], []
    for axis, length in enumerate(planes.shape[1:]):
        low.append(_mirrored(corner[axis], length))
        high.append(_mirrored(corner[axis] + 1, length))
    top = planes[:, low[0], low[1]] * (1 - part[1]) + planes[:, low[0], high[1]] * part[1]
    bottom = planes[:, high[0], low[1]] * (1 - part[1]) + planes[:, high[0], high[1]] * part[1]
    return top * (1 - part[0]) + bottom * part[0]


def _mirrored(index: np.ndarray, length: int) -> np.ndarray:
    index = index % (2 * length)
    return np.where(index < length, index, 2 * length - 1 - index)
