"""A convolutional level on top of a stack: networks trained fold by fold, and weights for all members.

As with forests, training must not fool itself: what a network reads of the stack, and what stops and weighs it, comes
from models that did not see the pixel.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from hedgerow.config import ConvConfig, DeepConfig
from hedgerow.deep.batches import Sheet
from hedgerow.deep.convnet import ConvNet, fit_scale
from hedgerow.deep.deepstack import STACK, DeepStack
from hedgerow.deep.folds import Folds, folds_of
from hedgerow.deep.held_out import held_out_proba
from hedgerow.deep.kept import Work
from hedgerow.deep.record import Deepening
from hedgerow.deep.training import Advance, start_at_shares, train_network
from hedgerow.deep.unet import UNet
from hedgerow.deep.weighing import find_weights, mean_dice
from hedgerow.encoders.devices import OneThread
from hedgerow.errors import ConfigError, InputError
from hedgerow.features.encoder import EncoderFeatures
from hedgerow.features.joined import Joined
from hedgerow.files import fingerprint
from hedgerow.forest.groups import groups_of
from hedgerow.images.arrays import UNLABELLED_INDEX
from hedgerow.images.labelled import Images, LabelledSet
from hedgerow.images.metrics import Scores, confusion
from hedgerow.network.stacknet import StackNet
from hedgerow.predict.evaluate import labelled_for
from hedgerow.progress import Report, reporting
from hedgerow.threads import get_threads, map_threads

SAMPLES = 2**18  # held-out pixels, over all images, that members are weighed by
ALONE, READING = "alone", "reading"
TIMED = 3  # steps
_SEEDING = threading.Lock()  # PyTorch has one generator for all threads


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
    device: str | None = None,
    folder: str | Path | None = None,
    progress: Report | None = None,
) -> DeepStack:
    """`deepen` on labelled images."""
    folds = folds_of(labelled, config.n_folds, config.seed)
    with reporting(progress) as report, OneThread():
        work = Work(None if folder is None else Path(folder))
        before = held_out_proba(net, folds, work.kept, report)
        level = _Level(net, folds, before, config, work, torch.device(device or net.device))
        tasks = [(member, fold) for member in members_of(config, labelled) for fold in range(folds.n_folds)]
        trained = level.train(tasks, report)
    return level.weighed(tasks, trained)


def members_of(config: DeepConfig, labelled: LabelledSet) -> list[str]:
    """The convolutional members for these images."""
    is_few = len(labelled) < config.fewest
    return [member for member in config.members if member == ALONE or not is_few] or [ALONE]


@dataclass(frozen=True)
class Trained:
    """A network, and what it says (C,S) of its fold's pixels."""

    net: ConvNet
    said: np.ndarray


class _Level:
    """A convolutional level in training."""

    def __init__(
        self,
        net: StackNet,
        folds: Folds,
        before: list[np.ndarray],
        config: DeepConfig,
        work: Work,
        device: torch.device,
    ) -> None:
        """before: for each image (C,H,W) held-out probabilities of the stack's network"""
        self.device = device
        self.base, self.folds, self.before, self.config, self.work = net, folds, before, config, work
        self.labelled = folds.labelled
        self.scale = fit_scale(self.labelled.images, net.features.blank)
        first, end = self.read_features = features_read(net, config)
        self.features = [
            net.features.compute(image.planes)[first:end] if first < end else None for image in self.labelled
        ]
        self.step = max(1, round(np.sqrt(sum(image.target.size for image in self.labelled) / SAMPLES)))

    def train(self, tasks: list[tuple[str, int]], report: Report) -> list[Trained]:
        """The networks of all tasks, each a member and a fold; on a CPU as many at once as there are threads."""
        total, done = len(tasks) * self.config.conv.n_steps, [0] * len(tasks)
        lock, stopped = threading.Lock(), threading.Event()

        def run(number: int) -> Trained:
            def advance(step: int, dice: float | None) -> None:
                if stopped.is_set():
                    raise InterruptedError
                with lock:
                    done[number] = step
                    known = "" if dice is None else f", held-out Dice {dice:.3f}"
                    report(f"convolutional networks{known}", sum(done), total)

            return self._trained(*tasks[number], advance)

        numbers = range(len(tasks))
        try:
            is_cpu = self.device.type == "cpu"
            return list(map_threads(run, numbers) if is_cpu else map(run, numbers))
        except BaseException:
            stopped.set()  # or the other threads would go on to their end
            raise

    def _trained(self, member: str, fold: int, advance: Advance) -> Trained:
        net, training, conv = self._begun(member, fold)
        held = [
            (i, net.read(self.labelled.images[i].planes, self.features[i], self.before[i]))
            for i in self.folds.held(fold)
        ]
        targets = [self.folds.target(i, fold) for i, _ in held]

        def score(network: torch.nn.Module) -> float:
            quick, n_classes = replace(net, orientations=1), self.labelled.n_classes
            found = [quick.scaled_proba(planes).argmax(0).cpu().numpy().astype(np.uint8) for _, planes in held]
            tables = [confusion(target, one, n_classes) for target, one in zip(targets, found, strict=True)]
            return float(Scores(self.labelled.classes, np.sum(tables, axis=0)).mean_dice)

        checkpoint, mark = self.work.state(f"{member}-{fold}"), self._mark(member, conv)
        train_network(net.network, training, conv, score, checkpoint=checkpoint, mark=mark, advance=advance)
        said = [self._sampled(i, fold, net.scaled_proba(planes).cpu().numpy()) for i, planes in held]
        return Trained(net, np.concatenate(said, axis=1))

    def timed(self, member: str, fold: int, advance: Advance) -> None:
        """Train a network for its time alone."""
        net, training, conv = self._begun(member, fold)
        train_network(net.network, training, conv, advance=advance)

    def _begun(self, member: str, fold: int) -> tuple[ConvNet, list[Sheet], ConvConfig]:
        """A network that has learned nothing yet, what it will learn from, and how."""
        conv = replace(self.config.conv, seed=self.config.seed * 1000 + fold)
        net = self._new(member, conv)
        training = [
            net.sheet(replace(image, target=target), self.features[i], self.before[i])
            for i, image in enumerate(self.labelled)
            if (target := self._training_target(i, fold)) is not None
        ]
        start_at_shares(net.network.class_bias, training)
        return net, training, conv

    def _new(self, member: str, conv: ConvConfig) -> ConvNet:
        n_classes, reads = self.labelled.n_classes, member == READING
        first, end = self.read_features
        n_inputs = self.scale.n_outputs + end - first + (n_classes if reads else 0)
        with _SEEDING, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(conv.seed)
            network = UNet(n_inputs, n_classes, conv.base, conv.n_down, conv.widest)
        network = network.to(memory_format=torch.channels_last).to(self.device)  # type: ignore[call-overload]
        return ConvNet(network, self.scale, (first, end), reads, conv.orientations)

    def _training_target(self, i: int, fold: int) -> np.ndarray | None:
        target = np.where(self.folds.parts[i] == fold, UNLABELLED_INDEX, self.labelled.images[i].target)
        return None if (target == UNLABELLED_INDEX).all() else np.asarray(target, np.uint8)

    def _mark(self, member: str, conv: ConvConfig) -> str:
        arrays = [
            array for i, image in enumerate(self.labelled) for array in (image.planes, image.target, self.before[i])
        ]
        return fingerprint(member, conv.to_dict(), self.config.to_dict(), str(self.device), *arrays)

    def _sampled(self, i: int, fold: int, planes: np.ndarray) -> np.ndarray:
        """(C,S): planes (C,H,W) at the labelled pixels of a fold, on a lattice."""
        target = self.folds.target(i, fold)[:: self.step, :: self.step]
        return np.asarray(planes[:, :: self.step, :: self.step][:, target != UNLABELLED_INDEX], np.float32)

    def weighed(self, tasks: list[tuple[str, int]], trained: list[Trained]) -> DeepStack:
        """The model: members that count nothing are left out."""
        pixels = [(i, fold) for fold in range(self.folds.n_folds) for i in self.folds.held(fold)]
        said = {STACK: np.concatenate([self._sampled(i, fold, self.before[i]) for i, fold in pixels], axis=1)}
        nets: dict[str, tuple[ConvNet, ...]] = {}
        for member in dict.fromkeys(member for member, _ in tasks):
            mine = [one for (name, _), one in zip(tasks, trained, strict=True) if name == member]
            said[member], nets[member] = (
                np.concatenate([one.said for one in mine], axis=1),
                tuple(one.net for one in mine),
            )
        truth = [self._sampled(i, fold, self.labelled.images[i].target[None])[0] for i, fold in pixels]
        target = np.concatenate(truth).astype(np.uint8)
        weights = find_weights(said, target)
        scores = {name: mean_dice(proba, target) for name, proba in said.items()}
        scores["together"] = mean_dice(sum(weights[name] * said[name] for name in said), target)  # type: ignore[arg-type]
        record = Deepening(self.config.to_dict(), scores, groups_of(self.labelled), len(self.labelled))
        kept = {name: some for name, some in nets.items() if weights[name]}
        return DeepStack(self.base, kept, {name: weight for name, weight in weights.items() if weight}, record)


def features_read(net: StackNet, config: DeepConfig) -> tuple[int, int]:
    """The first and the end of the features that the networks read."""
    features = net.features
    if config.features == "all":
        return 0, features.n_features
    if config.features == "encoder":
        start = 0
        for member in features.members if isinstance(features, Joined) else (features,):
            if isinstance(member, EncoderFeatures):
                return start, start + member.n_features
            start += member.n_features
    return 0, 0


def step_seconds(net: StackNet, labelled: LabelledSet, config: DeepConfig, device: str) -> float:
    """Of one step of one network, as measured now, while as many train as will."""
    folds = folds_of(labelled, config.n_folds, config.seed)
    blank = [np.zeros((net.n_classes, *image.size), np.float16) for image in labelled]
    tried = replace(config, conv=replace(config.conv, n_steps=TIMED + 1, check_every=TIMED + 1))
    at_once = [(member, fold) for member in members_of(config, labelled) for fold in range(folds.n_folds)]
    at_once = at_once[: get_threads()] if device == "cpu" else at_once[:1]
    times: list[list[float]] = [[] for _ in at_once]
    with OneThread():
        level = _Level(net, folds, blank, tried, Work(None), torch.device(device))

        def run(number: int) -> None:
            level.timed(*at_once[number], lambda step, dice: times[number].append(time.monotonic()))

        list(map_threads(run, range(len(at_once))) if device == "cpu" else map(run, range(len(at_once))))
    return max((each[-1] - each[0]) / (len(each) - 1) for each in times)
