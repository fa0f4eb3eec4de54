"""project.json: the images and classes of a project, written whole or not at all.

Another program may use the same file names, so every file of a project is recognised before anything is changed.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import InputError, one_line
from hedgerow.files import write_text
from hedgerow.paint.messages import Refused, checked_item, checked_items

KIND, PROJECT_VERSION = "a project of `hedgerow paint`", 1
MAX_FILE_BYTES = 2**24  # 10,000 images with long names take two thirds of it
# Distinguishable with any kind of colour vision: Paul Tol's "bright" and "muted" schemes.
COLOURS = (
    *("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#332288"),
    *("#88ccee", "#44aa99", "#117733", "#999933", "#ddcc77", "#cc6677", "#882255", "#aa4499"),
)


@dataclass(frozen=True)
class ImageFile:
    """An image file. size: (H,W)"""

    path: Path
    size: tuple[int, int]
    n_channels: int
    dtype: np.dtype

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def n_bytes(self) -> int:
        """The bytes of its pixels."""
        return self.n_channels * self.size[0] * self.size[1] * self.dtype.itemsize


@dataclass(frozen=True)
class Class:
    """A class of pixels. id: its value in label maps"""

    id: int
    name: str
    colour: str
    hidden: bool = False
    locked: bool = False


@dataclass(frozen=True)
class PageModel:
    """A model that was made on the page.

    number: of its file
    how:    "train", or how it was improved: "refine", "deep" or "encoder:NAME"
    name:   what it is, for the page
    text:   how it scored, for the page
    paint:  the paint that it was trained on, see `Project.paint_state`
    """

    number: int
    how: str
    name: str
    text: str
    paint: str

    @property
    def title(self) -> str:
        """Its number and name, which no other model of the project has."""
        return f"model {self.number}: {self.name}"


@dataclass(frozen=True)
class Chosen:
    """The model that is shown and exported for as long as the paint stays as it is; None: the one that follows it."""

    model: int | None = None
    paint: str = ""


@dataclass(frozen=True)
class ProjectContent:
    """What project.json holds besides the images. page: how the page was left, see `messages.FIELDS`"""

    classes: tuple[Class, ...] = ()
    models: tuple[PageModel, ...] = ()
    chosen: Chosen = Chosen()
    page: dict[str, Any] = field(default_factory=dict)


DEFAULT_CLASSES = (Class(0, "background", COLOURS[0]), Class(1, "object", COLOURS[1]))


def read_project(path: Path) -> ProjectContent:
    """The content of a project; a new one has two classes. Raises InputError if the file is damaged or not of a
    project."""
    content = first_bytes(path, MAX_FILE_BYTES)
    if content is None:
        return ProjectContent(DEFAULT_CLASSES)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as problem:
        raise foreign(path, "it is not JSON that Hedgerow writes") from problem
    if not isinstance(document, dict) or document.get("hedgerow") != KIND:
        raise foreign(path, "it has no entry that names it as one")
    if document.get("version") != PROJECT_VERSION:
        raise InputError(f"{path} was written by another version of Hedgerow; update this one.")
    try:
        return ProjectContent(
            _classes(document.get("classes")),
            tuple(PageModel(**fields) for fields in checked_items("model", document.get("models", []))),
            Chosen(**checked_item("chosen", document.get("chosen", asdict(Chosen())))),
            checked_item("page", document.get("page", {})),
        )
    except Refused as problem:
        raise InputError(
            f"cannot read {path}: {str(problem).rstrip('.')}; restore the file, or give another folder (--project)."
        ) from problem


def _classes(content: Any) -> tuple[Class, ...]:
    classes = tuple(Class(**fields) for fields in checked_items("class", content))
    if len({a_class.id for a_class in classes}) < len(classes):
        raise Refused("two classes have the same id")
    if len({a_class.name for a_class in classes}) < len(classes):
        raise Refused("two classes have the same name")
    return classes


def write_project(path: Path, images: Sequence[ImageFile], content: ProjectContent) -> None:
    document = {
        "hedgerow": KIND,
        "version": PROJECT_VERSION,
        "images": [
            {"name": image.name, "height": image.size[0], "width": image.size[1], "channels": image.n_channels}
            for image in images
        ],
        **asdict(content),
    }
    write_text(path, json.dumps(document, indent=1))


def first_bytes(path: Path, n_bytes: int) -> bytes | None:
    """The start of a file; None: there is no file. Pipes and devices are refused: opening one might block forever."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise foreign(path, "it is not a regular file")
        with open(path, "rb") as file:
            return file.read(n_bytes)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise InputError(f"cannot open {path}: {one_line(problem)}; check its permissions.") from problem


def foreign(path: Path, why: str) -> InputError:
    """The error for a file that has a name of the project but was not written by Hedgerow."""
    return InputError(
        f"{path} is not a file of a project to paint on, or is damaged ({why}); it is left unchanged: restore it, or "
        "give another folder (--project)."
    )
