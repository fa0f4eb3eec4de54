"""A convolutional level on top of a stack: its networks are trained, and all members weighed.

As with forests, training must not fool itself: what a network reads of the stack, what stops it and what weighs it
comes from models that did not see the pixel.
"""

import copy
import gc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from hedgerow.config import ConvConfig, DeepConfig
from hedgerow.deep.convnet import ConvNet
from hedgerow.deep.deepstack import DeepStack
from hedgerow.deep.ensemble_weights import ENOUGH, FEW, HANDICAP, find_weights, mean_dice
from hedgerow.deep.folds import Folds, folds_of
from hedgerow.deep.held_out import held_out_proba
from hedgerow.deep.member_nets import ALONE, PRETRAINED, READING, MemberNets, Task, TrainedNetwork, is_few
from hedgerow.deep.network_search import N_FOLDS, SIZES, Tried, choose, crops_for
from hedgerow.deep.record import STACK, Deepening
from hedgerow.deep.unet import NORMS
from hedgerow.deep.work_folder import Work
from hedgerow.encoders.devices import OneThread
from hedgerow.errors import ConfigError, InputError
from hedgerow.forest import choosing
from hedgerow.forest.groups import groups_of
from hedgerow.images.labelled import Images, LabelledSet
from hedgerow.memory import ran_out
from hedgerow.network.stacknet import StackNet
from hedgerow.predict.evaluate import labelled_for
from hedgerow.progress import Report, reporting

OWN_JUDGES = 2  # networks of a member that leave a fold out where there are no judges beside them
__all__ = ["ALONE", "PRETRAINED", "READING", "deepen"]


def deepen(
    net: StackNet,
    images: Images,
    labels: Images,
    config: DeepConfig | None = None,
    *,
    unlabelled: int | None = None,
    names: Sequence[str] | None = None,
    device: str | None = None,
    folder: str | Path | None = None,
    progress: Report | None = None,
) -> DeepStack:
    """The network of a stack with a convolutional level on top; images (H,W[,C]), labels (H,W): those of the stack.

    device: where the convolutional networks are trained, and stay; None: where the network is
    folder: where the state is kept; a run that was interrupted goes on from there. The caller removes it

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
    labelled = labelled_for(net, images, labels, unlabelled, names)
    return deepen_labelled(net, labelled, config or DeepConfig(), device=device, folder=folder, progress=progress)


def deepen_labelled(
    net: StackNet,
    labelled: LabelledSet,
    config: DeepConfig,
    *,
    before: Sequence[np.ndarray] | None = None,
    device: str | None = None,
    folder: str | Path | None = None,
    progress: Report | None = None,
) -> DeepStack:
    """`deepen` on labelled images; before: of `said_before`, None: made now."""
    tasks, where = tasks_of(config, labelled), device or str(net.device)
    with reporting(progress) as report, OneThread():
        if before is None:
            before = said_before(net, labelled, config, folder=folder, progress=report)
        work = Work(None if folder is None else Path(folder))
        nets = MemberNets(net, _left_out(config, labelled), before, config, work, where)
        trained = nets.train(tasks, report)
    return _weighed(nets, tasks, trained)


def said_before(
    net: StackNet,
    labelled: LabelledSet,
    config: DeepConfig,
    *,
    folder: str | Path | None = None,
    progress: Report | None = None,
) -> list[np.ndarray]:
    """For each image (C,H,W) what the level before says of it, by stacks that were made without it."""
    few = is_few(config, labelled)
    # Of few images, only what the judge leaves out is needed.
    folds = _left_out(config, labelled) if few else folds_of(labelled, config.n_folds, config.seed)
    with reporting(progress) as report, OneThread():
        work = Work(None if folder is None else Path(folder))
        return held_out_proba(net, folds, range(1 if few else folds.n_folds), work.kept, report)


def seconds_of_a_step(net: StackNet, labelled: LabelledSet, config: DeepConfig, device: str) -> float:
    """Of training one of the networks, as measured now."""
    nothing = [np.zeros((net.n_classes, *image.size), np.float16) for image in labelled]
    with OneThread():
        nets = MemberNets(net, _left_out(config, labelled), nothing, config, Work(None), device)
        return nets.seconds_of_a_step(tasks_of(config, labelled))


def choose_network(
    net: StackNet,
    labelled: LabelledSet,
    config: DeepConfig,
    device: str,
    is_timed: bool = False,
    progress: Report | None = None,
) -> tuple[DeepConfig, Tried]:
    """The settings with the size, the normalisation and the crops that suit these images, and what was tried.

    is_timed: larger crops are tried for fewer steps, since there is no more time for them
    """
    folds = folds_of(labelled, N_FOLDS, config.seed + 2)
    nothing = [np.zeros((net.n_classes, *image.size), np.float16) for image in labelled]

    def nets_of(conv: ConvConfig) -> MemberNets:
        return MemberNets(net, folds, nothing, replace(config, conv=conv), Work(None), device)

    def dice(conv: ConvConfig) -> float | None:
        times = (conv.crop // config.conv.crop) ** 2
        if times == 1:
            return trained(nets_of(conv))
        steps = max(conv.n_steps // times, 1) if is_timed else conv.n_steps
        nets = nets_of(replace(conv, n_steps=steps, check_every=min(conv.check_every, steps)))
        try:
            nets.seconds_of_a_step(tasks_of(nets.config, labelled))  # whether those of all members fit
            return trained(nets)
        except RuntimeError as error:
            if not ran_out(error):
                raise
        gc.collect()  # only now: the error holds all that was on the GPU
        torch.cuda.empty_cache()
        return None

    def trained(nets: MemberNets) -> float:
        found = nets.train([Task(ALONE, 0, 0)], report)[0].said
        assert found is not None, "it leaves a fold out"
        return mean_dice(found, _truth(nets, [(i, 0) for i in folds.held(0)]))

    with reporting(progress) as report, OneThread():
        conv, tried = choose(config.conv, len(labelled), SIZES, NORMS, crops_for(config.conv, labelled), dice)
    return replace(config, conv=conv), tried


def members_of(config: DeepConfig, labelled: LabelledSet) -> list[str]:
    """The convolutional members for these images: of few, none that reads; without pretrained weights, those alone."""
    members: list[str] = [one for one in config.members if one != READING or not is_few(config, labelled)]
    if not choosing.encoder_is_here():
        members = [ALONE if one == PRETRAINED else one for one in members]
    return list(dict.fromkeys(members)) or [ALONE]


def tasks_of(config: DeepConfig, labelled: LabelledSet) -> list[Task]:
    """The networks to train. Those of the model see everything, and of each member there are judges beside them that
    leave a fold out, each another one, which tells what the member is worth and when to stop. Without judges the first
    networks of the model leave folds out. Of few images there is always one judge."""
    n_judges = 1 if is_few(config, labelled) else config.judges
    if n_judges:
        folds = [*[None] * config.n_networks, *range(n_judges)]
    else:
        folds = [number if number < OWN_JUDGES else None for number in range(config.n_networks)]
    members = members_of(config, labelled)
    return [Task(member, number, fold) for member in members for number, fold in enumerate(folds)]


def _left_out(config: DeepConfig, labelled: LabelledSet) -> Folds:
    """What networks leave out."""
    return folds_of(labelled, config.n_folds if is_few(config, labelled) else config.left_out, config.seed + 1)


def _weighed(nets: MemberNets, tasks: Sequence[Task], trained: Sequence[TrainedNetwork]) -> DeepStack:
    """The model: members that count nothing are left out."""
    judged = {task.number: task.fold for task in tasks if task.fold is not None}
    pixels = [(i, fold) for fold in judged.values() for i in nets.folds.held(fold)]
    said = {STACK: np.concatenate([nets.sampled(i, fold, nets.before[i]) for i, fold in pixels], axis=1)}
    kept: dict[str, tuple[ConvNet, ...]] = {}
    is_small = is_few(nets.config, nets.labelled)
    for member in dict.fromkeys(task.member for task in tasks):
        mine = [(task, one) for task, one in zip(tasks, trained, strict=True) if task.member == member]
        said[member] = np.concatenate([one.said for _, one in mine if one.said is not None], axis=1)
        kept[member] = tuple(one.net for task, one in mine if task.number < nets.config.n_networks)
    target, n_held = _truth(nets, pixels), len({i for i, _ in pixels})
    clearly = FEW if is_small else HANDICAP if n_held < ENOUGH else None
    weights = find_weights(said, target, _by_number(kept), clearly)
    scores = {name: mean_dice(proba, target) for name, proba in said.items()}
    together = sum(np.float32(weights[name]) * proba for name, proba in said.items())
    scores["together"] = mean_dice(np.asarray(together), target)
    record = Deepening(nets.config.to_dict(), scores, groups_of(nets.labelled), n_held)
    counting = {name: weight for name, weight in weights.items() if weight}
    base = _having_seen(nets.base, nets.labelled)
    return DeepStack(base, {name: some for name, some in kept.items() if name in counting}, counting, record)


def _having_seen(net: StackNet, labelled: LabelledSet) -> StackNet:
    """The network, knowing that these images were learned from; the one that was given stays as it is."""
    found = copy.copy(net)
    found.stack = replace(net.stack, known=net.known.with_seen(image.mark for image in labelled))
    return found


def _truth(nets: MemberNets, pixels: Sequence[tuple[int, int]]) -> np.ndarray:
    """(S,) class indices of the sampled pixels of images and folds."""
    truth = [nets.sampled(i, fold, nets.labelled.images[i].target[None])[0] for i, fold in pixels]
    return np.concatenate(truth).astype(np.uint8)


def _by_number(kept: Mapping[str, Sequence[ConvNet]]) -> dict[str, float]:
    """Weights with which every network counts the same: the plain mean. The stack is one of them, unless all others
    read what it says: then it has been heard (docs/deep.md)."""
    n_stacks = 0 if all(net.reads for nets in kept.values() for net in nets) else 1
    total = n_stacks + sum(map(len, kept.values()))
    return {STACK: n_stacks / total, **{member: len(nets) / total for member, nets in kept.items()}}
