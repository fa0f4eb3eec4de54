"""Which convolutional network suits some images: how its channels are normalised, how many there are, and how large the
crops are that it learns from, by mean Dice on a part of the images that it did not see.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hedgerow.config import AugmentConfig, ConvConfig
from hedgerow.deep.unet import NORMS, Norm
from hedgerow.images.labelled import LabelledSet

SIZES = (16, 32)  # channels at full resolution that are tried
N_FOLDS = 4  # one is held out to choose by
LARGER = 1.5  # images whose shorter side is that of a crop times this are worth larger crops
FEW: dict[Norm, int] = {"batch": 5, "image": 2}
"""With fewer images, batches are larger and rates lower. For networks that are normalised by their training, that was
worth 0.05 on four drawn somites, and cost 0.1 on 16; for the others it was worth 0.004 on one image of electron
microscopy, and cost 0.006 on four (docs/deep.md)."""
DEPTH = AugmentConfig(rotation=30.0, scale=0.3, shift=0.2, brightness=0.6, contrast=0.3)
"""How depths are altered: on 40 drawn bodies this was worth 0.029 to a U-Net of one seed (docs/deep.md)."""
Tried = Mapping[tuple[int, Norm, int], float | None]
"""Mean Dice by size, normalisation and side of the crops; None: it did not fit into memory."""


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


def crops_for(conv: ConvConfig, labelled: LabelledSet) -> tuple[int, ...]:
    """Sides of the crops to try: the usual one, and where images are clearly larger, twice that.

    Where classes differ by position, a crop must show enough to tell where it lies: on drawn somites of 800 x 950,
    U-Nets learnt nothing from crops of 256. On electron microscopy the smaller ones are better (docs/deep.md)."""
    shorter = min(max(image.size[axis] for image in labelled) for axis in range(2))
    return (conv.crop,) if shorter < LARGER * conv.crop else (conv.crop, 2 * conv.crop)


def choose(
    conv: ConvConfig,
    n_images: int,
    sizes: Sequence[int],
    norms: Sequence[Norm],
    crops: Sequence[int],
    dice: Callable[[ConvConfig], float | None],
) -> tuple[ConvConfig, Tried]:
    """The best settings for so many images, and what was tried: the normalisations in the first size, then the sizes
    with the better one, then the crops with the best of these.

    dice: of a network with these settings, None if it does not fit. It is not asked if there is nothing to choose
    """

    def settings(base: int, norm: Norm, crop: int) -> ConvConfig:
        return for_number(replace(conv, base=base, norm=norm, crop=crop), n_images)

    tried: dict[tuple[int, Norm, int], float | None] = {}

    def best_of(some: Sequence[tuple[int, Norm, int]]) -> tuple[int, Norm, int]:
        for one in some:
            if one not in tried:
                tried[one] = dice(settings(*one))
        return max(tried, key=lambda one: tried[one] or 0.0)

    best = (sizes[0], norms[0], crops[0])
    if len(sizes) * len(norms) * len(crops) > 1:
        best = best_of([(best[0], norm, best[2]) for norm in norms])
        best = best_of([(size, best[1], best[2]) for size in sizes])
        best = best_of([(best[0], best[1], crop) for crop in crops])
    return settings(*best), tried


def n_tried(conv: ConvConfig, labelled: LabelledSet) -> int:
    """How many networks are tried to choose among `SIZES`, `NORMS` and crops."""
    return len(NORMS) + len(SIZES) + len(crops_for(conv, labelled)) - 2


def in_words(tried: Tried) -> str:
    """For a line that tells what was tried."""
    of = {"batch": "over the training images", "image": "over each image"}
    usual = min((crop for _, _, crop in tried), default=0)
    lines = []
    for (base, norm, crop), dice in tried.items():
        crops = "" if crop == usual else f" in crops of {crop} pixels"
        found = "did not fit into memory" if dice is None else f"{dice:.3f}"
        lines.append(f"{base} channels normalised {of[norm]}{crops} {found}")
    return ", ".join(lines)
