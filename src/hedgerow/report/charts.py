"""Charts as SVG: a canvas, axes, and the line chart.

They are written by hand, because matplotlib's SVG takes 2 to 7 times the bytes, and its colours do not follow the page
from light to dark (docs/measurements/libraries.md). The figure of inner layers, which is pixels, is drawn by
matplotlib: see `panels`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import quote

import numpy as np

from hedgerow.report.embed import EmbeddedImage
from hedgerow.report.formatting import shortened

# Colours of models, in order: mid-tones that are visible on light and dark ground, and differ in lightness too.
MODEL_COLOURS = ("#3f7fb5", "#d1682c", "#3f9a63", "#a765b0", "#b08c1e", "#c2505f", "#5b8f99", "#858d86")
MARKER_SIDES = (0, 4, 3, 5, 6, 7, 8, 9)  # of the markers of each model's line: a disc, a square, ...
# Colours by CSS class; the chart's own style sheet follows the reader's preference for a light or dark page.
LIGHT = {"ink": "#27302a", "faint": "#5d685f", "rule": "#d3d9d1"}
DARK = {"ink": "#e6ebe4", "faint": "#a3aea4", "rule": "#3a443d"}
FONT = "system-ui,-apple-system,Segoe UI,Roboto,Helvetica Neue,sans-serif"
LETTER_WIDTH = 0.56  # the mean, as a fraction of the font size
SMALL_CHART = (424, 288)  # CSS pixels: legible on a phone, and wide pages show several side by side
MAX_NAMED_PLACES = 8  # up to this number of points along an axis, each gets a tick
MAX_MARKERS = 30  # up to this number of points of a line, each gets a marker
_UNESCAPED = " =:;,/()!*+?@[]{}|~$^-_."  # characters that need no escape in a quoted attribute

Line = Sequence[tuple[float, float, float]]  # (x, y, spread)


def _style() -> str:
    def rules(colours: Mapping[str, str]) -> str:
        return "".join(f"text.{c}{{fill:{v}}}.{c}{{stroke:{v}}}" for c, v in colours.items())

    plain = f"text{{font-family:{FONT};stroke:none!important}}"
    return f"<style>{plain}{rules(LIGHT)}@media (prefers-color-scheme:dark){{{rules(DARK)}}}</style>"


class SvgCanvas:
    """Shapes in CSS pixels, y downwards. `css`: ink, faint, rule, or "" for white text; `fill`, `stroke`: colours."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = round(width), round(height)
        self._parts: list[str] = []

    def _add(self, kind: str, text: str = "", **attributes: str | float | None) -> None:
        """Add an element. In names, underscores stand for hyphens; attributes that are None, or an opacity of 1, are
        left out."""
        written = []
        for name, value in attributes.items():
            if value is not None and not (name.endswith("opacity") and value == 1):
                shown = value if isinstance(value, str) else f"{value:.4g}"
                written.append(f'{name.strip("_").replace("_", "-")}="{shown}"')
        content = f">{escape(text)}</{kind}>" if text else "/>"
        self._parts.append(f"<{kind} {' '.join(written)}{content}")

    def text(
        self, x: float, y: float, text: str, *, anchor: str = "start", size: float = 12, css: str = "faint",
        upright: bool = False,
    ) -> None:  # fmt: skip
        """Text whose middle line is at y; upright: turned to be read from bottom to top."""
        turn = f"rotate(-90 {x:.1f} {y:.1f})" if upright else None
        colour = {"class_": css} if css else {"fill": "#fff"}
        self._add("text", text, x=x, y=y, dy=".35em", **colour, text_anchor=anchor, font_size=size, transform=turn)

    def line(
        self, x0: float, y0: float, x1: float, y1: float, css: str = "rule", width: float = 1, dash: str | None = None
    ) -> None:
        shape = f"M{_joined([(x0, y0), (x1, y1)])}"
        self._add("path", d=shape, class_=css, stroke_width=width, stroke_dasharray=dash)

    def rect(
        self, x: float, y: float, width: float, height: float, fill: str, opacity: float = 1, rounded: float = 0
    ) -> None:
        rx = rounded or None
        self._add("rect", x=x, y=y, width=width, height=height, fill=fill, rx=rx, fill_opacity=opacity)

    def swatch(self, x: float, y: float, side: float, fill: str) -> None:
        """A square of a class's colour, with an edge that shows it on a ground of the same colour."""
        self._add("rect", x=x, y=y, width=side, height=side, fill=fill, rx=2, class_="rule")

    def path(self, points: Sequence[tuple[float, float]], stroke: str, width: float = 1.7, opacity: float = 1) -> None:
        line = {"fill": "none", "stroke": stroke, "stroke_linejoin": "round"}
        self._add("path", d=f"M{_joined(points)}", **line, stroke_width=width, stroke_opacity=opacity)

    def area(self, points: Sequence[tuple[float, float]], fill: str, opacity: float = 1) -> None:
        self._add("path", d=f"M{_joined(points)}Z", fill=fill, fill_opacity=opacity)

    def dot(self, x: float, y: float, fill: str, radius: float = 3, sides: int = 0, opacity: float = 1) -> None:
        """A disc, or a polygon with this number of sides, so that dots differ in more than colour."""
        if sides:
            turn = [math.tau * k / sides - math.pi / 2 for k in range(sides)]
            self.area([(x + 1.25 * radius * math.cos(a), y + 1.25 * radius * math.sin(a)) for a in turn], fill, opacity)
        else:
            self._add("circle", cx=x, cy=y, r=radius, fill=fill, fill_opacity=opacity)

    def image(
        self, alt: str, title: str = "", caption: str = "", key: Mapping[str, str] | None = None
    ) -> EmbeddedImage:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}">'
        )
        text = f"{head}{_style()}{''.join(self._parts)}</svg>"
        src = f"data:image/svg+xml,{quote(text, safe=_UNESCAPED)}"
        return EmbeddedImage(src, alt, self.width, self.height, title, caption, key or {})


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


class SvgAxes:
    """A box of a canvas with a scale along each side.

    box: left, top, right, bottom; x, y: the values at the ends of each scale
    """

    def __init__(
        self, canvas: SvgCanvas, box: tuple[float, float, float, float], x: tuple[float, float],
        y: tuple[float, float], log_x: bool = False,
    ) -> None:  # fmt: skip
        self.canvas, self.box, self.log_x = canvas, box, log_x
        self._x = tuple(map(math.log10, x)) if log_x else x
        self._y = y

    def x(self, value: float) -> float:
        left, _, right, _ = self.box
        value = math.log10(value) if self.log_x else value
        return left + (value - self._x[0]) / (self._x[1] - self._x[0]) * (right - left)

    def y(self, value: float) -> float:
        _, top, _, bottom = self.box
        return bottom - (value - self._y[0]) / (self._y[1] - self._y[0]) * (bottom - top)

    def at(self, x: float, y: float) -> tuple[float, float]:
        return self.x(x), self.y(y)

    def scales(self, x: Mapping[float, str], y: Mapping[float, str], x_label: str = "", y_label: str = "") -> None:
        """Draw grid lines with names at these values, and axis labels."""
        left, top, right, bottom = self.box
        for value, text in y.items():
            self.canvas.line(left, self.y(value), right, self.y(value), width=0.8)
            self.canvas.text(left - 7, self.y(value), text, anchor="end")
        for value, text in x.items():
            self.canvas.line(self.x(value), top, self.x(value), bottom, width=0.8)
            self.canvas.text(self.x(value), bottom + 13, text, anchor="middle")
        if x_label:
            self.canvas.text((left + right) / 2, bottom + 32, x_label, anchor="middle", size=12.5, css="ink")
        if y_label:
            self.canvas.text(11, (top + bottom) / 2, y_label, anchor="middle", size=12.5, css="ink", upright=True)


def ticks(low: float, high: float, max_ticks: int = 6) -> dict[float, str]:
    """At most `max_ticks` round values in a range, each with its text."""
    span = high - low
    size = 10.0 ** math.floor(math.log10(span / max_ticks))
    step = next(size * k for k in (1, 2, 5, 10, 20) if span / (size * k) <= max_ticks)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return {k * step: f"{k * step:.10g}" for k in range(first, last + 1)}


def padded(low: float, high: float, fraction: float = 0.06) -> tuple[float, float]:
    """A range with a margin at both ends, which a single value gets too."""
    margin = fraction * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin


def model_colours(names: Sequence[str]) -> dict[str, str]:
    """CSS colours by name."""
    return {name: MODEL_COLOURS[i % len(MODEL_COLOURS)] for i, name in enumerate(names)}


def line_chart(
    lines: Mapping[str, Line],
    x_label: str,
    y_label: str,
    alt: str,
    colours: Mapping[str, str] | None = None,
    log_x: bool = False,
) -> EmbeddedImage:
    """Lines through points (x, y, spread); a band, or a bar where there is one point, shows a spread above 0.

    colours: by name; there may be more than lines, since charts share them
    """
    colours = colours or model_colours(list(lines))
    points = np.array([point for line in lines.values() for point in line], np.float64).reshape(-1, 3)
    log_x = log_x and bool((points[:, 0] > 0).all())
    places = sorted(set(points[:, 0].tolist()))
    x_range = (places[0] / 1.15, places[-1] * 1.15) if log_x else padded(places[0], places[-1], 0.03)
    low, high = padded(float((points[:, 1] - points[:, 2]).min()), float((points[:, 1] + points[:, 2]).max()))
    y_ticks = ticks(low, high)
    left = 34 + 6.8 * max(map(len, y_ticks.values()), default=1)
    canvas = SvgCanvas(*SMALL_CHART)
    axes = SvgAxes(canvas, (left, 10, SMALL_CHART[0] - 14, SMALL_CHART[1] - 48), x_range, (low, high), log_x)
    axes.scales(_x_ticks(places, x_range, log_x, axes), y_ticks, shortened(x_label, 52), shortened(y_label, 36))
    for name, line in lines.items():
        colour, number = colours[name], list(colours).index(name)
        if any(spread > 0 for _, _, spread in line):
            _draw_spread(axes, line, colour)
        canvas.path([axes.at(x, y) for x, y, _ in line], colour)
        for x, y, _ in line if len(line) <= MAX_MARKERS else ():
            canvas.dot(*axes.at(x, y), colour, 3, MARKER_SIDES[number % len(MARKER_SIDES)])
    return canvas.image(alt, key={name: colours[name] for name in lines})


def _x_ticks(places: Sequence[float], limits: tuple[float, float], log_x: bool, axes: SvgAxes) -> dict[float, str]:
    """Ticks at the points if they are few and not too close together, else at round values."""
    if len(places) <= MAX_NAMED_PLACES:
        named = {place: f"{place:g}" for place in places}
        widths = [7 * len(text) + 6 for text in named.values()]
        gaps = np.diff([axes.x(place) for place in places])
        if all(gap > (a + b) / 2 for gap, a, b in zip(gaps, widths, widths[1:], strict=False)):
            return named
    if not log_x:
        return ticks(*limits)
    powers = range(math.ceil(math.log10(limits[0])), math.floor(math.log10(limits[1])) + 1)
    return {10.0**power: f"{10.0**power:g}" for power in powers} or {p: f"{p:g}" for p in (places[0], places[-1])}


def _draw_spread(axes: SvgAxes, line: Line, colour: str) -> None:
    if len(line) > 1:
        above, below = [axes.at(x, y + s) for x, y, s in line], [axes.at(x, y - s) for x, y, s in line]
        axes.canvas.area([*above, *reversed(below)], colour, 0.18)
        return
    x, y, spread = line[0]
    axes.canvas.path([axes.at(x, y - spread), axes.at(x, y + spread)], colour, 1.4)
    for end in (y - spread, y + spread):
        across, down = axes.at(x, end)
        axes.canvas.path([(across - 4, down), (across + 4, down)], colour, 1.4)
