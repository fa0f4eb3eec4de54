"""Forests fitted to the predictions of a deep stack."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from hedgerow.deep.deepstack import DeepStack
from hedgerow.errors import InputError
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.level_input import level_input
from hedgerow.forest.walk import reached_leaves, run_level
from hedgerow.images.array_checks import to_planes
from hedgerow.images.given import given_images
from hedgerow.images.labelled import Images
from hedgerow.images.regions import Region
from hedgerow.kernels import buffers
from hedgerow.network.mapback import to_forest
from hedgerow.network.vote_fit import FitSamples
from hedgerow.predict.tiling import proba_of
from hedgerow.progress import Report, reporting


def distil(deep: DeepStack, images: Images, *, stride: int = 1, progress: Report | None = None) -> ForestStack:
    """The forests of a deep stack, with votes fitted to its predictions for images (H,W[,C]), which need no labels.

    The network is mapped back first (Map Back 2). Then the votes of the last level are fitted to the predictions of the
    deep stack, as the method "fitted" fits them to those of a network.

    stride: of mapping back, see `to_forest`

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> net = hr.to_convnet(hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2)))
    >>> small = hr.ConvConfig(base=2, n_down=2, n_steps=2, batch=1)
    >>> deep = hr.deepen(net, images, labels, hr.DeepConfig(n_folds=2, conv=small))
    >>> hr.distil(deep, images).settings["mapped_back"]
    'distilled'
    """
    if not isinstance(deep, DeepStack):
        raise InputError(f"a {type(deep).__name__} was given to distil; give a deep stack, e.g. from deepen(...).")
    pictures, _ = given_images(images, deep.base.features.n_inputs, deep.base.features.layout)
    if not len(pictures):
        raise InputError("distil needs images to fit the votes to; give some, with or without labels.")
    with reporting(progress) as report:
        stack = to_forest(deep.base, pictures, "leaf_mean", stride=stride, progress=report)
        samples = _fit_samples(deep, stack, pictures, report)
    last = samples.fitted(stack.levels[-1])
    buffers.release()
    settings = {**stack.settings, "mapped_back": "distilled"}
    return replace(stack, levels=(*stack.levels[:-1], last), settings=settings)


def _fit_samples(deep: DeepStack, stack: ForestStack, images: Sequence[np.ndarray], report: Report) -> FitSamples:
    """For each pixel, the leaves that it reaches in the last level, and its probabilities by the deep stack."""
    samples, level = FitSamples(len(images)), stack.n_levels - 1
    for done, image in enumerate(images):
        report("fitting the forests to the whole model", done, len(images))
        planes = to_planes(image, f"image {done}", deep.base.features.layout)
        whole = Region.whole(planes.shape[1:])
        last_input = level_input(stack, partial(run_level, stack), planes, whole, level)
        leaves = reached_leaves(stack.levels[level], last_input)
        samples.add(whole.shape, whole, leaves, proba_of(deep, planes))
    report("fitting the forests to the whole model", len(images), len(images))
    return samples
