"""A model against labelled images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hedgerow.errors import InputError
from hedgerow.images.arrays import UNLABELLED_INDEX, check_pair, encode_labels, to_labels, to_planes
from hedgerow.images.metrics import Scores, scores
from hedgerow.predict.protocol import Model
from hedgerow.progress import Report, reporting, silent


@dataclass(frozen=True)
class LabelledImage:
    """planes: (C,H,W) float32; labels: (H,W) class values; target: (H,W) uint8 class index, or UNLABELLED_INDEX

    name: of the image, for messages
    """

    planes: np.ndarray
    labels: np.ndarray
    target: np.ndarray
    name: str


def labelled_images(
    model: Model,
    images: Sequence[np.ndarray],
    labels: Sequence[np.ndarray],
    unlabelled: int | None = None,
    names: Sequence[str] | None = None,
) -> list[LabelledImage]:
    """Images and labels for a model, checked: whatever is wrong with one is said here, with its name."""
    if len(images) == 0 or len(images) != len(labels):
        raise InputError(
            f"there are {len(images)} image(s) and {len(labels)} label map(s); give one label map for each image."
        )
    names = list(names) if names is not None else [f"image {i}" for i in range(len(images))]
    ignored = model.unlabelled if unlabelled is None else unlabelled
    found = []
    for image, label, name in zip(images, labels, names, strict=True):
        label = to_labels(label, f"the labels of {name}")
        planes = to_planes(image, name, model.features.kind)
        check_pair(planes, label, name)
        if len(planes) != model.features.n_inputs:
            raise InputError(
                f"{name} has {len(planes)} channel(s) but the model was trained on "
                f"{model.features.n_inputs}; give images of the same kind."
            )
        target = encode_labels(label, model.classes, ignored, f"the labels of {name}")
        if (target == UNLABELLED_INDEX).all():
            raise InputError(
                f"the labels of {name} have no labelled pixel: all have the unlabelled value {ignored}; "
                "label some, or leave it out."
            )
        found.append(LabelledImage(planes, label, target, name))
    return found


def evaluate(
    model: Model,
    images: Sequence[np.ndarray],
    labels: Sequence[np.ndarray],
    *,
    unlabelled: int | None = None,
    names: Sequence[str] | None = None,
    progress: Report | None = None,
) -> Scores:
    """Scores of the model's predictions of images (H,W[,C]) against labels (H,W), pooled over all labelled pixels.

    unlabelled: the label value that means "no label"; None: the one the model was trained with.
    """
    ignored = model.unlabelled if unlabelled is None else unlabelled
    maps = [each.labels for each in labelled_images(model, images, labels, unlabelled, names)]
    predictions: list[np.ndarray] = []
    with reporting(progress) as report:
        for i, image in enumerate(images):
            predictions.append(model.predict(image, progress=silent))
            report("evaluating", i + 1, len(images))
    return scores(maps, predictions, model.classes, ignored)
