"""A project: a folder with what was painted on images, and the state that its journal leads to.

project.json  images and classes, written whole or not at all
journal.jsonl every stroke, undo and redo
lock          held by the program that paints on it
labels/       label maps as `hedgerow train` reads them, written by exports

What is not written is not done: every change goes to the disk first, and into memory when it is there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hedgerow.errors import InputError, one_path
from hedgerow.files import make_folder
from hedgerow.images.arrays import UNLABELLED_INDEX as UNPAINTED
from hedgerow.images.legend import Legend
from hedgerow.images.regions import Region
from hedgerow.locking import Lock, check_lock
from hedgerow.overwrite_guard import lies_in
from hedgerow.paint.image_files import ImageFile
from hedgerow.paint.journal import Entry, Journal, check_journal
from hedgerow.paint.labels import Change, Labels, Masks
from hedgerow.paint.messages import MAX_CLASSES, MAX_FILL, Refused, checked_entry
from hedgerow.paint.project_file import COLOURS, Class, read_classes, write_project
from hedgerow.paint.raster import covered

PROJECT, JOURNAL, LOCK = "project.json", "journal.jsonl", "lock"
LABELS, EXPORTS = "labels", "exports"  # folders in that of a project, into which the page writes
MAX_POLYGON = 2**26  # pixels around a polygon, so that one message cannot fill the memory


@dataclass
class _Stroke:
    """A stroke in the history, with the parts that were sent while the hand moved."""

    id: str | None
    image: int
    changes: list[Change] = field(default_factory=list)

    @property
    def region(self) -> Region | None:
        return hull(change.region for change in self.changes)


class Project:
    """An open project. Its methods may be called by several threads; those that read labels must hold `lock`."""

    def __init__(self, folder: Path, images: Sequence[ImageFile]) -> None:
        _check_place(folder, images)
        for check, name in ((check_lock, LOCK), (check_journal, JOURNAL), (read_classes, PROJECT)):
            check(folder / name)  # before anything is created: another program's files may have these names
        make_folder(folder)
        self.folder = folder
        self.held = Lock(folder / LOCK)
        try:
            self._open(folder, images)
        except BaseException:
            self.held.release()
            raise

    def _open(self, folder: Path, images: Sequence[ImageFile]) -> None:
        self.lock = threading.RLock()
        self.images = list(images)
        self.classes = read_classes(folder / PROJECT)
        self.labels = [Labels(image.size) for image in self.images]
        self._numbers = {image.name: i for i, image in enumerate(self.images)}
        self._done: list[_Stroke] = []
        self._undone: list[_Stroke] = []
        self._answers: dict[str, tuple[int, int, Region | None]] = {}
        self.n_entries = 0
        self.journal = Journal(folder / JOURNAL, self._replay)
        try:
            write_project(folder / PROJECT, self.images, self.classes)
        except BaseException:
            self.journal.close()
            raise

    @property
    def legend(self) -> Legend:
        """Names and colours of the classes."""
        colours = {one.id: tuple(int(one.colour[i : i + 2], 16) for i in (1, 3, 5)) for one in self.classes}
        return Legend({one.id: one.name for one in self.classes}, colours)  # type: ignore[arg-type]

    @property
    def n_undo(self) -> int:
        return len(self._done)

    @property
    def n_redo(self) -> int:
        return len(self._undone)

    def paint(self, stroke: dict[str, Any]) -> Entry:
        """Paint a stroke that has been checked, keep it, and say what was painted; raises Refused."""
        with self.lock:
            if stroke["id"] in self._answers:
                return self._painted(stroke["id"], *self._answers[stroke["id"]])
            if stroke["image"] >= len(self.images):
                raise Refused("there is no such image; reload the page.", stroke["id"])
            known = {one.id for one in self.classes}
            if stroke["class"] is not None and stroke["class"] not in known:
                raise Refused("there is no such class; reload the page.", stroke["id"])
            entry = {
                **stroke,
                "image": self.images[stroke["image"]].name,
                "locked": [one.id for one in self.classes if one.locked],
                "at": round(time.time(), 3),
            }
            masks = self._masks(entry)  # refuses what cannot be painted, before it is kept
            self.journal.append(entry)
            return self._painted(stroke["id"], *self._apply(entry, masks))

    def undo(self) -> Entry | None:
        """Take back the last stroke; what was painted, or None: there is nothing to take back."""
        return self._step("undo")

    def redo(self) -> Entry | None:
        """Do again the last stroke that was taken back."""
        return self._step("redo")

    def change_class(self, asked: dict[str, Any]) -> None:
        """Change a class, or add one; raises Refused."""
        with self.lock:
            changes = {name: asked[name] for name in ("name", "colour", "hidden", "locked") if name in asked}
            classes = list(self.classes)
            if asked.get("id") is None:
                id = max((one.id for one in classes), default=-1) + 1
                if len(classes) >= MAX_CLASSES or id >= UNPAINTED:
                    raise Refused(f"there are {len(classes)} classes; no more can be added.")
                changed = replace(Class(id, f"class {id}", COLOURS[id % len(COLOURS)]), **changes)
                classes.append(changed)
            else:
                place = next((i for i, one in enumerate(classes) if one.id == asked["id"]), None)
                if place is None:
                    raise Refused("there is no such class; reload the page.")
                changed = classes[place] = replace(classes[place], **changes)
            if any(one.name == changed.name and one.id != changed.id for one in classes):
                raise Refused(f"another class is called {changed.name}; give it a name of its own.")
            write_project(self.folder / PROJECT, self.images, classes)
            self.classes = classes

    @property
    def stamp(self) -> tuple[int, ...]:
        """What tells one state of the paint from another."""
        with self.lock:
            return tuple(labels.n_changes for labels in self.labels)

    def painted_images(self) -> list[int]:
        """The numbers of the images that have paint."""
        with self.lock:
            return [i for i, labels in enumerate(self.labels) if labels.n_painted]

    def close(self) -> None:
        with self.lock:
            self.journal.close()
            self.held.release()

    def _step(self, way: str) -> Entry | None:
        with self.lock:
            if not self._can(way):
                return None
            self.journal.append({"do": way})
            image, region = self._turn(way)
            return self._painted(None, self.n_entries, image, region)

    def _can(self, way: str) -> bool:
        return bool(self._done if way == "undo" else self._undone)

    def _turn(self, way: str) -> tuple[int, Region | None]:
        self.n_entries += 1
        if way == "undo":
            stroke = self._done.pop()
            self._undone.append(stroke)
            for change in reversed(stroke.changes):
                self.labels[stroke.image].revert(change)
        else:
            stroke = self._undone.pop()
            self._done.append(stroke)
            for change in stroke.changes:
                self.labels[stroke.image].repeat(change)
        return stroke.image, stroke.region

    def _apply(self, entry: Entry, masks: Masks) -> tuple[int, int, Region | None]:
        self.n_entries += 1
        image = self._numbers[entry["image"]]
        value = UNPAINTED if entry["class"] is None else entry["class"]
        change = self.labels[image].paint(masks, value, entry["locked"])
        last = self._done[-1] if self._done else None
        joins = entry.get("joins")
        if joins is not None and last is not None and not self._undone and (last.id, last.image) == (joins, image):
            last.changes.append(change)
        else:
            self._done.append(_Stroke(entry["id"], image, [change]))
        self._undone.clear()
        self._answers[entry["id"]] = self.n_entries, image, change.region
        return self._answers[entry["id"]]

    def _masks(self, entry: Entry) -> Masks:
        labels = self.labels[self._numbers[entry["image"]]]
        points, tool = entry["points"], entry["tool"]
        if tool == "fill":
            row, column = (int(one + 0.5) for one in points[0])
            height, width = labels.size
            top, bottom, left, right = entry["within"]
            within = Region(max(top, 0), min(bottom, height), max(left, 0), min(right, width))
            found = labels.same_area(row, column, within, MAX_FILL)
            if found is None:
                raise Refused(f"the area to fill has more than {MAX_FILL:,} pixels; zoom in.", entry["id"])
            return [found]
        if tool == "polygon":
            rows, columns = ([point[axis] for point in points] for axis in (0, 1))
            if (max(rows) - min(rows) + 2) * (max(columns) - min(columns) + 2) > MAX_POLYGON:
                raise Refused("the polygon is too large; zoom in.", entry["id"])
        return covered(points, entry["radius"] or 0.0, labels.size, is_polygon=tool == "polygon")

    def _replay(self, entry: Entry) -> None:
        """One entry of a journal that was there; strokes on images that are gone are left out; raises Refused."""
        entry = checked_entry(entry)
        if entry["do"] == "paint":
            if entry["image"] in self._numbers:
                self._apply(entry, self._masks(entry))
            else:
                self.n_entries += 1
                self._done.append(_Stroke(entry["id"], 0))
                self._undone.clear()
        elif self._can(entry["do"]):
            self._turn(entry["do"])
        else:
            raise Refused(f"there is nothing to {entry['do']}")

    def _painted(self, id: str | None, n: int, image: int, region: Region | None) -> Entry:
        labels = self.labels[image]
        around = (0, 0, 0, 0) if region is None else (region.top, region.bottom, region.left, region.right)
        return {
            "say": "painted",
            "id": id,
            "n": n,
            "image": image,
            "region": list(around),
            "labels": labels.n_changes,
            "pixels": {str(value): count for value, count in labels.pixels.items()},
            "undo": self.n_undo,
            "redo": self.n_redo,
        }


def hull(regions: Any) -> Region | None:
    """The smallest region around some, of which None are nothing."""
    some = [one for one in regions if one is not None]
    if not some:
        return None
    return Region(
        min(one.top for one in some),
        max(one.bottom for one in some),
        min(one.left for one in some),
        max(one.right for one in some),
    )


def _check_place(folder: Path, images: Sequence[ImageFile]) -> None:
    """Refuse a folder in which the page would write among the images."""
    for part, what in ((LABELS, "label maps"), (EXPORTS, "what it exports")):
        inside = next((image for image in images if lies_in(image.path, folder / part)), None)
        if inside is not None:
            raise InputError(
                f"{one_path(inside.path)} lies in {folder / part}, into which the page writes {what}; give another "
                "project folder (--project), or move the images."
            )
