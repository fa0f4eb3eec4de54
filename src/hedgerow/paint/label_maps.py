"""Label maps as `hedgerow train` reads them, where 255 is unpainted; those of large images are written tile by tile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from hedgerow import jobs
from hedgerow.files import atomic_path, make_folder
from hedgerow.images.array_checks import UNLABELLED_INDEX as UNPAINTED
from hedgerow.images.legend import write_legend
from hedgerow.images.pairing import stem_of
from hedgerow.images.regions import Region
from hedgerow.images.writing import write_labels
from hedgerow.overwrite_guard import check_overwriting, remove_recorded, writing_as
from hedgerow.paint.labels import TILE, Labels
from hedgerow.paint.messages import Refused
from hedgerow.paint.project import LABELS, Project
from hedgerow.paint.project_file import ImageFile

LEGEND = "classes.toml"
PAGE = "page"  # the writer of label maps and models; files that commands wrote into the same folder are not its own


def is_large(image: ImageFile) -> bool:
    """Whether an image is too large to be predicted in memory."""
    n_pixels: int = image.size[0] * image.size[1]
    return n_pixels > jobs.LARGE_IMAGE_PIXELS


def label_file(project: Project, image: ImageFile) -> Path:
    """The file of an image's label map."""
    return project.folder / LABELS / f"{stem_of(image.path)}.{'tif' if is_large(image) else 'png'}"


def write_label_maps(project: Project, also: Sequence[Path] = ()) -> list[ImageFile]:
    """Write the label maps of all painted images and the names of the classes; returns those images.

    also: further files that the caller is about to write; nothing is written unless all of them may be written
    """
    painted = check_label_maps(project, also)
    with project.lock:
        legend, classes = project.legend, [a_class.id for a_class in project.classes]
    make_folder(project.folder / LABELS)
    with writing_as(PAGE):
        for i, image in enumerate(project.images):
            path = label_file(project, image)
            if i not in painted:
                remove_recorded(path)  # all of its paint was undone
            elif is_large(image):
                _write_tiles(path, project, project.labels[i])
            else:
                with project.lock:
                    labels = project.labels[i].whole()
                write_labels(path, labels, legend.palette(classes))
        write_legend(project.folder / LABELS / LEGEND, legend)
    return [project.images[i] for i in painted]


def check_label_maps(project: Project, also: Sequence[Path] = ()) -> list[int]:
    """The numbers of the painted images. Raises InputError if writing their label maps, or removing those of images
    without paint, would overwrite or delete a file that this page did not write."""
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
    """(TILE,TILE): all tiles, row by row."""
    for region in Region.whole(labels.size).tiles(TILE):
        with project.lock:
            part = labels.region(region)
        tile = np.full((TILE, TILE), UNPAINTED, np.uint8)
        tile[: part.shape[0], : part.shape[1]] = part
        yield tile
