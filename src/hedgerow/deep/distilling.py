"""Back to a forest that runs anywhere: it learns to say what a deep stack says."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.deep.deepstack import DeepStack
from hedgerow.errors import ConfigError, InputError
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.level_input import level_input
from hedgerow.forest.walk import reached_leaves, run_level
from hedgerow.images.arrays import to_planes
from hedgerow.images.labelled import Images, LabelledImage, LabelledSet, listed_for
from hedgerow.images.regions import Region
from hedgerow.kernels import reused
from hedgerow.network.mapping import to_convnet, to_forest
from hedgerow.network.vote_fit import FitSamples
from hedgerow.predict.tiling import predict_indices, proba_of
from hedgerow.progress import Report, reporting

METHODS = ("fitted", "anew")


def distil(
    deep: DeepStack, images: Images, method: str = "fitted", *, stride: int = 1, progress: Report | None = None
) -> ForestStack:
    """Forests whose votes are fitted to all that a deep stack says of images (H,W[,C]); they need no labels.

    method: "fitted": its own, by Map Back 2 of its network
            "anew": forests that are grown from these images, with what the deep stack says of them as labels
    stride: "fitted": of mapping back, see `to_forest`

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> net = hr.to_convnet(hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2)))
    >>> small = hr.ConvConfig(base=2, n_down=2, n_steps=2, batch=1)
    >>> deep = hr.deepen(net, images, labels, hr.DeepConfig(n_folds=2, conv=small))
    >>> hr.distil(deep, images).settings["mapped_back"]
    'distilled'
    """
    if not isinstance(deep, DeepStack):
        raise InputError(f"a {type(deep).__name__} was given to distil; give a deep stack, e.g. from deepen(...).")
    if method not in METHODS:
        raise ConfigError(f"the method is {method!r}; choose one of {', '.join(METHODS)}.")
    images, _ = listed_for(images, deep.base.features.n_inputs, deep.base.features.layout)
    if not len(images):
        raise InputError("distil fits votes to images, but there are none; give some, with or without labels.")
    with reporting(progress) as report:
        if method == "anew":
            stack = _grown(deep, images, report)
        else:
            stack = to_forest(deep.base, images, "leaf_mean", stride=stride, progress=report)
        samples = _said(deep, stack, images, report)
    last = samples.fitted(stack.levels[-1])
    reused.let_go()
    settings = {**stack.settings, "mapped_back": "distilled"}
    return replace(stack, levels=(*stack.levels[:-1], last), settings=settings)


def _grown(deep: DeepStack, images: Sequence[np.ndarray], report: Report) -> ForestStack:
    """Forests with the settings of the deep stack's, from images that it labels."""
    layout = deep.base.features.layout

    def labelled(i: int) -> LabelledImage:
        planes = to_planes(images[i], f"image {i}", layout)
        report("labelling the images", i, len(images))
        return LabelledImage(planes, predict_indices(deep, planes), f"image {i}")

    found = [labelled(i) for i in range(len(images))]
    every = LabelledSet(found, deep.classes, deep.unlabelled, deep.image_dtype, legend=deep.legend)
    config = StackConfig.from_dict(deep.settings["config"])
    stack = grow_stack(every, replace(config, reserve=0.0), progress=report)
    # By way of its network, after whose votes comes a softmax: such votes are fitted.
    again = to_forest(to_convnet(stack), method="weights")
    return replace(again, known=deep.known.with_seen(stack.known.seen))


def _said(deep: DeepStack, stack: ForestStack, images: Sequence[np.ndarray], report: Report) -> FitSamples:
    """The leaves that pixels reach in the last level of the stack, and what the deep stack says of them."""
    samples, level = FitSamples(len(images)), stack.n_levels - 1
    for done, image in enumerate(images):
        report("fitting the forests to the whole model", done, len(images))
        planes = to_planes(image, f"image {done}", deep.base.features.layout)
        whole = Region(0, planes.shape[1], 0, planes.shape[2])
        given = level_input(stack, partial(run_level, stack), planes, whole, level)
        leaves = reached_leaves(stack.levels[level], given)
        samples.add((whole.height, whole.width), whole, leaves, proba_of(deep, planes))
    report("fitting the forests to the whole model", len(images), len(images))
    return samples
