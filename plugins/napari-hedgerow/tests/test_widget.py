"""The widget in a real window of napari, under Xvfb if there is no screen."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("napari", reason="napari is not installed")
pytest.importorskip("qtpy", reason="no Qt is installed")
if sys.platform == "linux" and not os.environ.get("DISPLAY"):
    pytest.skip("no screen: run it with xvfb-run -a", allow_module_level=True)

import napari
import numpy as np
from napari.utils.notifications import notification_manager
from qtpy.QtWidgets import QApplication

from napari_hedgerow.widget import SegmentWidget

pytestmark = pytest.mark.slow
WAIT = 60  # seconds: kernels may have to be compiled


def until(holds: Callable[[], Any]) -> None:
    """Process the events of the window until a condition holds."""
    end = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        QApplication.processEvents()
        time.sleep(0.01)


@pytest.fixture
def viewer() -> Iterator[Any]:
    notification_manager.records.clear()
    viewer = napari.Viewer(show=True)
    yield viewer
    viewer.close()
    QApplication.processEvents()


@pytest.fixture
def widget(viewer: Any) -> Iterator[SegmentWidget]:
    """The widget, added by napari from the plugin's manifest, and an image of two halves to segment."""
    image = np.random.default_rng(0).normal(size=(64, 80)).astype(np.float32)
    image[:, 40:] += 10
    viewer.add_image(image, name="halves")
    _, widget = viewer.window.add_plugin_dock_widget("napari-hedgerow", "Segment from strokes")
    yield widget
    widget.end()
    assert widget.engine.join(WAIT)


def stroke(paint: Any, value: int, row: int, columns: range) -> None:
    """A stroke like that of a mouse: painted piece by piece, with one entry in the layer's history at its end."""
    paint.selected_label = value
    with paint.block_history():
        for column in columns:
            paint.paint((row, column), value)


def is_rest(widget: SegmentWidget) -> bool:
    return not widget.engine.is_busy and widget.form.bar.isHidden()


def is_halves(data: np.ndarray) -> bool:
    return bool((data[..., :35] == 1).mean() > 0.98 and (data[..., 45:] == 2).mean() > 0.98)


def test_paint_train_predict_save_load(widget: SegmentWidget, viewer: Any, tmp_path: Path) -> None:
    form, layers = widget.form, viewer.layers
    assert not form.save.isEnabled()
    form.new.click()
    paint = layers["halves paint"]
    assert form.paint.currentData() is paint
    stroke(paint, 1, 20, range(5, 30))
    stroke(paint, 2, 20, range(50, 75))
    form.train.click()
    assert not form.bar.isHidden()
    until(lambda: form.save.isEnabled() and is_rest(widget))
    assert form.model.text().startswith("2 classes, 1 level of 64 trees")
    assert form.status.text().startswith("Model trained in ")
    form.proba.setChecked(True)
    form.predict.click()
    until(lambda: "halves probabilities" in layers)
    assert is_halves(layers["halves segmentation"].data)
    assert layers["halves probabilities"].data.shape == (2, 64, 80)
    widget.save(tmp_path / "halves")
    until((tmp_path / "halves.hedge").exists)
    form.proba.setChecked(False)
    viewer.add_image(layers["halves"].data[:, ::-1], name="mirrored")
    viewer.add_image(np.zeros((30, 30, 3), np.uint8), rgb=True, name="colours")
    widget.load(tmp_path / "halves.hedge")
    form.predict_all.click()
    until(lambda: "mirrored segmentation" in layers and is_rest(widget))
    assert is_halves(layers["mirrored segmentation"].data[:, ::-1])
    assert "colours segmentation" not in layers
    assert any("colours: the image has 3 channel(s)" in note.message for note in notification_manager.records)


def test_live_follows_the_strokes(widget: SegmentWidget, viewer: Any) -> None:
    form, layers = widget.form, viewer.layers
    form.new.click()
    form.live.click()
    paint = layers["halves paint"]
    stroke(paint, 1, 20, range(5, 30))
    until(lambda: "two classes" in form.status.text())
    stroke(paint, 2, 20, range(50, 75))
    until(lambda: "halves segmentation" in layers)
    assert is_halves(layers["halves segmentation"].data)
    assert viewer.layers.selection.active is paint
    stroke(paint, 3, 20, range(50, 75))
    until(lambda: (layers["halves segmentation"].data == 3).any())
    paint.undo()
    assert not (paint.data == 3).any()
    until(lambda: not (layers["halves segmentation"].data == 3).any())
    until(lambda: is_rest(widget))
    form.live.click()
    stroke(paint, 4, 30, range(5, 30))
    until(lambda: not widget._pause.isActive())
    assert is_rest(widget)


def test_a_stack_is_trained_and_predicted_by_its_current_plane(widget: SegmentWidget, viewer: Any) -> None:
    form, layers = widget.form, viewer.layers
    assert form.channels.isHidden()
    plane = layers["halves"].data
    stack = viewer.add_image(np.stack([plane, plane[:, ::-1], plane]), name="stack")
    form.image.setCurrentIndex(form.image.findText("stack"))
    assert not form.channels.isHidden()
    viewer.dims.set_current_step(0, 2)
    form.new.click()
    paint = layers["stack paint"]
    paint.data[2, 20:23, 5:30], paint.data[2, 20:23, 50:75] = 1, 2
    form.live.click()
    until(lambda: "stack segmentation" in layers and is_rest(widget))
    prediction = layers["stack segmentation"]
    assert is_halves(prediction.data[2])
    assert not prediction.data[:2].any()
    viewer.dims.set_current_step(0, 1)  # nothing is painted there: the model predicts it
    until(lambda: prediction.data[1].any())
    assert is_halves(prediction.data[1][:, ::-1])
    viewer.dims.ndisplay = 3
    form.predict.click()
    assert notification_manager.records[-1].message.startswith("the view shows a volume")
    viewer.dims.ndisplay = 2
    viewer.layers.remove(stack)
    assert form.image.currentText() == "halves"


def test_errors_are_told_in_one_sentence(widget: SegmentWidget, viewer: Any) -> None:
    widget.form.train.click()
    assert notification_manager.records[-1].message.startswith("there is no labels layer to learn from")
    widget.form.predict.click()
    until(lambda: notification_manager.records[-1].message.startswith("there is no model yet"))
    until(lambda: is_rest(widget))


def test_closing_the_dock_stops_the_work(widget: SegmentWidget, viewer: Any) -> None:
    widget.form.new.click()
    paint = viewer.layers["halves paint"]
    stroke(paint, 1, 20, range(5, 30))
    stroke(paint, 2, 20, range(50, 75))
    widget.form.train.click()
    dock = next(dock for dock in viewer.window.dock_widgets.values() if dock is widget)
    viewer.window.remove_dock_widget(dock)
    until(lambda: widget.engine.join(0))
    stroke(paint, 3, 30, range(5, 30))  # no event is connected any more
