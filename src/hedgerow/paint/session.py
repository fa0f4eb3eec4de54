"""An open project: handles the messages of windows and describes its state; the transport is in `server`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hedgerow import extras
from hedgerow.encoders.catalogue import ADVISED, DEFAULT, PUBLISHED, is_installed
from hedgerow.images.regions import Region
from hedgerow.paint.code_cache import SLOW_READING_BYTES, CodeCache, MemoryCache
from hedgerow.paint.engine import PAUSE_SECONDS, Engine, QueuedJob
from hedgerow.paint.long_jobs import IMPROVEMENT_MINUTES, LongJobs, check_how
from hedgerow.paint.mask_strokes import MaskStrokes, merge_class
from hedgerow.paint.messages import LIMITS, Refused
from hedgerow.paint.overlays import View
from hedgerow.paint.project import Project
from hedgerow.paint.project_file import ImageFile
from hedgerow.paint.pyramid import n_levels
from hedgerow.paint.segmenter import Segmenter

Message = dict[str, Any]


class Session:
    """A project and its worker. `broadcast` takes messages for all windows; any thread may call it."""

    def __init__(
        self,
        project: Project,
        broadcast: Callable[[Message], None],
        *,
        pause_seconds: float = PAUSE_SECONDS,
        slow_reading_bytes: int = SLOW_READING_BYTES,
        improvement_minutes: Mapping[str, float] = IMPROVEMENT_MINUTES,
    ) -> None:
        self.project = project
        self.codes = CodeCache(project, MemoryCache(), slow_reading_bytes)
        self.segmenter = Segmenter(project, self.codes)
        self.engine = Engine(self.segmenter, broadcast, pause_seconds=pause_seconds)
        self.codes.progress = self.engine.progress
        self.long_jobs = LongJobs(project, self.segmenter.at_rest, self.engine, self.models, improvement_minutes)
        self._mask_strokes = MaskStrokes(project, self.codes)
        self._models: Message = {}  # the message about the models that was sent last
        project.images_changed = lambda: self.engine.broadcast(self.images())

    def start(self) -> None:
        self.engine.start()

    def close(self) -> None:
        self.engine.stop()
        self.project.close()

    def handle(self, message: Message) -> tuple[Message | None, Message | None]:
        """Handle a checked message; returns a reply to its window and a message to all windows. Raises Refused."""
        action = message["do"]
        if action == "view":
            self._look(message)
        elif action == "paint":
            parts = self._mask_strokes.parts(message, self.engine.newest(message["image"]))
            return self._painted(self.project.paint(message, parts))
        elif action in ("undo", "redo"):
            classes = self.project.classes
            changed = self.project.undo_or_redo(action, message.get("id"))
            if self.project.classes != classes:
                self.engine.broadcast(self.project.classes_message())
            if changed is None:
                raise Refused(f"there is nothing to {action}.")
            return self._painted(changed) if changed["say"] == "painted" else (None, changed)
        elif action == "class":
            self.project.change_class(message)
            return None, self.project.classes_message()
        elif action == "merge":
            for painted in merge_class(self.project, message["id"], message["into"]):
                self.engine.broadcast(self._painted(painted)[1])
            return None, self.project.classes_message()
        elif action == "model":
            self.project.choose_model(message["number"])
            self.engine.show_again()
            return None, self.models()
        elif action == "keep":
            self.project.keep({name: value for name, value in message.items() if name != "do"})
        elif action == "ping":
            return {"say": "pong"}, None
        elif action == "live":
            self.engine.set_live(message["on"])
        elif action == "cancel":
            self.engine.cancel(message.get("job"))
        elif not self.engine.submit(self._job(message)):
            return {"say": "failed", "job": action, "why": "this job is running already."}, None
        return None, None

    def _job(self, message: Message) -> QueuedJob:
        """The job that a message requests; raises Refused."""
        action, long_jobs = message["do"], self.long_jobs
        if action == "next":
            image, skip = message.get("image"), message.get("skip", [])
            if image is not None:
                self.project.check_image(image)
            view = self.engine.view
            shown = image if image is not None else 0 if view is None else view.image
            return QueuedJob("next", lambda report: self.segmenter.where_next(self.engine, image, shown, skip))
        if action == "train":
            return QueuedJob("train", long_jobs.train)
        if action == "improve":
            check_how(message["how"], can())
            return QueuedJob("improve", lambda report: long_jobs.improve(message["how"], report))
        return QueuedJob("export", lambda report: long_jobs.export(message["what"], report))

    def described(self, n_windows: int) -> Message:
        """The state of the project that the page starts from."""
        with self.project.lock:
            images = [self._image(i, image) for i, image in enumerate(self.project.images)]
            return {
                "title": self.project.folder.name.removesuffix("-painted"),
                "folder": str(self.project.folder),
                "windows": n_windows,
                "live": self.engine.is_live,
                "images": images,
                "left_out": self.project.left_out,
                "page": self.project.page_settings,
                "classes": self.project.classes_message()["classes"],
                "models": self.models(),
                "can": can(),
                "undo": self.project.n_undo,
                "redo": self.project.n_redo,
                "limits": LIMITS,
            }

    def models(self) -> Message:
        """The message about the models that were made here: which one is shown, and which are older than the paint."""
        with self.project.lock:
            current, paint = self.project.current_model, self.project.paint_state
            models = [
                {"number": model.number, "title": model.title, "text": model.text, "older": model.paint != paint}
                for model in self.project.models
            ]
        return {"say": "models", "models": models, "current": None if current is None else current.number}

    def images(self) -> Message:
        """The message about images that cannot be read, by their numbers."""
        with self.project.lock:
            return {"say": "images", "problems": {str(i): why for i, why in self.project.problems.items()}}

    def _painted(self, painted: Message) -> tuple[None, Message]:
        self.engine.painted(painted["image"])
        models = self.models()
        if models != self._models:
            self._models = models
            self.engine.broadcast(models)
        return None, painted

    def _look(self, message: Message) -> None:
        self.project.check_image(message["image"])
        size = self.project.images[message["image"]].size
        region = Region(*message["rows"], *message["cols"]).clipped(Region.whole(size))
        if not region.is_empty:
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
            "problem": self.project.problems.get(i, ""),
        }

    def _range(self, i: int, image: ImageFile) -> tuple[Any, Any]:
        """The values that are initially shown as black and white; None: unknown until the image is read."""
        if image.dtype.itemsize == 1:
            return 0, 1 if image.dtype.kind == "b" else 255
        pyramid = self.codes.cached_pyramid(i)
        return (None, None) if pyramid is None else pyramid.contrast


def can() -> Message:
    """The optional abilities of this installation; training reads the default network anyway, if it is installed."""
    has_torch = extras.is_there("torch")
    names = [name for name in PUBLISHED if name != DEFAULT and is_installed(name)]
    offer = f"hedgerow encoders add {ADVISED}" if has_torch and not is_installed(ADVISED) else ""
    return {"refine": has_torch, "deep": has_torch, "encoder": names, "offer": offer}
