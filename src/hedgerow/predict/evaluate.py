"""Scoring a model on labelled images."""

from collections.abc import Sequence

import numpy as np

from hedgerow.images.labelled import LabelledSet, WhenAsked, check_count, labelled_image, named
from hedgerow.images.metrics import Scores, confusion
from hedgerow.kernels import reused
from hedgerow.predict.protocol import Model
from hedgerow.predict.tiling import predict_indices
from hedgerow.progress import Report, reporting


def labelled_for(
    model: Model,
    images: Sequence[np.ndarray],
    labels: Sequence[np.ndarray],
    unlabelled: int | None = None,
    names: Sequence[str] | None = None,
) -> LabelledSet:
    """Images (H,W[,C]) and labels (H,W) with the classes of a model; each is checked on request.

    unlabelled: the label value that means "no label"; None: the one the model was trained with
    """
    check_count(images, labels)
    called, ignored = named(names, len(images)), model.unlabelled if unlabelled is None else unlabelled
    features = model.features
    made = WhenAsked(
        len(images),
        lambda i: labelled_image(
            images[i], labels[i], model.classes, ignored, features.n_inputs, features.layout, called[i]
        ),
    )
    return LabelledSet(made, model.classes, ignored, legend=model.legend)


def evaluate(
    model: Model,
    images: Sequence[np.ndarray],
    labels: Sequence[np.ndarray],
    *,
    unlabelled: int | None = None,
    names: Sequence[str] | None = None,
    progress: Report | None = None,
) -> Scores:
    """Scores of the model's predictions for images (H,W[,C]) against labels (H,W), pooled over all labelled pixels.

    unlabelled: the label value that means "no label"; None: the one the model was trained with.
    """
    labelled = labelled_for(model, images, labels, unlabelled, names)
    # All are checked before the first is predicted, so that a bad one does not end long work.
    return score(model, LabelledSet(list(labelled), labelled.classes, labelled.unlabelled), progress)


def score(model: Model, labelled: LabelledSet, progress: Report | None = None) -> Scores:
    """Scores on labelled images with the model's classes."""
    table = np.zeros((model.n_classes, model.n_classes), np.int64)
    with reporting(progress) as report:
        for done, image in enumerate(labelled):
            table += confusion(image.target, predict_indices(model, image.planes), model.n_classes)
            report("evaluating", done + 1, len(labelled))
    reused.let_go()
    return Scores(model.classes, table, model.legend.names)
