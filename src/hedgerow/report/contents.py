"""What the template is given: every number and picture of the page, ready to be shown."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hedgerow.deep.parts import parts_of
from hedgerow.files import megabytes
from hedgerow.forest.arrays import ForestStack
from hedgerow.images.labelled import LabelledSet
from hedgerow.images.legend import hex_of
from hedgerow.report import charts, examples, sections, words
from hedgerow.report.figures import input_picture
from hedgerow.report.images_table import images_table
from hedgerow.report.kinds import about, spoken
from hedgerow.report.layers import Window
from hedgerow.report.measure import Measured
from hedgerow.report.results import Curve, Table
from hedgerow.report.shown import ShownClasses


def contents(
    measured: Sequence[Measured],
    labelled: LabelledSet,
    names: Sequence[str],
    window: Window,
    known: ShownClasses,
    background: int | None,
) -> dict[str, Any]:
    """All that was measured: scores, examples, and the sections of charts; names: of the images"""
    first, best = measured[0], max(measured, key=lambda one: one.scores.mean_dice)
    colours = charts.model_colours([one.name for one in measured])
    palette = examples.index_palette(known.palette)
    swatches = [hex_of(colour.tolist()) for colour in known.palette.values()]
    class_key = list(zip(known.names, swatches, strict=True))
    chosen = examples.chosen_images(best)
    shown = []
    for i, title in chosen.items():
        image = labelled.images[i]
        picture = input_picture(image.planes, first.model.features)
        shown.append(examples.example(i, f"{title}: {image.name}", picture, image.target, measured, palette))
    if any(one.is_partly_labelled for one in shown):
        class_key.append(("no label", hex_of(examples.NO_LABEL)))
    nets = [one for one in measured if not isinstance(one.model, ForestStack)]
    inside = max(nets, key=lambda one: one.scores.mean_dice) if nets else best
    given = labelled.images[window.image]
    drawn = [
        sections.levels(measured, colours),
        sections.training(measured, colours),
        sections.members(measured),
        sections.confusions(measured, best, known, swatches, colours),
        sections.layers(inside, measured, given, window, labelled.values(window.thinned(given.target)), known),
        sections.calibration(measured, colours),
        *sections.choices(first, known.spoken),
    ]
    return {
        "sentence": sentence(measured, best, len(labelled)),
        "scores": score_rows(measured, best, background, colours),
        "models": [{"name": one.name, "colour": colours[one.name], "about": about(one.model)} for one in measured],
        "background": None if background is None else known.spoken_of(background),
        "per_class": per_class(measured, known.names, swatches),
        "images": images_table(measured, best, names, colours),
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
    score = f"{spoken(best.name)} reaches a mean Dice of {best.scores.mean_dice:.3f} {where}"
    score = score[0].upper() + score[1:] if score.startswith("the ") else score
    if len(measured) == 1:
        return f"{score}."
    if best is first:
        return f"{score}; none of the others does better."
    gain = best.scores.mean_dice - first.scores.mean_dice
    return f"{score}: {gain:.3f} more than {spoken(first.name)}, which reaches {first.scores.mean_dice:.3f}."


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
                "iou": words.cell(one.scores.mean_iou),
                "accuracy": words.cell(one.scores.accuracy),
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


def per_class(measured: Sequence[Measured], names: Sequence[str], swatches: Sequence[str]) -> list[dict[str, Any]]:
    """Dice and intersection over union of each class and model; the best of a row is marked where models differ."""
    pixels = measured[0].scores.confusion.sum(axis=1)
    dice = np.stack([one.scores.dice for one in measured], axis=1)
    iou = np.stack([one.scores.iou for one in measured], axis=1)
    rows = []
    for name, swatch, count, values, others in zip(names, swatches, pixels, dice, iou, strict=True):
        known = values[~np.isnan(values)]
        top = known.max() if known.size and np.ptp(known) > 0 else np.inf
        cells = [
            {"dice": words.cell(float(value)), "iou": words.cell(float(other)), "is_best": bool(value == top)}
            for value, other in zip(values, others, strict=True)
        ]
        rows.append({"name": name, "colour": swatch, "pixels": f"{count:,}", "cells": cells})
    return rows


def extra_results(tables: Sequence[Table], curves: Sequence[Curve]) -> dict[str, Any]:
    """What an experiment adds: its tables, and its curves as charts."""
    drawn = []
    for curve in curves:
        lines = {name: points for name, points in curve.lines.items() if len(points)}
        if not lines:
            continue
        told = "; ".join(f"{name} ends at {points[-1][1]:.3g}" for name, points in lines.items())
        alt = f"{curve.title}: {curve.y_label} over {curve.x_label}; {told}"
        picture = charts.line_chart(lines, curve.x_label, curve.y_label, alt, log_x=curve.log_x)
        drawn.append({"title": curve.title, "note": curve.note, "picture": picture})
    return {"tables": list(tables), "curves": drawn}


def facts(
    measured: Sequence[Measured], timings: Mapping[str, float] | None, settings: Mapping[str, Any] | None
) -> dict[str, Any]:
    """How it was made: seconds, versions, and the settings given or remembered by the models."""
    remembered: dict[str, Mapping[str, Any]] = {"Settings": settings} if settings else {}
    for one in measured:
        refined = [refinement.config for refinement in one.model.refinements[-1:]]
        deep = parts_of(one.model)[2]
        made = [("was grown", one.model.settings.get("config")), *(("was refined", config) for config in refined)]
        made += [] if deep is None else [("got its convolutional level", deep.record.config)]
        for text, config in made:
            if config and config not in remembered.values():
                remembered[f"How {one.name} {text}"] = config
    return {
        "timings": {name: words.duration(seconds) for name, seconds in (timings or {}).items()},
        "versions": words.versions(),
        "settings": {name: list(words.settings_rows(config)) for name, config in remembered.items()},
    }
