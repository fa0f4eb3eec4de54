"""Pictures inside the page: PNG and WebP in data: URLs, so that the page needs no other file."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL import Image

MAX_PALETTE = 256  # colours in a PNG's palette
DPI = 110  # of figures
MAX_WEBP = 16383  # pixels on a side of a WebP


@dataclass(frozen=True)
class EmbeddedImage:
    """An image of the page. src: its data: URL; alt: a description; width, height: CSS pixels

    title: above the image; caption: below it; key: text to CSS colour
    """

    src: str
    alt: str
    width: int
    height: int
    title: str = ""
    caption: str = ""
    key: Mapping[str, str] = field(default_factory=dict)


def embed_png(picture: np.ndarray, alt: str) -> EmbeddedImage:
    """A picture (H,W,3) uint8, as a lossless PNG: grey, with a palette, or RGB."""
    from PIL import Image

    if (picture == picture[..., :1]).all():
        return _encoded(Image.fromarray(picture[..., 0]), alt, "png", optimize=True)
    red, green, blue = np.moveaxis(picture.astype(np.uint32), -1, 0)
    colours, index = np.unique(red << 16 | green << 8 | blue, return_inverse=True)
    if len(colours) <= MAX_PALETTE:
        image = Image.fromarray(index.reshape(red.shape).astype(np.uint8))
        image.putpalette(
            np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1).astype(np.uint8).tobytes()
        )
    else:
        image = Image.fromarray(picture)
    return _encoded(image, alt, "png", optimize=True)


def embed_figure(figure: Figure, alt: str) -> EmbeddedImage:
    """A matplotlib figure as pixels, which stay light on a dark page; a slightly lossy WebP if that is possible."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image, features

    figure.set_dpi(DPI)
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3])
    if max(image.size) > MAX_WEBP or not features.check("webp"):
        return _encoded(image, alt, "png", optimize=True)
    return _encoded(image, alt, "webp", quality=85, method=4)


def _encoded(image: Image.Image, alt: str, kind: str, **options: Any) -> EmbeddedImage:
    file = io.BytesIO()
    image.save(file, format=kind, **options)
    content = base64.b64encode(file.getvalue()).decode("ascii")
    return EmbeddedImage(f"data:image/{kind};base64,{content}", alt, *image.size)
