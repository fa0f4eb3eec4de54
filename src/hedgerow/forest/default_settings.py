"""Settings that suit the amount of paint: a few strokes need different ones from fully labelled images.

They include the features: if a pretrained network is installed, it joins the filter bank; see docs/encoders.md.
"""

from dataclasses import replace

import numpy as np

from hedgerow.config import AugmentConfig, StackConfig
from hedgerow.encoders import catalogue
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledSet
from hedgerow.progress import Say, quiet

SPARSE_FRACTION = 0.1  # of all pixels: if fewer are labelled, the labels are strokes

# Trees of the one level that is grown on strokes; on the page, as many between strokes, and few while somebody paints.
STROKE_TREES, QUICK_TREES = 64, 16
STROKE_LAYERS = ("s1", "s2", "s3", "s5", "s7")  # the last one encodes the position in the photograph, which helps here
VOLUME_STEP = 3  # of volumes, whose slices are alike: every third row and column of each
ALTERED_VOXELS, MAX_VOLUME_COPIES = 10**6, 8  # of small volumes and their altered copies together; copies of each
TILTED = AugmentConfig(rotation=15.0, tilt=15.0, scale=0.1, shift=0.1, brightness=0.2, contrast=0.2)
BANK_HINT = "--features bank makes a model that needs no PyTorch"


def settings_for(part: float, say: Say = quiet, *, keep_features: bool = False) -> StackConfig:
    """The default settings for images of which this part of the pixels is labelled; measured in docs/measurements.

    Strokes have few pixels: all of them train, trees are grown to the end, and more trees vote. Context would be
    whatever happens to lie around the strokes, so there is one level without offsets. Splits read one channel, so few
    of them find a hue in red, green and blue: the filters read opponent colours. If the extra `pretrained` is
    installed, its network joins the filter bank.

    keep_features: the features are the filter bank, which the caller replaces
    """
    usual = StackConfig()
    if not keep_features and default_encoder_is_installed():
        say(f"features: the filter bank and the pretrained network {catalogue.DEFAULT}; {BANK_HINT}")
        usual = replace(usual, features=("bank", "encoder"))
    if part >= SPARSE_FRACTION:
        return usual
    say(f"{part:.1%} of the pixels are painted: all of them are used, with the settings for strokes")
    return stroke_settings(replace(usual, encoder=replace(usual.encoder, layers=STROKE_LAYERS)), STROKE_TREES)


def stroke_settings(config: StackConfig, n_trees: int) -> StackConfig:
    """The settings changed to those for strokes."""
    return replace(
        config,
        n_levels=1,
        n_trees=n_trees,
        min_split=2,
        opponent=True,
        context=replace(config.context, window=1),
        sampling=replace(config.sampling, step=1),
    )


def volume_copies(labelled: LabelledSet) -> int:
    """How many altered copies of each small volume suit these volumes: fewer, the more there are."""
    n_voxels = sum(image.target.size for image in labelled)
    return min(ALTERED_VOXELS // n_voxels, MAX_VOLUME_COPIES)


def default_encoder_is_installed() -> bool:
    """Whether the default encoder can run here."""
    return catalogue.is_installed(catalogue.DEFAULT)


def labelled_fraction(labelled: LabelledSet) -> float:
    """The fraction of all pixels that are labelled."""
    n_pixels = sum(image.target.size for image in labelled)
    return sum(int(np.count_nonzero(image.target != UNLABELLED_INDEX)) for image in labelled) / n_pixels
