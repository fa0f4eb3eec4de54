"""Charts written straight as SVG: text stays text, and colours follow the page from light to dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import quote

from hedgerow.report.embed import Picture

# Classes of the drawing's own style sheet, and what becomes of them where the reader prefers a dark page.
LIGHT = {"ink": "#27302a", "faint": "#5d685f", "rule": "#d3d9d1"}
DARK = {"ink": "#e6ebe4", "faint": "#a3aea4", "rule": "#3a443d"}
FONT = "system-ui,-apple-system,Segoe UI,Roboto,Helvetica Neue,sans-serif"
LETTER = 0.56  # width of a letter, of its size, in the mean
_SAFE = " =:;,/()!*+?@[]{}|~$^-_."  # what needs no escape between double quotes in an attribute


def _style() -> str:
    def rules(colours: Mapping[str, str]) -> str:
        return "".join(f"text.{c}{{fill:{v}}}.{c}{{stroke:{v}}}.fill-{c}{{fill:{v}}}" for c, v in colours.items())

    plain = f"text{{font-family:{FONT};stroke:none!important}}"
    return f"<style>{plain}{rules(LIGHT)}@media (prefers-color-scheme:dark){{{rules(DARK)}}}</style>"


class Drawing:
    """Shapes on a ground of CSS pixels, rows downwards. `css`: ink, faint or rule; `fill`, `stroke`: CSS colours."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = round(width), round(height)
        self._parts: list[str] = []

    def text(
        self, x: float, y: float, text: str, *, anchor: str = "start", size: float = 12, css: str = "faint",
        upright: bool = False,
    ) -> None:  # fmt: skip
        """Text whose middle line is at y; upright: read from below."""
        turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if upright else ""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" dy=".35em" class="{css}" text-anchor="{anchor}" font-size="{size:g}"{turn}>'
            f"{escape(text)}</text>"
        )

    def light_text(self, x: float, y: float, text: str, size: float) -> None:
        """White text in the middle of something coloured."""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" dy=".35em" fill="#fff" text-anchor="middle" font-size="{size:g}">'
            f"{escape(text)}</text>"
        )

    def line(
        self, x0: float, y0: float, x1: float, y1: float, css: str = "rule", width: float = 1, dash: str = ""
    ) -> None:
        more = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" class="{css}" stroke-width="{width:g}"{more}/>'
        )

    def rect(
        self, x: float, y: float, width: float, height: float, fill: str, opacity: float = 1, rounded: float = 0
    ) -> None:
        more = f' rx="{rounded:g}"' if rounded else ""
        more += f' fill-opacity="{opacity:.3g}"' if opacity < 1 else ""
        self._parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" fill="{fill}"{more}/>'
        )

    def swatch(self, x: float, y: float, side: float, fill: str) -> None:
        """A square of a class's colour, with an edge that shows it on a ground of the same colour."""
        self._parts.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{side:.2f}" height="{side:.2f}" fill="{fill}" rx="2" class="rule"/>'
        )

    def path(self, points: Sequence[tuple[float, float]], stroke: str, width: float = 1.7, opacity: float = 1) -> None:
        more = f' stroke-opacity="{opacity:g}"' if opacity < 1 else ""
        self._parts.append(
            f'<path d="M{_joined(points)}" fill="none" stroke="{stroke}" stroke-width="{width:g}" '
            f'stroke-linejoin="round"{more}/>'
        )

    def area(self, points: Sequence[tuple[float, float]], fill: str, opacity: float = 1) -> None:
        self._parts.append(f'<path d="M{_joined(points)}Z" fill="{fill}" fill-opacity="{opacity:g}"/>')

    def dot(self, x: float, y: float, fill: str, radius: float = 3, sides: int = 0, opacity: float = 1) -> None:
        """A disc, or a polygon of so many sides, so that colour is not all that tells dots apart."""
        if sides:
            turn = [math.tau * k / sides - math.pi / 2 for k in range(sides)]
            self.area([(x + 1.25 * radius * math.cos(a), y + 1.25 * radius * math.sin(a)) for a in turn], fill, opacity)
            return
        more = f' fill-opacity="{opacity:g}"' if opacity < 1 else ""
        self._parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}"{more}/>')

    def picture(self, alt: str, title: str = "", caption: str = "", key: Mapping[str, str] | None = None) -> Picture:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}">'
        )
        text = f"{head}{_style()}{''.join(self._parts)}</svg>"
        address = f"data:image/svg+xml,{quote(text, safe=_SAFE)}"
        return Picture(address, alt, self.width, self.height, title, caption, key or {})


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


class Axes:
    """A box of a drawing with a scale on either side.

    box: left, top, right, bottom; x, y: the lowest and highest value
    """

    def __init__(
        self, drawing: Drawing, box: tuple[float, float, float, float], x: tuple[float, float],
        y: tuple[float, float], log_x: bool = False,
    ) -> None:  # fmt: skip
        self.drawing, self.box, self.log_x = drawing, box, log_x
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
        """A grid with names at these values, and what the scales are of."""
        left, top, right, bottom = self.box
        for value, text in y.items():
            self.drawing.line(left, self.y(value), right, self.y(value), width=0.8)
            self.drawing.text(left - 7, self.y(value), text, anchor="end")
        for value, text in x.items():
            self.drawing.line(self.x(value), top, self.x(value), bottom, width=0.8)
            self.drawing.text(self.x(value), bottom + 13, text, anchor="middle")
        if x_label:
            self.drawing.text((left + right) / 2, bottom + 32, x_label, anchor="middle", size=12.5, css="ink")
        if y_label:
            self.drawing.text(11, (top + bottom) / 2, y_label, anchor="middle", size=12.5, css="ink", upright=True)


def ticks(low: float, high: float, most: int = 6) -> dict[float, str]:
    """Round values between two others, at most so many, and how they are written."""
    span = high - low
    size = 10.0 ** math.floor(math.log10(span / most))
    step = next(size * k for k in (1, 2, 5, 10, 20) if span / (size * k) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return {k * step: f"{k * step:.10g}" for k in range(first, last + 1)}


def stretched(low: float, high: float, part: float = 0.06) -> tuple[float, float]:
    """A range with air at both ends, also of a single value."""
    air = part * (high - low) or 0.1 * abs(high) or 1.0
    return low - air, high + air
