"""A thread that does one job after another; of several waiting jobs of a kind, only the newest is kept.

Hedgerow's kernels may be used by only one Python thread at a time: this one.
"""

import threading
from collections.abc import Callable
from typing import Any

Report = Callable[[str, int, int], None]
Job = Callable[[Report], Any]


class Stopped(Exception):
    """Raised by the report function of a job to end the job."""


class Worker:
    """Does jobs in order, each with a report function `report(text, done, total)`.

    A newer job does not interrupt a running one: otherwise a user who keeps painting would never see a result.

    done:     called with the result of a job
    failed:   called with the exception that ended a job
    reported: called with the progress of a job
    idle:     called when all jobs are finished

    All four are called in the worker's thread, and not after `close`.
    """

    def __init__(
        self,
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
        reported: Report,
        idle: Callable[[], None],
    ) -> None:
        self._done, self._failed, self._reported, self._idle = done, failed, reported, idle
        self._waiting: dict[str, Job] = {}  # by kind, the oldest first
        self._changed = threading.Condition()
        self._is_closed = self._is_cancelled = self._is_busy = False
        self._thread = threading.Thread(target=self._run, name="hedgerow", daemon=True)
        self._thread.start()

    def submit(self, kind: str, job: Job) -> None:
        """Queue a job; it replaces a job of its kind that has not started."""
        with self._changed:
            self._waiting.pop(kind, None)
            self._waiting[kind] = job
            self._changed.notify_all()

    def cancel(self, kind: str | None = None) -> None:
        """Drop the waiting job of a kind; without a kind, drop all and end the running job at its next report."""
        with self._changed:
            if kind is None:
                self._waiting.clear()
                self._is_cancelled = self._is_busy
            else:
                self._waiting.pop(kind, None)

    def close(self) -> None:
        """Cancel all jobs and end the thread; may be called again."""
        with self._changed:
            self._waiting.clear()
            self._is_closed = self._is_cancelled = True
            self._changed.notify_all()

    def join(self, seconds: float | None = None) -> bool:
        """Wait for the thread to end after `close`; returns whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def is_busy(self) -> bool:
        """Whether a job runs or waits."""
        with self._changed:
            return self._is_busy or bool(self._waiting)

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                result = job(self._report)
            except Stopped:
                pass  # the user cancelled it
            except Exception as problem:
                self._notify(self._failed, problem)
            else:
                self._notify(self._done, result)
            with self._changed:
                self._is_busy = self._is_cancelled = False
                is_idle = not self._waiting
            if is_idle:
                self._notify(self._idle)

    def _next(self) -> Job | None:
        """The oldest waiting job, once there is one; None after `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if self._is_closed:
                return None
            self._is_busy = True
            return self._waiting.pop(next(iter(self._waiting)))

    def _report(self, text: str, done: int, total: int) -> None:
        if self._is_cancelled:
            raise Stopped
        self._reported(text, done, total)

    def _notify(self, listener: Callable[..., None], *arguments: Any) -> None:
        if not self._is_closed:
            listener(*arguments)
