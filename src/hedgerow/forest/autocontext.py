"""Auto-context: forests grown level by level, each reading the features and the previous level.

A later level must see what it will meet on new images: predictions for images that the previous level was not trained
on. So pixels belong to groups (an image with its altered copies, or parts of it if images are few), and the class
probabilities that level k+1 learns from come, group by group, from trees that never saw the group.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hedgerow.config import StackConfig
from hedgerow.errors import ConfigError, InputError
from hedgerow.features.feature_store import ComputedFeatures
from hedgerow.features.joined import Joined
from hedgerow.features.protocol import FeatureSet
from hedgerow.features.registry import fit_features, kinds_of, layout_of
from hedgerow.forest.arrays import Forest, ForestStack
from hedgerow.forest.default_settings import settings_for
from hedgerow.forest.groups import HELD_OUT, GroupsOf, with_groups
from hedgerow.forest.grow import grow_forest
from hedgerow.forest.history import Known
from hedgerow.forest.planes import PlaneForest, TrainingPlanes, build_planes
from hedgerow.forest.samples import Samples, draw_samples, reserve
from hedgerow.images.array_checks import as_volume
from hedgerow.images.labelled import Images, LabelledImage, LabelledSet, labelled_set
from hedgerow.images.legend import Legend
from hedgerow.images.metrics import Scores, confusion
from hedgerow.images.regions import Region
from hedgerow.kernels import buffers
from hedgerow.progress import Report, Say, reporting

log = logging.getLogger("hedgerow")

Seeds = Sequence[tuple[int, ...]]
GrowAll = Callable[
    [TrainingPlanes, Samples, list[list[np.ndarray]], int, StackConfig, Seeds, Callable[[], None]], list[PlaneForest]
]
"""Grows several forests side by side, the same as `grow_forest` grows one after another: (planes, samples, for each
forest and tree the groups that it must not see, number of classes, settings, a seed for each forest, what to call after
each tree) -> forests."""


def fit_stack(
    images: Images,
    labels: Images,
    config: StackConfig | None = None,
    *,
    unlabelled: int = 255,
    names: Sequence[str] | None = None,
    legend: Legend | None = None,
    progress: Report | None = None,
) -> ForestStack:
    """Grow a stack on images (H,W[,C]) of any sizes and labels (H,W), `unlabelled` where there is no label; or on one.

    With StackConfig(features="channels") an image is (F,H,W): its own channels, in place of the filter bank.
    config: None: chosen by how much is painted, see `default_settings.settings_for`
    names: of the images, for messages; legend: names and colours of the classes, kept in the stack;
    progress: report function, None for a bar on the terminal or in the notebook.

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=2, n_trees=2))
    >>> stack.n_classes, len(stack.settings["held_out"])
    (22, 2)
    >>> one = hr.fit_stack(images[0], labels[0] > 0, hr.StackConfig(n_levels=1, n_trees=2))
    >>> one.classes
    (0, 1)
    """
    if not isinstance(config, StackConfig | None):
        raise ConfigError(f"config is a {type(config).__name__}; give a StackConfig, e.g. StackConfig(n_trees=16).")
    layout = layout_of((config or StackConfig()).features)
    labelled = labelled_set(images, labels, layout=layout, unlabelled=unlabelled, names=names, legend=legend)
    return grow_stack(labelled, config or settings_for(labelled, log.info), progress=progress)


def grow_stack(
    labelled: LabelledSet,
    config: StackConfig,
    *,
    ready: ComputedFeatures | None = None,
    progress: Report | None = None,
    say: Say = log.info,
    grow_all: GrowAll | None = None,
) -> ForestStack:
    """Grow a stack on labelled images.

    ready:  the features of those that are trained on, if already computed
    say:    receives the score of each level, as soon as it is known
    grow_all: who grows the forests, `scale.tree_tasks` for many machines; None: this process
    """
    log.info("classes\n%s", labelled.table)
    trained, reserved = reserve(labelled, config.reserve, config.seed)
    held, images = with_groups(replace(labelled, images=trained), config, kinds_of(config.features)[0].blank)
    with reporting(progress) as report:
        report("features", 0, 2)
        features, computed = _features(images, config, ready)
        source = TrainingSource(
            images, features, computed, draw_samples(images, config), held, len(labelled),
            Known(tuple(image.mark for image in trained), tuple(image.mark for image in reserved)),
            labelled.classes, labelled.unlabelled, labelled.dtype, labelled.legend,
        )  # fmt: skip
        del computed  # the planes hold all that growing reads
        return grow_from(source, config, report, say, grow_all)


@dataclass
class TrainingSource:
    """What growing needs: images with targets and groups, whole or the parts that training reads (`sparse_training`).

    computed: number of an image -> its features (F,H,W), or (F,Z,H,W) of a volume; given up while growing, to free them
    held:     what scores are held out on
    n_images: of the training set, those that were kept from training included
    """

    images: Sequence[LabelledImage]
    features: FeatureSet
    computed: Callable[[int], np.ndarray] | None
    samples: Samples
    held: GroupsOf
    n_images: int
    known: Known
    classes: tuple[int, ...]
    unlabelled: int
    dtype: str
    legend: Legend


def grow_from(
    source: TrainingSource,
    config: StackConfig,
    report: Report,
    say: Say = log.info,
    grow_all: GrowAll | None = None,
) -> ForestStack:
    """Grow a stack; arguments as of `grow_stack`."""
    source.features.validate()  # now, since a model that would not load is not saved
    report("features", 1, 2)
    levels, scores = _grow_levels(source, config, report, say, grow_all)
    settings = {"config": config.to_dict(), "n_images": source.n_images, "held_out": scores, "held": source.held}
    stack = ForestStack(
        source.features, tuple(levels), source.classes, source.unlabelled, source.dtype, settings=settings,
        legend=source.legend, known=source.known,
    )  # fmt: skip
    stack.validate()
    buffers.release()
    return stack


def _grow_levels(
    source: TrainingSource,
    config: StackConfig,
    report: Report,
    say: Say,
    grow_all: GrowAll | None,
) -> tuple[list[Forest], list[dict[str, float]]]:
    """The levels of a stack, without those that do not help, and the scores of all."""
    images, features, samples, n_classes = source.images, source.features, source.samples, len(source.classes)
    computed, source.computed = source.computed, None  # gone as soon as the planes hold all that growing reads
    assert computed is not None
    planes = build_planes(images, features, computed, samples, n_classes if config.n_levels > 1 else 0, config)
    del computed
    report("features", 2, 2)
    levels: list[Forest] = []
    scores: list[dict[str, float]] = []
    for level in range(config.n_levels):
        here = planes if level else planes.first(features.n_features)
        forest, predictors = _grow_level(here, samples, level, n_classes, config, report, grow_all)
        levels.append(forest.finished(here))
        last = level + 1 == config.n_levels
        is_held_out = all(predictor is not forest for predictor in predictors.values())
        if last and not is_held_out:
            break
        into = None if last else (planes, features.n_features)
        table = _pass_on(here, images, predictors, n_classes, into, report)
        if is_held_out:
            result = Scores(source.classes, table)
            scores.append({"mean_dice": float(result.mean_dice), "accuracy": float(result.accuracy)})
            say(f"level {level + 1}: mean Dice {result.mean_dice:.3f} on held-out {HELD_OUT[source.held]}")
    if config.drop_levels and len(scores) == len(levels):
        best = int(np.argmax([score["mean_dice"] for score in scores]))
        for level in range(best + 1, len(levels)):
            log.info("level %d is left out: the best held-out score is that of level %d", level + 1, best + 1)
        levels = levels[: best + 1]
    return levels, scores


def _features(
    images: list[LabelledImage], config: StackConfig, ready: ComputedFeatures | None
) -> tuple[FeatureSet, Callable[[int], np.ndarray]]:
    """The feature set, and the features (F,H,W) of each image by number; those of the originals may be ready."""
    if ready is None:
        features, computed = fit_features([image.planes for image in images], config)
        return features, computed.__getitem__
    n_ready, fitted = len(ready.computed), ready.features
    names = [fitted.kind] if not isinstance(fitted, Joined) else [member.kind for member in fitted.members]
    if names != [kind.kind for kind in kinds_of(config.features)]:
        raise ConfigError(f"the ready features are {'+'.join(names)} and the settings ask for {config.features!r}.")
    originals = [image for image in images if not image.is_copy]
    shapes = [(fitted.n_features, *image.size) for image in originals]
    if [ready.computed[i].shape for i in range(n_ready)] != shapes:
        raise InputError("the ready features are not those of the training images; give (F,H,W) for each, in order.")
    return fitted, lambda i: ready.computed[i] if i < n_ready else fitted.compute(images[i].planes)


def _grow_level(
    planes: TrainingPlanes,
    samples: Samples,
    level: int,
    n_classes: int,
    config: StackConfig,
    report: Report,
    grow_all: GrowAll | None = None,
) -> tuple[PlaneForest, dict[int, PlaneForest]]:
    """The level's forest, and for every group, the forest that predicts it for the next level."""
    groups = np.unique(samples.group)
    n_folds = min(config.n_folds, len(groups)) if config.held_out == "folds" else 0
    total, done = config.n_trees * (1 + n_folds), 0

    def advance(n: int = 1) -> None:
        nonlocal done
        done += n
        report(f"level {level + 1} of {config.n_levels}: trees", done, total)

    def grow(forests: list[list[np.ndarray]]) -> list[PlaneForest]:
        if grow_all is not None:
            seeds = [(config.seed, 3, level, part) for part in range(len(forests))]
            return grow_all(planes, samples, forests, n_classes, config, seeds, advance)
        return [
            grow_forest(planes, samples, skipped, n_classes, config, (config.seed, 3, level, part), advance)
            for part, skipped in enumerate(forests)
        ]

    advance(0)  # the first tree may take long, and it is no longer the features that do
    nothing = np.zeros(0, np.int32)
    order = np.random.default_rng((config.seed, 4, level)).permutation(groups)
    if config.held_out == "trees" and len(groups) > 1:
        skipped = _skipped_groups(order, config.n_trees, config.skip)
        (forest,) = grow([skipped])
        never = {g: np.array([t for t, s in enumerate(skipped) if g in s]) for g in groups.tolist()}
        return forest, {g: forest.select(trees) for g, trees in never.items()}
    folds = [order[fold::n_folds] for fold in range(n_folds)] if len(groups) > 1 else []
    forest, *others = grow([[skipped] * config.n_trees for skipped in (nothing, *folds)])
    if folds:
        return forest, {g: other for held, other in zip(folds, others, strict=True) for g in held.tolist()}
    return forest, {g: forest for g in groups.tolist()}


def _skipped_groups(order: np.ndarray, n_trees: int, skip: float) -> list[np.ndarray]:
    """For each tree, the groups it does not see: equally many each, and every group is skipped by some tree."""
    n = len(order)
    each = min(max(round(skip * n), -(-n // n_trees), 1), n - 1)
    return [order[(t * each + np.arange(each)) % n] for t in range(n_trees)]


def _pass_on(
    planes: TrainingPlanes,
    images: Sequence[LabelledImage],
    predictors: dict[int, PlaneForest],
    n_classes: int,
    into: tuple[TrainingPlanes, int] | None,
    report: Report,
) -> np.ndarray:
    """Predict every image with its groups' forests, store the result for the next level, and return the
    confusion (C,C) over the originals."""
    table = np.zeros((n_classes, n_classes), np.int64)
    any_forest = next(iter(predictors.values()))
    for i, image in enumerate(images):
        assert image.group is not None
        target, group = as_volume(image.target), as_volume(image.group)
        proba = np.empty((n_classes, *target.shape), np.float32)
        for g in np.unique(group).tolist():
            # No tree saw a group without samples, so any forest may predict it.
            forest = predictors.get(g, any_forest)
            mine = group == g
            box = Region.around(mine)
            box_proba, here = forest.proba(planes, i, box), box.of_volume(mine)
            box.of_volume(proba)[:, here] = box_proba[:, here]
        if into is not None:
            into[0].store(i, into[1], proba)
        if not image.is_copy:
            table += confusion(target, proba.argmax(axis=0).astype(np.uint8), n_classes)
        report("predictions for the next level", i + 1, len(images))
    return table
