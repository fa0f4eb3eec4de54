"""Label maps as `hedgerow train` reads them, 255 is unpainted; of large images in tiles, never held as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hedgerow.files import atomic_path, make_folder
from hedgerow.images.arrays import UNLABELLED_INDEX as UNPAINTED
from hedgerow.images.legend import write_legend
from hedgerow.images.pairing import stem_of
from hedgerow.images.regions import Region
from hedgerow.images.writing import write_labels
from hedgerow.paint.image_files import ImageFile
from hedgerow.paint.labels import TILE, Labels
from hedgerow.paint.messages import Refused
from hedgerow.paint.project import Project
from hedgerow.scale.pairs import LARGE

FOLDER, LEGEND = "labels", "classes.toml"


def is_large(image: ImageFile) -> bool:
    return image.size[0] * image.size[1] > LARGE


def label_file(project: Project, image: ImageFile) -> Path:
    """Where the labels of an image are written."""
    return project.folder / FOLDER / f"{stem_of(image.path)}.{'tif' if is_large(image) else 'png'}"


def write_label_maps(project: Project) -> list[ImageFile]:
    """Write the label maps of all images that have paint, with the names of the classes; returns those images."""
    folder = project.folder / FOLDER
    make_folder(folder)
    with project.lock:
        painted = project.painted_images()
        legend, classes = project.legend, [one.id for one in project.classes]
    if not painted:
        raise Refused("nothing is painted yet; paint with two classes first.")
    for i, image in enumerate(project.images):
        path = label_file(project, image)
        if i not in painted:
            path.unlink(missing_ok=True)  # all of its paint was taken back
        elif is_large(image):
            _write_tiles(path, project, project.labels[i])
        else:
            with project.lock:
                labels = project.labels[i].whole()
            write_labels(path, labels, legend.palette(classes))
    write_legend(folder / LEGEND, legend)
    return [project.images[i] for i in painted]


def _write_tiles(path: Path, project: Project, labels: Labels) -> None:
    import tifffile

    with atomic_path(path) as temporary:
        tifffile.imwrite(
            temporary, _tiles(project, labels), shape=labels.size, dtype=np.uint8, tile=(TILE, TILE),
            compression="zlib", photometric="minisblack", bigtiff=True, metadata=None,
        )  # fmt: skip


def _tiles(project: Project, labels: Labels) -> Iterator[np.ndarray]:
    """(TILE,TILE) of all tiles, row after row."""
    height, width = labels.size
    for top in range(0, height, TILE):
        for left in range(0, width, TILE):
            with project.lock:
                part = labels.region(Region(top, min(top + TILE, height), left, min(left + TILE, width)))
            whole = np.full((TILE, TILE), UNPAINTED, np.uint8)
            whole[: part.shape[0], : part.shape[1]] = part
            yield whole
