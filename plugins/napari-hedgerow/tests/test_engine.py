"""Training, predicting, loading and saving, without a screen."""

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hedgerow as hr
from napari_hedgerow import engine as engine_module
from napari_hedgerow.engine import (
    Engine,
    Failed,
    Idle,
    ModelReady,
    Picture,
    Predicted,
    Progress,
    Saved,
    described,
    has_enough_paint,
    live_settings,
)  # fmt: skip

WAIT = 300  # seconds: kernels may have to be compiled


class Heard(Engine):
    def __init__(self) -> None:
        self.heard: queue.Queue[Any] = queue.Queue()
        super().__init__(self.heard.put)

    def until_idle(self) -> list[Any]:
        """The events, without progress."""
        messages: list[Any] = []
        while not isinstance(event := self.heard.get(timeout=WAIT), Idle):
            messages += [] if isinstance(event, Progress) else [event]
        return messages


@pytest.fixture
def engine() -> Iterator[Heard]:
    heard = Heard()
    yield heard
    heard.close()
    assert heard.join(WAIT)


def halves(n_channels: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """An image, dark on the left and bright on the right, with a stroke of 3 and of 7 in it."""
    rng = np.random.default_rng(0)
    image = rng.normal(size=(32, 40, n_channels) if n_channels else (32, 40)).astype(np.float32)
    image[:, 20:] += 10
    labels = np.zeros((32, 40), np.int32)
    labels[10:12, 3:12], labels[10:12, 28:37] = 3, 7
    return image, labels


@pytest.mark.parametrize("n_channels", [0, 3, 5])
def test_strokes_segment_the_image(engine: Heard, n_channels: int) -> None:
    image, labels = halves(n_channels)
    picture = Picture(image, "halves", key="here")
    engine.train(picture, labels)
    engine.predict([picture], with_proba=True)
    ready, predicted = engine.until_idle()
    assert isinstance(ready, ModelReady)
    assert isinstance(predicted, Predicted)
    assert predicted.picture.key == "here"
    assert (predicted.labels[:, :15] == 3).mean() > 0.98
    assert (predicted.labels[:, 25:] == 7).mean() > 0.98
    assert predicted.labels.dtype == np.uint8
    assert predicted.proba is not None
    assert predicted.proba.shape == (2, 32, 40)


def test_train_gives_the_library_s_own_model(engine: Heard) -> None:
    image, labels = halves()
    engine.train(Picture(image, "halves"), labels)
    (ready,) = engine.until_idle()
    same = hr.fit([image], [labels], "fast", unlabelled=0, progress=lambda *progress: None)
    assert ready.model.settings["config"] == same.settings["config"]
    assert np.array_equal(ready.model.predict_proba(image), same.predict_proba(image))
    assert described(ready.model).startswith("2 classes, 1 level of 64 trees")


def test_live_trains_and_predicts_at_once(engine: Heard) -> None:
    image, labels = halves()
    engine.live(Picture(image, "halves"), labels)
    ready, predicted = engine.until_idle()
    assert ready.how == "live"
    assert (predicted.labels[:, :15] == 3).mean() > 0.98
    assert predicted.proba is None


def test_live_without_paint_predicts_with_the_model_there_is(engine: Heard) -> None:
    image, labels = halves()
    nothing = Picture(image, "halves"), np.zeros_like(labels)
    engine.live(*nothing)
    assert engine.until_idle() == []
    engine.live(Picture(image, "halves"), labels)
    engine.until_idle()
    engine.live(*nothing)
    (found,) = engine.until_idle()
    assert isinstance(found, Predicted)


def test_models_are_saved_and_loaded(engine: Heard, tmp_path: Path) -> None:
    image, labels = halves()
    engine.live(Picture(image, "halves"), labels)
    engine.save(tmp_path / "model.hedge")
    *_, predicted, saved = engine.until_idle()
    assert saved == Saved(tmp_path / "model.hedge")
    other = Heard()
    other.load(tmp_path / "model.hedge")
    other.predict([Picture(image, "halves")])
    ready, again = other.until_idle()
    other.close()
    assert ready.how == "loaded model.hedge"
    assert np.array_equal(again.labels, predicted.labels)


def test_errors_are_one_sentence(engine: Heard, tmp_path: Path) -> None:
    image, labels = halves()
    engine.predict([Picture(image, "halves")])
    assert engine.until_idle() == [Failed("there is no model yet; train one, or load one from a .hedge file.")]
    engine.train(Picture(image, "halves"), np.where(labels == 3, 3, 0))
    (failed,) = engine.until_idle()
    assert "only the class value 3" in failed.sentence
    engine.load(tmp_path / "none.hedge")
    (failed,) = engine.until_idle()
    assert failed.sentence.startswith("there is no model file")


def test_an_image_that_does_not_fit_is_skipped(engine: Heard) -> None:
    image, labels = halves()
    engine.live(Picture(image, "halves"), labels)
    engine.until_idle()
    engine.predict([Picture(halves(3)[0], "colours"), Picture(image, "halves")])
    failed, found = engine.until_idle()
    assert failed.sentence.startswith("colours: the image has 3 channel(s)")
    assert found.picture.name == "halves"


def test_a_fault_of_ours_is_told_and_logged(
    engine: Heard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(path: Path) -> None:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(engine_module.hr, "load", broken, raising=False)
    engine.load(Path("model.hedge"))
    assert engine.until_idle() == [Failed("this failed: RuntimeError: first line")]
    assert "second line" in caplog.text


def test_closing_stops_training(engine: Heard) -> None:
    image, labels = halves()
    engine.train(Picture(image, "halves"), labels)
    assert isinstance(engine.heard.get(timeout=WAIT), Progress)
    engine.close()
    assert engine.join(WAIT)
    assert engine.model is None


def test_pixels_are_read_in_the_worker_and_only_when_needed(engine: Heard) -> None:
    image, labels = halves()
    threads = []

    class Lazy:
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            threads.append(threading.current_thread().name)
            return image

    engine.live(Picture(Lazy(), "halves"), labels)
    engine.until_idle()
    assert set(threads) == {"hedgerow"}


@pytest.mark.parametrize(("values", "enough"), [([0, 0], False), ([0, 2], False), ([1, 2], True), ([0, 0, 1, 2], True)])
def test_two_classes_are_enough_paint(values: list[int], enough: bool) -> None:
    assert has_enough_paint(np.array([values])) == enough


def test_live_reads_only_some_of_much_paint() -> None:
    assert live_settings(np.ones((100, 100), int)).sampling.step == 1
    assert live_settings(np.ones((800, 1000), int)).sampling.step > 1
