"""The classes of a project: adding, changing and restoring them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from hedgerow.images.array_checks import UNLABELLED_INDEX as UNPAINTED
from hedgerow.paint.messages import MAX_PAINTED_CLASSES, Refused
from hedgerow.paint.project_file import COLOURS, Class

Classes = tuple[Class, ...]


def changed_classes(classes: Sequence[Class], fields: dict[str, Any], taken: Iterable[int] = ()) -> Classes:
    """The classes with one that is changed, moved to a place, removed or, without an id, added; raises Refused.

    taken: values that a new class must not get, as strokes that can be undone have them
    """
    changes = {name: fields[name] for name in ("name", "colour", "hidden", "locked") if name in fields}
    result = list(classes)
    if fields.get("id") is None:
        id = max([-1, *(c.id for c in result), *taken]) + 1
        if len(result) >= MAX_PAINTED_CLASSES or id >= UNPAINTED:
            raise Refused(f"there are {len(result)} classes; no more can be added.")
        changed = replace(Class(id, f"class {id}", COLOURS[id % len(COLOURS)]), **changes)
        result.append(changed)
    else:
        index = index_of(result, fields["id"])
        changed = replace(result.pop(index), **changes)
        if not fields.get("remove"):
            result.insert(fields.get("place", index), changed)
    if any(c.name == changed.name and c.id != changed.id for c in result):
        raise Refused(f"another class is called {changed.name}; choose another name.")
    return tuple(result)


def index_of(classes: Sequence[Class], id: int) -> int:
    """The place of a class in the list; raises Refused."""
    index = next((i for i, c in enumerate(classes) if c.id == id), None)
    if index is None:
        raise Refused("there is no such class; reload the page.")
    return index


def classes_with(classes: Sequence[Class], values: Iterable[int]) -> Classes:
    """The classes, and one for each of these values that has none, as after project.json was lost."""
    result = list(classes)
    for value in sorted(set(values) - {a_class.id for a_class in result}):
        names = {a_class.name for a_class in result}
        name = next(name for n in count() if (name := f"class {value}" + "'" * n) not in names)
        result.append(Class(value, name, COLOURS[value % len(COLOURS)]))
    return tuple(result)
