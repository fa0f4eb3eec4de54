"""Pictures as text: PNG and WebP in data: addresses, so that a page needs no other file."""

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

PALETTE = 256  # colours that a PNG can number
WEBP_SIDE = 16383  # pixels that a WebP can have


@dataclass(frozen=True)
class Picture:
    """An image of the page: its data: address, what it shows in words, its size in CSS pixels, and a colour key.

    key: text to CSS colour; title: above the picture; caption: below it
    """

    src: str
    alt: str
    width: int
    height: int
    title: str = ""
    caption: str = ""
    key: Mapping[str, str] = field(default_factory=dict)


def png(picture: np.ndarray, alt: str) -> Picture:
    """A picture (H,W,3) uint8, stored without loss: in grey, by a palette, or as it is."""
    from PIL import Image

    if (picture == picture[..., :1]).all():
        return _stored(Image.fromarray(picture[..., 0]), alt, "png", optimize=True)
    red, green, blue = np.moveaxis(picture.astype(np.uint32), -1, 0)
    colours, index = np.unique(red << 16 | green << 8 | blue, return_inverse=True)
    if len(colours) <= PALETTE:
        image = Image.fromarray(index.reshape(red.shape).astype(np.uint8))
        image.putpalette(
            np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1).astype(np.uint8).tobytes()
        )
    else:
        image = Image.fromarray(picture)
    return _stored(image, alt, "png", optimize=True)


def figure_picture(figure: Figure, alt: str, dpi: int = 110) -> Picture:
    """A figure of pixels, which stays light on a dark page; stored with a small loss where WebP is available."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image, features

    figure.set_dpi(dpi)
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3])
    if max(image.size) > WEBP_SIDE or not features.check("webp"):
        return _stored(image, alt, "png", optimize=True)
    return _stored(image, alt, "webp", quality=85, method=4)


def _stored(image: Image.Image, alt: str, kind: str, **options: Any) -> Picture:
    stored = io.BytesIO()
    image.save(stored, format=kind, **options)
    return Picture(_address(stored.getvalue(), f"image/{kind}"), alt, *image.size)


def _address(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
