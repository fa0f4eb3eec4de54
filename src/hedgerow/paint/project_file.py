"""project.json: the images and classes of a project, written whole or not at all.

Another program may use the same file names, so every file of a project is recognised before anything is changed.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hedgerow.errors import InputError, one_line
from hedgerow.files import write_text
from hedgerow.paint.messages import Refused, checked_class

KIND, VERSION = "a project of `hedgerow paint`", 1
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


DEFAULT_CLASSES = (Class(0, "background", COLOURS[0]), Class(1, "object", COLOURS[1]))


def read_classes(path: Path) -> list[Class]:
    """The classes of a project; a new one has two. Raises InputError if the file is damaged or not a project file."""
    content = first_bytes(path, MAX_FILE_BYTES)
    if content is None:
        return list(DEFAULT_CLASSES)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as problem:
        raise foreign(path, "it is not JSON that Hedgerow writes") from problem
    if not isinstance(document, dict) or document.get("hedgerow") != KIND:
        raise foreign(path, "it has no entry that names it as one")
    if document.get("version") != VERSION:
        raise InputError(f"{path} was written by another version of Hedgerow; update this one.")
    try:
        return _classes(document.get("classes"))
    except Refused as problem:
        raise InputError(
            f"cannot read {path}: {str(problem).rstrip('.')}; restore the file, or give another folder (--project)."
        ) from problem


def _classes(content: Any) -> list[Class]:
    if not isinstance(content, list):
        raise Refused("it has no list of classes")
    classes = [Class(**checked_class(fields)) for fields in content]
    if len({a_class.id for a_class in classes}) < len(classes):
        raise Refused("two classes have the same id")
    if len({a_class.name for a_class in classes}) < len(classes):
        raise Refused("two classes have the same name")
    return classes


def write_project(path: Path, images: Sequence[ImageFile], classes: Sequence[Class]) -> None:
    content = {
        "hedgerow": KIND,
        "version": VERSION,
        "images": [
            {"name": image.name, "height": image.size[0], "width": image.size[1], "channels": image.n_channels}
            for image in images
        ],
        "classes": [asdict(a_class) for a_class in classes],
    }
    write_text(path, json.dumps(content, indent=1))


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
