"""Auto-context: forests grown level by level, each reading the features and the output of the previous level.

A later level must learn from the predictions that it will meet on new images, which the previous level was not trained
on. So pixels belong to groups (an image with its altered copies, or parts of it if there are few images), and the class
probabilities that level k+1 learns from come, group by group, from trees that never saw the group.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hedgerow.config import AugmentConfig, ContextConfig, StackConfig
from hedgerow.errors import InputError
from hedgerow.features.protocol import FeatureSet
from hedgerow.features.registry import fit_features, kinds_of
from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.forest.grow import TreeTask, grow_tree, joined_trees
from hedgerow.forest.growth_time import growing_costs
from hedgerow.forest.history import Known
from hedgerow.forest.planes import TrainingPlanes, build_planes
from hedgerow.forest.samples import HELD_OUT, GroupsOf, Samples, draw_samples, split_reserved, with_groups
from hedgerow.forest.walk import run_forest
from hedgerow.images.array_checks import as_volume
from hedgerow.images.labelled import LabelledImage, LabelledSet
from hedgerow.images.metrics import Scores, confusion
from hedgerow.images.regions import Region
from hedgerow.kernels import buffers
from hedgerow.kernels.cpu.grow import Grown
from hedgerow.plan_progress import WholePlan
from hedgerow.progress import Report, Say, quiet, reporting
from hedgerow.settings import limits_of
from hedgerow.threads import map_threads

log = logging.getLogger("hedgerow")

GrowAll = Callable[[Sequence[TreeTask], TrainingPlanes, Samples, int, StackConfig], Iterator[tuple[int, Grown]]]
"""Grows trees: (tasks, planes, samples, number of classes, settings) -> the number of each task and its tree, in any
order."""


def grow_in_turn(
    tasks: Sequence[TreeTask], planes: TrainingPlanes, samples: Samples, n_classes: int, config: StackConfig
) -> Iterator[tuple[int, Grown]]:
    """`GrowAll` in this process; `scale.cluster.trees_on` grows the same trees on many machines."""
    return enumerate(map_threads(lambda task: grow_tree(task, planes, samples, n_classes, config), tasks))


def grow_stack(
    labelled: LabelledSet,
    config: StackConfig,
    *,
    progress: Report | None = None,
    say: Say = quiet,
    grow_all: GrowAll = grow_in_turn,
) -> ForestStack:
    """Grow a stack on labelled images; `say` receives the score of each level as soon as it is known."""
    if labelled.table is not None:
        log.info("classes\n%s", labelled.table)
    config = settled(config, labelled)
    trained, reserved = split_reserved(labelled, config.reserve, config.seed)
    held, images = with_groups(replace(labelled, images=trained), config, kinds_of(config.features)[0].blank)
    known = Known(tuple(image.mark for image in trained), tuple(image.mark for image in reserved))
    n, costs = len(images), growing_costs(labelled, config)
    with reporting(progress) as report:
        plan = WholePlan([costs.features, sum(costs.levels)], report, name="forests", counts=False, is_even=True)
        plan.begin(0)
        plan.report("features", 0, n)
        features, computed = fit_features(
            [image.planes for image in images],
            config,
            lambda n_done: plan.report("features", n_done, n),
            labelled.anisotropy if config.dimensions == 3 else None,
        )
        labelled, samples = replace(labelled, images=images), draw_samples(images, config)
        planes = build_planes(labelled, features, computed.__getitem__, samples, config)
        del computed  # the planes hold everything that growing reads
        training_set = TrainingSet(labelled, features, planes, samples, held, known)
        plan.begin(1)
        return grow_from(training_set, config, plan.report, say, grow_all)


def settled(config: StackConfig, labelled: LabelledSet) -> StackConfig:
    """The settings with the dimensions, and the window in z, that these images or volumes decide."""
    context = config.context
    if not labelled.is_volume:
        if config.dimensions == 3:
            raise InputError("dimensions=3 is for volumes, and these are images; leave it out.")
        return config
    if any(kind.blank is not None for kind in kinds_of(config.features)):
        raise InputError(
            "depth features are for images, and these are volumes; train with other features, or on slices as images."
        )
    if config.dimensions == 2:
        return replace(config, context=replace(context, window_z=1))
    window_z = context.window_z
    if window_z is None:
        most = limits_of(ContextConfig, "window_z")[1] // 2
        half, deepest = round(context.window // 2 / labelled.anisotropy), max(image.size[0] for image in labelled)
        window_z = 2 * min(half, deepest - 1, most) + 1
    return replace(config, dimensions=3, context=replace(context, window_z=window_z))


@dataclass(frozen=True)
class TrainingSet:
    """The data that a stack is grown on.

    labelled: images with groups, whole or reduced to parts (`sparse_training`), and their altered copies
    planes:   their features, with room for the output of a level
    held:     the kind of groups, on which scores are held out
    """

    labelled: LabelledSet
    features: FeatureSet
    planes: TrainingPlanes
    samples: Samples
    held: GroupsOf
    known: Known


def grow_from(
    training_set: TrainingSet,
    config: StackConfig,
    report: Report,
    say: Say = quiet,
    grow_all: GrowAll = grow_in_turn,
) -> ForestStack:
    """Grow a stack, without the levels that do not help; the arguments are those of `grow_stack`."""
    labelled, features, planes = training_set.labelled, training_set.features, training_set.planes
    config = settled(config, labelled)
    features.validate()  # before the long work: a model that would not load cannot be saved
    costs = growing_costs(labelled, replace(config, augment=AugmentConfig()))  # the altered copies are among the images
    plan = WholePlan(costs.levels, report, name="", counts=False, is_even=True)
    levels: list[Forest] = []
    scores: list[dict[str, float]] = []
    for level in range(config.n_levels):
        plan.begin(2 * level)
        here = planes if level else planes.first_channels(features.n_features)
        forest, predictors = _grow_level(
            here, training_set.samples, level, labelled.n_classes, config, plan.report, grow_all
        )
        levels.append(here.over_channels(forest))
        last = level + 1 == config.n_levels
        is_held_out = all(predictor is not forest for predictor in predictors.values())
        if last and not is_held_out:
            break
        plan.begin(2 * level + 1)
        table = np.zeros((labelled.n_classes, labelled.n_classes), np.int64)
        for i, image in enumerate(labelled):
            proba = held_out_proba(here, i, image, predictors, labelled.n_classes)
            if not last:
                planes.write(i, features.n_features, proba)
            if not image.is_copy:
                table += confusion(as_volume(image.target), proba.argmax(axis=0).astype(np.uint8), len(table))
            plan.report(f"level {level + 1} of {config.n_levels}: predictions", i + 1, len(labelled))
        if is_held_out:
            result = Scores(labelled.classes, table)
            dice = float(result.mean_dice)
            scores.append({"mean_dice": dice, "accuracy": float(result.accuracy)})
            log.info("level %d: held-out mean Dice %.4f", level + 1, dice)
            say(f"level {level + 1}: mean Dice {dice:.3f} on held-out {HELD_OUT[training_set.held]}")
    if config.drop_levels and len(scores) == len(levels):
        best = int(np.argmax([score["mean_dice"] for score in scores]))
        for level in range(best + 1, len(levels)):
            log.info("level %d is left out: level %d has the best held-out score", level + 1, best + 1)
        levels = levels[: best + 1]
    known = training_set.known
    n_images = len(known.seen) + len(known.reserved)
    settings = {"config": config.to_dict(), "n_images": n_images, "held_out": scores, "held": training_set.held}
    if config.dimensions == 3:
        settings["anisotropy"] = labelled.anisotropy
    stack = ForestStack(
        features, tuple(levels), labelled.classes, labelled.unlabelled, labelled.dtype, settings=settings,
        legend=labelled.legend, known=known,
    )  # fmt: skip
    stack.validate()
    buffers.release()
    return stack


def _grow_level(
    planes: TrainingPlanes,
    samples: Samples,
    level: int,
    n_classes: int,
    config: StackConfig,
    report: Report,
    grow_all: GrowAll,
) -> tuple[Forest, dict[int, Forest]]:
    """The level's forest; and for every group, the forest that predicts it for the next level."""
    groups = np.unique(samples.group)
    order = np.random.default_rng((config.seed, 4, level)).permutation(groups)
    held_out, folds = config.held_out if len(groups) > 1 else "none", list[np.ndarray]()
    if held_out == "trees":
        skipped = [_skipped_groups(order, config.n_trees, config.skip)]
    else:
        n_folds = min(config.n_folds, len(groups)) if held_out == "folds" else 0
        folds = [order[fold::n_folds] for fold in range(n_folds)]
        skipped = [[fold] * config.n_trees for fold in (np.zeros(0, np.int32), *folds)]
    tasks = [
        TreeTask(groups_of_tree, (config.seed, 3, level, part, t))
        for part, forest_groups in enumerate(skipped)
        for t, groups_of_tree in enumerate(forest_groups)
    ]
    stage, trees = f"level {level + 1} of {config.n_levels}: trees", dict[int, Grown]()
    report(stage, 0, len(tasks))  # the first tree may take long
    for number, tree in grow_all(tasks, planes, samples, n_classes, config):
        trees[number] = tree
        report(stage, len(trees), len(tasks))
    in_order = [trees[number] for number in range(len(tasks))]
    parts = [in_order[first : first + config.n_trees] for first in range(0, len(tasks), config.n_trees)]
    forest, *others = (joined_trees(part, len(planes.array), config.votes) for part in parts)
    if held_out == "trees":
        never = {g: np.array([t for t, s in enumerate(skipped[0]) if g in s]) for g in groups.tolist()}
        return forest, {g: forest.select(trees) for g, trees in never.items()}
    if folds:
        return forest, {g: other for fold, other in zip(folds, others, strict=True) for g in fold.tolist()}
    return forest, {g: forest for g in groups.tolist()}


def _skipped_groups(order: np.ndarray, n_trees: int, skip: float) -> list[np.ndarray]:
    """For each tree, the groups that it does not see: the same number for all trees, and each group for some tree."""
    n = len(order)
    each = min(max(round(skip * n), -(-n // n_trees), 1), n - 1)
    return [order[(t * each + np.arange(each)) % n] for t in range(n_trees)]


def held_out_proba(
    planes: TrainingPlanes, i: int, image: LabelledImage, predictors: dict[int, Forest], n_classes: int
) -> np.ndarray:
    """(C,Z,H,W) float32 probabilities of image i: each group is predicted by its predictor, which did not see it."""
    assert image.group is not None
    group = as_volume(image.group)
    proba = np.empty((n_classes, *group.shape), np.float32)
    for g in np.unique(group).tolist():
        # No tree saw a group without samples, so any forest may predict it.
        forest = predictors.get(g, next(iter(predictors.values())))
        mine = group == g
        box = Region.around(mine)
        box_proba, here = run_forest(forest, planes.input(i, box)), box.of_volume(mine)
        box.of_volume(proba)[:, here] = box_proba[:, here]
    return proba
