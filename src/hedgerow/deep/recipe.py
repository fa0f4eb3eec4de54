"""The recipe of a convolutional level: what its settings and the images determine before any training."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from hedgerow.config import AugmentConfig, ConvConfig, DeepConfig
from hedgerow.deep.ensemble_weights import MANY_SUBJECTS, MIN_GAIN_FEW_IMAGES, MIN_GAIN_HANDICAPPED
from hedgerow.deep.folds import Folds, folds_of
from hedgerow.deep.member_kinds import ALONE, MEMBER_KINDS
from hedgerow.deep.network_training import TrainNetwork, train_network
from hedgerow.deep.record import STACK
from hedgerow.deep.unet import UNET_TILE, Norm
from hedgerow.forest import default_settings
from hedgerow.images.labelled import LabelledSet

MAX_JUDGES_IN_MODEL = 2  # networks of a member that hold out a fold if no judges are trained
USUAL_BATCH_IMAGES: dict[Norm, int] = {"batch": 5, "image": 2}
"""With fewer images, batches are larger and rates lower. For networks normalised by statistics of the training, this
gained 0.05 on four drawn somites and lost 0.1 on 16; for the others, it gained 0.004 on one image of electron
microscopy and lost 0.006 on four (docs/measurements)."""
DEPTH_AUGMENT = AugmentConfig(rotation=30.0, scale=0.3, shift=0.2, brightness=0.6, contrast=0.3)
"""How depth images are altered: on 40 drawn bodies, this gained 0.029 with a U-Net of one seed (docs/measurements)."""


@dataclass(frozen=True)
class Task:
    """A network to train: its member, its number in the member, and the fold that it holds out, or None."""

    member: str
    number: int
    fold: int | None


@dataclass(frozen=True, eq=False)
class Recipe:
    """Which networks are trained on which folds, what they read, and how they are judged.

    has_encoder:   whether the weights of the pretrained encoder are installed
    held_out:      folds that networks hold out; None: as the settings say
    required_gain: see `min_gain`; None: it follows from the number of images
    tile:          side of the tiles that networks predict, see `unet.TILE`
    train_network: trains one network, see `network_training`
    clock:         returns the time in seconds
    until:         deadline of the training by the clock; None: there is none
    """

    config: DeepConfig
    labelled: LabelledSet
    has_encoder: bool = field(default_factory=lambda: default_settings.default_encoder_is_installed())
    held_out: Folds | None = None
    required_gain: float | None = None
    tile: int = UNET_TILE
    train_network: TrainNetwork = train_network
    clock: Callable[[], float] = time.monotonic
    until: float | None = None

    @property
    def has_few_images(self) -> bool:
        """Whether there are too few images for networks to read the stack's predictions for held-out images."""
        return len(self.labelled.subjects) < self.config.fewest

    @property
    def members(self) -> list[str]:
        """The convolutional members: those of `DeepConfig.members` that can be trained here on these images."""
        members: list[str] = [
            name for name in self.config.members if not (MEMBER_KINDS[name].needs_stack and self.has_few_images)
        ]
        if not self.has_encoder:
            members = [ALONE if MEMBER_KINDS[name].encoder else name for name in members]
        return list(dict.fromkeys(members)) or [ALONE]

    def reads_stack(self, member: str) -> bool:
        """Whether the networks of a member read the class probabilities of the stack."""
        return MEMBER_KINDS[member].reads_stack and not self.has_few_images

    @property
    def n_regrown_stacks(self) -> int:
        """How often the stack is grown again for held-out probabilities; with few images, once, for the only judge."""
        return 1 if self.has_few_images else self.config.n_folds

    @cached_property
    def network_folds(self) -> Folds:
        """The folds that networks hold out."""
        if self.held_out is not None:
            return self.held_out
        config = self.config
        return folds_of(self.labelled, config.n_folds if self.has_few_images else config.left_out, config.seed + 1)

    @cached_property
    def stack_folds(self) -> Folds:
        """The folds that the stack holds out when it is grown again."""
        if self.has_few_images:
            return self.network_folds
        return folds_of(self.labelled, self.config.n_folds, self.config.seed)

    @property
    def tasks(self) -> list[Task]:
        """The networks to train.

        Networks of the model are trained on all images. Each member also has judges, which hold out one fold each;
        their scores decide the member's weight and when training stops. Without judges, the first networks of the
        model hold out folds. With few images, there is always one judge.
        """
        n_networks = self.config.n_networks
        n_judges = 1 if self.has_few_images else self.config.judges
        if n_judges:
            folds = [*[None] * n_networks, *range(n_judges)]
        else:
            folds = [number if number < MAX_JUDGES_IN_MODEL else None for number in range(n_networks)]
        return [Task(member, number, fold) for member in self.members for number, fold in enumerate(folds)]

    @cached_property
    def judged(self) -> list[tuple[int, int]]:
        """The images on which each member is judged, with the fold that is held out in each."""
        folds = dict.fromkeys(task.fold for task in self.tasks if task.fold is not None)
        return [(i, fold) for fold in folds for i in self.network_folds.held(fold)]

    @property
    def n_judged_images(self) -> int:
        return len({i for i, _ in self.judged})

    @property
    def n_judged_subjects(self) -> int:
        judged = {i for i, _ in self.judged}
        return sum(not judged.isdisjoint(subject) for subject in self.labelled.subjects)

    def is_alternate(self, task: Task) -> bool:
        """Whether the network is trained in the second of two ways, which take turns among the networks of a member.

        If the member needs the stack, its probabilities are dropped only in the second way; if it has an encoder, the
        encoder's weights are trained only in the second way. The two ways make different errors, and which is better
        depends on the data (docs/measurements).
        """
        return task.number % self.config.n_networks % 2 == 1

    def conv_for(self, task: Task) -> ConvConfig:
        """The settings of the network of a task."""
        conv = replace(for_sizes(self.config.conv, self.labelled), seed=self.config.seed * 1000 + task.number)
        never_drops = MEMBER_KINDS[task.member].needs_stack and not self.is_alternate(task)
        return replace(conv, drop=0.0) if never_drops else conv

    def equal_weights(self) -> dict[str, float]:
        """Weights that give every network the same share. The stack counts as a network, unless all networks read its
        probabilities: then it already contributes through them (docs/measurements)."""
        n_stacks = 0 if all(map(self.reads_stack, self.members)) else 1
        total = n_stacks + len(self.members) * self.config.n_networks
        return {STACK: n_stacks / total, **dict.fromkeys(self.members, self.config.n_networks / total)}

    @property
    def min_gain(self) -> float | None:
        """The relative gain that other weights need to replace equal ones, see `find_weights`."""
        if self.required_gain is not None:
            return self.required_gain
        if self.has_few_images:
            return MIN_GAIN_FEW_IMAGES
        return MIN_GAIN_HANDICAPPED if self.n_judged_subjects < MANY_SUBJECTS else None


def for_images(conv: ConvConfig, is_depth: bool) -> ConvConfig:
    """The settings for a kind of image; depth images are altered more than others."""
    if not is_depth:
        return conv
    usual = conv.augment
    rotation = max(usual.rotation, DEPTH_AUGMENT.rotation)
    return replace(conv, augment=replace(DEPTH_AUGMENT, rotation=rotation, flip=usual.flip))


def for_number(conv: ConvConfig, n_images: int) -> ConvConfig:
    """The settings for this number of images."""
    if n_images >= USUAL_BATCH_IMAGES[conv.norm]:
        return conv
    return replace(conv, batch=2 * conv.batch, learning_rate=conv.learning_rate / 3)


def for_sizes(conv: ConvConfig, labelled: LabelledSet) -> ConvConfig:
    """The settings for images of these sizes: at least two pixels remain at the coarsest scale, because statistics of
    one pixel are useless for normalisation."""
    shortest = min(conv.crop, *(max(image.size[axis] for image in labelled) for axis in range(2)))
    return replace(conv, n_down=min(conv.n_down, max(shortest.bit_length() - 2, 1)))
