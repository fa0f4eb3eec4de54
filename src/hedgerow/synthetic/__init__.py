"""Drawn data sets with exact labels, for learning, demonstrating and testing without downloading anything.

Two stand-ins for the data of the paper: zebrafish embryos whose somites look alike, and depth images of
people. In both, what a pixel is follows from what surrounds it more than from what it looks like.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from hedgerow.errors import ConfigError
from hedgerow.files import make_folder
from hedgerow.images.writing import write_labels
from hedgerow.synthetic.fish import SOMITE_NAMES, draw_embryo
from hedgerow.synthetic.people import BODY_PART_NAMES, draw_body
from hedgerow.written import check_overwriting

__all__ = ["BODY_PART_NAMES", "CLASS_NAMES", "SOMITE_NAMES", "bodies", "somites", "write_sample"]

CLASS_NAMES = {"somites": SOMITE_NAMES, "bodies": BODY_PART_NAMES}

SMALLEST_SIDE = 16
WHOLE = int | np.integer

ImagesAndLabels = tuple[list[np.ndarray], list[np.ndarray]]
Draw = Callable[[np.random.Generator, int, int], tuple[np.ndarray, np.ndarray]]


def somites(n_images: int = 16, size: tuple[int, int] = (256, 256), seed: int = 0) -> ImagesAndLabels:
    """Draw embryos with 21 nearly identical somites.

    Returns images, each (H, W) uint8 grey, and labels, each (H, W) uint8: 0 background, 1..21 the somites
    from head to tail (`SOMITE_NAMES`). Image i depends on the seed, the size and i alone.

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> images[0].shape, labels[0].dtype
    ((40, 48), dtype('uint8'))
    """
    return _draw_set(draw_embryo, n_images, size, seed)


def bodies(n_images: int = 16, size: tuple[int, int] = (240, 320), seed: int = 0) -> ImagesAndLabels:
    """Draw depth images of people in random poses.

    Returns images, each (H, W) uint16 depth in millimetres with 0 where nothing was measured, and labels,
    each (H, W) uint8: parts 0..18, background 19 (`BODY_PART_NAMES`). A part keeps its label where its depth
    is missing. Left and right are the person's own. Image i depends on the seed, the size and i alone.

    >>> images, labels = hr.synthetic.bodies(n_images=1, size=(40, 48))
    >>> images[0].dtype, int(labels[0][0, 0])
    (dtype('uint16'), 19)
    """
    return _draw_set(draw_body, n_images, size, seed)


def _draw_set(draw: Draw, n_images: int, size: tuple[int, int], seed: int) -> ImagesAndLabels:
    _check(n_images, size, seed)
    height, width = (int(side) for side in size)
    # One generator per image, keyed by its index: a longer set begins with the shorter one.
    drawn = [draw(np.random.default_rng((int(seed), i)), height, width) for i in range(n_images)]
    return [image for image, _ in drawn], [labels for _, labels in drawn]


def _check(n_images: object, size: object, seed: object) -> None:
    if not isinstance(n_images, WHOLE) or n_images < 1:
        raise ConfigError(f"n_images is {n_images!r}; give a whole number of at least 1.")
    sides = tuple(size) if isinstance(size, tuple | list) else ()
    if len(sides) != 2 or not all(isinstance(side, WHOLE) and side >= SMALLEST_SIDE for side in sides):
        raise ConfigError(f"size is {size!r}; give (height, width) as two whole numbers of at least {SMALLEST_SIDE}.")
    if not isinstance(seed, WHOLE) or seed < 0:
        raise ConfigError(f"seed is {seed!r}; give a whole number of at least 0.")


def write_sample(kind: str, folder: Path, n_images: int, seed: int, *, overwrite: bool = False) -> None:
    """Write images and labels of a built-in generator as PNG files in folder/images and folder/labels.

    overwrite: also existing files that Hedgerow did not write
    """
    check_overwriting(_sample_files(kind, folder, n_images), [], overwrite)
    images, labels = {"somites": somites, "bodies": bodies}[kind](n_images=n_images, seed=seed)
    for name in ("images", "labels"):
        make_folder(folder / name)
    for path, values in zip(_sample_files(kind, folder, len(images)), [*images, *labels], strict=True):
        write_labels(path, values)


def _sample_files(kind: str, folder: Path, n_images: int) -> list[Path]:
    """Of all images, then of all labels."""
    return [folder / what / f"{kind}_{i:03d}.png" for what in ("images", "labels") for i in range(n_images)]
