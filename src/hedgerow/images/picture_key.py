"""The key below a picture: a square in the colour of each class and its name, drawn by Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hedgerow.errors import printable

if TYPE_CHECKING:
    from PIL.Image import Image

LINE_PIXELS, SQUARE_PIXELS, FONT_PIXELS, KEY_INK, PAPER = 20, 11, 13, (39, 48, 42), (255, 255, 255)
KEY_MARGIN, KEY_GAP = 4, 14  # pixels left of the first entry, and between entries
EDGE_COLOUR = (139, 148, 142)  # around each square, so that pale ones stand out
MAX_KEY = 40  # classes in the key
MAX_NAME_IN_KEY = 24  # characters of a name there
READABLE = 1200  # pixels along the longer side; larger pictures have proportionally larger keys

Key = Sequence[tuple[str, tuple[int, ...]]]
"""(name, (red, green, blue)) of each class."""
Entry = tuple[int, str, tuple[int, ...] | None]


def with_key(picture: Image, key: Key, times: int | None = None) -> Image:
    """The picture above its key; the picture itself if the key is empty.

    times: scale of the key; None: in proportion to the picture
    """
    from PIL import Image, ImageDraw, ImageFont

    if not key:
        return picture
    times = times or max(round(max(picture.size) / READABLE), 1)
    font = ImageFont.load_default(FONT_PIXELS * times)
    lines, width = _lines(key, picture.width, font, times)
    height = picture.height + (LINE_PIXELS * len(lines) + 8) * times
    canvas = Image.new("RGB", (max(picture.width, width), height), PAPER)
    canvas.paste(picture, (0, 0))
    draw = ImageDraw.Draw(canvas)
    side = SQUARE_PIXELS * times
    for number, line in enumerate(lines):
        top = picture.height + (6 + LINE_PIXELS * number) * times
        for left, name, colour in line:
            if colour is not None:
                corner = top + 3 * times
                draw.rectangle((left, corner, left + side, corner + side), fill=colour, outline=EDGE_COLOUR)
            draw.text((left + (side + 6 * times) * (colour is not None), top), name, fill=KEY_INK, font=font)
    return canvas


def _lines(key: Key, width: int, font: Any, times: int) -> tuple[list[list[Entry]], int]:
    """The entries of the key, line by line: (left, name, colour); and the width of the widest line, which exceeds the
    picture's only if a single name does."""
    entries: list[tuple[str, tuple[int, ...] | None]] = [(_short(name), colour) for name, colour in key[:MAX_KEY]]
    if len(key) > MAX_KEY:
        entries.append((f"and {len(key) - MAX_KEY} more", None))
    lines: list[list[Entry]] = [[]]
    left, widest = KEY_MARGIN * times, 0
    for name, colour in entries:
        needed = int(font.getlength(name)) + 1 + (SQUARE_PIXELS + 6) * times * (colour is not None)
        if lines[-1] and left + needed > width:
            lines.append([])
            left = KEY_MARGIN * times
        lines[-1].append((left, name, colour))
        widest = max(widest, left + needed + KEY_MARGIN * times)
        left += needed + KEY_GAP * times
    return lines, widest


def _short(name: str) -> str:
    name = printable(name)
    return name if len(name) <= MAX_NAME_IN_KEY else f"{name[: MAX_NAME_IN_KEY - 1]}…"
