"""Opening a project: its images are found, and described by the headers of their files alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hedgerow.errors import HedgerowError, InputError
from hedgerow.images.pairing import FilesSpec, by_stem, find_files
from hedgerow.images.reading import ImageSource, content_of_file, open_image
from hedgerow.images.stored import ImageSpec
from hedgerow.paint.messages import MAX_SIDE
from hedgerow.paint.project import Project
from hedgerow.paint.project_file import ImageFile

MAX_IMAGES = 10_000


def open_project(images: Sequence[str], folder: Path | None) -> tuple[Project, list[str]]:
    """The project of some images, and a sentence for each image that was skipped and for a damaged journal entry."""
    files, notes = image_files(list(images))
    project = Project(folder or default_folder(Path(images[0])), files, notes)
    notes = project.left_out
    if project.journal.note:
        notes.append(project.journal.note)
    return project, notes


def default_folder(first: Path) -> Path:
    """The default folder of a project: FOLDER-painted, next to the folder of its images."""
    folder = (first if first.is_dir() else first.parent).resolve()
    return folder.with_name(f"{folder.name}-painted")


def image_files(spec: FilesSpec) -> tuple[list[ImageFile], list[str]]:
    """The images to paint on, all with the number of channels of the first, and a sentence for each skipped file."""
    images: list[ImageFile] = []
    skipped: list[str] = []
    paths = list(by_stem(find_files(spec)).values())  # two images of one stem would share a label map
    if len(paths) > MAX_IMAGES:
        raise InputError(f"there are {len(paths):,} images; give at most {MAX_IMAGES:,}.")
    for path in paths:
        try:
            _refuse_stack(path)
            with open_image(path) as source:
                n_channels, height, width = source.shape
                _check_size(source)
        except HedgerowError as problem:
            skipped.append(str(problem))
            continue
        image = ImageFile(path, (height, width), n_channels, source.dtype)
        if images and image.n_channels != images[0].n_channels:
            skipped.append(
                f"{path} has {image.n_channels} channel(s) and {images[0].path} has {images[0].n_channels}; it is "
                "skipped, since a model reads images of one kind."
            )
            continue
        images.append(image)
    if not images:
        raise InputError(f"none of the images can be read: {skipped[0] if skipped else 'there are none'}")
    return images, skipped


def _refuse_stack(path: Path) -> None:
    """Refuse a file with z planes, time points or pages, of which the page cannot choose one."""
    content = content_of_file(ImageSpec(str(path)))
    if content is not None and content.n_pages > 1 and not content.is_array:
        raise InputError(
            f"{path} is a stack of {content.n_pages} planes, and the page shows single planes; save those to paint on "
            "as separate images, or paint the stack elsewhere and give both to hedgerow train."
        )


def _check_size(source: ImageSource) -> None:
    """Refuse an image whose tiles could not be made, because that takes all of its pixels."""
    if max(source.size) > MAX_SIDE:
        height, width = source.size
        raise InputError(
            f"{source.path} has {height:,} x {width:,} pixels, and the page shows at most {MAX_SIDE:,} on each side; "
            "cut out a part of it."
        )
    source.check_chunks(source.whole)
