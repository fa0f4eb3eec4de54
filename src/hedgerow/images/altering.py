"""Makes altered copies of labelled images: turned, flipped, scaled, shifted, brighter, darker, or trimmed."""

from dataclasses import dataclass, replace

import numpy as np
from scipy import ndimage

from hedgerow.config import UNALTERED, AugmentConfig
from hedgerow.errors import InputError
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledImage
from hedgerow.images.regions import Region


def trimmed(image: LabelledImage, blank: float) -> LabelledImage:
    """An image (H,W) cropped to the part (h,w) inside its border of `blank` pixels."""
    part = Region.around(image.planes[0] != blank)
    if part.is_empty:
        raise InputError(f"{image.name} is empty: all of its pixels are blank; leave it out.")
    target, group = part.of(image.target), None if image.group is None else part.of(image.group)
    if (target == UNLABELLED_INDEX).all():
        raise InputError(
            f"all training labels of {image.name} lie in its empty border, which trim leaves out; "
            "set trim to false, or label pixels inside."
        )
    return replace(image, planes=np.ascontiguousarray(part.of(image.planes)), target=target, group=group)


def augmented_copy(
    image: LabelledImage,
    config: AugmentConfig,
    rng: np.random.Generator,
    blank: float | None = None,
    anisotropy: float = 1.0,
) -> LabelledImage:
    """A copy of the same size, turned, flipped, scaled, shifted, and made brighter or darker at random; all slices of a
    volume in the same way, in their plane, unless the settings tilt volumes.

    Labels are looked up, never blended. Beyond its border, the image is mirrored and unlabelled.
    blank: the value of pixels without a measurement (depth images): pixels are looked up, and blank beyond the border
    anisotropy: the distance of slices, in pixels
    """
    size = image.size if image.is_volume and config.tilt > 0 else image.size[-2:]
    source = _source_places(size, drawn_move(size, config, rng, anisotropy))
    nearest = np.floor(source + 0.5).astype(np.int64)
    inside = np.ones(size, bool)
    for axis, length in enumerate(size):
        inside &= (nearest[axis] >= 0) & (nearest[axis] < length)
        nearest[axis] = np.clip(nearest[axis], 0, length - 1)
    target = np.where(inside, image.target[(..., *nearest)], UNLABELLED_INDEX).astype(np.uint8)
    group = None if image.group is None else image.group[(..., *nearest)]
    if blank is not None:
        planes = np.where(inside, image.planes[(..., *nearest)], blank).astype(np.float32)
        return replace(image, planes=planes, target=target, group=group, is_copy=True)
    parts = image.planes.reshape(-1, *size)
    planes = np.stack([ndimage.map_coordinates(part, source, order=1, mode="reflect") for part in parts])
    planes, within = planes.reshape(image.planes.shape), tuple(range(1, image.planes.ndim))
    contrast, brightness = drawn_light(config, rng)
    mean = image.planes.mean(axis=within, keepdims=True, dtype=np.float64).astype(np.float32)
    spread = image.planes.std(axis=within, keepdims=True, dtype=np.float64).astype(np.float32)
    planes = mean + (planes - mean) * np.float32(contrast) + spread * np.float32(brightness)
    return replace(image, planes=planes, target=target, group=group, is_copy=True)


def altered(
    image: LabelledImage, config: AugmentConfig, rng: np.random.Generator, blank: float | None = None
) -> LabelledImage:
    """A random copy for one step of training, with at least one labelled pixel if the image has any."""
    if config == UNALTERED:  # interpolation could change pixels by rounding
        return image
    copy = augmented_copy(image, config, rng, blank)
    return image if (copy.target == UNLABELLED_INDEX).all() else copy  # no labelled pixel is left in the copy


def labelled_corner(target: np.ndarray, side: int, rng: np.random.Generator) -> tuple[int, int]:
    """Top row and left column of a random square with this side that contains a labelled pixel of target (H,W)."""
    labelled = np.argwhere(target != UNLABELLED_INDEX)
    place = labelled[rng.integers(len(labelled))]
    last = np.maximum(np.array(target.shape) - side, 0)
    top, left = np.clip(place - rng.integers(side, size=2), 0, last)
    return int(top), int(left)


@dataclass(frozen=True)
class Move:
    """How a copy is turned, mirrored, scaled and shifted; three numbers instead of two for a volume.

    matrix: (2,2) maps positions in the copy to positions in the original, both relative to the centre (2,)
    shift:  (2,) by which the copy is moved
    """

    matrix: np.ndarray
    centre: np.ndarray
    shift: np.ndarray

    def backward(self) -> tuple[np.ndarray, np.ndarray]:
        """Matrix (2,2) and offset (2,): a pixel at p in the copy shows the original at matrix @ p + offset."""
        return self.matrix, self.centre - self.matrix @ (self.centre + self.shift)

    def forward(self, place: np.ndarray) -> np.ndarray:
        """The position (2,) in the copy that shows this position (2,) of the original."""
        return np.linalg.solve(self.matrix, place - self.centre) + self.centre + self.shift


def drawn_move(
    shape: tuple[int, ...], config: AugmentConfig, rng: np.random.Generator, anisotropy: float = 1.0
) -> Move:
    """A random move of an image (H,W), or of a volume (Z,H,W) whose slices are this many pixels apart."""
    angle = np.deg2rad(config.rotation) * rng.uniform(-1, 1)
    zoom = 1 + config.scale * rng.uniform(-1, 1)
    mirror = -1.0 if config.flip and rng.random() < 0.5 else 1.0
    shift = config.shift * rng.uniform(-1, 1, len(shape)) * shape
    matrix = _turn(angle) @ np.diag([1.0, mirror]) / zoom
    if len(shape) == 3:
        lengths = np.diag([anisotropy, 1.0, 1.0])  # of the sides of a voxel
        whole = np.diag([1 / zoom, 1.0, 1.0])
        whole[1:, 1:] = matrix
        for axis, tilt in zip((1, 2), np.deg2rad(config.tilt) * rng.uniform(-1, 1, 2), strict=True):
            tilted = np.eye(3)
            tilted[np.ix_((0, axis), (0, axis))] = _turn(tilt)
            whole = tilted @ whole
        matrix = np.linalg.inv(lengths) @ whole @ lengths
    return Move(matrix, (np.array(shape) - 1) / 2, shift)


def _turn(angle: float) -> np.ndarray:
    """(2,2): a turn by this angle in radians."""
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def still(shape: tuple[int, ...]) -> Move:
    """The move that changes nothing."""
    return Move(np.eye(2), (np.array(shape) - 1) / 2, np.zeros(2))


def drawn_light(config: AugmentConfig, rng: np.random.Generator) -> tuple[float, float]:
    """A random contrast, as a factor, and brightness, in standard deviations of the image to add."""
    contrast = 1 + config.contrast * rng.uniform(-1, 1)
    return contrast, config.brightness * rng.uniform(-1, 1)


def _source_places(shape: tuple[int, ...], move: Move) -> np.ndarray:
    """(2,H,W) float64: the row and column of the original that each pixel of the copy shows; (3,Z,H,W) of a volume."""
    across = (slice(None), *[None] * len(shape))
    placed = np.indices(shape) - move.centre[across] - move.shift[across]
    return np.einsum("ij,j...->i...", move.matrix, placed) + move.centre[across]
