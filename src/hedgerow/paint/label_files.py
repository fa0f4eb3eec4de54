"""Label maps as `hedgerow train` reads them, 255 is unpainted; of large images in tiles, never held as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from hedgerow.files import atomic_path, make_folder
from hedgerow.images.arrays import UNLABELLED_INDEX as UNPAINTED
from hedgerow.images.legend import write_legend
from hedgerow.images.pairing import stem_of
from hedgerow.images.regions import Region
from hedgerow.images.writing import write_labels
from hedgerow.overwrite_guard import check_overwriting, remove_recorded, writing_as
from hedgerow.paint.image_files import ImageFile
from hedgerow.paint.labels import TILE, Labels
from hedgerow.paint.messages import Refused
from hedgerow.paint.project import LABELS, Project
from hedgerow.scale.lazy_image import LARGE_PIXELS

LEGEND = "classes.toml"
PAGE = "page"  # writes label maps and models; those of commands in the same folder are not its own


def is_large(image: ImageFile) -> bool:
    return image.size[0] * image.size[1] > LARGE_PIXELS


def label_file(project: Project, image: ImageFile) -> Path:
    """Where the labels of an image are written."""
    return project.folder / LABELS / f"{stem_of(image.path)}.{'tif' if is_large(image) else 'png'}"


def write_label_maps(project: Project, also: Sequence[Path] = ()) -> list[ImageFile]:
    """Write the label maps of all images that have paint, with the names of the classes; returns those images.

    also: further files that the caller is about to write; nothing is written unless all of them may be
    """
    painted = check_label_maps(project, also)
    with project.lock:
        legend, classes = project.legend, [one.id for one in project.classes]
    make_folder(project.folder / LABELS)
    with writing_as(PAGE):
        for i, image in enumerate(project.images):
            path = label_file(project, image)
            if i not in painted:
                remove_recorded(path)  # all of its paint was taken back
            elif is_large(image):
                _write_tiles(path, project, project.labels[i])
            else:
                with project.lock:
                    labels = project.labels[i].whole()
                write_labels(path, labels, legend.palette(classes))
        write_legend(project.folder / LABELS / LEGEND, legend)
    return [project.images[i] for i in painted]


def check_label_maps(project: Project, also: Sequence[Path] = ()) -> list[int]:
    """The numbers of the images whose label maps may be written; raises InputError if that, or the removal of those of
    other images, would cost a file that this page did not write."""
    painted = project.painted_images()
    if not painted:
        raise Refused("nothing is painted yet; paint with two classes first.")
    with writing_as(PAGE):
        check_overwriting(
            [*(label_file(project, image) for image in project.images), project.folder / LABELS / LEGEND, *also],
            [image.path for image in project.images],
            overwrite=False,
            done="overwritten or deleted",
            remedy="move it away, or start the page with another project folder (--project).",
        )
    return painted


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
