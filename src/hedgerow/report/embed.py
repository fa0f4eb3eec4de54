"""Pictures as text: PNG, WebP and SVG in data: addresses, so that a page needs no other file."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL import Image

# Colours that charts are drawn in, and what becomes of them where the reader prefers a dark page.
INK, FAINT, RULE = "#27302a", "#5d685f", "#d3d9d1"
IN_THE_DARK = {INK: "#e6ebe4", FAINT: "#a3aea4", RULE: "#3a443d"}
# Read by matplotlib when a figure is saved. Text stays text; the salt makes equal charts equal bytes.
SAVING: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "hedgerow", "font.family": "sans-serif"}

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
    from PIL import Image, features

    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi, facecolor="white")
    image = Image.open(drawn).convert("RGB")
    if max(image.size) > WEBP_SIDE or not features.check("webp"):
        return _stored(image, alt, "png", optimize=True)
    return _stored(image, alt, "webp", quality=85, method=6)


def _stored(image: Image.Image, alt: str, kind: str, **options: Any) -> Picture:
    stored = io.BytesIO()
    image.save(stored, format=kind, **options)
    return Picture(_address(stored.getvalue(), f"image/{kind}"), alt, *image.size)


def svg(figure: Figure, alt: str, title: str = "", caption: str = "", key: Mapping[str, str] | None = None) -> Picture:
    """A chart of lines and text, without a ground of its own, that follows the page from light to dark."""
    import matplotlib

    stored = io.StringIO()
    with matplotlib.rc_context(SAVING):
        figure.savefig(
            stored, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    # An address may hold no line ends.
    text = stored.getvalue().replace("\n", " ")
    text = text[text.index("<svg") :]
    head, _, rest = text.partition(">")
    rules = "".join(
        f'[style*="{what}: {light}"]{{{what}:{dark}!important}}'
        for light, dark in IN_THE_DARK.items()
        for what in ("fill", "stroke")
    )
    text = f"{head}><style>@media (prefers-color-scheme:dark){{{rules}}}</style>{rest}"
    width, height = (round(side * 96) for side in figure.get_size_inches())
    return Picture(f"data:image/svg+xml,{quote(text, safe=_SAFE)}", alt, width, height, title, caption, key or {})


_SAFE = " =:;,/()!*+?@[]{}|~$^-_."  # what needs no escape between double quotes in an attribute


def _address(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
