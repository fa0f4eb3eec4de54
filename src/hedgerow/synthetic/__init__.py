"""Drawn data sets with exact labels, for learning, demonstrations and tests without a download.

Two of them imitate the data of the paper: zebrafish embryos whose somites look alike, and depth images of people. In
both, the class of a pixel depends on its surroundings more than on its own value. House fronts in colour imitate
photographs, and embryos in volumes a light-sheet microscope.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from scipy import ndimage

from hedgerow.errors import ConfigError, InputError, one_path
from hedgerow.files import make_folder
from hedgerow.images.legend import FILE as LEGEND_FILE
from hedgerow.images.legend import Legend, write_legend
from hedgerow.images.pictures import write_picture
from hedgerow.images.reading import ending_of
from hedgerow.images.voxel_size import VoxelSize
from hedgerow.images.writing import Palette, write_labels
from hedgerow.overwrite_guard import check_overwriting
from hedgerow.synthetic.embryo_volume import EMBRYO_NAMES, draw_embryo_volume
from hedgerow.synthetic.fish import SOMITE_NAMES, draw_embryo
from hedgerow.synthetic.houses import FACADE_COLOURS, FACADE_NAMES, draw_facade
from hedgerow.synthetic.people import BODY_PART_NAMES, draw_body

__all__ = [
    "BODY_PART_NAMES",
    "CLASS_COLOURS",
    "CLASS_NAMES",
    "EMBRYO_NAMES",
    "FACADE_NAMES",
    "SOMITE_NAMES",
    "bodies",
    "embryo",
    "facades",
    "paint",
    "somites",
    "write_sample",
]

STROKE_WIDTH = 3  # pixels
STROKE_LENGTHS = (15, 40)  # pixels
MOST_STROKES = 10_000
PAINTED_PLANE = 4  # of volumes, every so many planes are painted
ANISOTROPY = 3.0  # of volumes: the distance of planes in pixels
CLASS_NAMES = {
    "somites": SOMITE_NAMES, "bodies": BODY_PART_NAMES, "facades": FACADE_NAMES, "embryo": EMBRYO_NAMES,
}  # fmt: skip
CLASS_COLOURS = {"facades": FACADE_COLOURS}  # the others have a rainbow, in which neighbours are easily told apart

WHOLE_NUMBER = int | np.integer

ImagesAndLabels = tuple[list[np.ndarray], list[np.ndarray]]
Draw = Callable[..., tuple[np.ndarray, np.ndarray]]


def somites(
    n_images: int = 16, size: tuple[int, int] = (256, 256), seed: int = 0, variety: float = 1.0
) -> ImagesAndLabels:
    """Draw embryos with 21 nearly identical somites.

    variety: how much the embryos differ in position, shape and appearance, from 0 (not at all) to 1
    Returns images, each (H,W) uint8 grey, and labels, each (H,W) uint8: 0 background, 1..21 the somites from head to
    tail (`SOMITE_NAMES`). Image i depends only on the seed, the size and i.

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> images[0].shape, labels[0].dtype
    ((40, 48), dtype('uint8'))
    """
    if not 0 <= variety <= 1:
        raise InputError(f"the variety is {variety:g}; give a number from 0 to 1.")
    return _draw_set(partial(draw_embryo, variety=variety), n_images, size, seed)


def bodies(n_images: int = 16, size: tuple[int, int] = (240, 320), seed: int = 0) -> ImagesAndLabels:
    """Draw depth images of people in random poses.

    Returns images, each (H,W) uint16 depth in millimetres with 0 where nothing was measured, and labels, each (H,W)
    uint8: parts 0..18, background 19 (`BODY_PART_NAMES`). A part keeps its label where its depth is missing. Left and
    right are the person's own. Image i depends only on the seed, the size and i.

    >>> images, labels = hr.synthetic.bodies(n_images=1, size=(40, 48))
    >>> images[0].dtype, int(labels[0][0, 0])
    (dtype('uint16'), 19)
    """
    return _draw_set(draw_body, n_images, size, seed)


def facades(n_images: int = 16, size: tuple[int, int] = (240, 320), seed: int = 0) -> ImagesAndLabels:
    """Draw house fronts in colour.

    Returns images, each (H,W,3) uint8, and labels, each (H,W) uint8: numbers in `FACADE_NAMES`. Image i depends only on
    the seed, the size and i.
    """
    return _draw_set(draw_facade, n_images, size, seed)


def embryo(
    n_images: int = 4, size: tuple[int, int, int] = (32, 96, 96), seed: int = 0, anisotropy: float = ANISOTROPY
) -> ImagesAndLabels:
    """Draw volumes of embryos with 8 nearly identical somites around a notochord.

    size:       (planes, height, width)
    anisotropy: the distance of planes, in pixels
    Returns volumes, each (Z,H,W) uint8 grey, and labels, each (Z,H,W) uint8: 0 background, 1..8 the somites from head
    to tail, 9 notochord, 10 other tissue (`EMBRYO_NAMES`). Deeper planes are darker and more blurred. Volume i depends
    only on the seed, the size, the anisotropy and i.

    >>> volumes, labels = hr.synthetic.embryo(n_images=1, size=(6, 40, 48), anisotropy=8)
    >>> volumes[0].shape, labels[0].dtype
    ((6, 40, 48), dtype('uint8'))
    """
    if not 1 <= anisotropy <= 100:
        raise ConfigError(f"anisotropy is {anisotropy!r}; give the distance of planes in pixels, from 1 to 100.")
    return _draw_set(partial(draw_embryo_volume, anisotropy=anisotropy), n_images, size, seed, smallest=(1, 16, 16))


def _draw_set(
    draw: Draw, n_images: int, size: tuple[int, ...], seed: int, smallest: tuple[int, ...] = (16, 16)
) -> ImagesAndLabels:
    _check(n_images, size, seed, smallest)
    sides = tuple(int(side) for side in size)
    # One generator per image, seeded by its index: a longer set begins with the shorter one.
    drawn = [draw(np.random.default_rng((int(seed), i)), *sides) for i in range(n_images)]
    return [image for image, _ in drawn], [labels for _, labels in drawn]


def _check(n_images: object, size: object, seed: object, smallest: tuple[int, ...]) -> None:
    if not isinstance(n_images, WHOLE_NUMBER) or n_images < 1:
        raise ConfigError(f"n_images is {n_images!r}; give a whole number of at least 1.")
    sides = tuple(size) if isinstance(size, tuple | list) else ()
    if len(sides) != len(smallest) or not all(
        isinstance(side, WHOLE_NUMBER) and side >= least for side, least in zip(sides, smallest, strict=True)
    ):
        names = ", ".join(("planes", "height", "width")[-len(smallest) :])
        raise ConfigError(f"size is {size!r}; give ({names}) as whole numbers of at least {smallest}.")
    if not isinstance(seed, WHOLE_NUMBER) or seed < 0:
        raise ConfigError(f"seed is {seed!r}; give a whole number of at least 0.")


def write_sample(
    kind: str, folder: Path, n_images: int, seed: int, *, strokes: bool = False, overwrite: bool = False
) -> None:
    """Write images and labels of a built-in generator as PNG files, volumes as TIFF, to folder/images and
    folder/labels, with the names of the classes. A folder that holds other images is refused, because a model would
    learn from both.

    strokes:   whether labels are a few strokes, as if painted by hand; the full labels then go to folder/truth
    overwrite: whether to replace existing files that Hedgerow did not write, too
    """
    full_labels = "truth" if strokes else "labels"
    folders = ("images", "labels", full_labels) if strokes else ("images", "labels")
    _check_alone(kind, folder)
    planned = [path for name in folders for path in _sample_files(kind, folder / name, n_images)]
    named = [folder / name / LEGEND_FILE for name in folders[1:]]
    check_overwriting([*planned, *named], [], overwrite)
    drawn: dict[str, Callable[..., ImagesAndLabels]] = {
        "somites": somites, "bodies": bodies, "facades": facades, "embryo": embryo,
    }  # fmt: skip
    images, labels = drawn[kind](n_images=n_images, seed=seed)
    legend = Legend(dict(enumerate(CLASS_NAMES[kind])), dict(enumerate(CLASS_COLOURS.get(kind, ()))))
    palette = legend.palette(tuple(legend.names))
    for name in folders:
        make_folder(folder / name)
    for path in named:
        write_legend(path, legend)
    for path, image in zip(_sample_files(kind, folder / "images", len(images)), images, strict=True):
        write_picture(path, image) if kind == "facades" else _write(path, image)
    for i, (path, full) in enumerate(zip(_sample_files(kind, folder / full_labels, len(images)), labels, strict=True)):
        _write(path, full, palette)
        if strokes:
            _write(folder / "labels" / path.name, paint(full, seed=seed + i), palette)


def _write(path: Path, array: np.ndarray, palette: Palette | None = None) -> None:
    """Write grey values or labels (H,W) or (Z,H,W)."""
    is_volume = array.ndim == 3
    size = VoxelSize(1.0, 1.0, ANISOTROPY) if is_volume else None
    write_labels(path, array, palette, size, "ZYX" if is_volume else "YX")


def _check_alone(kind: str, folder: Path) -> None:
    for place in (folder / "images", folder / "labels"):
        others = sorted(
            path.name for path in place.glob("*") if ending_of(path) and not path.name.startswith(f"{kind}_")
        )
        if others:
            raise InputError(
                f"{place} already holds other images, e.g. {one_path(others[0])}, which must not be mixed with {kind}; "
                "give another folder."
            )


def _sample_files(kind: str, folder: Path, n_images: int) -> list[Path]:
    ending = ".tif" if kind == "embryo" else ".png"
    return [folder / f"{kind}_{i:03d}{ending}" for i in range(n_images)]


def paint(labels: np.ndarray, part: float = 0.01, seed: int = 0, unpainted: int = 255) -> np.ndarray:
    """(H,W) uint8: strokes inside the classes of labels (H,W), class after class, until this part of the pixels is
    painted; the rest is `unpainted`. Of a volume (Z,H,W), every fourth plane is painted."""
    if not 0 < part <= 1:
        raise ConfigError(f"part is {part!r}; give a number above 0 and at most 1.")
    if labels.ndim == 3:
        volume = np.full(labels.shape, unpainted, np.uint8)
        for z in range(min(PAINTED_PLANE // 2, len(labels) - 1), len(labels), PAINTED_PLANE):
            volume[z] = paint(labels[z], part, seed + z, unpainted)
        return volume
    rng = np.random.default_rng((seed, 10))
    painted = np.full(labels.shape, unpainted, np.uint8)
    # People do not paint the edge of an object, unless the object is so thin that it is all edge.
    inner = {int(value): ndimage.binary_erosion(labels == value, iterations=2) for value in np.unique(labels)}
    places = {value: np.argwhere(inside if inside.any() else labels == value) for value, inside in inner.items()}
    for k in range(MOST_STROKES):
        if np.count_nonzero(painted != unpainted) >= part * labels.size:
            break
        value = list(places)[k % len(places)]
        _stroke(painted, labels, value, places[value][rng.integers(len(places[value]))], rng)
    return painted


def _stroke(painted: np.ndarray, labels: np.ndarray, value: int, start: np.ndarray, rng: np.random.Generator) -> None:
    """Paint a slightly bent stroke that begins at a pixel and ends at the edge of its class."""
    place, angle = start.astype(float), rng.uniform(0, 2 * np.pi)
    for _ in range(rng.integers(*STROKE_LENGTHS)):
        row, column = (round(x) for x in place.tolist())
        if not (0 <= row < labels.shape[0] and 0 <= column < labels.shape[1]) or labels[row, column] != value:
            return
        box = tuple(slice(max(x - STROKE_WIDTH // 2, 0), x + STROKE_WIDTH // 2 + 1) for x in (row, column))
        painted[box][labels[box] == value] = value
        angle += rng.normal(0, 0.15)
        place += (np.sin(angle), np.cos(angle))
