"""Sections on scores: of the models over all images, and of each image."""

import math
from typing import Any

import numpy as np

from hedgerow.images.metrics import MEANS
from hedgerow.io.model_file import file_content
from hedgerow.memory import megabytes
from hedgerow.report.charts import SvgAxes, SvgCanvas, padded
from hedgerow.report.embed import EmbeddedImage
from hedgerow.report.formatting import cell, counted, milliseconds, signed
from hedgerow.report.naming import description, with_article
from hedgerow.report.sections import Comparison, Section
from hedgerow.threads import get_threads

MAX_OPEN_IMAGES = 10  # listed at once; further images are folded away
MIN_FOLDED_IMAGES = 4  # fewer are not worth folding


def headline(comparison: Comparison) -> str:
    """The result in a sentence or two, for a reader in a hurry."""
    return " ".join(filter(None, (_result(comparison), _known(comparison))))


def _known(comparison: Comparison) -> str:
    """A warning if models were trained on some of the images."""
    n_known = max(model.n_known for model in comparison.models)
    if not n_known:
        return ""
    who = "The model was" if len(comparison.models) == 1 else "Models were"
    return f"{who} trained on {n_known} of these images, so the scores are too high."


def _result(comparison: Comparison) -> str:
    first, best = comparison.first, comparison.best
    images = counted(len(comparison.labelled), "image")
    score = f"{with_article(best.name)} reaches a mean Dice of {best.scores.mean_dice:.3f} on {images}"
    score = score[0].upper() + score[1:] if score.startswith("the ") else score
    if len(comparison.models) == 1:
        return f"{score}."
    if best is first:
        return f"{score}; no other model scores higher."
    gain = best.scores.mean_dice - first.scores.mean_dice
    return f"{score}: {gain:.3f} more than {with_article(first.name)}, which reaches {first.scores.mean_dice:.3f}."


def model_scores(comparison: Comparison) -> list[Section]:
    """The table of models, an explanation of each, and the scores of each class."""
    background = comparison.background
    models = [
        {"name": model.name, "colour": comparison.colours[model.name], "description": description(model.model)}
        for model in comparison.models
    ]
    data = {
        "rows": model_rows(comparison),
        "other_means": [heading for name, heading in MEANS.items() if name != "mean_dice"],
        "first": comparison.first.name,
        "background": None if background is None else comparison.classes.phrase(background),
        "models": models,
        "classes": class_rows(comparison),
        "threads": counted(get_threads(), "thread"),
    }
    return [Section("scores", "Scores", template="scores.html", data=data)]


def model_rows(comparison: Comparison) -> list[dict[str, Any]]:
    first, background = comparison.first.scores.mean_dice, comparison.background
    rows = []
    for model in comparison.models:
        scores, is_first = model.scores, model is comparison.first
        gain, relative = signed(scores.mean_dice - first), ""
        if not is_first and first > 0 and gain != "0.000":
            relative = f"{100 * (scores.mean_dice - first) / first:+.1f} %".replace("-", "\N{MINUS SIGN}")
        without = None if background is None else cell(scores.balanced_accuracy_without(background))
        rows.append(
            {
                "name": model.name,
                "is_best": model is comparison.best and len(comparison.models) > 1,
                "colour": comparison.colours[model.name],
                "dice": cell(scores.mean_dice),
                "bar": f"{100 * scores.mean_dice:.1f}%",
                "gain": "–" if is_first else gain,
                "relative": relative,
                "other_means": [cell(value) for name, value in scores.means.items() if name != "mean_dice"],
                "without_background": without,
                "milliseconds": milliseconds(model.seconds),
                "size": megabytes(len(file_content(model.model))),
            }
        )
    return rows


def class_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """Dice and IoU of each class and model; the best Dice of a row is marked if the models differ."""
    pixels = comparison.first.scores.confusion.sum(axis=1)
    dice = np.stack([model.scores.dice for model in comparison.models], axis=1)  # (C, models)
    iou = np.stack([model.scores.iou for model in comparison.models], axis=1)
    rows = []
    for k, (name, swatch) in enumerate(zip(comparison.classes.names, comparison.swatches, strict=True)):
        known = dice[k][~np.isnan(dice[k])]
        highest = known.max() if known.size and np.ptp(known) > 0 else np.inf
        cells = [
            {"dice": cell(float(a)), "iou": cell(float(b)), "is_best": bool(a == highest)}
            for a, b in zip(dice[k], iou[k], strict=True)
        ]
        rows.append({"name": name, "colour": swatch, "pixels": f"{pixels[k]:,}", "cells": cells})
    return rows


def image_scores(comparison: Comparison) -> list[Section]:
    """All images with the mean Dice of each model, sorted by that of the best model, and its spread over the images."""
    models = comparison.models
    dice = np.array([[scores.mean_dice for scores in model.per_image] for model in models])  # (models, images)
    best = next(i for i, model in enumerate(models) if model is comparison.best)
    order = np.argsort(dice[best], kind="stable").tolist()  # NaN, of an image without a known score, comes last
    rows = [
        {"name": comparison.image_names[i], "cells": [_image_cell(float(value)) for value in dice[:, i]]} for i in order
    ]
    n_open = MAX_OPEN_IMAGES if len(rows) >= MAX_OPEN_IMAGES + MIN_FOLDED_IMAGES else len(rows)
    data = {
        "rows": rows[:n_open],
        "folded": rows[n_open:],
        "models": [{"name": model.name, "colour": comparison.colours[model.name]} for model in models],
        "sorted_by": best,
        "best": comparison.best.name,
        "spread": spread_rows(comparison, dice) if len(rows) > 1 else [],
    }
    return [Section("images", "All images", template="images.html", data=data)]


def _image_cell(dice: float) -> dict[str, str]:
    """value: the key by which the list is sorted; empty if unknown"""
    if math.isnan(dice):
        return {"text": cell(dice), "value": "", "bar": "0%"}
    return {"text": cell(dice), "value": f"{dice:.6f}", "bar": f"{100 * dice:.1f}%"}


def spread_rows(comparison: Comparison, dice: np.ndarray) -> list[dict[str, Any]]:
    """Lowest, median and highest mean Dice of each model, from `dice` (models, images), and a strip chart."""
    known = dice[~np.isnan(dice)]
    limits = padded(float(known.min()), float(known.max()), 0.04) if known.size else (0.0, 1.0)
    rows = []
    for model, values in zip(comparison.models, dice, strict=True):
        own, colour = values[~np.isnan(values)], comparison.colours[model.name]
        ends = [cell(float(f(own)) if own.size else math.nan) for f in (np.min, np.median, np.max)]
        alt = f"Mean Dice of {model.name} on each image, from {ends[0]} to {ends[2]}, median {ends[1]}"
        chart = strip_chart(values.tolist(), limits, colour, alt)
        rows.append({"name": model.name, "colour": colour, "ends": ends, "chart": chart})
    return rows


def strip_chart(values: list[float], limits: tuple[float, float], colour: str, alt: str) -> EmbeddedImage:
    """A dot for each value on one line, and a dash at their median; limits: shared with other strips."""
    canvas = SvgCanvas(260, 26)
    axes = SvgAxes(canvas, (6, 2, 254, 24), limits, (0, 1))
    canvas.line(6, 13, 254, 13)
    known = [value for value in values if not math.isnan(value)]
    for value in known:
        canvas.dot(axes.x(value), 13, colour, 4, opacity=0.45)
    if known:
        middle = axes.x(float(np.median(known)))
        canvas.line(middle, 3, middle, 23, css="ink", width=2)
    return canvas.image(alt)
