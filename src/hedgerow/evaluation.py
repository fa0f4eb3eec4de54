"""A model against labelled images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hedgerow.errors import InputError
from hedgerow.images import UNLABELLED_INDEX, check_pair, encode_labels, to_labels, to_planes
from hedgerow.metrics import Scores, scores
from hedgerow.progress import Report, reporting, silent
from hedgerow.trees import Model


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
    if len(images) == 0 or len(images) != len(labels):
        raise InputError(
            f"there are {len(images)} image(s) and {len(labels)} label map(s); give one label map for each image."
        )
    names = list(names) if names is not None else [f"image {i}" for i in range(len(images))]
    ignored = model.unlabelled if unlabelled is None else unlabelled
    maps = []
    for image, label, name in zip(images, labels, names, strict=True):
        maps.append(to_labels(label, f"the labels of {name}"))
        planes = to_planes(image, name, model.features.kind)
        check_pair(planes, maps[-1], name)
        # All that could stop the work later is found here, where the name is known.
        if len(planes) != model.features.n_inputs:
            raise InputError(
                f"{name} has {len(planes)} channel(s) but the model was trained on "
                f"{model.features.n_inputs}; give images of the same kind."
            )
        indices = encode_labels(maps[-1], model.classes, ignored, f"the labels of {name}")
        if (indices == UNLABELLED_INDEX).all():
            raise InputError(
                f"the labels of {name} have no labelled pixel: all have the unlabelled value {ignored}; "
                "label some, or leave it out."
            )
    predictions: list[np.ndarray] = []
    with reporting(progress) as report:
        for i, image in enumerate(images):
            predictions.append(model.predict(image, progress=silent))
            report("evaluating", i + 1, len(images))
    return scores(maps, predictions, model.classes, ignored)
