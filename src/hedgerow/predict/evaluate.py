"""Scoring a model on labelled images."""

from collections.abc import Sequence

import numpy as np

from hedgerow.errors import InputError
from hedgerow.forest.level_input import dimensions_of
from hedgerow.images.given import given_pairs
from hedgerow.images.given_arrays import Given
from hedgerow.images.labelled import Images, LabelledImage, LabelledSet, LazySequence, labelled_image
from hedgerow.images.metrics import Scores, confusion
from hedgerow.kernels import buffers
from hedgerow.predict.protocol import Model
from hedgerow.predict.tiling import predict_indices
from hedgerow.progress import Report, reporting


def labelled_for(
    model: Model,
    images: Images,
    labels: Images,
    unlabelled: int | None = None,
    names: Sequence[str] | None = None,
    *,
    what: str = "image",
    axes: str | None = None,
) -> LabelledSet:
    """Images (H,W[,C]) and labels (H,W), or volumes and labels (Z,Y,X), one of each, or files, with the classes of a
    model; each is checked when it is read.

    axes:       as of `predict`
    unlabelled: the label value that means "no label"; None: the one that the model was trained with
    what:       what messages call images without names
    """
    given = given_pairs(images, labels, model.features.layout, names, what=what, legend=model.legend or None, axes=axes)
    return labelled_by(model, given, unlabelled)


def labelled_by(model: Model, given: Given, unlabelled: int | None = None) -> LabelledSet:
    """`labelled_for` of images and labels that are already paired."""
    features, ignored = model.features, model.unlabelled if unlabelled is None else unlabelled

    def checked_image(i: int) -> LabelledImage:
        image = labelled_image(
            given.images[i], given.labels[i], model.classes, ignored, features.n_inputs, given.layout, given.names[i]
        )
        if dimensions_of(model) == 3 and not image.is_volume:
            raise InputError(f"{image.name} is an image, but the model learned from volumes; give volumes.")
        return image

    checked = LazySequence(len(given), checked_image)
    return LabelledSet(checked, model.classes, ignored, legend=model.legend)


def evaluate(
    model: Model,
    images: Images,
    labels: Images,
    *,
    unlabelled: int | None = None,
    names: Sequence[str] | None = None,
    axes: str | None = None,
    progress: Report | None = None,
) -> Scores:
    """Scores of the model's predictions for images (H,W[,C]) against labels (H,W), pooled over all labelled pixels; or
    for volumes against labels (Z,Y,X).

    images, labels: lists, one image with its labels, or files of both, each a folder, a file or a glob
    unlabelled: the label value that means "no label"; None: the one that the model was trained with
    axes:   of the arrays, e.g. "ZYX", "ZYXC" or "TYX"; None: labels of three axes belong to volumes

    >>> images, labels = hr.synthetic.somites(n_images=3, size=(40, 48))
    >>> stack = hr.fit_stack(images[:2], labels[:2], hr.StackConfig(n_levels=1, n_trees=2))
    >>> scores = hr.evaluate(stack, images[2], labels[2])
    >>> scores.confusion.shape
    (22, 22)
    """
    labelled = labelled_for(model, images, labels, unlabelled, names, axes=axes)
    # All are checked before the first is predicted, so that a bad one does not stop long work.
    return score(model, LabelledSet(list(labelled), labelled.classes, labelled.unlabelled), progress)


def score(model: Model, labelled: LabelledSet, progress: Report | None = None) -> Scores:
    """Scores on labelled images with the model's classes."""
    return pooled(model, score_each(model, labelled, progress))


def score_each(model: Model, labelled: LabelledSet, progress: Report | None = None) -> list[Scores]:
    """Scores on each of the labelled images."""
    scores = []
    with reporting(progress) as report:
        for done, image in enumerate(labelled):
            table = confusion(image.target, predict_indices(model, image.planes), model.n_classes)
            scores.append(Scores(model.classes, table, model.legend.names))
            report("evaluating", done + 1, len(labelled))
    buffers.release()
    return scores


def pooled(model: Model, scores: Sequence[Scores]) -> Scores:
    """The scores over all images together."""
    table = sum((of_image.confusion for of_image in scores), np.zeros((model.n_classes, model.n_classes), np.int64))
    return Scores(model.classes, table, model.legend.names)
