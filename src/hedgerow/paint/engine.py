"""The worker: the one thread that owns the kernels.

It segments the part on the screen first, then the whole image, and the whole image by the full model once the user
pauses. A newer stroke replaces work that has not begun; the old overlay stays until the new one is ready.

Longer jobs (training, improving, exporting) run in the same thread; each time a job reports progress, waiting strokes
are segmented in between.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from hedgerow.errors import HedgerowError
from hedgerow.images.regions import Region
from hedgerow.kernels import buffers
from hedgerow.memory import ran_out
from hedgerow.paint.overlays import Overlay, View

log = logging.getLogger("hedgerow")
PAUSE_SECONDS = 1.5  # after the last stroke, until the full model is trained
PROGRESS_SECONDS = 0.1  # between two reports of a job
UNKNOWN_SECONDS = 3.0  # from the start of a job, before its end is estimated
FOLLOWING_SECONDS = 20.0  # in which an estimate of the end follows a change
STARTS_OVER = 0.02  # part by which a job falls back if it begins another stage
OVERLAYS_PER_IMAGE = 2  # the newest ones, whose tiles can be requested
MAX_OVERLAY_BYTES = 64 * 2**20  # of all overlays; those of the least recently shown images are dropped first
Broadcast = Callable[[dict[str, Any]], None]
JobReport = Callable[[str, int, int], None]  # text, done, total


class Interrupted(Exception):
    """Raised inside work that is to stop: more urgent work is waiting, or the job was cancelled."""


@dataclass
class QueuedJob:
    """A longer job. run: called with a report function; returns the message to broadcast, or None"""

    name: str
    run: Callable[[JobReport], dict[str, Any] | None]
    is_cancelled: bool = False


@dataclass
class EstimatedEnd:
    """When a job will end, by estimates that follow its reports slowly, so that the time left does not jump.

    began: its start
    """

    began: float
    end: float | None = None
    part: float = 0.0
    at: float = 0.0
    is_unknown: bool = False

    def seconds_left(self, part: float, now: float) -> float | None:
        """The seconds left when this part is done; None: unknown, as in the first seconds, or if a job starts over."""
        self.is_unknown |= part < self.part - STARTS_OVER
        self.part = max(part, self.part)
        if self.is_unknown or not 0 < part < 1 or now - self.began < UNKNOWN_SECONDS:
            return None
        estimate = self.began + (now - self.began) / part
        weight = 1.0 if self.end is None else min((now - self.at) / FOLLOWING_SECONDS, 1.0)
        self.end, self.at = (self.end or 0.0) * (1 - weight) + estimate * weight, now
        return round(max(self.end - now, 1.0), 1)


class LiveWork(Protocol):
    """The work that the engine starts by itself; `Segmenter` does it. Its methods may raise Interrupted."""

    def compile(self, engine: Engine) -> None: ...
    def visible(self, engine: Engine, view: View) -> None: ...
    def whole(self, engine: Engine, image: int) -> None: ...
    def full(self, engine: Engine, image: int) -> None: ...


class Engine:
    """The worker of a project. `broadcast` is called by its thread.

    view:   the part of an image on the screen that was used last
    latest: by kind, the messages that a new window gets on connecting
    """

    def __init__(
        self,
        segmenter: LiveWork,
        broadcast: Broadcast,
        clock: Callable[[], float] = time.monotonic,
        pause_seconds: float = PAUSE_SECONDS,
        max_overlay_bytes: int = MAX_OVERLAY_BYTES,
    ) -> None:
        self.segmenter, self._broadcast, self._clock = segmenter, broadcast, clock
        self._pause_seconds, self._max_overlay_bytes = pause_seconds, max_overlay_bytes
        self.is_live = True
        self._condition = threading.Condition()
        self.view: View | None = None
        self._waiting_view: View | None = None
        self._waiting_whole: int | None = None  # an image
        self._waiting_full: tuple[float, int] | None = None  # when it is due, and the image
        self._jobs: deque[QueuedJob] = deque()
        self._running: QueuedJob | None = None
        self._ends: dict[tuple[str, float], EstimatedEnd] = {}  # of jobs, by name and start
        self._is_stopped = False
        self._is_at_rest = False  # whether the full model is being trained
        self._overlays: OrderedDict[int, deque[Overlay]] = OrderedDict()
        self.latest: dict[str, dict[str, Any]] = {}
        self._thread = threading.Thread(target=self._work, name="hedgerow-paint", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the worker and wait for it; a running job is cancelled at its next report."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def look(self, view: View) -> None:
        """Note the view that the page shows now, and segment it."""
        with self._condition:
            is_other_image = self.view is None or self.view.image != view.image
            self.view = view
            if self.is_live:
                self._waiting_view = view
                if is_other_image:
                    self._request_whole(view.image)
            self._condition.notify_all()

    def painted(self, image: int) -> None:
        """Segment anew after the paint of an image has changed."""
        with self._condition:
            if not self.is_live:
                return
            if self.view is not None:
                image = self.view.image
                self._waiting_view = self.view
            self._request_whole(image)
            self._condition.notify_all()

    def show_again(self) -> None:
        """Segment the part on the screen by another model, also where live segmentation is off."""
        with self._condition:
            if self.view is not None:
                self._waiting_view = self.view
                self._request_whole(self.view.image)
            self._condition.notify_all()

    def _request_whole(self, image: int) -> None:
        self._waiting_whole = image
        self._waiting_full = self._clock() + self._pause_seconds, image

    def set_live(self, is_live: bool) -> None:
        """Switch segmenting after every stroke on or off."""
        with self._condition:
            self.is_live = is_live
            if not is_live:
                self._waiting_view, self._waiting_whole, self._waiting_full = None, None, None
        if is_live and self.view is not None:
            self.painted(self.view.image)

    def submit(self, job: QueuedJob) -> bool:
        """Queue a job; False: a job of this name is running or queued already."""
        with self._condition:
            if any(other.name == job.name for other in self._unfinished_jobs()):
                return False
            self._jobs.append(job)
            self._condition.notify_all()
            return True

    def cancel(self, name: str | None) -> None:
        """Cancel the job of this name, or all jobs."""
        with self._condition:
            for job in self._unfinished_jobs():
                if name is None or job.name == name:
                    job.is_cancelled = True
            self._condition.notify_all()

    def _unfinished_jobs(self) -> list[QueuedJob]:
        return [*self._jobs, *([self._running] if self._running else [])]

    def overlay(self, image: int, id: int) -> Overlay | None:
        """The overlay of this id; None: a newer one has replaced it, or there never was one."""
        with self._condition:
            return next((overlay for overlay in self._overlays.get(image, ()) if overlay.id == id), None)

    def newest(self, image: int) -> Overlay | None:
        """The latest overlay of an image."""
        with self._condition:
            overlays = self._overlays.get(image)
            return overlays[-1] if overlays else None

    def show(self, overlay: Overlay, region: Region | None, seconds: float) -> None:
        """Store an overlay and announce its tiles. An overlay with a known id replaces the former one: it has grown.

        region: the part that is new; None: all of it
        """
        with self._condition:
            overlays = self._overlays.setdefault(overlay.image, deque(maxlen=OVERLAYS_PER_IMAGE))
            if overlays and overlays[-1].id == overlay.id:
                overlays.pop()
            overlays.append(overlay)
            self._overlays.move_to_end(overlay.image)
            self._drop_old_overlays()
        new = region or Region.whole(overlay.size)
        self.broadcast(
            {
                "say": "overlay",
                "image": overlay.image,
                "result": overlay.id,
                "scope": overlay.scope,
                "level": overlay.layers[0].level,
                "region": [new.top, new.bottom, new.left, new.right],
                "seconds": round(seconds, 3),
                "model": overlay.model,
            }
        )

    def withdraw(self, image: int) -> None:
        """Remove the overlays of an image, of which too little is painted now."""
        with self._condition:
            was_shown = self._overlays.pop(image, None) is not None
            self.latest.pop(f"overlay {image}", None)
        if was_shown:
            self.broadcast({"say": "no-overlay", "image": image})

    def _drop_old_overlays(self) -> None:
        sizes = {image: sum(overlay.nbytes for overlay in overlays) for image, overlays in self._overlays.items()}
        while sum(sizes.values()) > self._max_overlay_bytes and len(sizes) > 1:
            oldest = next(iter(self._overlays))
            del self._overlays[oldest], sizes[oldest]
            self.latest.pop(f"overlay {oldest}", None)

    def broadcast(self, message: dict[str, Any]) -> None:
        """Send a message to all windows, and note it for windows that connect later."""
        kind = message["say"]
        if kind in ("overlay", "numbers"):
            self.latest[f"{kind} {message['image']}"] = message
        elif kind == "progress":
            self.latest[f"progress {message['job']}"] = message
        elif kind in ("done", "failed"):
            self.latest.pop(f"progress {message['job']}", None)
        self._broadcast(message)

    def progress(self, job: str, text: str, done: int, total: int, began: float) -> None:
        """Broadcast the progress of a job, with an estimate of the seconds left. began: by the monotonic clock"""
        part = done / total if total else 1.0
        left = self._ends.setdefault((job, began), EstimatedEnd(began)).seconds_left(part, self._clock())
        self.broadcast({"say": "progress", "job": job, "part": round(part, 3), "text": text, "left": left})
        if done >= total:
            self.latest.pop(f"progress {job}", None)
            self._ends.clear()

    def has_urgent_work(self) -> bool:
        """Whether the part on the screen is waiting to be segmented, or the worker is to stop; the full model also
        gives way to jobs."""
        return self._waiting_view is not None or self._is_stopped or (self._is_at_rest and bool(self._jobs))

    def raise_if_interrupted(self) -> None:
        """Raise Interrupted if more urgent work is waiting."""
        if self.has_urgent_work():
            raise Interrupted

    def _work(self) -> None:
        self._report_errors("compile", lambda: self.segmenter.compile(self))
        while not self._is_stopped:
            with self._condition:
                if not self._has_work():
                    buffers.release()  # free buffers while idle
                while not self._is_stopped and not self._has_work():
                    self._condition.wait(self._seconds_until_full())
                if self._is_stopped:
                    return
            self._do_next()

    def _has_work(self) -> bool:
        is_waiting = self._waiting_view is not None or self._waiting_whole is not None or bool(self._jobs)
        return is_waiting or self._is_full_due()

    def _is_full_due(self) -> bool:
        return self._waiting_full is not None and self._clock() >= self._waiting_full[0]

    def _seconds_until_full(self) -> float | None:
        return None if self._waiting_full is None else max(self._waiting_full[0] - self._clock(), 0.0)

    def _do_next(self, *, only_live: bool = False) -> None:
        """Do the most urgent work that is waiting."""
        name, work = "segment", None
        with self._condition:
            if self._waiting_view is not None:
                view, self._waiting_view = self._waiting_view, None
                work = lambda: self.segmenter.visible(self, view)  # noqa: E731
            elif self._waiting_whole is not None and (only_live or not (self._jobs and self._jobs[0].name == "next")):
                image, self._waiting_whole = self._waiting_whole, None
                work = lambda: self.segmenter.whole(self, image)  # noqa: E731
            elif only_live:
                return
            elif self._jobs:
                job = self._running = self._jobs.popleft()
                name, work = job.name, lambda: self._run(job)
            elif self._is_full_due() and self._waiting_full is not None:
                image, self._waiting_full = self._waiting_full[1], None
                work = lambda: self._segment_fully(image)  # noqa: E731
        if work is not None:
            self._report_errors(name, work)

    def _segment_fully(self, image: int) -> None:
        """Segment by the full model; if that is interrupted, try again at the next pause."""
        self._is_at_rest = True
        try:
            self.segmenter.full(self, image)
        except Interrupted:
            with self._condition:
                if self._waiting_full is None and self.is_live:
                    self._waiting_full = self._clock() + self._pause_seconds, image
        finally:
            self._is_at_rest = False

    def _run(self, job: QueuedJob) -> None:
        began = self._clock()
        last_report = 0.0

        def report(text: str, done: int, total: int) -> None:
            nonlocal last_report
            if job.is_cancelled or self._is_stopped:
                raise Interrupted
            now = self._clock()
            if now - last_report >= PROGRESS_SECONDS or done >= total:
                last_report = now
                self.progress(job.name, text, done, total, began)
            while not self._is_stopped and (self._waiting_view is not None or self._waiting_whole is not None):
                self._do_next(only_live=True)

        try:
            message = None if job.is_cancelled else job.run(report)
            if job.is_cancelled:
                raise Interrupted
        except Interrupted:
            message = {"say": "failed", "job": job.name, "why": "the job was cancelled."}
        finally:
            with self._condition:
                self._running = None  # before the message: a window may submit the next job as soon as it arrives
        if message is not None:
            self.broadcast(message)

    def _report_errors(self, job: str, work: Callable[[], None]) -> None:
        """Do some work; an error is broadcast in one sentence, an interruption is not, and the worker continues."""
        try:
            work()
            return
        except Interrupted:
            return
        except HedgerowError as problem:
            why = str(problem)
        except Exception as problem:
            if ran_out(problem):
                why = "there is not enough memory for this."
            else:
                log.warning("paint: unexpected %s", type(problem).__name__, exc_info=True)
                why = f"unexpected {type(problem).__name__}: {problem}"[:300]
        self.broadcast({"say": "failed", "job": job, "why": why})
