"""The input of all sections of the page, a Comparison; their output, a Section; and results that callers add."""

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
    """A table of results: the first column names the rows; floats are shown with three decimals, None as a dash."""

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
    """A line chart of results; lines: name -> points (x, y, spread); a spread of 0 is not shown."""

    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, Line]
    log_x: bool = False
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """Models measured on the same labelled images, and results that the caller adds: the input of all sections.

    models:     in the user's order; gains are relative to the first
    crop:       the part of an image whose inner layers were recorded
    background: the class value that is shown dark and left out of a second balanced accuracy
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
    """A part of the page with a heading. Most have a text and charts; a section with its own template passes it `data`.

    key:      name to CSS colour, shown above the charts
    is_wide:  each chart takes the full width of the page
    folded:   more charts, which a click on their title shows
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
