"""The list of all images with each model's score, worst first, and how far the scores spread."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hedgerow.report import charts, words
from hedgerow.report.drawing import stretched
from hedgerow.report.measure import Measured

N_OPEN = 10  # images that are listed at once; the rest is folded away
N_SPARED = 3  # so few more are not worth folding


def images_table(
    measured: Sequence[Measured], best: Measured, names: Sequence[str], colours: Mapping[str, str]
) -> dict[str, Any]:
    """Rows of the list, those to show and those to fold away, in the order of the best model's mean Dice."""
    scores = np.array([[one.mean_dice for one in model.per_image] for model in measured])  # (models, images)
    # NaN, of an image without a known score, comes last.
    order = np.argsort(scores[list(measured).index(best)], kind="stable").tolist()
    rows = [{"name": names[i], "cells": [_cell(float(value)) for value in scores[:, i]]} for i in order]
    n_open = len(rows) if len(rows) <= N_OPEN + N_SPARED else N_OPEN
    return {
        "rows": rows[:n_open],
        "folded": rows[n_open:],
        "sorted_by": list(measured).index(best),
        "spread": spread(measured, scores, colours) if len(rows) > 1 else [],
    }


def _cell(value: float) -> dict[str, str]:
    """value: what the list is sorted by, empty if unknown"""
    known = not math.isnan(value)
    return {
        "text": words.cell(value),
        "value": f"{value:.6f}" if known else "",
        "part": f"{100 * value:.1f}%" if known else "0%",
    }


def spread(measured: Sequence[Measured], scores: np.ndarray, colours: Mapping[str, str]) -> list[dict[str, Any]]:
    """Lowest, median and highest mean Dice of each model, scores (models, images), and a strip of all."""
    known = scores[~np.isnan(scores)]
    low, high = stretched(float(known.min()), float(known.max()), 0.04) if known.size else (0.0, 1.0)
    found = []
    for one, values in zip(measured, scores, strict=True):
        mine = values[~np.isnan(values)]
        ends = [float(f(mine)) if mine.size else math.nan for f in (np.min, np.median, np.max)]
        texts = [words.cell(end) for end in ends]
        alt = f"Mean Dice of {one.name} on each image, from {texts[0]} to {texts[2]}, median {texts[1]}"
        picture = charts.strip_chart(values.tolist(), (low, high), colours[one.name], alt)
        found.append({"name": one.name, "colour": colours[one.name], "ends": texts, "picture": picture})
    return found
