"""What a section of the page is made from, a Comparison, and what it is, a Section; and results that callers add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hedgerow.images.labelled import LabelledSet
from hedgerow.images.legend import hex_of
from hedgerow.report.charts import Line, model_colours
from hedgerow.report.embed import EmbeddedImage
from hedgerow.report.formatting import cell
from hedgerow.report.layer_maps import LayerCrop
from hedgerow.report.measure import MeasuredModel
from hedgerow.report.naming import ClassDisplay


@dataclass(frozen=True)
class ReportTable:
    """A table of results: the first column names the rows; floats get three decimals, None a dash."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | int | None, ...], ...]
    note: str = ""

    @property
    def texts(self) -> list[list[str]]:
        """Its rows as the page shows them."""
        return [[cell(value) for value in row] for row in self.rows]


@dataclass(frozen=True)
class Curve:
    """A line chart of results; lines: name -> (x, y, spread), the spread 0 where there is none."""

    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, Line]
    log_x: bool = False
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """Models measured on the same labelled images, and what the caller adds: all that sections draw from.

    models:     in the user's order; gains are over the first
    crop:       where the inner layers of models were recorded
    background: class value, shown dark and left out of a second balanced accuracy
    """

    models: Sequence[MeasuredModel]
    labelled: LabelledSet
    image_names: Sequence[str]
    classes: ClassDisplay
    crop: LayerCrop
    background: int | None = None
    tables: Sequence[ReportTable] = ()
    curves: Sequence[Curve] = ()
    timings: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def first(self) -> MeasuredModel:
        return self.models[0]

    @cached_property
    def best(self) -> MeasuredModel:
        """The model with the highest mean Dice."""
        return max(self.models, key=lambda model: model.scores.mean_dice)

    @cached_property
    def colours(self) -> dict[str, str]:
        """The CSS colour of each model, by name."""
        return model_colours([model.name for model in self.models])

    @cached_property
    def swatches(self) -> list[str]:
        """The CSS colour of each class."""
        return [hex_of(colour.tolist()) for colour in self.classes.palette.values()]


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading. Most have a text and charts; one with a template of its own gives it `data`.

    key:      name to CSS colour, above the charts; charts share the width of the page, unless the section is_wide
    folded:   more charts, under a summary that opens them
    template: the file in template/ that shows the section
    """

    id: str
    title: str
    text: str = ""
    charts: Sequence[EmbeddedImage] = ()
    key: Mapping[str, str] = field(default_factory=dict)
    is_wide: bool = False
    folded: Sequence[EmbeddedImage] = ()
    folded_title: str = ""
    tables: Sequence[ReportTable] = ()
    template: str = "charts.html"
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def chart_width(self) -> int:
        """CSS pixels of the widest chart."""
        return max((chart.width for chart in self.charts), default=0)
