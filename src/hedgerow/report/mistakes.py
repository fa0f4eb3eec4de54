"""Sections on mistakes: which classes are confused, and how reliable a model's probabilities are."""

from collections.abc import Sequence

import numpy as np

from hedgerow.report.charts import LETTER_WIDTH, SvgAxes, SvgCanvas, ticks
from hedgerow.report.embed import EmbeddedImage
from hedgerow.report.formatting import counted, joined_words, percent, shortened
from hedgerow.report.measure import Calibration, MeasuredModel
from hedgerow.report.sections import Comparison, Section

MAX_OPEN_MODELS = 3  # with more models, only the matrices of the first and the best are shown at once
MAX_NAME_ON_AXIS = 16  # letters of a class's name on an axis
MAX_NUMBERED_CLASSES = 8  # with more, a confusion matrix has shades but no numbers


def confusion(comparison: Comparison) -> list[Section]:
    """The confusion matrix of every model; with many models, all but the first and the best are folded away."""
    shown: list[EmbeddedImage] = []
    folded: list[EmbeddedImage] = []
    for model in comparison.models:
        summary = _frequent_mistakes(model, comparison.classes.phrases)
        alt = f"Confusion matrix of {model.name}; rows are the true classes, each row sums to one. {summary}"
        chart = confusion_chart(
            model.scores.confusion,
            comparison.classes.names,
            comparison.swatches,
            comparison.colours[model.name],
            alt,
            model.name,
            summary,
        )
        is_shown = len(comparison.models) <= MAX_OPEN_MODELS or model is comparison.first or model is comparison.best
        (shown if is_shown else folded).append(chart)
    text = "Each row shows how the pixels of one true class were classified; those on the diagonal are correct."
    title = f"Confusion matrices of the other {counted(len(folded), 'model')}"
    return [Section("confusion", "Confused classes", text, shown, folded=folded, folded_title=title)]


def _frequent_mistakes(model: MeasuredModel, names: Sequence[str]) -> str:
    """The most frequent mistakes in words, as fractions of their true class."""
    matrix = model.scores.confusion
    parts = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    np.fill_diagonal(parts, 0)
    order = np.argsort(-parts, axis=None, kind="stable")[:3]
    places = [divmod(int(i), len(names)) for i in order if parts.flat[i] >= 0.005]
    if not places:
        return "It makes hardly any mistakes."
    mistakes = [f"{names[row]} for {names[column]} ({percent(parts[row, column], 0)})" for row, column in places]
    return f"Most often it mistakes {joined_words(mistakes)}."


def confusion_chart(
    matrix: np.ndarray,
    names: Sequence[str],
    swatches: Sequence[str],
    colour: str,
    alt: str,
    title: str,
    caption: str,
) -> EmbeddedImage:
    """A confusion matrix (C,C), whose rows are the true classes, as fractions of each row.

    Shades follow the square root, so that small fractions are visible.
    swatches, colour: CSS colours of the classes, and of the cells
    """
    totals = matrix.sum(axis=1, keepdims=True)
    parts = np.divide(matrix, totals, out=np.zeros(matrix.shape), where=totals > 0)
    n, short = len(names), [shortened(name, MAX_NAME_ON_AXIS) for name in names]
    cell = float(np.clip(260 / n, 13, 66))
    size = float(np.clip(cell * 0.72, 8.5, 12))
    side, swatch = cell * n, min(size, 10)
    room = max(map(len, short)) * size * LETTER_WIDTH + swatch + 10
    is_upright = room > cell
    left, below = 22 + room, room if is_upright else size + swatch + 12
    canvas = SvgCanvas(left + side + 56, side + below + 30)
    for i, (name, css) in enumerate(zip(short, swatches, strict=True)):
        middle = (i + 0.5) * cell
        canvas.swatch(left - 5 - swatch, 4 + middle - swatch / 2, swatch, css)
        canvas.text(left - 10 - swatch, 4 + middle, name, anchor="end", size=size)
        canvas.swatch(left + middle - swatch / 2, side + 9, swatch, css)
        below_swatch, anchor = (14, "end") if is_upright else (18, "middle")
        canvas.text(left + middle, side + swatch + below_swatch, name, anchor=anchor, size=size, upright=is_upright)
    for k in range(n + 1):
        canvas.line(left + k * cell, 4, left + k * cell, 4 + side, width=0.5)
        canvas.line(left, 4 + k * cell, left + side, 4 + k * cell, width=0.5)
    for row, column in np.argwhere(parts > 0.0005).tolist():
        part, x, y = float(parts[row, column]), left + column * cell, 4 + row * cell
        canvas.rect(x + 0.4, y + 0.4, cell - 0.8, cell - 0.8, colour, part**0.5)
        if n <= MAX_NUMBERED_CLASSES:
            css = "" if part > 0.25 else "ink"
            canvas.text(x + cell / 2, y + cell / 2, f"{part:.2f}", anchor="middle", css=css)
    canvas.text(left + side / 2, canvas.height - 9, "predicted class", anchor="middle", size=12.5, css="ink")
    canvas.text(10, 4 + side / 2, "true class", anchor="middle", size=12.5, css="ink", upright=True)
    _draw_shades(canvas, left + side + 12, side, colour)
    return canvas.image(alt, title, caption)


def _draw_shades(canvas: SvgCanvas, x: float, height: float, colour: str) -> None:
    """A bar with the shades of a confusion matrix, and the fractions that they stand for."""
    for k in range(40):
        canvas.rect(x, 4 + height * (1 - (k + 1) / 40), 9, height / 40 + 0.2, colour, (k + 0.5) / 40)
    for part in (0, 0.05, 0.2, 0.5, 1):
        canvas.text(x + 13, 4 + height * (1 - part**0.5), percent(part), size=10)


def reliability_chart(bins: Calibration, colour: str, alt: str, title: str, caption: str) -> EmbeddedImage:
    """Accuracy over confidence with the diagonal, and below it the share of pixels with each confidence."""
    canvas, left, right = SvgCanvas(320, 372), 58, 308
    above = SvgAxes(canvas, (left, 8, right, 236), (0, 1), (0, 1))
    fifths = {k / 5: f"{k / 5:.1f}" for k in range(6)}
    above.scales(dict.fromkeys(fifths, ""), fifths)
    canvas.text(11, 122, "share that is correct", anchor="middle", size=12.5, css="ink", upright=True)
    canvas.line(*above.at(0, 0), *above.at(1, 1), css="faint", dash="5 4")
    known = bins.pixels > 0
    points = list(zip(bins.mean_confidence[known].tolist(), bins.accuracy[known].tolist(), strict=True))
    for x, y in points:
        canvas.path([above.at(x, x), above.at(x, y)], colour, 4, 0.25)
    canvas.path([above.at(x, y) for x, y in points], colour)
    for x, y in points:
        canvas.dot(*above.at(x, y), colour, 3)
    shares = bins.pixels / bins.pixels.sum()
    top = float(shares.max()) * 1.08
    below = SvgAxes(canvas, (left, 254, right, 324), (0, 1), (0, top))
    below.scales(fifths, {value: percent(value) for value in ticks(0, top, 2)}, "confidence (highest probability)")
    canvas.text(11, 289, "pixels", anchor="middle", size=12.5, css="ink", upright=True)
    width = (right - left) / len(shares)
    for k, share in enumerate(shares.tolist()):
        if share:
            canvas.rect(left + k * width + 0.8, below.y(share), width - 1.6, 324 - below.y(share), colour)
    return canvas.image(alt, title, caption)


def calibration(comparison: Comparison) -> list[Section]:
    charts = []
    for model in comparison.models:
        bins = model.calibration
        confidence = float(bins.confidence.sum() / bins.pixels.sum())
        caption = (
            f"Expected calibration error {bins.expected_error:.3f}; mean confidence {confidence:.3f}, "
            f"pixel accuracy {model.scores.accuracy:.3f}."
        )
        alt = f"Reliability diagram and histogram of confidence of {model.name}. {caption}"
        charts.append(reliability_chart(bins, comparison.colours[model.name], alt, model.name, caption))
    text = (
        "A model is calibrated if, of the pixels that it predicts with a confidence of 80 %, 80 % are correct: points "
        "on the dashed line. Above the line it is underconfident, below it overconfident. The bars at the bottom show "
        "the share of the labelled pixels with each confidence."
    )
    return [Section("calibration", "Calibration", text, charts)]
