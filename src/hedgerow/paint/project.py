"""A project: a folder with the paint on some images, and the state that results from its journal.

project.json   images, classes and models; the file is written whole or not at all
journal.jsonl  every stroke, undo and redo
lock           held by the program that has the project open
models/        the models that were made here
labels/        label maps that `hedgerow train` reads, written by training and exports
exports/       exported files

Every change is written to the disk first and applied in memory afterwards; a change that cannot be written is not made.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from hedgerow.errors import InputError, one_path
from hedgerow.files import make_folder
from hedgerow.images.array_checks import UNLABELLED_INDEX as UNPAINTED
from hedgerow.images.legend import Legend
from hedgerow.images.regions import Region
from hedgerow.locking import Lock, check_lock
from hedgerow.overwrite_guard import lies_in
from hedgerow.paint.class_list import changed_classes, classes_with
from hedgerow.paint.journal import Entry, Journal, check_journal
from hedgerow.paint.labels import ChangedPart, Labels, Masks
from hedgerow.paint.messages import Refused, checked_entry
from hedgerow.paint.project_file import (
    Chosen,
    Class,
    ImageFile,
    PageModel,
    ProjectContent,
    read_project,
    write_project,
)
from hedgerow.paint.raster import Parts, as_entries, masks_of

PROJECT, JOURNAL, LOCK = "project.json", "journal.jsonl", "lock"
LABELS, EXPORTS, MODELS = "labels", "exports", "models"  # folders inside the project folder that the page writes into
PAINTED = (
    "is already being painted on by {holder}; use that page, end that program, or give another folder (--project)."
)


@dataclass
class _Change:
    """A stroke in the history, sent in parts if it is long, and the values of its classes; or a change of the classes,
    from and to `classes`."""

    id: str | None
    image: int
    state: str  # of the paint with it, see `Project.paint_state`
    changed: list[ChangedPart] = field(default_factory=list)
    values: set[int] = field(default_factory=set)
    classes: tuple[tuple[Class, ...], tuple[Class, ...]] | None = None


class Project:
    """An open project. Any thread may call its methods; threads that read `labels` must hold `lock`."""

    def __init__(self, folder: Path, images: Sequence[ImageFile], left_out: Sequence[str] = ()) -> None:
        """left_out: a sentence for each file that is not painted on"""
        _check_place(folder, images)
        for check, name in ((check_lock, LOCK), (check_journal, JOURNAL), (read_project, PROJECT)):
            check(folder / name)  # before anything is created: other programs may use these file names
        make_folder(folder)
        self.folder, self.lock = folder, threading.RLock()
        self.images = list(images)
        self.labels = [Labels(image.size) for image in self.images]
        self.problems: dict[int, str] = {}  # why images cannot be read, by their numbers
        self.images_changed: Callable[[], None] = lambda: None  # called when `problems` has changed
        self._left_out, self._n_missing = list(left_out), Counter[str]()  # strokes on images that are gone, by name
        self._image_indices = {image.name: i for i, image in enumerate(self.images)}
        self._undoable: list[_Change] = []
        self._redoable: list[_Change] = []
        self._n_undone = 0  # strokes, by the journal alone: changes of classes are not in it
        self._confirmed: dict[str, tuple[int, int, Region | None]] = {}
        self.n_entries = 0
        with ExitStack() as on_failure:
            self.folder_lock = Lock(folder / LOCK, str(folder), PAINTED)
            on_failure.callback(self.folder_lock.release)
            is_new = not (folder / PROJECT).exists()
            self._content = read_project(folder / PROJECT)
            self.journal = Journal(folder / JOURNAL, self._replay)
            on_failure.callback(self.journal.close)
            lost = self._stroke_values() if is_new else ()
            self._write(replace(self._content, classes=classes_with(self.classes, lost)))
            self._add_lacking_classes()
            on_failure.pop_all()

    @property
    def classes(self) -> list[Class]:
        return list(self._content.classes)

    @property
    def page_settings(self) -> dict[str, Any]:
        """How the page was left: the image, the tool and so on."""
        return self._content.page

    def keep(self, settings: dict[str, Any]) -> None:
        """Keep how the page is left."""
        with self.lock:
            self._write(replace(self._content, page={**self._content.page, **settings}))

    @property
    def models(self) -> list[PageModel]:
        """The models that were made here and whose files are still there, the oldest first."""
        return [model for model in self._content.models if self.model_file(model.number).is_file()]

    @property
    def paint_state(self) -> str:
        """Identifies the paint: undoing a stroke gives the state before it again, also after a restart."""
        with self.lock:
            last = self._last_stroke
            return "" if last is None else last.state

    @property
    def _last_stroke(self) -> _Change | None:
        return next((change for change in reversed(self._undoable) if change.classes is None), None)

    @property
    def current_model(self) -> PageModel | None:
        """The model that is shown and exported; None: the one that follows the paint, as always after a new stroke."""
        chosen = self._content.chosen
        if chosen.model is None or chosen.paint != self.paint_state:
            return None
        return next((model for model in self.models if model.number == chosen.model), None)

    def model_file(self, number: int) -> Path:
        return self.folder / MODELS / f"model-{number}.hedge"

    def new_model_number(self) -> int:
        """The number of the next model: none of its files exists."""
        taken = {model.number for model in self._content.models}
        return next(n for n in count(1) if n not in taken and not os.path.lexists(self.model_file(n)))

    def add_model(self, model: PageModel) -> None:
        """List a model whose file is written; it is shown unless there is new paint."""
        with self.lock:
            models = (*self._content.models, model)
            self._write(replace(self._content, models=models, chosen=Chosen(model.number, model.paint)))

    def choose_model(self, number: int | None) -> None:
        """Show a model until the paint changes; None: show the one that follows the paint. Raises Refused."""
        with self.lock:
            if number is not None and number not in {model.number for model in self.models}:
                raise Refused("there is no such model any more; choose another one.")
            self._write(replace(self._content, chosen=Chosen(number, self.paint_state)))

    def _write(self, content: ProjectContent) -> None:
        write_project(self.folder / PROJECT, self.images, content)
        self._content = content

    @property
    def legend(self) -> Legend:
        """Names and colours of the classes."""
        return Legend.from_list([{"value": c.id, "name": c.name, "colour": c.colour} for c in self.classes])

    @property
    def n_undo(self) -> int:
        return len(self._undoable)

    @property
    def n_redo(self) -> int:
        return len(self._redoable)

    def check_image(self, number: int, stroke: str | None = None) -> None:
        """Raise Refused unless there is an image with this number. stroke: the id of the stroke on it"""
        if number >= len(self.images):
            raise Refused("there is no such image; reload the page.", stroke)

    def has_stroke(self, id: str) -> bool:
        return id in self._confirmed

    def paint(self, stroke: dict[str, Any], parts: Parts | None = None) -> Entry:
        """Save and apply a checked stroke; returns the `painted` message. Raises Refused.

        parts: the pixels of a stroke whose points do not tell them
        """
        with self.lock:
            if stroke["id"] in self._confirmed:
                return self._painted(stroke["id"], *self._confirmed[stroke["id"]])
            self.check_image(stroke["image"], stroke["id"])
            if stroke["image"] in self.problems:
                raise Refused(
                    "this image cannot be read, so it cannot be painted; see the list of images.", stroke["id"]
                )
            known = {c.id for c in self.classes}
            if stroke["class"] is not None and stroke["class"] not in known:
                raise Refused("there is no such class; reload the page.", stroke["id"])
            most = stroke.pop("most", None)
            entry = {
                **stroke,
                "image": self.images[stroke["image"]].name,
                "locked": [c.id for c in self.classes if c.locked],
                "at": round(time.time(), 3),
            }
            entries = [entry] if parts is None else list(as_entries(entry, parts))
            masks = [self._masks(own, most) for own in entries]  # refuses strokes that cannot be painted
            self.journal.append(*entries)
            confirmed = [self._apply(own, mask) for own, mask in zip(entries, masks, strict=True)]
            regions = [region for _, _, region in confirmed if region is not None]
            hull = regions[0].hull(*regions) if regions else None
            self._confirmed[stroke["id"]] = self.n_entries, stroke["image"], hull
            return self._painted(stroke["id"], *self._confirmed[stroke["id"]])

    def undo_or_redo(self, action: str, id: str | None = None) -> Entry | None:
        """Undo the last change, or redo the one that was undone last; a change of a class can be undone until the
        program ends.

        id: undo this stroke only; raises Refused if it is not the last change
        Returns the `painted` or `classes` message, or None if there is nothing to undo or redo.
        """
        with self.lock:
            if not self._can(action):
                return None
            last = (self._undoable if action == "undo" else self._redoable)[-1]
            if id is not None and last.id != id:
                raise Refused("something else was changed meanwhile; a part of the stroke stays.")
            if action == "redo" and not last.values <= {c.id for c in self.classes}:
                raise Refused("the class of that stroke is gone; it cannot be painted again.")
            if last.classes is not None:
                now = {c.id: c for c in self.classes}  # what is hidden and locked is not undone
                classes = (
                    replace(now.get(c.id, c), name=c.name, colour=c.colour) for c in last.classes[action == "redo"]
                )
                self._write(replace(self._content, classes=tuple(classes)))
                self._move(action)
                return self.classes_message()
            self.journal.append({"do": action})
            image, region = self._apply_history(action)
            self._add_lacking_classes()
            return self._painted(None, self.n_entries, image, region)

    def change_class(self, fields: dict[str, Any]) -> None:
        """Change a class, or add one; raises Refused."""
        with self.lock:
            before, after = self._content.classes, changed_classes(self.classes, fields, self._stroke_values())
            self._write(replace(self._content, classes=after))
            is_of_view = not fields.keys() & {"name", "colour", "place", "remove"} and len(after) == len(before)
            if not is_of_view:
                self._undoable.append(_Change(None, 0, "", classes=(before, after)))
                self._redoable.clear()

    @property
    def left_out(self) -> list[str]:
        """A sentence for each file that is not painted on, and for each image that is gone but has paint."""
        missing = [
            f"{name} is not among the images; its paint ({n} stroke{'s' * (n > 1)}) is kept, and returns with the file."
            for name, n in self._n_missing.items()
        ]
        return [*self._left_out, *missing]

    def note_problem(self, image: int, problem: str) -> None:
        """Note why an image cannot be read, or that it can (""): nothing is trained on it, and it is not painted."""
        with self.lock:
            if self.problems.get(image, "") == problem:
                return
            self.problems.pop(image, None)
            if problem:
                self.problems[image] = problem
        self.images_changed()

    @property
    def stamp(self) -> tuple[int, ...]:
        """Identifies a state of the paint on readable images: it differs after every change."""
        with self.lock:
            return tuple(-1 if i in self.problems else labels.n_changes for i, labels in enumerate(self.labels))

    def painted_images(self) -> list[int]:
        """The indices of the readable images that have paint."""
        with self.lock:
            return [i for i, labels in enumerate(self.labels) if labels.n_painted and i not in self.problems]

    def close(self) -> None:
        with self.lock:
            self.journal.close()
            self.folder_lock.release()

    def _masks(self, entry: Entry, most: int | None = None) -> Masks:
        return masks_of(entry, self.labels[self._image_indices[entry["image"]]], most)

    def _stroke_values(self) -> set[int]:
        return {value for stroke in (*self._undoable, *self._redoable) for value in stroke.values}

    def _add_lacking_classes(self) -> None:
        """Add a class for each painted value that has none, as after project.json was lost or a merge was undone."""
        classes = classes_with(self.classes, {value for labels in self.labels for value in labels.pixels})
        if classes != self._content.classes:
            self._write(replace(self._content, classes=classes))

    def _can(self, action: str) -> bool:
        return bool(self._undoable if action == "undo" else self._redoable)

    def _apply_history(self, action: str) -> tuple[int, Region | None]:
        self.n_entries += 1
        stroke = self._move(action)
        self._n_undone += 1 if action == "undo" else -1
        self.labels[stroke.image].toggle(stroke.changed)
        return stroke.image, _hull(stroke.changed)

    def _move(self, action: str) -> _Change:
        """Move the last change to the list of those that can be undone or redone."""
        undoes = action == "undo"
        change = (self._undoable if undoes else self._redoable).pop()
        (self._redoable if undoes else self._undoable).append(change)
        return change

    def classes_message(self) -> Entry:
        """The message about the classes."""
        classes = [vars(a_class).copy() for a_class in self._content.classes]
        return {"say": "classes", "classes": classes, "undo": self.n_undo, "redo": self.n_redo}

    def _apply(self, entry: Entry, masks: Masks) -> tuple[int, int, Region | None]:
        self.n_entries += 1
        image = self._image_indices[entry["image"]]
        value = UNPAINTED if entry["class"] is None else entry["class"]
        changed = self.labels[image].paint(masks, value, entry["locked"])
        last = self._last_stroke
        joins = entry.get("joins")
        if joins is not None and last is not None and not self._n_undone and (last.id, last.image) == (joins, image):
            last.changed += changed
            last.state = self._state_with(entry["id"])
            if self._undoable[-1] is not last:  # the classes were changed while it was drawn
                self._undoable = [*(change for change in self._undoable if change is not last), last]
        else:
            last = _Change(entry["id"], image, self._state_with(entry["id"]), changed)
            self._undoable.append(last)
        last.values |= set() if entry["class"] is None else {entry["class"]}
        self._redoable.clear()
        self._n_undone = 0
        self._confirmed[entry["id"]] = self.n_entries, image, _hull(changed)
        return self._confirmed[entry["id"]]

    def _state_with(self, id: str) -> str:
        return hashlib.blake2b(f"{self.paint_state} {id}".encode(), digest_size=8).hexdigest()

    def _replay(self, entry: Entry) -> None:
        """Apply an entry of an existing journal, but skip strokes on images that are gone; raises Refused."""
        entry = checked_entry(entry)
        if entry["do"] == "paint":
            if entry["image"] in self._image_indices:
                self._apply(entry, self._masks(entry))
            else:
                self.n_entries += 1
                self._n_missing[entry["image"]] += 1
                self._undoable.append(_Change(entry["id"], 0, self._state_with(entry["id"])))
                self._redoable.clear()
                self._n_undone = 0
        elif self._can(entry["do"]):
            self._apply_history(entry["do"])
        else:
            raise Refused(f"there is nothing to {entry['do']}")

    def _painted(self, id: str | None, n: int, image: int, region: Region | None) -> Entry:
        """The message that confirms a change."""
        labels = self.labels[image]
        sides = (0, 0, 0, 0) if region is None else (region.top, region.bottom, region.left, region.right)
        return {
            "say": "painted",
            "id": id,
            "n": n,
            "image": image,
            "region": list(sides),
            "labels": labels.n_changes,
            "pixels": {str(value): count for value, count in labels.pixels.items()},
            "undo": self.n_undo,
            "redo": self.n_redo,
        }


def _hull(changed: Sequence[ChangedPart]) -> Region | None:
    """The smallest region that contains all changes; None: nothing changed."""
    regions = [part.region for part in changed]
    return regions[0].hull(*regions) if regions else None


def _check_place(folder: Path, images: Sequence[ImageFile]) -> None:
    """Refuse a project folder in which the page would write among the images."""
    for name, content in ((LABELS, "label maps"), (EXPORTS, "exported files"), (MODELS, "models")):
        inside = next((image for image in images if lies_in(image.path, folder / name)), None)
        if inside is not None:
            raise InputError(
                f"{one_path(inside.path)} is in {folder / name}, into which the page writes {content}; give another "
                "project folder (--project), or move the images."
            )
