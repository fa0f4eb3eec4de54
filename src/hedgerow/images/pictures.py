"""Draws pictures of images, labels and predictions with Pillow alone."""

import colorsys
from collections.abc import Mapping, Sequence

import numpy as np

from hedgerow.files import PathLike, atomic_path
from hedgerow.images.picture_key import Key, with_key

PANEL_GAP, TITLE_HEIGHT = 6, 22  # pixels between panels, and above the first row
PANEL = 400  # the most pixels along the longer side of a panel, so that titles stay legible
BACKGROUND_GREY = 24  # grey value of the background and of unknown classes
FILL = 0.35  # opacity of class colours over an image; outlines are opaque


def class_colours(n: int) -> np.ndarray:
    """(n,3) uint8 colours of a rainbow, with alternating lightness so that neighbours differ."""
    hues = np.arange(n) / max(n, 1) * 0.85
    rgb = [colorsys.hls_to_rgb(h, 0.62 if k % 2 else 0.42, 0.85) for k, h in enumerate(hues)]
    return (np.array(rgb).reshape(n, 3) * 255).astype(np.uint8)


def class_palette(classes: Sequence[int], background: int | None = None) -> dict[int, np.ndarray]:
    """The (3,) uint8 colour of each class value; `background` is near black and takes no rainbow colour."""
    rainbow = iter(class_colours(len(classes) - (background in classes)))
    return {value: np.full(3, BACKGROUND_GREY, np.uint8) if value == background else next(rainbow) for value in classes}


def grey_picture(planes: np.ndarray, blank: float | None = None) -> np.ndarray:
    """(H,W,3) uint8 of an image (C,H,W), with its range stretched: three channels as colours, else their mean in grey.

    blank: depth images: the value of pixels without a measurement, shown darkest; near pixels are bright, far ones dark
    """
    if blank is not None and (known := planes != blank).any():
        near, far = np.percentile(planes[known], (0.5, 99.5))
        planes = -np.where(known, np.clip(planes, near, far), far + max(far - near, 1) / 2)
    values = np.moveaxis(planes, 0, 2) if len(planes) == 3 else planes.mean(axis=0)[..., None]
    low, high = np.percentile(values, (0.5, 99.5))
    scaled = np.clip((values - low) / max(high - low, 1e-12), 0, 1)
    return np.tile((scaled * 255).astype(np.uint8), (1, 1, 3 // values.shape[2]))


def label_picture(labels: np.ndarray, classes: Sequence[int], background: int | None = None) -> np.ndarray:
    """(H,W,3) uint8 of class values (H,W), one colour per class; `background` and unknown values are near black."""
    return painted(labels, class_palette(classes, background))


def painted(labels: np.ndarray, palette: Mapping[int, np.ndarray]) -> np.ndarray:
    """(H,W,3) uint8 of values (H,W) in the (3,) uint8 colours of a palette; unknown values are near black."""
    picture = np.full((*labels.shape, 3), BACKGROUND_GREY, np.uint8)
    for value, colour in palette.items():
        picture[labels == value] = colour
    return picture


def overlay(picture: np.ndarray, labels: np.ndarray, palette: Mapping[int, np.ndarray]) -> np.ndarray:
    """(H,W,3) uint8: a picture (H,W,3) tinted by the classes (H,W), with outlines where the class changes."""
    shown = np.isin(labels, list(palette))
    colours = painted(labels, palette)
    mixed = ((1 - FILL) * picture + FILL * colours + 0.5).astype(np.uint8)
    edge = np.zeros(labels.shape, bool)
    for axis in (0, 1):
        along, across = np.moveaxis(edge, axis, 0), np.moveaxis(labels, axis, 0)
        along[1:] |= across[1:] != across[:-1]
    mixed[~shown] = picture[~shown]
    mixed[edge & shown] = colours[edge & shown]
    return mixed


def write_picture(path: PathLike, picture: np.ndarray, key: Key = ()) -> None:
    """Write (H,W,3) uint8 as a PNG, above its key."""
    from PIL import Image

    with atomic_path(path) as temporary:
        with_key(Image.fromarray(picture), key).save(temporary, format="PNG")


def save_sheet(path: PathLike, titles: Sequence[str], rows: Sequence[Sequence[np.ndarray]]) -> None:
    """Write a PNG of panels (H,W,3) uint8 in rows and columns, with a title above each column; shrinks large panels."""
    from PIL import Image, ImageDraw, ImageFont

    largest = max(max(panel.shape[:2]) for row in rows for panel in row)
    panels = [[Image.fromarray(panel).reduce(-(-largest // PANEL)) for panel in row] for row in rows]
    heights = [max(panel.height for panel in row) for row in panels]
    widths = [max(row[k].width for row in panels) for k in range(len(titles))]
    size = sum(widths) + PANEL_GAP * (len(widths) + 1), TITLE_HEIGHT + sum(heights) + PANEL_GAP * (len(heights) + 1)
    canvas = Image.new("RGB", size, "white")
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(14)
    left = PANEL_GAP
    for k, title in enumerate(titles):
        draw.text((left, 4), title, fill="black", font=font)
        top = TITLE_HEIGHT + PANEL_GAP
        for row, height in zip(panels, heights, strict=True):
            canvas.paste(row[k], (left, top))
            top += height + PANEL_GAP
        left += widths[k] + PANEL_GAP
    with atomic_path(path) as temporary:
        canvas.save(temporary, format="PNG")
