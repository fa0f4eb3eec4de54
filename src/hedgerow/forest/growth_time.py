"""How long a stack takes to grow: processor seconds of each part of the work on a reference machine.

The constants were fitted to measured times of one thread of an AMD Zen 4 (docs/measurements/estimates.md). A caller
scales them by how fast its own machine is, see `jobs.estimates`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hedgerow.config import SamplingConfig, StackConfig
from hedgerow.forest.default_settings import labelled_fraction
from hedgerow.forest.samples import BLOCKS_PER_SIDE, kind_of_groups
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledSet

FEATURE_SECONDS = {"bank": 0.55, "encoder": 4.5, "channels": 0.05, "depth": 0.05}
"""Per megapixel of one channel; of an encoder, of a whole image. Kinds from other packages are taken for a bank."""
ENCODER_START_SECONDS = 1.5  # PyTorch and the weights are loaded, and principal components are found
FILTERS_PER_SCALE = 7
TREE_SECONDS = 0.0117  # for a tree of REFERENCE_SAMPLES and REFERENCE_CANDIDATES at each node
REFERENCE_SAMPLES, SAMPLES_POWER = 4608, 0.745
REFERENCE_CANDIDATES, CANDIDATES_POWER = 77, 0.8
PREDICTION_SECONDS = 0.025  # per megapixel and tree


@dataclass(frozen=True)
class GrowingCosts:
    """Seconds of the features, and for each level, of its trees and then of its predictions."""

    features: float
    levels: tuple[float, ...]

    @property
    def total(self) -> float:
        return self.features + sum(self.levels)


def growing_costs(labelled: LabelledSet, config: StackConfig) -> GrowingCosts:
    """The cost of growing a stack with these settings on these images."""
    n_channels = len(labelled.images[0].planes)
    pixels = sum(image.target.size for image in labelled) * (1 + config.augment.copies)
    kinds = (config.features,) if isinstance(config.features, str) else config.features
    features = sum(_feature_seconds(kind, n_channels) for kind in kinds) * pixels / 1e6
    if "encoder" in kinds:
        features += ENCODER_START_SECONDS
    n_forests = 1 + _n_folds(labelled, config)
    n_samples = _n_samples(labelled, config)
    levels: list[float] = []
    for level in range(config.n_levels):
        channels = sum(_n_features(kind, n_channels, config) for kind in kinds)
        candidates = _candidates(channels + (labelled.n_classes if level else 0), config)
        tree = (
            TREE_SECONDS
            * (n_samples / REFERENCE_SAMPLES) ** SAMPLES_POWER
            * (candidates / REFERENCE_CANDIDATES) ** CANDIDATES_POWER
        )
        levels += [config.n_trees * n_forests * tree, PREDICTION_SECONDS * config.n_trees * pixels / 1e6]
    return GrowingCosts(features, tuple(levels))


def _feature_seconds(kind: str, n_channels: int) -> float:
    return FEATURE_SECONDS.get(kind, FEATURE_SECONDS["bank"]) * (1 if kind == "encoder" else n_channels)


def _n_features(kind: str, n_channels: int, config: StackConfig) -> int:
    if kind == "encoder":
        return config.encoder.n_components
    return n_channels * FILTERS_PER_SCALE * len(config.sigmas) if kind == "bank" else n_channels


def _candidates(n_channels: int, config: StackConfig) -> float:
    """Splits that are compared at a node."""
    context = config.context
    if context.n_candidates is not None:
        return context.n_candidates + (context.depth_candidates or 0)
    is_varied = context.window > 1 or context.n_probes > 1 or len(context.radii) > 1
    return (context.n_channels or math.sqrt(n_channels)) * (1 + context.n_offsets * is_varied)


def _n_folds(labelled: LabelledSet, config: StackConfig) -> int:
    """Extra forests of each level, each without a fold of the images."""
    n_subjects = len(labelled.subjects)
    is_whole = kind_of_groups(n_subjects, labelled_fraction(labelled)) == "images"
    n_groups = n_subjects if is_whole else BLOCKS_PER_SIDE**2 * n_subjects
    return min(config.n_folds, n_groups) if config.held_out == "folds" and n_groups > 1 else 0


def _n_samples(labelled: LabelledSet, config: StackConfig) -> float:
    """About how many pixels a tree learns from."""
    sampling, n = config.sampling, 0.0
    for image in labelled:
        counts = np.bincount(image.target.ravel(), minlength=UNLABELLED_INDEX + 1)[:UNLABELLED_INDEX]
        n += sum(_n_sampled(counts[counts > 0].tolist(), sampling))
    return max(min(n * (1 + config.augment.copies), sampling.max_samples), 1.0)


def _n_sampled(counts: Iterable[int], sampling: SamplingConfig) -> Iterable[float]:
    for count in counts:
        if sampling.kind == "grid":
            yield max(count * sampling.fraction / sampling.step**2, min(count, sampling.at_least))
        else:
            yield min(count, sampling.per_class)
