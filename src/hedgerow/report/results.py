"""Tables and curves of the page, as an experiment adds them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hedgerow.report.words import cell


@dataclass(frozen=True)
class Table:
    """A table of an experiment: the first column names the rows; floats get three decimals, None a dash."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | int | None, ...], ...]
    note: str = ""

    @property
    def texts(self) -> list[list[str]]:
        """Its rows as they are shown."""
        return [[cell(value) for value in row] for row in self.rows]


@dataclass(frozen=True)
class Curve:
    """A line chart of an experiment; lines: name -> (x, y, spread), the spread 0 where there is none."""

    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, Sequence[tuple[float, float, float]]]
    log_x: bool = False
    note: str = ""
