"""Trains models and predicts label maps in its own thread; it does not depend on napari or a window.

An image is (H,W) or (H,W,C); labels are (H,W) with 0 where nothing is painted, as in napari.
"""

import logging
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import hedgerow as hr
from napari_hedgerow.worker import Report, Worker

log = logging.getLogger("napari_hedgerow")
UNPAINTED = 0
LIVE_PIXELS = 20_000  # approximate number of painted pixels that live training reads


@dataclass(frozen=True)
class Picture:
    """An image to train or predict on.

    pixels: (H,W[,C]), or an object that NumPy converts to such an array when the job starts
    name:   for messages
    key:    returned with the prediction, so that the caller knows where it belongs
    """

    pixels: Any
    name: str
    key: Hashable = None


@dataclass(frozen=True)
class Progress:
    text: str
    done: int
    total: int


@dataclass(frozen=True)
class ModelReady:
    """A model was trained or loaded. how: "trained", "live" or "loaded FILE"; seconds: the time that this took"""

    model: Any
    how: str
    seconds: float


@dataclass(frozen=True)
class Predicted:
    """labels: (H,W) class values; proba: (C,H,W) float32, or None; classes: (C,)"""

    picture: Picture
    labels: np.ndarray
    proba: np.ndarray | None
    classes: tuple[int, ...]


@dataclass(frozen=True)
class Saved:
    path: Path


@dataclass(frozen=True)
class Failed:
    """A job failed. sentence: the reason, for the user"""

    sentence: str


@dataclass(frozen=True)
class Idle:
    """All jobs are finished."""


Event = Progress | ModelReady | Predicted | Saved | Failed | Idle


class Engine:
    """Trains, predicts, loads and saves, one job after another; calls `notify` with each event, in its own thread.

    model: the newest model, or None
    """

    def __init__(self, notify: Callable[[Event], None]) -> None:
        self.model: Any = None
        self._notify = notify
        self._worker = Worker(
            done=lambda result: None,
            failed=lambda problem: notify(Failed(sentence_of(problem))),
            reported=lambda text, done, total: notify(Progress(text, done, total)),
            idle=lambda: notify(Idle()),
        )

    def train(self, picture: Picture, labels: np.ndarray) -> None:
        """Train with settings that suit the amount of paint."""
        self._worker.submit("train", lambda report: self._train(picture, labels, None, report))

    def live(self, picture: Picture, labels: np.ndarray, with_proba: bool = False) -> None:
        """Train with quick settings and predict; replaces a request that has not started.

        If fewer than two classes are painted, predict with the current model.
        """

        def job(report: Report) -> None:
            if has_enough_paint(labels):
                self._train(picture, labels, live_settings(labels), report)
            if self.model is not None:
                self._predict([picture], with_proba, report)

        self._worker.submit("live", job)

    def predict(self, pictures: Sequence[Picture], with_proba: bool = False) -> None:
        """Predict each picture with the newest model at that time; a picture that cannot be predicted is skipped."""
        self._worker.submit("predict", lambda report: self._predict(pictures, with_proba, report))

    def load(self, path: Path) -> None:
        """Read a model from a file."""

        def job(report: Report) -> None:
            start = time.monotonic()
            report("reading the model", 0, 1)
            self._set_model(hr.load(path), f"loaded {path.name}", start)

        self._worker.submit("load", job)

    def save(self, path: Path) -> None:
        """Write the newest model to a file."""

        def job(report: Report) -> None:
            hr.save(self._require_model(), path)
            self._notify(Saved(path))

        self._worker.submit("save", job)

    def forget_live(self) -> None:
        """Cancel live training that has not started."""
        self._worker.cancel("live")

    def cancel(self) -> None:
        """Stop the running job at its next report, and drop the waiting ones."""
        self._worker.cancel()

    def close(self) -> None:
        """Cancel all jobs, send no more events, and end the thread."""
        self._worker.close()

    def join(self, seconds: float | None = None) -> bool:
        """Wait for the thread to end after `close`; returns whether it has ended."""
        return self._worker.join(seconds)

    @property
    def is_busy(self) -> bool:
        return self._worker.is_busy

    def _train(self, picture: Picture, labels: np.ndarray, config: Any, report: Report) -> None:
        start = time.monotonic()
        model = hr.fit_stack(
            [np.asarray(picture.pixels)], [labels], config, unlabelled=UNPAINTED, names=[picture.name], progress=report
        )
        self._set_model(model, "live" if config else "trained", start)

    def _predict(self, pictures: Sequence[Picture], with_proba: bool, report: Report) -> None:
        model = self._require_model()
        classes = tuple(model.classes)
        for number, picture in enumerate(pictures):
            report(f"predicting {picture.name}", number, len(pictures))
            try:
                proba = model.predict_proba(np.asarray(picture.pixels), progress=report)
            except hr.HedgerowError as problem:
                self._notify(Failed(f"{picture.name}: {problem}"))
                continue
            labels = np.array(classes, label_type(classes))[proba.argmax(axis=0)]
            self._notify(Predicted(picture, labels, proba if with_proba else None, classes))

    def _set_model(self, model: Any, how: str, start: float) -> None:
        self.model = model
        self._notify(ModelReady(model, how, time.monotonic() - start))

    def _require_model(self) -> Any:
        if self.model is None:
            raise hr.InputError("there is no model yet; train one, or load one from a .hedge file.")
        return self.model


def has_enough_paint(labels: np.ndarray) -> bool:
    """Whether at least two classes are painted."""
    painted = labels[labels != UNPAINTED]
    return painted.size > 0 and bool((painted != painted[0]).any())


def live_settings(labels: np.ndarray) -> hr.StackConfig:
    """Settings for live training: one level without context, and nothing is held out for scoring.

    If there is much paint, only some of it is read: neighbouring pixels are nearly alike.
    """
    default = hr.StackConfig()
    step = max(1, round((np.count_nonzero(labels) / LIVE_PIXELS) ** 0.5))
    return replace(
        default,
        features="bank",
        n_levels=1,
        n_trees=32,
        min_split=2,
        held_out="none",
        context=replace(default.context, window=1),
        sampling=replace(default.sampling, step=step),
    )


def label_type(classes: Sequence[int]) -> Any:
    """The smallest integer type that holds these class values and that napari shows."""
    return np.min_scalar_type(max(classes)) if min(classes) >= 0 else np.int32


def described(model: Any) -> str:
    """A short description of a model, such as "3 classes, 1 level of 64 trees, held-out Dice 0.91"."""
    parts = [f"{len(model.classes)} classes"]
    levels = getattr(model, "levels", ())
    if isinstance(model, hr.ForestStack):
        parts.append(f"{len(levels)} level{'s' * (len(levels) > 1)} of {levels[0].n_trees} trees")
        dice = model.held_out_dice[: model.n_levels]
        parts += [f"held-out Dice {dice[-1]:.2f}"] if dice else []
    else:
        parts.append(type(model).__name__)
    return ", ".join(parts)


def sentence_of(problem: Exception) -> str:
    """An exception as one sentence for the user; unexpected ones are logged in full."""
    if isinstance(problem, hr.HedgerowError):
        return str(problem)
    log.error("a job failed", exc_info=problem)
    if isinstance(problem, MemoryError):
        return "there is not enough memory for this; crop or shrink the image."
    first = (str(problem).splitlines() or [""])[0]
    return f"this failed: {type(problem).__name__}: {first}"
