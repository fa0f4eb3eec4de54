"""A project that is open: what windows ask for, and what they are told. Nothing here knows how messages travel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hedgerow import extras
from hedgerow.encoders.store import LITE0, place_of
from hedgerow.images.regions import Region
from hedgerow.paint.engine import Engine, Request
from hedgerow.paint.image_files import ImageFile
from hedgerow.paint.improve import Workshop, check_how
from hedgerow.paint.live import Codes
from hedgerow.paint.messages import LIMITS, Refused
from hedgerow.paint.project import Project
from hedgerow.paint.pyramid import n_levels
from hedgerow.paint.segmenting import Segmenter, View
from hedgerow.paint.store import Store
from hedgerow.paint.where_next import where_next

Message = dict[str, Any]


class Session:
    """One project and its worker. `tell` takes messages for all windows; any thread may call it."""

    def __init__(
        self,
        project: Project,
        tell: Callable[[Message], None],
        store: Store | None = None,
    ) -> None:
        self.project, self.tell = project, tell
        self.store = store or Store()
        self.codes = Codes(project, self.store)
        self.segmenter = Segmenter(project, self.codes)
        self.engine = Engine(project, self.segmenter, tell)
        self.codes.progress = self.engine.progress
        self.workshop = Workshop(project, self.codes, self.engine, self.segmenter.next_id)

    def start(self) -> None:
        self.engine.start()

    def close(self) -> None:
        self.engine.stop()
        self.project.close()

    def handle(self, message: Message) -> tuple[Message | None, Message | None]:
        """Obey a message that has been checked: what to say to its window, and what to say to all; raises Refused."""
        what = message["do"]
        if what == "view":
            self._look(message)
        elif what == "paint":
            return self._painted(self.project.paint(message))
        elif what in ("undo", "redo"):
            painted = self.project.undo() if what == "undo" else self.project.redo()
            if painted is None:
                raise Refused(f"there is nothing to {what}.")
            return self._painted(painted)
        elif what == "class":
            self.project.change_class(message)
            return None, {"say": "classes", "classes": self.classes()}
        elif what == "live":
            self.engine.set_live(message["on"])
        elif what == "cancel":
            self.engine.cancel(message.get("job"))
        elif not self.engine.ask(self._request(message)):
            return {"say": "failed", "job": what, "why": "this is under way already."}, None
        return None, None

    def _request(self, message: Message) -> Request:
        """Longer work, for the engine; raises Refused."""
        what, workshop = message["do"], self.workshop
        if what == "next":
            image = message.get("image")
            if image is not None and image >= len(self.project.images):
                raise Refused("there is no such image; reload the page.")
            view = self.engine.view
            shown = image if image is not None else 0 if view is None else view.image
            return Request("next", lambda report: where_next(self.segmenter, self.engine, image, shown))
        if what == "train":
            return Request("train", workshop.train)
        if what == "improve":
            check_how(message["how"], can())
            return Request("improve", lambda report: workshop.improve(message["how"], report))
        return Request("export", lambda report: workshop.export(message["what"], report))

    def exported(self, number: int, name: str) -> Path | None:
        """A file that an export made."""
        return self.workshop.exports.file(number, name)

    def described(self, n_windows: int) -> Message:
        """The state of the project, as the page begins with it."""
        with self.project.lock:
            images = [self._image(i, image) for i, image in enumerate(self.project.images)]
            return {
                "title": self.project.folder.name.removesuffix("-painted"),
                "folder": str(self.project.folder),
                "windows": n_windows,
                "live": self.engine.is_live,
                "images": images,
                "classes": self.classes(),
                "can": can(),
                "undo": self.project.n_undo,
                "redo": self.project.n_redo,
                "limits": LIMITS,
            }

    def classes(self) -> list[Message]:
        return [vars(one).copy() for one in self.project.classes]

    def _painted(self, painted: Message) -> tuple[None, Message]:
        self.engine.painted(painted["image"])
        return None, painted

    def _look(self, message: Message) -> None:
        if message["image"] >= len(self.project.images):
            raise Refused("there is no such image; reload the page.")
        height, width = self.project.images[message["image"]].size
        (top, bottom), (left, right) = message["rows"], message["cols"]
        region = Region(max(top, 0), min(bottom, height), max(left, 0), min(right, width))
        if region.height > 0 and region.width > 0:
            self.engine.look(View(message["image"], message["level"], region))

    def _image(self, i: int, image: ImageFile) -> Message:
        labels = self.project.labels[i]
        low, high = self._range(i, image)
        return {
            "id": i,
            "name": image.name,
            "height": image.size[0],
            "width": image.size[1],
            "n_channels": image.n_channels,
            "type": "u1" if image.dtype.itemsize == 1 else "u2",
            "low": low,
            "high": high,
            "n_levels": n_levels(image.size),
            "labels": labels.n_changes,
            "pixels": {str(value): n for value, n in labels.pixels.items()},
        }

    def _range(self, i: int, image: ImageFile) -> tuple[Any, Any]:
        """The values that show as black and white at first; None: not known before the image is read, see its tiles."""
        if image.dtype.itemsize == 1:
            return 0, 1 if image.dtype.kind == "b" else 255
        known = self.codes.known_pyramid(i)
        return (None, None) if known is None else known.contrast


def can() -> Message:
    """What this installation can do beyond forests."""
    has_torch = extras.is_there("torch")
    names = [LITE0.name] if has_torch and place_of(LITE0) is not None else []
    return {"refine": has_torch, "deep": has_torch, "encoder": names}


def default_folder(first: Path) -> Path:
    """Where a project lies unless said otherwise: beside the images."""
    folder = first if first.is_dir() else first.parent
    folder = folder.resolve()
    return folder.with_name(f"{folder.name}-painted")
