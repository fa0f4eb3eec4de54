"""Which images score a refinement: only images that nothing was trained on give a meaningful score."""

from dataclasses import dataclass

import numpy as np

from hedgerow.config import RefineConfig
from hedgerow.forest.history import Known
from hedgerow.forest.samples import MAX_HELD_OUT_IMAGES, hold_out
from hedgerow.images.labelled import LabelledImage, LabelledSet


@dataclass(frozen=True)
class ValidationSplit:
    """The images to train on, those that score, and whether the latter are new to the forests as well."""

    train: list[LabelledImage]
    held: list[LabelledImage]
    is_honest: bool


def scoring_images(
    known: Known, labelled: LabelledSet, validation: LabelledSet | None, config: RefineConfig
) -> ValidationSplit:
    """Choose them: the validation images; else those that training reserved; else some that the forests have not seen.

    Where there are none, all images are trained on and there is no score. Only if the score decides something (which
    network to keep, when to stop) are images held out that the forests know, and that score is not shown.
    """
    images, decides = list(labelled), config.keep == "best" or config.patience is not None
    if validation is not None:
        held = list(validation)
        is_honest = not any(image.mark in known.seen for image in held)
        return ValidationSplit(images, held if is_honest or decides else [], is_honest)
    marks = [image.mark for image in images]
    chosen = {i for i, mark in enumerate(marks) if mark in known.reserved}
    if not chosen and known.seen and config.held_out:
        new = [i for i, mark in enumerate(marks) if mark not in known.seen]
        n = min(round(config.held_out * len(images)), MAX_HELD_OUT_IMAGES, len(new), len(images) - 1)
        chosen = set(np.random.default_rng((config.seed, 5)).permutation(new)[:n].tolist())
    if chosen and len(chosen) < len(images):
        train = [image for i, image in enumerate(images) if i not in chosen]
        return ValidationSplit(train, [images[i] for i in sorted(chosen)], True)
    if decides:
        return ValidationSplit(*hold_out(labelled, config.held_out, config.seed), False)
    return ValidationSplit(images, [], False)
