"""`show`: an image with its segmentation, as a picture that notebooks display. Needs only Pillow."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hedgerow.errors import InputError
from hedgerow.files import PathLike, atomic_path
from hedgerow.images.array_checks import Layout, check_pair, to_labels, to_planes
from hedgerow.images.legend import Legend
from hedgerow.images.picture_key import with_key
from hedgerow.images.pictures import grey_picture, overlay

if TYPE_CHECKING:
    from PIL.Image import Image

MIN_SHOWN_SIDE, MAX_SHOWN_SIDE = 320, 1024  # pixels along the longer side as displayed; a saved picture may be larger
PICTURE_FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".tif": "TIFF", ".tiff": "TIFF", ".webp": "WEBP"}


def show(
    image: np.ndarray,
    labels: np.ndarray | None = None,
    *,
    model: Any = None,
    classes: Sequence[int] | None = None,
    legend: Legend | None = None,
    background: int | None = None,
    layout: Layout | None = None,
) -> Picture:
    """A picture of an image, tinted and outlined by class, with a key. Jupyter displays it.

    image:      (H,W[,C])
    labels:     (H,W) class values; None: the model's prediction, or only the image if there is no model
    model:      gives the classes, their names and colours, and the layout of images
    classes:    class values, so that pictures of several images use the same colours; None: the model's or the labels'
    legend:     names and colours of the classes; None: the model's
    background: a class that is not tinted
    layout:     "planes" for an image (F,H,W); None: the model's, or "picture"
    Labels outside the classes are not tinted either.

    >>> images, labels = hr.synthetic.somites(n_images=1, size=(40, 48))
    >>> picture = hr.show(images[0], labels[0], background=0)
    >>> picture
    Picture(280 rows x 336 columns, 21 classes)
    >>> picture.save("embryo.png")
    """
    if layout is None:
        layout = "picture" if model is None else model.features.layout
    planes = to_planes(image, "the image", layout)
    picture = _enlarged(grey_picture(planes, None if model is None else model.features.blank))
    if labels is None and model is None:
        return Picture(picture)
    shown = to_labels(model.predict(image) if labels is None else labels, "the label map")
    check_pair(planes, shown, "the image")
    if legend is None:
        legend = Legend() if model is None else model.legend
    present = [int(value) for value in np.unique(shown)]
    known = present if classes is None and model is None else list(model.classes if classes is None else classes)
    # From all classes, since the colour of a class must not depend on the other classes in this image.
    palette = legend.palette(known, background)
    there = {value: colour for value, colour in palette.items() if value in present and value != background}
    return Picture(
        overlay(picture, _enlarged(shown), there),
        tuple((legend.name(value), tuple(map(int, there[value]))) for value in there),
    )


def _enlarged(array: np.ndarray) -> np.ndarray:
    """(h,w,...): a small picture or its labels (H,W,...) with each pixel repeated, so that outlines are fine lines."""
    times = -(-MIN_SHOWN_SIDE // max(array.shape[:2]))
    return array.repeat(times, axis=0).repeat(times, axis=1)


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture that Jupyter displays.

    pixels: (h,w,3) uint8, of the size of the image, or a multiple of it for a small image
    key:    (name, (red, green, blue)) of each class in the picture
    """

    pixels: np.ndarray
    key: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def __repr__(self) -> str:
        height, width = self.pixels.shape[:2]
        named = f", {len(self.key)} class{'es' * (len(self.key) != 1)}" if self.key else ""
        return f"Picture({height} rows x {width} columns{named})"

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self._drawn(MAX_SHOWN_SIDE).save(file, format="PNG")
        return file.getvalue()

    def save(self, path: PathLike) -> None:
        """Write the picture with its key, at full resolution; the name ends in .png, .jpg, .tif or .webp."""
        ending = Path(path).suffix.lower()
        if ending not in PICTURE_FORMATS:
            raise InputError(f"cannot write {path}: the name of a picture must end in {', '.join(PICTURE_FORMATS)}.")
        with atomic_path(path) as temporary:
            self._drawn().save(temporary, format=PICTURE_FORMATS[ending])

    def _drawn(self, largest: int | None = None) -> Image:
        """The picture above its key, shrunk if a side is longer than `largest`."""
        from PIL import Image

        picture = Image.fromarray(self.pixels)
        longer = max(picture.size)
        if largest is not None and longer > largest:
            picture = picture.reduce(-(-longer // largest))
        return with_key(picture, self.key, times=1)
