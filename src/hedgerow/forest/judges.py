"""Judges of settings: small stacks that are grown without some subjects or strokes, and scored on these."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from hedgerow.config import UNALTERED, StackConfig
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.default_settings import labelled_fraction
from hedgerow.forest.growth_time import growing_costs
from hedgerow.forest.level_input import LevelPlan
from hedgerow.forest.samples import strokes
from hedgerow.forest.walk import run_level
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledSet
from hedgerow.images.regions import Region
from hedgerow.progress import Report, silent

JUDGE_TREES, JUDGE_SAMPLES = 8, 60_000
JUDGE_SECONDS, IMAGE_SECONDS = 0.1, 0.008  # that a judge takes besides, and for each image
HELD_FRACTION = 0.34  # of the subjects, which a judge does not see
FEW_SUBJECTS = 6  # with fewer, each candidate has two judges, which hold out different subjects
STROKE_FOLDS = 3  # of the strokes, one is held out
FULLY_LABELLED = 0.9  # of the pixels; if less is labelled, the labels may be strokes


@dataclass(frozen=True)
class Judge:
    """Scores settings: a small stack is grown on some subjects, or strokes, and predicts the others.

    scored: images whose only labels are those held out
    """

    trained: LabelledSet
    scored: LabelledSet

    def dice(self, config: StackConfig, n_levels: int, progress: Report = silent) -> float:
        """Mean Dice of a small stack with these settings."""
        stack = grow_stack(self.trained, self._small(config, n_levels), progress=progress)
        return float(self.scored.score([_indices(stack, image.planes) for image in self.scored]).mean_dice)

    def cost(self, config: StackConfig, n_levels: int) -> float:
        """Estimated seconds of `dice`. An encoder is left out: its layers are computed once, and stored."""
        small = self._small(config, n_levels)
        if "encoder" in small.features:
            small = replace(small, features="bank", sigmas=small.sigmas * 2)  # about as many features
        prediction = growing_costs(self.scored, small)
        fixed = JUDGE_SECONDS + IMAGE_SECONDS * (len(self.trained) + len(self.scored))
        return fixed + growing_costs(self.trained, small).total + prediction.features + sum(prediction.levels[1::2])

    def _small(self, config: StackConfig, n_levels: int) -> StackConfig:
        """Few levels and trees, few samples of large sets, and no altered copies."""
        sampling = replace(config.sampling, max_samples=min(config.sampling.max_samples, JUDGE_SAMPLES))
        held_out: Literal["trees", "none"] = "trees" if n_levels > 1 else "none"
        return replace(
            config, n_levels=min(n_levels, config.n_levels), n_trees=JUDGE_TREES, sampling=sampling,
            held_out=held_out, drop_levels=False, reserve=0.0, augment=UNALTERED,
        )  # fmt: skip


def _indices(stack: ForestStack, planes: np.ndarray) -> np.ndarray:
    """(H,W) uint8 class indices of an image (C,H,W)."""
    plan, proba = LevelPlan(stack, planes, Region.whole(planes.shape[1:]), stack.n_levels), None
    for level in range(stack.n_levels):
        proba = run_level(stack, level, plan.read(level, proba))
    assert proba is not None
    return plan.output(stack.n_levels - 1, proba).argmax(axis=0).astype(np.uint8)


def held_out_judges(labelled: LabelledSet, config: StackConfig) -> list[Judge]:
    """The judges of each candidate; none if nothing can be held out that the others do not show."""
    n_subjects = len(labelled.subjects)
    if n_subjects > 1:
        splits = [_split(labelled, config.seed + k) for k in range(2 if n_subjects < FEW_SUBJECTS else 1)]
        return [Judge(*split) for split in splits if split is not None]
    if labelled_fraction(labelled) >= FULLY_LABELLED:
        return []
    trained, scored = [], []
    for image, group in zip(labelled, strokes(labelled, STROKE_FOLDS, (config.seed, 10)), strict=True):
        is_held = group == 0
        trained.append(replace(image, target=np.where(is_held, UNLABELLED_INDEX, image.target).astype(np.uint8)))
        scored.append(replace(image, target=np.where(is_held, image.target, UNLABELLED_INDEX).astype(np.uint8)))
    judge = Judge(replace(labelled, images=trained), replace(labelled, images=scored))
    every = set(range(labelled.n_classes))
    return [judge] if _classes(judge.trained) == _classes(judge.scored) == every else []


def _split(labelled: LabelledSet, seed: int) -> tuple[LabelledSet, LabelledSet] | None:
    """The images of some subjects, and those of others, whose classes the first ones have; None: there is no such
    split."""
    images, subjects = list(labelled), labelled.subjects
    here = [set(np.unique(np.concatenate([np.unique(images[i].target) for i in subject]))) for subject in subjects]
    trained, scored = set(range(len(subjects))), set[int]()
    for number in np.random.default_rng((seed, 11)).permutation(len(subjects)).tolist():
        others = set().union(*(here[k] for k in trained - {number}))
        if here[number] <= others | {UNLABELLED_INDEX} and len(scored) < max(round(HELD_FRACTION * len(subjects)), 1):
            trained.remove(number)
            scored.add(number)
    parts = [[images[i] for k in sorted(part) for i in subjects[k]] for part in (trained, scored)]
    return (replace(labelled, images=parts[0]), replace(labelled, images=parts[1])) if scored else None


def _classes(labelled: LabelledSet) -> set[int]:
    return set(np.unique(np.concatenate([np.unique(image.target) for image in labelled]))) - {UNLABELLED_INDEX}
