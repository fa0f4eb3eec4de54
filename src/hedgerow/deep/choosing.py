"""Which convolutional network suits some images: how its channels are normalised and how many there are, by mean Dice
on a part of the images that it did not see.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hedgerow.config import AugmentConfig, ConvConfig
from hedgerow.deep.unet import NORMS, Norm
from hedgerow.images.labelled import LabelledSet

SIZES = (16, 32)  # channels at full resolution that are tried
N_FOLDS = 4  # one is held out to choose by
N_TRIED = len(NORMS) + len(SIZES) - 1  # networks to choose by
FEW: dict[Norm, int] = {"batch": 5, "image": 2}
"""With fewer images, batches are larger and rates lower. For networks that are normalised by their training, that was
worth 0.05 on four drawn somites, and cost 0.1 on 16; for the others it was worth 0.004 on one image of electron
microscopy, and cost 0.006 on four (docs/deep.md)."""
DEPTH = AugmentConfig(rotation=30.0, scale=0.3, shift=0.2, brightness=0.6, contrast=0.3)
"""How depths are altered: on 40 drawn bodies this was worth 0.029 to a U-Net of one seed (docs/deep.md)."""
Tried = Mapping[tuple[int, Norm], float]
"""Mean Dice by size and normalisation."""


def for_images(conv: ConvConfig, is_depth: bool) -> ConvConfig:
    """The settings for such images: depths are turned, scaled and shifted further than others, and made nearer and
    farther by more than others are lit."""
    if not is_depth:
        return conv
    usual = conv.augment
    return replace(conv, augment=replace(DEPTH, rotation=max(usual.rotation, DEPTH.rotation), flip=usual.flip))


def for_number(conv: ConvConfig, n_images: int) -> ConvConfig:
    """The settings for so many images."""
    if n_images >= FEW[conv.norm]:
        return conv
    return replace(conv, batch=2 * conv.batch, learning_rate=conv.learning_rate / 3)


def for_sizes(conv: ConvConfig, labelled: LabelledSet) -> ConvConfig:
    """The settings for images of these sizes: there are two pixels at least at the coarsest scale, so that there is
    something to normalise."""
    shortest = min(conv.crop, *(max(image.size[axis] for image in labelled) for axis in range(2)))
    return replace(conv, n_down=min(conv.n_down, max(shortest.bit_length() - 2, 1)))


def choose(
    conv: ConvConfig, n_images: int, sizes: Sequence[int], norms: Sequence[Norm], dice: Callable[[ConvConfig], float]
) -> tuple[ConvConfig, Tried]:
    """The best settings for so many images, and what was tried: the normalisations in the first size, then the sizes
    with the better one.

    dice: of a network with these settings. It is not asked if there is nothing to choose
    """

    def settings(base: int, norm: Norm) -> ConvConfig:
        return for_number(replace(conv, base=base, norm=norm), n_images)

    tried: dict[tuple[int, Norm], float] = {}
    if len(sizes) * len(norms) == 1:
        return settings(sizes[0], norms[0]), tried
    for norm in norms:
        tried[sizes[0], norm] = dice(settings(sizes[0], norm))
    best = max(norms, key=lambda norm: tried[sizes[0], norm])
    for size in sizes[1:]:
        tried[size, best] = dice(settings(size, best))
    return settings(*max(tried, key=lambda one: tried[one])), tried


def in_words(tried: Tried) -> str:
    """For a line that tells what was tried."""
    of = {"batch": "over the training images", "image": "over each image"}
    return ", ".join(f"{base} channels normalised {of[norm]} {dice:.3f}" for (base, norm), dice in tried.items())
