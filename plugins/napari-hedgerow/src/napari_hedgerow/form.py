"""The fields and buttons of the widget; `widget` gives them their actions."""

from collections.abc import Sequence
from typing import Any

from qtpy.QtWidgets import (
    QCheckBox,
    QComboBox,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QProgressBar,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)  # fmt: skip


class Form:
    """The choice of two layers at the top, and below it the actions, in the order of use."""

    def __init__(self, parent: QWidget) -> None:
        self.image, self.paint = (
            _chooser("The image to train on"),
            _chooser("The labels painted on it; 0 is unpainted"),
        )
        self.new = _button("New", "Add an empty labels layer over the image to paint on")
        self.channels = QCheckBox("First axis is channels")
        self.channels.setToolTip("Otherwise the image is a stack, and its current plane is used")
        self.train = _button("Train", "Grow forests on the strokes, with settings that suit the amount of paint")
        self.live = _button("Live", "Train and predict quickly after each stroke")
        self.live.setCheckable(True)
        self.predict = _button("Predict", "Segment this image, or the current plane of this stack")
        self.predict_all = _button("Predict all", "Segment all image layers")
        self.proba = QCheckBox("With probabilities")
        self.proba.setToolTip("Also add a layer with the probability of each class, with a slider for the classes")
        self.load, self.save = _button("Load ...", "Load a model"), _button("Save ...", "Save the model as .hedge")
        self.save.setEnabled(False)
        self.model, self.status = QLabel("none yet"), QLabel("")
        for text in (self.model, self.status):
            text.setWordWrap(True)
        self.bar, self.cancel = QProgressBar(), _button("Cancel", "Stop the running job")
        self.bar.setTextVisible(False)
        self.bar.setMaximumHeight(10)
        _keep_room(self.bar, self.cancel)
        self._lay_out(parent)
        parent.setMinimumWidth(290)
        self.end_progress()

    def _lay_out(self, parent: QWidget) -> None:
        grid = QGridLayout()
        grid.setColumnStretch(1, 1)
        grid.setColumnStretch(2, 1)
        grid.addWidget(QLabel("Image"), 0, 0)
        grid.addWidget(self.image, 0, 1, 1, 2)
        grid.addWidget(self.channels, 1, 1, 1, 2)
        grid.addWidget(QLabel("Paint"), 2, 0)
        grid.addLayout(_row(self.paint, self.new), 2, 1, 1, 2)
        grid.addWidget(_line(), 3, 0, 1, 3)
        grid.addWidget(QLabel("Learn"), 4, 0)
        grid.addWidget(self.train, 4, 1)
        grid.addWidget(self.live, 4, 2)
        grid.addWidget(QLabel("Segment"), 5, 0)
        grid.addWidget(self.predict, 5, 1)
        grid.addWidget(self.predict_all, 5, 2)
        grid.addWidget(self.proba, 6, 1, 1, 2)
        grid.addWidget(_line(), 7, 0, 1, 3)
        grid.addWidget(QLabel("Model"), 8, 0)
        grid.addWidget(self.model, 8, 1, 1, 2)
        grid.addWidget(self.load, 9, 1)
        grid.addWidget(self.save, 9, 2)
        whole = QVBoxLayout(parent)
        whole.addLayout(grid)
        whole.addLayout(_row(self.bar, self.cancel))
        whole.addWidget(self.status)
        whole.addStretch(1)

    def list_layers(self, images: Sequence[Any], paints: Sequence[Any]) -> None:
        """Offer these layers; the chosen layer stays chosen if it still exists."""
        for chooser, layers in ((self.image, images), (self.paint, paints)):
            chosen = chooser.currentData()
            chooser.blockSignals(True)
            chooser.clear()
            for layer in layers:
                chooser.addItem(layer.name, layer)
            place = next((i for i, layer in enumerate(layers) if layer is chosen), len(layers) - 1)
            chooser.setCurrentIndex(place)
            chooser.blockSignals(False)

    def show_text(self, text: str) -> None:
        self.status.setText(text)

    def begin(self, text: str) -> None:
        """Show that a job was requested; its duration is unknown yet."""
        self.show_text(text.capitalize())
        self.bar.setRange(0, 0)
        self.bar.show()
        self.cancel.show()

    def show_progress(self, text: str, done: int, total: int) -> None:
        self.show_text(text.capitalize())
        self.bar.setRange(0, total)
        self.bar.setValue(done)
        self.bar.show()
        self.cancel.show()

    def end_progress(self) -> None:
        self.bar.hide()
        self.cancel.hide()


def _chooser(tip: str) -> QComboBox:
    chooser = QComboBox()
    chooser.setToolTip(tip)
    chooser.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)  # a long name does not widen the dock
    return chooser


def _button(text: str, tip: str) -> QPushButton:
    button = QPushButton(text)
    button.setToolTip(tip)
    return button


def _row(wide: QWidget, narrow: QWidget) -> QHBoxLayout:
    row = QHBoxLayout()
    row.addWidget(wide, 1)
    row.addWidget(narrow)
    return row


def _line() -> QFrame:
    line = QFrame()
    line.setFrameShape(QFrame.Shape.HLine)
    return line


def _keep_room(*widgets: QWidget) -> None:
    """Keep the space of hidden widgets, so that nothing below moves."""
    for widget in widgets:
        policy = widget.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        widget.setSizePolicy(policy)
