"""Sections at the end of the page: results that the caller adds, and how the models were made.

A module of its own, because every group of sections is one.
"""

from collections.abc import Mapping
from typing import Any

from hedgerow.deep.any_model import parts_of
from hedgerow.progress import duration
from hedgerow.report.charts import line_chart
from hedgerow.report.formatting import settings_rows, versions
from hedgerow.report.measure import MeasuredModel
from hedgerow.report.sections import Comparison, Section


def more_results(comparison: Comparison) -> list[Section]:
    """The caller's tables, and curves as charts."""
    curves = []
    for curve in comparison.curves:
        lines = {name: points for name, points in curve.lines.items() if len(points)}
        if not lines:
            continue
        ends = "; ".join(f"{name} ends at {points[-1][1]:.3g}" for name, points in lines.items())
        alt = f"{curve.title}: {curve.y_label} over {curve.x_label}; {ends}"
        chart = line_chart(lines, curve.x_label, curve.y_label, alt, log_x=curve.log_x)
        curves.append({"title": curve.title, "note": curve.note, "chart": chart})
    if not (comparison.tables or curves):
        return []
    data = {"curves": curves}
    return [Section("more", "More results", tables=comparison.tables, template="more.html", data=data)]


def how_it_was_made(comparison: Comparison) -> list[Section]:
    """Durations, versions, and the settings that the caller gives or the models store."""
    settings: dict[str, Mapping[str, Any]] = {"Settings": comparison.settings} if comparison.settings else {}
    for model in comparison.models:
        for step, config in _configs(model):
            if config and config not in settings.values():
                settings[f"How {model.name} {step}"] = config
    data = {
        "timings": {name: duration(seconds) for name, seconds in comparison.timings.items()},
        "features": {model.name: model.model.features.title for model in comparison.models},
        "versions": versions(),
        "settings": {name: list(settings_rows(config)) for name, config in settings.items()},
    }
    return [Section("facts", "How this was made", template="facts.html", data=data)]


def _configs(model: MeasuredModel) -> list[tuple[str, Mapping[str, Any] | None]]:
    """The settings of each step of a model's training, each after a description of the step."""
    deep = parts_of(model.model)[2]
    return [
        ("was grown", model.model.settings.get("config")),
        *(("was refined", refinement.config) for refinement in model.model.refinements[-1:]),
        *([] if deep is None else [("got its convolutional level", deep.record.config)]),
    ]
