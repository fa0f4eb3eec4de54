"""Draws the figure of inner layers with matplotlib; pictures and text are laid out in inches."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from hedgerow.images.pictures import painted
from hedgerow.report.formatting import shortened
from hedgerow.report.layer_maps import MAX_MAP_SIDE, Row, Scale, has_outliers, thinning
from hedgerow.report.naming import ClassDisplay

MAX_ACROSS = 10  # classes side by side; with more, the figure would be too wide to read
# Black is zero, bright is high. Signed values are white at zero: dark ones of two colours would look alike.
SEQUENTIAL, DIVERGING = "inferno", "RdBu_r"
FONT_SIZE, LINE = 9, 0.19  # points, and inches per line
# Inches: around the figure, between panels, for the name of a row, and for a colour bar.
SHEET_MARGIN, GAP, NAME, BAR = 0.14, 0.06, 0.62, 1.0
INK, FAINT = "#1d231f", "#5d685f"


def draw(
    rows: Sequence[Row],
    shown: Sequence[int],
    display: ClassDisplay,
    sides: Mapping[str, np.ndarray],
    title: str = "",
) -> Figure:
    """The figure: pictures at the left, then blocks of rows with at most MAX_ACROSS classes each, and a key.

    Its size follows from the number of panels, so that text stays legible.
    shown: the class values of the rows' maps; sides: the pictures (H,W,3), by name
    """
    n_blocks = -(-len(shown) // MAX_ACROSS)
    across = -(-len(shown) // n_blocks)
    slope = np.sqrt(np.clip(np.divide(*rows[0].level.labels.shape), 1 / 4, 4))
    size = np.clip(12 / (across + 2), 1.3, 2.4)
    cell = np.array([max(size / slope, 0.85), max(size * slope, 0.8)]) + GAP
    side = cell * np.clip(min(len(rows) / len(sides), 2.7 / cell[0]), 1, 2)
    left = SHEET_MARGIN + side[0] + max(NAME, 0.1 + max(width_of(row.name[0]) for row in rows))
    width = left + cell[0] * (1 + across) + BAR
    heading = textwrap.wrap(title, int(9 * width))
    heads = 2.1 * LINE  # a class's name, and its scale
    top = SHEET_MARGIN + 1.3 * LINE * len(heading) + heads
    block = cell[1] * len(rows) + heads
    below = top + n_blocks * block - heads + 0.05
    texts = [fitted(name, 1.4) for name in display.names]
    step = 0.34 + max(map(width_of, texts))
    per_line = max(1, int((width - left - SHEET_MARGIN) / step))
    notes = [
        line
        for note in notes_on(rows, len(shown), len(texts))
        for line in textwrap.wrap(note, max(int(14 * (width - left - SHEET_MARGIN)), 12))
    ]
    bottom = below + LINE * (-(-len(texts) // per_line) + len(notes)) + 0.08
    height = max(bottom, top + (side[1] + LINE) * len(sides) - LINE) + SHEET_MARGIN
    sheet = _Sheet(width, height)

    for number, line in enumerate(heading):
        sheet.write(SHEET_MARGIN, SHEET_MARGIN + 1.3 * LINE * number, line, fontsize=FONT_SIZE + 3)
    for number, (name, panel) in enumerate(sides.items()):
        every = thinning(panel.shape, MAX_MAP_SIDE)
        y = top + number * (side[1] + LINE)
        sheet.write(SHEET_MARGIN, y - LINE, name)
        sheet.place(panel[::every, ::every], SHEET_MARGIN, y, *(side - GAP))
    for number in range(n_blocks):
        part = slice(number * across, (number + 1) * across)
        _draw_block(sheet, rows, shown, part, display, left, top + number * block, cell)
    for number, (value, text) in enumerate(zip(display.values, texts, strict=True)):
        place = (left + step * (number % per_line), below + LINE * (number // per_line))
        sheet.write_class(*place, text, display.palette[value])
    for number, note in enumerate(notes):
        sheet.write(left, bottom - LINE * (len(notes) - number), note, color=FAINT)
    return sheet.figure


def notes_on(rows: Sequence[Row], n_shown: int, n_classes: int) -> list[str]:
    """Notes that a reader needs to understand the figure."""
    notes = []
    if n_shown < n_classes:
        notes.append(f"{n_classes - n_shown} of {n_classes} classes are left out of the panels.")
    text = "Each class has its own colour scale, the same in all rows of probabilities, with its range above the panels"
    if any(row.is_signed for row in rows):
        text += " and that of activations after the comma"
    notes.append(f"{text}.{' A few values lie beyond it.' if has_outliers(rows) else ''}")
    return notes


def width_of(text: str) -> float:
    """The width of a text in inches."""
    ruler: Any = RendererAgg
    return float(ruler(1, 1, 72).get_text_width_height_descent(text, FontProperties(size=FONT_SIZE), False)[0]) / 72


def fitted(text: str, width: float) -> str:
    """A text, shortened in the middle if it is wider than this, in inches."""
    length = len(text)
    while length > 1 and width_of(shortened(text, length)) > width:
        length -= 1
    return shortened(text, length)


def _draw_block(
    sheet: _Sheet,
    rows: Sequence[Row],
    shown: Sequence[int],
    part: slice,
    display: ClassDisplay,
    left: float,
    top: float,
    cell: np.ndarray,
) -> None:
    """Draw the label map and the class maps of each row in cells (width, height), and a colour bar per kind of row."""
    sheet.write(left, top - 2 * LINE, "labels")
    for column, value in enumerate(shown[part], 1):
        place = left + column * cell[0]
        name = fitted(display.phrase(value), cell[0] - 0.2)
        sheet.write_class(place, top - 2 * LINE, name, display.palette[value])
        scales = {row.is_signed: row.scales[part][column - 1] for row in rows}
        ends = [scales[signed].high for signed in (False, True) if signed in scales]
        text = ", ".join(
            f"{'±' if signed else '0–'}{end:.2g}" for signed, end in zip(sorted(scales), ends, strict=True)
        )
        sheet.write(place, top - LINE, text, color=FAINT, fontsize=FONT_SIZE - 1)
    for number, row in enumerate(rows):
        y = top + number * cell[1]
        for line, text in enumerate(row.name):
            style: dict[str, Any] = {} if line == 0 else {"color": FAINT, "fontsize": FONT_SIZE - 1}
            sheet.write(left - 0.06, y + 0.02 + 0.16 * line, text, ha="right", **style)
        sheet.place(painted(row.level.labels, display.palette), left, y, *(cell - GAP))
        for column, (panel, scale) in enumerate(zip(row.level.maps[part], row.scales[part], strict=True), 1):
            sheet.place_map(panel, scale, left + column * cell[0], y, *(cell - GAP))
    for signed in sorted({row.is_signed for row in rows}):
        first = next(number for number, row in enumerate(rows) if row.is_signed is signed)
        _draw_bar(sheet, signed, left + (1 + len(shown[part])) * cell[0] + 0.04, top + first * cell[1], cell[1] - GAP)


def _draw_bar(sheet: _Sheet, signed: bool, x: float, y: float, height: float) -> None:
    """Draw a colour bar next to the first row of its kind."""
    bar = height - 0.34
    shades = np.linspace(1, -1 if signed else 0, 128, dtype=np.float32)[:, None]
    sheet.place_map(shades, Scale(1.0, signed), x, y + 0.07, 0.12, bar)
    for part, text in ((1.0, "highest"), (0.5, "0" if signed else "half"), (0.0, "lowest" if signed else "0")):
        sheet.write(x + 0.17, y + 0.07 + bar * (1 - part), text, va="center", color=FAINT, fontsize=FONT_SIZE - 1)
    sheet.write(x, y + height - 0.19, "activation" if signed else "probability", fontsize=FONT_SIZE - 1)


class _Sheet:
    """A figure with coordinates in inches from its top left corner."""

    def __init__(self, width: float, height: float) -> None:
        self.figure = Figure(figsize=(width, height), dpi=150)
        FigureCanvasAgg(self.figure)
        # One for all pictures: creating axes is slow.
        self._axes: Axes = self.figure.add_axes((0, 0, 1, 1))
        self._axes.set_axis_off()
        self._axes.set(xlim=(0, width), ylim=(height, 0))
        self._size = (width, height)

    def place(self, picture: np.ndarray, x: float, y: float, width: float, height: float, **colours: Any) -> None:
        """Draw a picture that fills a box: (h,w,3) uint8, or (h,w) values to be coloured."""
        image = AxesImage(
            self._axes, extent=(x, x + width, y + height, y), interpolation="nearest", origin="upper", **colours
        )
        image.set_data(picture)
        self._axes.add_image(image)

    def place_map(self, panel: np.ndarray, scale: Scale, x: float, y: float, width: float, height: float) -> None:
        """Draw values (h,w) in the colours of their scale."""
        cmap: Colormap = colormaps[DIVERGING if scale.signed else SEQUENTIAL]
        self.place(panel, x, y, width, height, cmap=cmap, norm=Normalize(scale.low, scale.high))

    def write(self, x: float, y: float, text: str, **style: Any) -> None:
        """Write text with its top left corner at (x, y); a dollar sign does not begin a formula."""
        width, height = self._size
        options: dict[str, Any] = {"fontsize": FONT_SIZE, "color": INK, "va": "top", **style}
        self.figure.text(x / width, 1 - y / height, text, parse_math=False, **options)

    def write_class(self, x: float, y: float, text: str, colour: np.ndarray) -> None:
        """Write a class's name after a square of its colour."""
        self._axes.add_patch(
            Rectangle((x, y + 0.02), 0.1, 0.1, facecolor=tuple(colour / 255), edgecolor=FAINT, linewidth=0.4)
        )
        self.write(x + 0.15, y, text)
