"""The form next to the viewer: it takes pictures from the scene, passes them to the engine, and shows the results.

The form has its own progress bar, because updating napari's handles waiting events: an event of the engine would be
handled in the middle of another.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from napari.utils.notifications import show_error, show_info
from qtpy.QtCore import QEvent, QObject, Qt, QTimer, Signal
from qtpy.QtWidgets import QFileDialog, QWidget

import hedgerow as hr
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
)  # fmt: skip
from napari_hedgerow.form import Form
from napari_hedgerow.scene import Scene, may_have_channels

PAUSE_MS = 250  # from the last stroke to the start of live training
STROKES = ("paint", "labels_update", "set_data", "data")  # events of strokes, their end, undo and redo, new labels
MODEL_FILES = "Hedgerow models (*.hedge)"


class Bridge(QObject):
    """Passes events from the engine's thread to the window's. It has no parent, so it outlives the widget."""

    happened = Signal(object)


class SegmentWidget(QWidget):
    """Train on the current plane of an image layer and its labels layer, live or on request, and predict."""

    def __init__(self, napari_viewer: Any) -> None:
        super().__init__()
        self.scene = Scene(napari_viewer)
        self.form = Form(self)
        bridge = Bridge()
        bridge.happened.connect(self._hear, Qt.ConnectionType.QueuedConnection)
        self.engine = Engine(bridge.happened.emit)
        self._bridge = bridge
        self._is_over, self._watched = False, None
        self._result = ""  # shown when all jobs are finished
        self._asked: tuple[Any, np.ndarray] | None = None  # the latest request for live training
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(PAUSE_MS)
        self._pause.timeout.connect(self._train_live)
        self._connect()
        self.list_layers()
        self.destroyed.connect(partial(_end, self.engine))  # in case no other event announced the end

    def _connect(self) -> None:
        form, viewer = self.form, self.scene.viewer
        form.new.clicked.connect(self.add_paint)
        form.train.clicked.connect(self.train)
        form.live.toggled.connect(self._switch_live)
        form.predict.clicked.connect(self.predict)
        form.predict_all.clicked.connect(self.predict_all)
        form.load.clicked.connect(self._ask_what_to_load)
        form.save.clicked.connect(self._ask_where_to_save)
        form.cancel.clicked.connect(self.engine.cancel)
        form.image.currentIndexChanged.connect(self._choose)
        form.paint.currentIndexChanged.connect(self._choose)
        form.channels.toggled.connect(self._changed)
        form.proba.toggled.connect(self._changed)
        for event in (viewer.layers.events.inserted, viewer.layers.events.removed, viewer.layers.events.reordered):
            event.connect(self.list_layers)
        viewer.dims.events.current_step.connect(self._changed)

    # Actions of the buttons.

    def add_paint(self) -> None:
        """Add a labels layer over the image, with the brush selected."""
        self._try(lambda: self.scene.add_paint(self._image(), self.form.channels.isChecked()))
        self.list_layers()
        self.form.paint.setCurrentIndex(self.form.paint.count() - 1)

    def train(self) -> None:
        self._try(lambda: self._begin(partial(self.engine.train, *self._painted()), "training ..."))

    def predict(self) -> None:
        self._try(lambda: self._predict([self._picture()]))

    def predict_all(self) -> None:
        """Predict every image layer; one that cannot be predicted is reported and skipped."""
        pictures: list[Picture] = []
        for image in self.scene.images():
            self._try(lambda image=image: pictures.append(self.scene.picture(image, self.form.channels.isChecked())))
        if pictures:
            self._predict(pictures)

    def load(self, path: Path) -> None:
        self._begin(partial(self.engine.load, path), f"loading {path.name} ...")

    def save(self, path: Path) -> None:
        path = path if path.suffix else path.with_suffix(".hedge")
        self._begin(partial(self.engine.save, path), f"saving {path.name} ...")

    # Live: shortly after the last stroke, train and predict.

    def _switch_live(self, is_on: bool) -> None:
        self._asked = None
        if is_on:
            self._changed()
        else:
            self._pause.stop()
            self.engine.forget_live()

    def _changed(self, event: Any = None) -> None:
        if self.form.live.isChecked():
            self._pause.start()

    def _train_live(self) -> None:
        def begin() -> None:
            picture, labels = self._painted()
            with_proba = self.form.proba.isChecked()
            asked = (picture.key.layer, picture.key.position, self.form.channels.isChecked(), with_proba)
            if self._asked is not None and self._asked[0] == asked and np.array_equal(self._asked[1], labels):
                return  # a colour changed, or another slider moved
            self._asked = asked, labels
            if not has_enough_paint(labels) and self.engine.model is None:
                self.form.show_text("Live: paint at least two classes.")
                return
            self._begin(partial(self.engine.live, picture, labels, with_proba), "live ...")

        self._try(begin)

    # Events of the engine, in the window's thread.

    def _hear(self, event: Any) -> None:
        match event:
            case Progress(text, done, total):
                self.form.show_progress(text, done, total)
            case ModelReady(model, how, seconds):
                self.form.model.setText(described(model))
                self.form.save.setEnabled(True)
                self._result = (
                    f"Live: trained in {seconds:.1f} s" if how == "live" else f"Model {how} in {seconds:.1f} s"
                )
            case Predicted():
                self.scene.show(event)
                self._result = self._result or f"Segmented {event.picture.name}"
            case Saved(path):
                show_info(f"The model was saved as {path}.")
                self._result = f"Saved {path.name}"
            case Failed(sentence):
                show_error(sentence)
            case Idle():
                self.form.end_progress()
                self.form.show_text(self._result)

    # The form follows the layers.

    def list_layers(self, event: Any = None) -> None:
        self.form.list_layers(self.scene.images(), self.scene.paints())
        self._choose()

    def _choose(self, index: int = 0) -> None:
        """Follow the choice of layers: listen to the strokes of the chosen labels."""
        image, paint = self.form.image.currentData(), self.form.paint.currentData()
        self.form.channels.setVisible(image is not None and may_have_channels(image))
        if paint is not self._watched:
            for event in _strokes(self._watched):
                event.disconnect(self._changed)
            for event in _strokes(paint):
                event.connect(self._changed)
            self._watched = paint
        self._changed()

    def _image(self) -> Any:
        image = self.form.image.currentData()
        if image is None:
            raise hr.InputError("there is no image layer; open an image first.")
        return image

    def _picture(self) -> Picture:
        return self.scene.picture(self._image(), self.form.channels.isChecked())

    def _painted(self) -> tuple[Picture, np.ndarray]:
        picture, paint = self._picture(), self.form.paint.currentData()
        if paint is None:
            raise hr.InputError("there is no labels layer to train on; press New and paint two classes.")
        return picture, self.scene.painted(paint, picture)

    def _predict(self, pictures: list[Picture]) -> None:
        self._begin(partial(self.engine.predict, pictures, self.form.proba.isChecked()), "predicting ...")

    def _begin(self, job: Any, text: str) -> None:
        self._result = ""
        self.form.begin(text)
        job()

    def _try(self, act: Any) -> None:
        """Do something, and show an error in one sentence."""
        try:
            act()
        except hr.HedgerowError as problem:
            show_error(str(problem))

    def _ask_what_to_load(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Load a model", "", MODEL_FILES)
        if path:
            self.load(Path(path))

    def _ask_where_to_save(self) -> None:
        path, _ = QFileDialog.getSaveFileName(self, "Save the model", "model.hedge", MODEL_FILES)
        if path:
            self.save(Path(path))

    # Closing.

    def closeEvent(self, event: Any) -> None:
        self.end()
        super().closeEvent(event)

    def event(self, event: Any) -> bool:
        """Notice that the dock is closed: it then releases its widget without closing it."""
        if event.type() == QEvent.Type.ParentChange and self.parent() is None:
            self.end()
        return bool(super().event(event))

    def end(self) -> None:
        """Stop all jobs and disconnect all events."""
        if self._is_over:
            return
        self._is_over = True
        self._pause.stop()
        self.engine.close()
        self.form.end_progress()
        self._bridge.blockSignals(True)
        for event in _strokes(self._watched):
            event.disconnect(self._changed)
        self._watched = None
        layers, dims = self.scene.viewer.layers.events, self.scene.viewer.dims.events
        for event in (layers.inserted, layers.removed, layers.reordered):
            event.disconnect(self.list_layers)
        dims.current_step.disconnect(self._changed)


def _strokes(paint: Any) -> list[Any]:
    """The events of a labels layer that may mean a stroke, an undo, or other labels."""
    return [] if paint is None else [paint.events[name] for name in STROKES]


def _end(engine: Engine, *arguments: Any) -> None:
    engine.close()
