"""Charts of the page, each small enough to be read on a phone; wide pages show several beside each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from hedgerow.report.choices import OffsetMap, Shares
from hedgerow.report.drawing import LETTER, Axes, Drawing, stretched, ticks
from hedgerow.report.embed import Picture
from hedgerow.report.measure import Calibration
from hedgerow.report.words import percent, shortened

# Of models, in their order: mid-tones that are seen on light and dark ground alike, and told apart without colour.
COLOURS = ("#3f7fb5", "#d1682c", "#3f9a63", "#a765b0", "#b08c1e", "#c2505f", "#5b8f99", "#858d86")
SIDES = (0, 4, 3, 5, 6, 7, 8, 9)  # of the dots of a model: a disc, a square, ...
LEAF, BERRY = "#5c9440", "#b34a80"  # features, and the level before
SMALL = (424, 288)  # CSS pixels
MOST_BARS, LONGEST = 12, 16  # channels of a chart, letters of a name on an axis
MOST_NUMBERS = 8  # classes up to which a confusion matrix shows its numbers
MOST_TICKS = 8  # places along an axis that are all named
MOST_DOTS = 30  # points of a line that are all marked

Line = Sequence[tuple[float, float, float]]


def model_colours(names: Sequence[str]) -> dict[str, str]:
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}


def line_chart(
    lines: Mapping[str, Line],
    x_label: str,
    y_label: str,
    alt: str,
    colours: Mapping[str, str] | None = None,
    log_x: bool = False,
) -> Picture:
    """Lines through points (x, y, spread); a band, or a bar where there is one point, shows a spread above 0.

    colours: by name, more than the lines if they are shared with other charts
    """
    colours = colours or model_colours(list(lines))
    points = np.array([point for line in lines.values() for point in line], np.float64).reshape(-1, 3)
    log_x = log_x and bool((points[:, 0] > 0).all())
    places = sorted(set(points[:, 0].tolist()))
    x_range = (places[0] / 1.15, places[-1] * 1.15) if log_x else stretched(places[0], places[-1], 0.03)
    low, high = stretched(float((points[:, 1] - points[:, 2]).min()), float((points[:, 1] + points[:, 2]).max()))
    y_ticks = ticks(low, high)
    left = 34 + 6.8 * max(map(len, y_ticks.values()), default=1)
    drawing = Drawing(*SMALL)
    axes = Axes(drawing, (left, 10, SMALL[0] - 14, SMALL[1] - 48), x_range, (low, high), log_x)
    axes.scales(_places(places, x_range, log_x, axes), y_ticks, shortened(x_label, 52), shortened(y_label, 36))
    for name, line in lines.items():
        colour, number = colours[name], list(colours).index(name)
        if any(spread > 0 for _, _, spread in line):
            _draw_spread(axes, line, colour)
        drawing.path([axes.at(x, y) for x, y, _ in line], colour)
        for x, y, _ in line if len(line) <= MOST_DOTS else ():
            drawing.dot(*axes.at(x, y), colour, 3, SIDES[number % len(SIDES)])
    return drawing.picture(alt, key={name: colours[name] for name in lines})


def _places(places: Sequence[float], limits: tuple[float, float], log_x: bool, axes: Axes) -> dict[float, str]:
    """Names along the x axis: of the points if they are few and not too close, else of round values."""
    if len(places) <= MOST_TICKS:
        named = {place: f"{place:g}" for place in places}
        widths = [7 * len(text) + 6 for text in named.values()]
        gaps = np.diff([axes.x(place) for place in places])
        if all(gap > (a + b) / 2 for gap, a, b in zip(gaps, widths, widths[1:], strict=False)):
            return named
    if not log_x:
        return ticks(*limits)
    powers = range(math.ceil(math.log10(limits[0])), math.floor(math.log10(limits[1])) + 1)
    return {10.0**power: f"{10.0**power:g}" for power in powers} or {p: f"{p:g}" for p in (places[0], places[-1])}


def _draw_spread(axes: Axes, line: Line, colour: str) -> None:
    if len(line) > 1:
        above, below = [axes.at(x, y + s) for x, y, s in line], [axes.at(x, y - s) for x, y, s in line]
        axes.drawing.area([*above, *reversed(below)], colour, 0.18)
        return
    x, y, spread = line[0]
    axes.drawing.path([axes.at(x, y - spread), axes.at(x, y + spread)], colour, 1.4)
    for end in (y - spread, y + spread):
        across, down = axes.at(x, end)
        axes.drawing.path([(across - 4, down), (across + 4, down)], colour, 1.4)


def confusion_chart(
    matrix: np.ndarray,
    names: Sequence[str],
    swatches: Sequence[str],
    colour: str,
    alt: str,
    title: str,
    caption: str,
) -> Picture:
    """Confusion (C,C), rows the truth: the part of each row; shades follow the square root, so that little shows.

    names, swatches: of the classes; the colours as CSS writes them
    """
    totals = matrix.sum(axis=1, keepdims=True)
    parts = np.divide(matrix, totals, out=np.zeros(matrix.shape), where=totals > 0)
    n, short = len(names), [shortened(name, LONGEST) for name in names]
    cell = float(np.clip(260 / n, 13, 66))
    size = float(np.clip(cell * 0.72, 8.5, 12))
    side, swatch = cell * n, min(size, 10)
    room = max(map(len, short)) * size * LETTER + swatch + 10
    is_upright = room > cell
    left, below = 22 + room, room if is_upright else size + swatch + 12
    drawing = Drawing(left + side + 56, side + below + 30)
    for i, (name, css) in enumerate(zip(short, swatches, strict=True)):
        middle = (i + 0.5) * cell
        drawing.swatch(left - 5 - swatch, 4 + middle - swatch / 2, swatch, css)
        drawing.text(left - 10 - swatch, 4 + middle, name, anchor="end", size=size)
        drawing.swatch(left + middle - swatch / 2, side + 9, swatch, css)
        if is_upright:
            drawing.text(left + middle, side + swatch + 14, name, anchor="end", size=size, upright=True)
        else:
            drawing.text(left + middle, side + swatch + 18, name, anchor="middle", size=size)
    for k in range(n + 1):
        drawing.line(left + k * cell, 4, left + k * cell, 4 + side, width=0.5)
        drawing.line(left, 4 + k * cell, left + side, 4 + k * cell, width=0.5)
    for row, column in np.argwhere(parts > 0.0005).tolist():
        part, x, y = float(parts[row, column]), left + column * cell, 4 + row * cell
        drawing.rect(x + 0.4, y + 0.4, cell - 0.8, cell - 0.8, colour, part**0.5)
        if n <= MOST_NUMBERS and part > 0.25:
            drawing.light_text(x + cell / 2, y + cell / 2, f"{part:.2f}", 12)
        elif n <= MOST_NUMBERS:
            drawing.text(x + cell / 2, y + cell / 2, f"{part:.2f}", anchor="middle", css="ink")
    drawing.text(left + side / 2, drawing.height - 9, "predicted class", anchor="middle", size=12.5, css="ink")
    drawing.text(10, 4 + side / 2, "true class", anchor="middle", size=12.5, css="ink", upright=True)
    bar = left + side + 12
    for k in range(40):
        drawing.rect(bar, 4 + side * (1 - (k + 1) / 40), 9, side / 40 + 0.2, colour, (k + 0.5) / 40)
    for part in (0, 0.05, 0.2, 0.5, 1):
        drawing.text(bar + 13, 4 + side * (1 - part**0.5), percent(part), size=10)
    return drawing.picture(alt, title, caption)


def reliability_chart(calibration: Calibration, colour: str, alt: str, title: str, caption: str) -> Picture:
    """Above: how often a confidence was right, beside the diagonal; below: how many pixels have it."""
    drawing = Drawing(320, 372)
    above = Axes(drawing, (52, 8, 308, 236), (0, 1), (0, 1))
    fifths = {k / 5: f"{k / 5:.1f}" for k in range(6)}
    above.scales(dict.fromkeys(fifths, ""), fifths, y_label="")
    drawing.text(11, 122, "share that is right", anchor="middle", size=12.5, css="ink", upright=True)
    drawing.line(*above.at(0, 0), *above.at(1, 1), css="faint", dash="5 4")
    known = calibration.pixels > 0
    found = list(zip(calibration.mean_confidence[known].tolist(), calibration.accuracy[known].tolist(), strict=True))
    for x, y in found:
        drawing.path([above.at(x, x), above.at(x, y)], colour, 4, 0.25)
    drawing.path([above.at(x, y) for x, y in found], colour)
    for x, y in found:
        drawing.dot(*above.at(x, y), colour, 3)
    shares = calibration.pixels / calibration.pixels.sum()
    top = float(shares.max()) * 1.08
    below = Axes(drawing, (52, 254, 308, 324), (0, 1), (0, top))
    below.scales(fifths, {value: percent(value) for value in ticks(0, top, 2)}, "confidence (winning probability)")
    drawing.text(11, 289, "pixels", anchor="middle", size=12.5, css="ink", upright=True)
    width = (308 - 52) / len(shares)
    for k, share in enumerate(shares.tolist()):
        if share:
            drawing.rect(52 + k * width + 0.8, below.y(share), width - 1.6, 324 - below.y(share), colour)
    return drawing.picture(alt, title, caption)


def channel_chart(shares: Shares, names: Sequence[str], n_features: int, alt: str, title: str, caption: str) -> Picture:
    """Bars of the channels that count most, weighted by depth; a dash marks their share of all splits."""
    largest = np.argsort(-shares.weighted, kind="stable")[:MOST_BARS]
    order = [int(c) for c in largest if shares.weighted[c] > 0]
    labels = [shortened(names[c], 20) for c in order]
    left, bottom = 14 + 12 * LETTER * max(map(len, labels)), 10 + 23 * len(order)
    drawing = Drawing(SMALL[0], bottom + 46)
    top = 1.05 * max(float(shares.weighted[order].max()), float(shares.plain[order].max()))
    axes = Axes(drawing, (left, 6, SMALL[0] - 18, bottom), (0, top), (0, 1))
    axes.scales({value: percent(value) for value in ticks(0, top, 5)}, {}, "share of what the level looks at")
    for place, channel in enumerate(order):
        y = 11 + 23 * place
        drawing.text(left - 8, y + 8, labels[place], anchor="end")
        fill = LEAF if channel < n_features else BERRY
        drawing.rect(left, y, axes.x(float(shares.weighted[channel])) - left, 16, fill, rounded=2)
        plain = axes.x(float(shares.plain[channel]))
        drawing.line(plain, y - 2, plain, y + 18, css="ink", width=1.6)
    return drawing.picture(alt, title, caption)


def offset_chart(found: OffsetMap, is_feature: bool, unit: str, alt: str, title: str, caption: str) -> Picture:
    """A map of offsets around the pixel, where the lines cross; shades follow the square root."""
    drawing, extent = Drawing(316, 306), found.extent
    axes = Axes(drawing, (56, 6, 306, 256), (-extent, extent), (extent, -extent))
    named = ticks(-extent, extent, 5)
    texts = {value: text.replace("-", "\N{MINUS SIGN}") for value, text in named.items()}
    axes.scales(texts, texts, f"columns{unit}", f"rows{unit}")
    # The pixel itself is often looked at more than all the rest, which would then be too pale to be seen.
    strongest = max(float(np.percentile(found.cells, 99)), 1e-12)
    n, colour = len(found.cells), LEAF if is_feature else BERRY
    cell = 250 / n
    shades = np.minimum(found.cells / strongest, 1) ** 0.5
    for row, column in np.argwhere(shades > 0.02).tolist():
        drawing.rect(56 + column * cell, 6 + row * cell, cell, cell, colour, float(shades[row, column]))
    drawing.line(56, axes.y(0), 306, axes.y(0), css="faint", width=0.7)
    drawing.line(axes.x(0), 6, axes.x(0), 256, css="faint", width=0.7)
    return drawing.picture(alt, title, caption)


def strip_chart(values: Sequence[float], limits: tuple[float, float], colour: str, alt: str) -> Picture:
    """A dot for each value on one line, and a dash at their median; limits: shared with other strips."""
    drawing = Drawing(260, 26)
    axes = Axes(drawing, (6, 2, 254, 24), limits, (0, 1))
    drawing.line(6, 13, 254, 13)
    known = [value for value in values if not math.isnan(value)]
    for value in known:
        drawing.dot(axes.x(value), 13, colour, 4, opacity=0.45)
    if known:
        middle = axes.x(float(np.median(known)))
        drawing.line(middle, 3, middle, 23, css="ink", width=2)
    return drawing.picture(alt)
