"""Settings that fit the amount of paint: a few strokes need other ones than fully labelled images."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.images.arrays import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledSet

SPARSE = 0.1  # of all pixels: with less paint than this, labels are strokes


def settings_for(labelled: LabelledSet, say: Callable[[str], None] = lambda text: None) -> StackConfig:
    """The default settings for labelled images, chosen by how much of them is painted; measured in docs/choices.md.

    Strokes are few pixels: all of them train, trees are grown to the end, and more of them vote. Context would be what
    happens to lie around the strokes, so there is none: one level, without offsets.
    """
    usual = StackConfig()
    if not is_sparse(labelled):
        return usual
    say(f"{painted_part(labelled):.1%} of the pixels are painted: all of these are used, with the settings for strokes")
    context, sampling = replace(usual.context, window=1), replace(usual.sampling, step=1)
    return replace(usual, n_levels=1, n_trees=64, min_split=2, context=context, sampling=sampling)


def is_sparse(labelled: LabelledSet) -> bool:
    """Whether the labels are strokes."""
    return painted_part(labelled) < SPARSE


def painted_part(labelled: LabelledSet) -> float:
    """Labelled pixels, of all pixels."""
    n_pixels = sum(image.target.size for image in labelled)
    return sum(int(np.count_nonzero(image.target != UNLABELLED_INDEX)) for image in labelled) / n_pixels
