"""Adds a convolutional level to a stack: trains its networks and finds the weights of its members.

The stack's probabilities that networks read in training, and the scores that stop them and decide their weights, come
from models that were not trained on these pixels. The path through this module: `Recipe` -> `held_out_probabilities` ->
`MemberTraining.train` -> `find_weights` -> `DeepStack`.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hedgerow.config import DeepConfig, RefineConfig, StackConfig
from hedgerow.deadline import Deadline
from hedgerow.deep.convnet import ConvNet
from hedgerow.deep.deepstack import DeepStack
from hedgerow.deep.ensemble_weights import find_weights, mean_dice
from hedgerow.deep.member_training import MemberTraining, TrainedNetwork, no_probabilities
from hedgerow.deep.recipe import Recipe
from hedgerow.deep.record import ENSEMBLE, STACK, Deepening
from hedgerow.encoders.catalogue import allowed
from hedgerow.encoders.torch_devices import OneThread
from hedgerow.errors import ConfigError, InputError
from hedgerow.files import fingerprint
from hedgerow.forest.autocontext import grow_stack
from hedgerow.forest.default_settings import labelled_fraction
from hedgerow.forest.samples import kind_of_groups
from hedgerow.images.labelled import Images, LabelledSet
from hedgerow.images.subjects import Groups, grouped
from hedgerow.network.mapping import to_convnet
from hedgerow.network.stacknet import StackNet
from hedgerow.predict.evaluate import labelled_for
from hedgerow.predict.protocol import refuse_volumes
from hedgerow.predict.tiling import proba_of
from hedgerow.progress import Report, quiet, reporting
from hedgerow.refinement.loop import refine_labelled
from hedgerow.work_folder import WorkFolder

FOLDS_FRACTION = 0.5  # of the time left, for refining networks without a fold: the rest is for convolutional networks


def deepen(
    net: StackNet,
    images: Images,
    labels: Images,
    config: DeepConfig | None = None,
    *,
    unlabelled: int | None = None,
    groups: Groups = None,
    names: Sequence[str] | None = None,
    device: str | None = None,
    folder: str | Path | None = None,
    progress: Report | None = None,
) -> DeepStack:
    """Add a convolutional level to the network of a stack; images (H,W[,C]) and labels (H,W): those of the stack, as
    arrays or files.

    groups: which images are held out together, as of `fit`
    device: where the convolutional networks are trained, and stay; None: the network's device
    folder: work folder, from which an interrupted run resumes; the caller removes it

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> net = hr.to_convnet(hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2)))
    >>> small = hr.ConvConfig(base=2, n_down=2, n_steps=2, batch=1)
    >>> deep = hr.deepen(net, images, labels, hr.DeepConfig(n_folds=2, conv=small))
    >>> deep.predict(images[0]).shape
    (40, 48)
    """
    if not isinstance(net, StackNet):
        raise InputError(f"a {type(net).__name__} was given to deepen; give a network, e.g. from to_convnet(stack).")
    if not isinstance(config, DeepConfig | None):
        raise ConfigError(f"config is a {type(config).__name__}; give a DeepConfig, e.g. DeepConfig(n_folds=4).")
    refuse_volumes(net, "a convolutional level")
    labelled = grouped(labelled_for(net, images, labels, unlabelled, names), groups, quiet)
    recipe, work_folder = Recipe(config or DeepConfig(), labelled), None if folder is None else Path(folder)
    return deepen_labelled(net, recipe, device=device, folder=work_folder, progress=progress)


def deepen_labelled(
    net: StackNet,
    recipe: Recipe,
    *,
    stack_proba: Sequence[np.ndarray] | None = None,
    device: str | None = None,
    folder: Path | None = None,
    progress: Report | None = None,
) -> DeepStack:
    """`deepen` by a recipe; stack_proba: the stack's `held_out_probabilities`; None: they are computed."""
    with reporting(progress) as report, OneThread():
        if stack_proba is None:
            stack_proba = held_out_probabilities(net, recipe, folder=folder, progress=report)
        training = MemberTraining(net, recipe, stack_proba, WorkFolder(folder), device or str(net.device))
        trained = training.train(recipe.tasks, report)
    return _ensemble(training, trained)


def held_out_probabilities(
    net: StackNet, recipe: Recipe, *, folder: Path | None = None, progress: Report | None = None
) -> list[np.ndarray]:
    """For each image (C,H,W) float16 class probabilities, by networks trained like this one without the pixel's fold.

    With few images, only the fold that the judge holds out is predicted; elsewhere the probabilities are 0.
    """
    labelled, folds, work = recipe.labelled, recipe.stack_folds, WorkFolder(folder)
    n_folds = min(recipe.n_regrown_stacks, folds.n_folds)
    arrays = [array for i, image in enumerate(labelled) for array in (image.planes, image.target, folds.parts[i])]
    mark = fingerprint(net.split, net.settings["config"], [record.config for record in net.refinements], *arrays)
    probabilities = no_probabilities(net, labelled)
    with reporting(progress) as report, OneThread():
        for fold in range(n_folds):
            masks = {i: folds.parts[i] == fold for i in folds.held(fold)}

            def predicted(fold: int = fold, masks: dict[int, np.ndarray] = masks) -> np.ndarray:
                again = regrown(net, folds.training(fold), report, lambda: _share(recipe, n_folds - fold))
                proba = [proba_of(again, labelled.images[i].planes)[:, mask] for i, mask in masks.items()]
                return np.concatenate(proba, axis=1).astype(np.float16)

            values, start = work.array(f"stack-without-{fold}", mark, predicted), 0
            for i, mask in masks.items():
                end = start + int(mask.sum())
                probabilities[i][:, mask] = values[:, start:end]
                start = end
    return probabilities


def _share(recipe: Recipe, n_left: int) -> Deadline | None:
    """The deadline of a refinement without a fold, if so many are left, this one included; None: there is none."""
    if recipe.until is None:
        return None
    now = recipe.clock()
    return Deadline(now + FOLDS_FRACTION / n_left * max(recipe.until - now, 0.0), recipe.clock)


def regrown(
    net: StackNet,
    labelled: LabelledSet,
    report: Report,
    deadline: Callable[[], Deadline | None] = lambda: None,
) -> StackNet:
    """A network grown and refined on other images with the settings of this one.

    deadline: of a refinement, once the stack is grown
    """
    config = StackConfig.from_dict(net.settings["config"])
    # A model file, and so its settings, may come from anybody.
    encoder = replace(config.encoder, name=allowed(config.encoder.name))
    # These images are all for training, so none is reserved.
    stack = grow_stack(labelled, replace(config, reserve=0.0, encoder=encoder), progress=report)
    again = to_convnet(stack, net.split).to(str(net.device))
    for refinement in net.refinements:
        settings = RefineConfig.from_dict(dict(refinement.config))
        again = refine_labelled(again, labelled, settings, deadline=deadline(), progress=report)
    return again


def seconds_of_a_step(net: StackNet, recipe: Recipe, device: str) -> float:
    """Seconds per training step of the slowest network, measured now."""
    with OneThread():
        stack_proba = no_probabilities(net, recipe.labelled)
        return MemberTraining(net, recipe, stack_proba, WorkFolder(None), device).seconds_of_a_step(recipe.tasks)


def _ensemble(training: MemberTraining, trained: Sequence[TrainedNetwork]) -> DeepStack:
    """The model, without members of weight 0."""
    recipe = training.recipe
    stack = [training.sampled(i, fold, training.stack_proba[i]) for i, fold in recipe.judged]
    held_out = {STACK: np.concatenate(stack, axis=1)}
    networks: dict[str, tuple[ConvNet, ...]] = {}
    for member in recipe.members:
        own = [(task, result) for task, result in zip(recipe.tasks, trained, strict=True) if task.member == member]
        proba = [result.held_out for _, result in own if result.held_out is not None]
        held_out[member] = np.concatenate(proba, axis=1)
        networks[member] = tuple(result.net for task, result in own if task.number < recipe.config.n_networks)
    target = training.truth(recipe.judged)
    weights = find_weights(held_out, target, recipe.equal_weights(), recipe.min_gain)
    scores = {name: mean_dice(proba, target) for name, proba in held_out.items()}
    ensemble = sum(np.float32(weights[name]) * proba for name, proba in held_out.items())
    scores[ENSEMBLE] = mean_dice(np.asarray(ensemble), target)
    held = kind_of_groups(len(training.labelled.subjects), labelled_fraction(training.labelled))
    record = Deepening(recipe.config.to_dict(), scores, held, recipe.n_judged_images)
    weights = {name: weight for name, weight in weights.items() if weight}
    base = _having_seen(training.base, training.labelled)
    networks = {name: members for name, members in networks.items() if name in weights}
    return DeepStack(base, networks, weights, record, recipe.tile)


def _having_seen(net: StackNet, labelled: LabelledSet) -> StackNet:
    """A copy of the network with these images in its record of training images."""
    copied = copy.copy(net)
    copied.stack = replace(net.stack, known=net.known.with_seen(image.mark for image in labelled))
    return copied
