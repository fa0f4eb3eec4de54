"""What the template is given: every number and picture of the page, ready to be shown."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hedgerow.files import megabytes
from hedgerow.forest.arrays import ForestStack
from hedgerow.images.labelled import LabelledSet
from hedgerow.report import charts, examples, sections, words
from hedgerow.report.figures import input_picture
from hedgerow.report.measure import Measured
from hedgerow.report.results import Curve, Table


def contents(
    measured: Sequence[Measured], labelled: LabelledSet, background: int | None, class_names: Mapping[int, str]
) -> dict[str, Any]:
    """All that was measured: scores, examples, and the sections of charts."""
    first, best = measured[0], max(measured, key=lambda one: one.scores.mean_dice)
    names = [class_names.get(value, str(value)) for value in labelled.classes]
    spoken = [class_names.get(value, f"class {value}") for value in labelled.classes]
    colours = charts.model_colours([one.name for one in measured])
    palette = examples.index_palette(labelled.classes, background)
    class_key = {name: examples.css(palette[i]) for i, name in enumerate(names)}
    chosen = examples.chosen_images(best)
    shown = []
    for i, title in chosen.items():
        image = labelled.images[i]
        picture = input_picture(image.planes, first.model.features)
        shown.append(examples.example(i, f"{title}: {image.name}", picture, image.target, measured, palette))
    if any(one.is_partly_labelled for one in shown):
        class_key["no label"] = examples.css(examples.NO_LABEL)
    nets = [one for one in measured if not isinstance(one.model, ForestStack)]
    inside = max(nets, key=lambda one: one.scores.mean_dice) if nets else best
    drawn = [
        sections.levels(measured, colours),
        sections.training(measured, colours),
        sections.confusions(first, best, names, spoken, colours),
        sections.layers(inside, labelled, next(iter(chosen)), background),
        sections.calibration(measured, colours),
        *sections.choices(first, spoken),
    ]
    return {
        "sentence": sentence(measured, best, len(labelled)),
        "scores": score_rows(measured, best, background, colours),
        "background": None if background is None else class_names.get(background, f"class {background}"),
        "per_class": per_class(measured, names, class_key),
        "model_names": [one.name for one in measured],
        "first": first.name,
        "examples": shown,
        "chosen_by": best.name,
        "class_key": class_key,
        "error_key": examples.error_key(first.name, len(measured)),
        "sections": [section for section in drawn if section is not None],
    }


def sentence(measured: Sequence[Measured], best: Measured, n_images: int) -> str:
    """What a reader with one minute should know."""
    first = measured[0]
    where = f"on {words.counted(n_images, 'image')}"
    score = f"{best.name} reaches a mean Dice of {best.scores.mean_dice:.3f} {where}"
    if len(measured) == 1:
        return f"{score}."
    if best is first:
        return f"{score}; none of the others does better."
    gain = best.scores.mean_dice - first.scores.mean_dice
    return f"{score}: {gain:.3f} more than {first.name}, which reaches {first.scores.mean_dice:.3f}."


def score_rows(
    measured: Sequence[Measured], best: Measured, background: int | None, colours: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The headline table."""
    first = measured[0].scores.mean_dice
    rows = []
    for place, one in enumerate(measured):
        dice = one.scores.mean_dice
        gain = words.signed(dice - first)
        rows.append(
            {
                "name": one.name,
                "is_best": one is best and len(measured) > 1,
                "colour": colours[one.name],
                "dice": words.cell(dice),
                "part": f"{100 * dice:.1f}%",
                "balanced": words.cell(one.scores.balanced_accuracy),
                "without": None if background is None else words.cell(one.scores.balanced_accuracy_without(background)),
                "gain": "–" if place == 0 else gain,
                "relative": f"{(dice - first) / first:+.1%}".replace("-", "\N{MINUS SIGN}").replace("%", " %")
                if place and first > 0 and gain != "0.000"
                else "",
                "time": words.milliseconds(one.seconds),
                "size": megabytes(one.n_bytes),
            }
        )
    return rows


def per_class(measured: Sequence[Measured], names: Sequence[str], key: Mapping[str, str]) -> list[dict[str, Any]]:
    """Dice of each class and model; the best of a row is marked where models differ."""
    pixels = measured[0].scores.confusion.sum(axis=1)
    dice = np.stack([one.scores.dice for one in measured], axis=1)
    rows = []
    for name, count, values in zip(names, pixels, dice, strict=True):
        known = values[~np.isnan(values)]
        top = known.max() if known.size and np.ptp(known) > 0 else np.inf
        cells = [{"text": words.cell(float(value)), "is_best": bool(value == top)} for value in values]
        rows.append({"name": name, "colour": key[name], "pixels": f"{count:,}", "cells": cells})
    return rows


def extra_results(tables: Sequence[Table], curves: Sequence[Curve]) -> dict[str, Any]:
    """What an experiment adds: its tables as text, its curves as charts."""
    shown = [
        {
            "title": table.title,
            "columns": table.columns,
            "rows": [[words.cell(value) for value in row] for row in table.rows],
            "note": table.note,
        }
        for table in tables
    ]
    drawn = []
    for curve in curves:
        lines = {name: points for name, points in curve.lines.items() if len(points)}
        if not lines:
            continue
        told = "; ".join(f"{name} ends at {points[-1][1]:.3g}" for name, points in lines.items())
        alt = f"{curve.title}: {curve.y_label} over {curve.x_label}; {told}"
        picture = charts.line_chart(lines, curve.x_label, curve.y_label, alt, log_x=curve.log_x)
        drawn.append({"title": curve.title, "note": curve.note, "picture": picture})
    return {"tables": shown, "curves": drawn}


def facts(
    measured: Sequence[Measured], timings: Mapping[str, float] | None, settings: Mapping[str, Any] | None
) -> dict[str, Any]:
    """How it was made: seconds, versions, and the settings given or remembered by the models."""
    remembered: dict[str, Mapping[str, Any]] = {"Settings": settings} if settings else {}
    for one in measured:
        refined = [refinement.config for refinement in one.model.refinements[-1:]]
        made = [("was grown", one.model.settings.get("config")), *(("was refined", config) for config in refined)]
        for text, config in made:
            if config and config not in remembered.values():
                remembered[f"How {one.name} {text}"] = config
    return {
        "timings": {name: words.duration(seconds) for name, seconds in (timings or {}).items()},
        "versions": words.versions(),
        "settings": {name: list(words.settings_rows(config)) for name, config in remembered.items()},
    }
