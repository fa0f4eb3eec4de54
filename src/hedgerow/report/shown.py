"""The classes as the page shows them: names and colours of the models' legend, or names given for the page."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hedgerow.images.legend import Legend


@dataclass(frozen=True)
class ShownClasses:
    """names, spoken: (C,) on axes and in sentences; palette: class value -> (3,) uint8"""

    values: tuple[int, ...]
    names: tuple[str, ...]
    spoken: tuple[str, ...]
    palette: Mapping[int, np.ndarray]

    def spoken_of(self, value: int) -> str:
        return self.spoken[self.values.index(value)]


def shown_classes(
    values: tuple[int, ...], legend: Legend, names: Mapping[int, str] | None = None, background: int | None = None
) -> ShownClasses:
    """names: take precedence over the legend's; background: a class that is near black, unless it has a colour"""
    names = names or {}
    return ShownClasses(
        values,
        tuple(names.get(value, legend.name(value)) for value in values),
        tuple(names.get(value, legend.spoken(value)) for value in values),
        legend.palette(values, background),
    )
