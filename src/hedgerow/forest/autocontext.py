"""Auto-context: forests grown level after level, each reading the features and the level before.

A later level must see what it will meet on new images: predictions of images that the level before did not train on.
So pixels belong to groups (an image with its altered copies, or blocks where images are few), and the class
probabilities that level k+1 learns from come, group by group, from trees that never saw the group.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.errors import ConfigError, InputError
from hedgerow.features.bank import fit_features
from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.forest.grow import grow_forest
from hedgerow.forest.planes import TrainingPlanes, build_planes
from hedgerow.forest.samples import BLOCKS, FEW_IMAGES, Samples, blocks, draw_samples
from hedgerow.forest.walk import run_forest
from hedgerow.images.altering import augmented_copy
from hedgerow.images.arrays import check_pair, encode_labels, to_labels, to_planes
from hedgerow.images.classes import class_table
from hedgerow.images.labelled import TrainingImage
from hedgerow.images.metrics import Scores, confusion
from hedgerow.images.regions import Region
from hedgerow.progress import Report, reporting

log = logging.getLogger("hedgerow")


def fit_stack(
    images: Sequence[np.ndarray],
    labels: Sequence[np.ndarray],
    config: StackConfig | None = None,
    *,
    unlabelled: int = 255,
    names: Sequence[str] | None = None,
    progress: Report | None = None,
) -> ForestStack:
    """Grow a stack on images (H,W[,C]) of any sizes and labels (H,W), `unlabelled` where there is none.

    With StackConfig(features="channels") an image is (F,H,W): its own channels, in place of the filter bank.
    names: of the images, for messages; progress: report function, None for a bar on the terminal.
    """
    config = config or StackConfig()
    if not isinstance(config, StackConfig):
        raise ConfigError(f"config is a {type(config).__name__}; give a StackConfig, e.g. StackConfig(n_trees=16).")
    prepared, classes = prepare(images, labels, config, unlabelled, names)
    with reporting(progress) as report:
        report("features", 0, 2)
        features = fit_features([image.planes for image in prepared], config)
        report("features", 1, 2)
        samples = draw_samples(prepared, config)
        n_proba = len(classes) if config.n_levels > 1 else 0
        planes = build_planes(prepared, features, samples, n_proba, config)
        report("features", 2, 2)
        levels, scores = [], []
        for level in range(config.n_levels):
            here = planes if level else planes.first(features.n_features)
            forest, predictors = _grow_level(here, samples, level, len(classes), config, report)
            levels.append(here.finished(forest))
            last = level + 1 == config.n_levels
            is_held_out = all(predictor is not forest for predictor in predictors.values())
            if last and not is_held_out:
                break
            into = None if last else (planes, features.n_features)
            table = _pass_on(here, prepared, predictors, len(classes), into, report)
            if is_held_out:
                result = Scores(classes, table)
                scores.append({"mean_dice": float(result.mean_dice), "accuracy": float(result.accuracy)})
                log.info("level %d: held-out mean Dice %.4f", level + 1, result.mean_dice)
    settings = {"config": config.to_dict(), "n_images": len(images), "held_out": scores}
    stack = ForestStack(features, tuple(levels), classes, unlabelled, str(np.asarray(images[0]).dtype), settings)
    stack.validate()
    return stack


def prepare(
    images: Sequence[np.ndarray],
    labels: Sequence[np.ndarray],
    config: StackConfig,
    unlabelled: int,
    names: Sequence[str] | None,
) -> tuple[list[TrainingImage], tuple[int, ...]]:
    """Check everything; then the training images with their copies, and the class values."""
    if len(images) == 0 or len(images) != len(labels):
        raise InputError(
            f"there are {len(images)} image(s) and {len(labels)} label map(s); give one label map for each image."
        )
    names = list(names) if names is not None else [f"image {i}" for i in range(len(images))]
    if len(names) != len(images):
        raise InputError(f"there are {len(names)} name(s) for {len(images)} image(s); give one for each.")
    planes = [to_planes(image, name, config.features) for image, name in zip(images, names, strict=True)]
    maps = [to_labels(label, f"the labels of {name}") for label, name in zip(labels, names, strict=True)]
    for i, name in enumerate(names):
        check_pair(planes[i], maps[i], name)
        if len(planes[i]) != len(planes[0]):
            raise InputError(
                f"{name} has {len(planes[i])} channel(s) but {names[0]} has {len(planes[0])}; "
                "all images of a set need the same channels."
            )
    table = class_table(maps, unlabelled, names)
    log.info("classes\n%s", table)

    originals: list[TrainingImage] = []
    copies: list[TrainingImage] = []
    first_group = 0
    for i, image in enumerate(planes):
        group = first_group + blocks(image.shape[1:], 1 if len(planes) >= FEW_IMAGES else BLOCKS)
        first_group = int(group.max()) + 1
        target = encode_labels(maps[i], table.values, unlabelled)
        originals.append(TrainingImage(image, target, group))
        rng = np.random.default_rng((config.seed, 1, i))
        for _ in range(config.augment.copies):
            depth = config.features == "depth"
            copies.append(augmented_copy(originals[-1], config.augment, rng, depth))
    return originals + copies, table.values


def _grow_level(
    planes: TrainingPlanes, samples: Samples, level: int, n_classes: int, config: StackConfig, report: Report
) -> tuple[Forest, dict[int, Forest]]:
    """The level's forest, and for every group the forest that predicts it for the next level."""
    groups = np.unique(samples.group)
    n_folds = min(config.n_folds, len(groups)) if config.held_out == "folds" else 0
    total, done = config.n_trees * (1 + n_folds), 0

    def advance() -> None:
        nonlocal done
        done += 1
        report(f"level {level + 1} of {config.n_levels}: trees", done, total)

    def grow(skipped: list[np.ndarray], part: int) -> Forest:
        return grow_forest(planes, samples, skipped, n_classes, config, (config.seed, 3, level, part), advance)

    nothing = np.zeros(0, np.int32)
    order = np.random.default_rng((config.seed, 4, level)).permutation(groups)
    if config.held_out == "trees" and len(groups) > 1:
        skipped = _skipped_groups(order, config.n_trees, config.skip)
        forest = grow(skipped, 0)
        never = {g: np.array([t for t, s in enumerate(skipped) if g in s]) for g in groups.tolist()}
        return forest, {g: forest.select(trees) for g, trees in never.items()}
    forest = grow([nothing] * config.n_trees, 0)
    if config.held_out == "folds" and len(groups) > 1:
        predictors: dict[int, Forest] = {}
        for fold in range(n_folds):
            held = order[fold::n_folds]
            other = grow([held] * config.n_trees, fold + 1)
            predictors |= {g: other for g in held.tolist()}
        return forest, predictors
    return forest, {g: forest for g in groups.tolist()}


def _skipped_groups(order: np.ndarray, n_trees: int, skip: float) -> list[np.ndarray]:
    """For each tree the groups it does not see: an equal share each, and every group is skipped by some tree."""
    n = len(order)
    each = min(max(round(skip * n), -(-n // n_trees), 1), n - 1)
    return [order[(t * each + np.arange(each)) % n] for t in range(n_trees)]


def _pass_on(
    planes: TrainingPlanes,
    images: list[TrainingImage],
    predictors: dict[int, Forest],
    n_classes: int,
    into: tuple[TrainingPlanes, int] | None,
    report: Report,
) -> np.ndarray:
    """Predict every image with its groups' forests, store the result for the next level, and return the
    confusion (C,C) over the originals."""
    table = np.zeros((n_classes, n_classes), np.int64)
    any_forest = next(iter(predictors.values()))
    for i, image in enumerate(images):
        proba = np.empty((n_classes, *image.target.shape), np.float32)
        for g in np.unique(image.group).tolist():
            # A group without a sample was seen by no tree: any forest may predict it.
            forest = predictors.get(g, any_forest)
            mine = image.group == g
            box = _bounding_box(mine)
            outside = planes.outside if len(planes.outside) else None
            found = run_forest(forest, planes.image(i), box, planes.image_reach(i), outside)
            box.of(proba)[:, box.of(mine)] = found[:, box.of(mine)]
        if into is not None:
            into[0].store(i, into[1], proba)
        if not image.copy:
            table += confusion(image.target, proba.argmax(axis=0).astype(np.uint8), n_classes)
        report("predictions for the next level", i + 1, len(images))
    return table


def _bounding_box(mask: np.ndarray) -> Region:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return Region(int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1)
