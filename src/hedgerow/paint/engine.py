"""One worker that owns the kernels: the part on the screen first, then the whole image, then, when the hand rests, all
trees. A newer stroke replaces work that has not begun; the old overlay stays until the new one is there.

Longer work (training, improving, exports) is done by the same worker; at each of its reports, strokes that wait are
segmented in between.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hedgerow.errors import HedgerowError
from hedgerow.images.regions import Region
from hedgerow.kernels import reused
from hedgerow.paint.project import Project
from hedgerow.paint.results import Result
from hedgerow.paint.segmenting import Segmenter, View

log = logging.getLogger("hedgerow")
REST = 1.5  # seconds without a stroke after which the hand rests
KEPT = 2  # results of an image that tiles can be asked of
RESULTS = 64 * 2**20  # bytes of all results; those of images that were left longest ago go first
Tell = Callable[[dict[str, Any]], None]


class Cancelled(Exception):
    """Raised in a job that was called off."""


@dataclass
class Request:
    """Longer work that was asked for. run: is given a report function; returns what to tell, or None"""

    job: str
    run: Callable[[Callable[[str, int, int], None]], dict[str, Any] | None]
    is_cancelled: bool = False


class Engine:
    """The worker. `tell` is called by its thread."""

    def __init__(self, project: Project, segmenter: Segmenter, tell: Tell, clock: Callable[[], float] = time.monotonic):
        self.project, self.segmenter, self._tell, self._clock = project, segmenter, tell, clock
        self.is_live = True
        self._condition = threading.Condition()
        self._view: View | None = None
        self._visible: View | None = None  # what waits to be done
        self._whole: int | None = None
        self._full: tuple[float, int] | None = None  # when, and of which image
        self._requests: deque[Request] = deque()
        self._running: Request | None = None
        self._ended = False
        self._results: OrderedDict[int, deque[Result]] = OrderedDict()
        self.latest: dict[str, dict[str, Any]] = {}  # what a new window is told again
        self._thread = threading.Thread(target=self._work, name="hedgerow-paint", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the worker has ended; work under way is called off at its next report."""
        with self._condition:
            self._ended = True
            self._condition.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def view(self) -> View | None:
        """What is on the screen that was used last."""
        return self._view

    def look(self, view: View) -> None:
        """The page shows this now."""
        with self._condition:
            is_other = self._view is None or self._view.image != view.image
            self._view = view
            if self.is_live:
                self._visible = view
                if is_other:
                    self._whole = view.image
                    self._full = self._clock() + REST, view.image
            self._condition.notify_all()

    def painted(self, image: int) -> None:
        """An image has new paint, or less."""
        with self._condition:
            if not self.is_live:
                return
            if self._view is not None:
                image = self._view.image
                self._visible = self._view
            self._whole = image
            self._full = self._clock() + REST, image
            self._condition.notify_all()

    def set_live(self, is_live: bool) -> None:
        with self._condition:
            self.is_live = is_live
            if not is_live:
                self._visible, self._whole, self._full = None, None, None
        if is_live and self._view is not None:
            self.painted(self._view.image)

    def ask(self, request: Request) -> bool:
        """Do longer work; False: such work is under way or waits."""
        with self._condition:
            waiting = [*self._requests, *([self._running] if self._running else [])]
            if any(one.job == request.job for one in waiting):
                return False
            self._requests.append(request)
            self._condition.notify_all()
            return True

    def cancel(self, job: str | None) -> None:
        """Call off work of this kind, or all of it."""
        with self._condition:
            for one in [*self._requests, *([self._running] if self._running else [])]:
                if job is None or one.job == job:
                    one.is_cancelled = True
            self._condition.notify_all()

    def result(self, image: int, id: int) -> Result | None:
        """A result that is kept; None: a newer one has replaced it, or there never was one."""
        with self._condition:
            return next((one for one in self._results.get(image, ()) if one.id == id), None)

    def newest(self, image: int) -> Result | None:
        with self._condition:
            results = self._results.get(image)
            return results[-1] if results else None

    def show(self, result: Result, region: Region | None, seconds: float) -> None:
        """Keep a result and tell the page. One that is known already may have become more: all of the image."""
        with self._condition:
            kept = self._results.setdefault(result.image, deque(maxlen=KEPT))
            if kept and kept[-1].id == result.id:
                kept.pop()
            kept.append(result)
            self._results.move_to_end(result.image)
            self._make_room()
        height, width = result.size
        around = region or Region(0, height, 0, width)
        self.tell(
            {
                "say": "overlay",
                "image": result.image,
                "result": result.id,
                "scope": result.scope,
                "level": result.layers[0].level,
                "region": [around.top, around.bottom, around.left, around.right],
                "seconds": round(seconds, 3),
                "model": result.model,
            }
        )

    def _make_room(self) -> None:
        sizes = {image: sum(one.nbytes for one in kept) for image, kept in self._results.items()}
        while sum(sizes.values()) > RESULTS and len(sizes) > 1:
            oldest = next(iter(self._results))
            del self._results[oldest], sizes[oldest]
            self.latest.pop(f"overlay {oldest}", None)

    def tell(self, message: dict[str, Any]) -> None:
        said = message["say"]
        if said in ("overlay", "numbers"):
            self.latest[f"{said} {message['image']}"] = message
        elif said == "progress":
            self.latest[f"progress {message['job']}"] = message
        elif said in ("done", "failed"):
            self.latest.pop(f"progress {message['job']}", None)
        self._tell(message)

    def progress(self, job: str, text: str, done: int, total: int, began: float) -> None:
        """Tell how far work is, and about how many seconds are left."""
        part = done / total if total else 1.0
        spent = self._clock() - began
        left = None if not 0 < part < 1 else round(spent / part - spent, 1)
        self.tell({"say": "progress", "job": job, "part": round(part, 3), "text": text, "left": left})
        if done >= total:
            self.latest.pop(f"progress {job}", None)

    def has_news(self) -> bool:
        """Whether something waits that comes before the whole image."""
        return self._visible is not None or self._ended

    def _work(self) -> None:
        self._guarded("compile", lambda: self.segmenter.compile(self))
        while not self._ended:
            with self._condition:
                if not self._is_due():
                    reused.let_go()  # nobody computes for a while
                while not self._ended and not self._is_due():
                    self._condition.wait(self._seconds_to_rest())
                if self._ended:
                    return
            self._do_next()

    def _is_due(self) -> bool:
        rested = self._full is not None and self._clock() >= self._full[0]
        return self._visible is not None or self._whole is not None or bool(self._requests) or rested

    def _seconds_to_rest(self) -> float | None:
        return None if self._full is None else max(self._full[0] - self._clock(), 0.0)

    def _do_next(self, *, only_live: bool = False) -> None:
        """The most urgent work that waits."""
        with self._condition:
            if self._visible is not None:
                view, self._visible = self._visible, None
                work: Callable[[], None] = lambda: self.segmenter.visible(self, view)  # noqa: E731
                job = "segment"
            elif self._whole is not None and (only_live or not self._hurries()):
                image, self._whole = self._whole, None
                work, job = lambda: self.segmenter.whole(self, image), "segment"
            elif only_live:
                return
            elif self._requests:
                request = self._running = self._requests.popleft()
                work, job = lambda: self._run(request), request.job
            elif self._full is not None and self._clock() >= self._full[0]:
                image, self._full = self._full[1], None
                work, job = lambda: self._rest(image), "segment"
            else:
                return
        self._guarded(job, work)

    def _rest(self, image: int) -> None:
        """What is done when the hand rests; what was interrupted is done at the next rest."""
        if not self.segmenter.full(self, image):
            with self._condition:
                if self._full is None and self.is_live:
                    self._full = self._clock() + REST, image

    def _hurries(self) -> bool:
        """Whether a request waits that takes no time."""
        return bool(self._requests) and self._requests[0].job == "next"

    def _run(self, request: Request) -> None:
        began = self._clock()
        told = [0.0]

        def report(text: str, done: int, total: int) -> None:
            if request.is_cancelled or self._ended:
                raise Cancelled
            now = self._clock()
            if now - told[0] >= 0.1 or done >= total:
                told[0] = now
                self.progress(request.job, text, done, total, began)
            while not self._ended and (self._visible is not None or self._whole is not None):
                self._do_next(only_live=True)

        try:
            answer = None if request.is_cancelled else request.run(report)
            if request.is_cancelled:
                raise Cancelled
        except Cancelled:
            answer = {"say": "failed", "job": request.job, "why": "it was cancelled."}
        finally:
            with self._condition:
                self._running = None  # before anybody is told: the next one may be asked for at once
        if answer is not None:
            self.tell(answer)

    def _guarded(self, job: str, work: Callable[[], None]) -> None:
        """Whatever goes wrong is told in one sentence, and the worker goes on."""
        try:
            work()
        except HedgerowError as problem:
            self.tell({"say": "failed", "job": job, "why": str(problem)})
        except MemoryError:
            self.tell({"say": "failed", "job": job, "why": "there is not enough memory for this."})
        except Exception as problem:
            log.warning("paint: unexpected %s", type(problem).__name__, exc_info=True)
            self.tell({"say": "failed", "job": job, "why": f"unexpected {type(problem).__name__}: {problem}"[:300]})
