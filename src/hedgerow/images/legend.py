"""Names and colours of classes, and the file `classes.toml` that holds them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from hedgerow.documents import read_user_document
from hedgerow.errors import InputError, one_line, shown
from hedgerow.files import PathLike, write_text
from hedgerow.images.classes import is_label
from hedgerow.images.pictures import class_palette
from hedgerow.model_methods import NotebookCard

FILE = "classes.toml"
MAX_NAME = 100  # characters
Colour = tuple[int, int, int]
_HEX = re.compile(r"#[0-9a-fA-F]{6}")


@dataclass(frozen=True)
class Legend(NotebookCard):
    """Names and colours of class values. A class without a name is called by its number; colours default to a rainbow.

    names:   class value -> name
    colours: class value -> (red, green, blue), each from 0 to 255

    >>> legend = hr.Legend({1: "cell"}, {1: (255, 0, 0)})
    >>> legend.name(1), legend.name(2)
    ('cell', '2')
    """

    names: Mapping[int, str] = field(default_factory=dict)
    colours: Mapping[int, Colour] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for value, name in self.names.items():
            if not (is_label(value) and isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()):
                raise InputError(
                    f"the name of class {shown(value)} is {shown(name)}; names are 1 to {MAX_NAME} printable "
                    "characters."
                )
        for value, colour in self.colours.items():
            parts = isinstance(colour, tuple) and len(colour) == 3 and all(type(c) is int for c in colour)
            if not (is_label(value) and parts and all(0 <= c <= 255 for c in colour)):
                raise InputError(
                    f"the colour of class {shown(value)} is {shown(colour)}; a colour is red, green and blue from 0 to "
                    "255."
                )
        for name in ("names", "colours"):
            object.__setattr__(self, name, {int(key): value for key, value in sorted(getattr(self, name).items())})

    def __bool__(self) -> bool:
        return bool(self.names or self.colours)

    def name(self, value: int) -> str:
        """The name of a class, or its number."""
        return self.names.get(value, str(value))

    def spoken(self, value: int) -> str:
        """The name of a class, or "class 3", for use in a sentence."""
        return self.names.get(value, f"class {value}")

    def palette(self, classes: Sequence[int], background: int | None = None) -> dict[int, np.ndarray]:
        """The colour (3,) uint8 of each class value; `background` is near black unless it has a colour here."""
        own = {value: np.array(self.colours[value], np.uint8) for value in classes if value in self.colours}
        return class_palette(classes, background) | own

    def only(self, classes: Iterable[int]) -> Self:
        """The names and colours of these classes alone."""
        known = set(classes)
        return type(self)(
            {value: name for value, name in self.names.items() if value in known},
            {value: colour for value, colour in self.colours.items() if value in known},
        )

    def to_list(self) -> list[dict[str, Any]]:
        """JSON-ready: [{"value": 1, "name": "cell", "colour": "#ff0000"}, ...]."""
        rows: list[dict[str, Any]] = []
        for value in sorted({*self.names, *self.colours}):
            row: dict[str, Any] = {"value": value}
            if value in self.names:
                row["name"] = self.names[value]
            if value in self.colours:
                row["colour"] = hex_of(self.colours[value])
            rows.append(row)
        return rows

    @classmethod
    def from_list(cls, rows: Any) -> Self:
        """The legend from which `to_list` made these rows; raises InputError."""
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise InputError("the classes are not a list of tables; each has a value, and a name or a colour.")
        names, colours = {}, {}
        for row in rows:
            value, unknown = row.get("value"), sorted(row.keys() - {"value", "name", "colour", "color"})
            if not is_label(value) or unknown or value in names or value in colours:
                problem = f"has an unknown entry {shown(unknown[0], 40)}" if unknown else "has no value of its own"
                raise InputError(
                    f"the class {shown(row, 80)} {problem}; give each class a value, a name and a colour, e.g. "
                    "value = 1, name = 'cell', colour = '#ff0000'."
                )
            if "name" in row:
                names[value] = row["name"]
            colour = row.get("colour", row.get("color"))
            if colour is not None:
                colours[value] = _colour(colour)
        return cls(names, colours)


def _colour(value: Any) -> Colour:
    """The colour given as "#ff0000" or [255, 0, 0]; `Legend` refuses anything else."""
    if isinstance(value, str) and _HEX.fullmatch(value):
        return int(value[1:3], 16), int(value[3:5], 16), int(value[5:7], 16)
    return tuple(value) if isinstance(value, list) else value


def hex_of(colour: Sequence[int]) -> str:
    """A colour as "#ff0000"."""
    return "#" + "".join(f"{int(part):02x}" for part in colour)


def read_legend(path: PathLike) -> Legend:
    """Read a `classes.toml`: a table [[class]] with value, name and colour for each class."""
    path = Path(path)
    try:
        content = read_user_document(path)
    except (OSError, ValueError) as problem:
        raise InputError(f"cannot read {path}: {one_line(problem)}; check the file, or remove it.") from problem
    if set(content) != {"class"}:
        raise InputError(
            f"{path} has the entries {shown(sorted(content))}, expected a table [[class]] for each class, with its"
            " value, name and colour."
        )
    try:
        legend = Legend.from_list(content["class"])
        check_names_differ(legend)
    except InputError as problem:
        raise InputError(f"{path}: {problem}") from problem
    return legend


def check_names_differ(legend: Legend) -> None:
    """Refuse two classes with the same name, which models of older versions may have."""
    values: dict[str, int] = {}
    for value, name in legend.names.items():
        if values.setdefault(name, value) != value:
            raise InputError(
                f"the classes {values[name]} and {value} are both called {name!r}; give each class its own name."
            )


def write_legend(path: PathLike, legend: Legend) -> None:
    """Write names and colours in the form that `read_legend` reads."""
    lines = []
    for row in legend.to_list():
        lines += ["[[class]]", f"value = {row['value']}"]
        for key in ("name", "colour"):
            if key in row:
                escaped = row[key].replace("\\", "\\\\").replace('"', '\\"')
                lines.append(f'{key} = "{escaped}"')
        lines.append("")
    write_text(path, "\n".join(lines))
