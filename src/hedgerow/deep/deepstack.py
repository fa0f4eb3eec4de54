"""`DeepStack`: a stack whose last level is an ensemble of convolutional networks. No training code here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from hedgerow.deep.convnet import ConvNet
from hedgerow.deep.member_kinds import MEMBER_KINDS
from hedgerow.deep.record import STACK, Deepening
from hedgerow.deep.unet import UNET_TILE
from hedgerow.encoders.torch_devices import OneThread
from hedgerow.errors import ModelError
from hedgerow.features.protocol import Arrays, FeatureSet
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.history import Refinement
from hedgerow.forest.level_input import LevelInput, LevelPlan
from hedgerow.images.array_checks import Layout
from hedgerow.images.regions import Region
from hedgerow.network.stacknet import FromStack, StackNet
from hedgerow.predict.devices import check_device
from hedgerow.threads import map_threads


@dataclass(frozen=True)
class WithImage(FeatureSet):
    """The features of a stack (F,...), then the image's own channels (M,...), for the convolutional level only."""

    kind: ClassVar[str] = "image and features"

    n_inputs: int
    mean: np.ndarray
    std: np.ndarray
    inner: FeatureSet

    @property
    def layout(self) -> Layout:  # type: ignore[override]
        return self.inner.layout

    @property
    def blank(self) -> float | None:  # type: ignore[override]
        return self.inner.blank

    @property
    def title(self) -> str:
        return self.inner.title

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.inner.names, *(f"image {c}" for c in range(self.n_inputs)))

    @property
    def halo(self) -> int:
        return self.inner.halo

    def check_here(self) -> None:
        self.inner.check_here()

    def compute(self, image: np.ndarray, region: Region | None = None) -> np.ndarray:
        own = image if region is None else region.of(image)
        return np.concatenate([self.inner.compute(image, region), np.asarray(own, np.float32)])

    def stretch(self, image: np.ndarray) -> np.ndarray | None:
        return self.inner.stretch(image)

    def reach(self, offset: float) -> int:
        return self.inner.reach(offset)

    def outside(self, n_proba: int) -> np.ndarray | None:
        inner = self.inner.outside(n_proba)
        return None if inner is None else np.insert(inner, [self.inner.n_features] * self.n_inputs, np.float32(0))

    def settings(self) -> dict[str, Any]:
        """The settings of the features; equal settings mean that models read the same channels."""
        return {**super().settings(), "inner": self.inner.settings()}

    def arrays(self) -> Arrays:
        return self.inner.arrays()

    def without_image(self, level_input: LevelInput) -> LevelInput:
        """The input without the image's own channels, for a level of the stack."""
        first, after = self.inner.n_features, self.n_features
        channels, outside = [*level_input.channels[:first], *level_input.channels[after:]], level_input.outside
        if outside is not None:
            outside = np.concatenate([outside[:first], outside[after:]])
        return replace(level_input, channels=channels, outside=outside)


def with_image(features: FeatureSet) -> WithImage:
    """These features with the image beside them."""
    return WithImage(features.n_inputs, features.mean, features.std, features)


@dataclass(frozen=True)
class Member:
    """A member of a convolutional level, or one that was tried and left out.

    weight:     its weight in the ensemble
    n_networks: number of its networks; 0: it was left out, or is the stack, whose network is the model's base
    channels:   channels of its U-Nets on each scale, full resolution first
    n_weights:  number of weights of all its networks
    reads:      the inputs of its networks, in words
    dice:       held-out mean Dice; None: not known
    """

    name: str
    weight: float
    n_networks: int = 0
    channels: tuple[int, ...] = ()
    n_weights: int = 0
    reads: str = ""
    dice: float | None = None


@dataclass(frozen=True, eq=False, repr=False)
class DeepStack(FromStack):
    """The network of a stack, and one more level: the weighted mean of its probabilities and those of its members.

    base:    the network of the stack, refined or not
    nets:    the networks of each member, which have equal weights
    weights: the weights of the members, and of the network of the stack, as "stack", if it counts; they sum to 1
    record:  how the level was made, and the held-out score of each member
    tile:    side of the tiles that the networks run on; it is the same for every model in a file

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> net = hr.to_convnet(hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2)))
    >>> small = hr.ConvConfig(base=2, n_down=2, n_steps=2, batch=1)
    >>> deep = hr.deepen(net, images, labels, hr.DeepConfig(n_folds=2, conv=small))
    >>> deep.n_levels, round(sum(deep.weights.values()), 6)
    (2, 1.0)
    """

    base: StackNet
    nets: Mapping[str, tuple[ConvNet, ...]]
    weights: Mapping[str, float]
    record: Deepening = field(default_factory=Deepening)
    tile: int = UNET_TILE

    def __repr__(self) -> str:
        """One line: its members and their weights."""
        of = {name: f" of {len(nets)} networks" for name, nets in self.nets.items()}
        members = [f"{name}{of.get(name, '')} {weight:g}" for name, weight in self.weights.items()]
        return f"DeepStack({self.base.n_levels} levels and a convolutional one: {', '.join(members)})"

    @property
    def features(self) -> WithImage:
        return with_image(self.base.features)

    @property
    def stack(self) -> ForestStack:  # type: ignore[override]
        """The forests of the model."""
        return self.base.stack

    @property
    def refinements(self) -> tuple[Refinement, ...]:
        return self.base.refinements

    @property
    def settings(self) -> dict[str, Any]:
        return self.base.settings

    @property
    def device(self) -> Any:
        return self.base.device

    @property
    def n_levels(self) -> int:
        return self.base.n_levels + 1

    @property
    def members(self) -> list[Member]:
        """The stack, and all convolutional members, including those that were tried and left out."""
        tried = (name for name in MEMBER_KINDS if name in self.nets or name in self.record.scores)
        return [self._member(name) for name in (STACK, *tried)]

    def _member(self, name: str) -> Member:
        weight, dice = self.weights.get(name, 0.0), self.record.scores.get(name)
        if name not in self.nets:
            return Member(name, weight, dice=dice)
        nets = self.nets[name]
        n_weights = sum(parameter.numel() for net in nets for parameter in net.network.parameters())
        reads = nets[0].reads_in_words(self.base.features.n_features)
        return Member(name, weight, len(nets), tuple(nets[0].network.widths), n_weights, reads, dice)

    def level_reach(self, level: int) -> int:
        """How far, in pixels, this level reads its channels around a pixel; the last level, around a tile."""
        if level < self.base.n_levels:
            return self.base.level_reach(level)
        return max((net.network.reach for nets in self.nets.values() for net in nets), default=0)

    def level_reach_z(self, level: int) -> int:
        """How many slices away this level reads its channels; the last level computes each slice alone."""
        return self.base.level_reach_z(level) if level < self.base.n_levels else 0

    def level_tile(self, level: int) -> int:
        """Side of the tiles that a level computes whole; levels of the stack compute single pixels."""
        return 1 if level < self.base.n_levels else self.tile

    @property
    def receptive_field(self) -> int:
        """How far away, in pixels, the image can influence a prediction; for some networks, a whole tile can."""
        sees_all = any(net.network.sees_all for nets in self.nets.values() for net in nets)
        return self.base.receptive_field + self.level_reach(self.base.n_levels) + (self.tile if sees_all else 0)

    def moved(self, device: str) -> DeepStack:
        check_device(device.partition(":")[0], is_network=True)
        nets = {name: tuple(net.moved(device) for net in some) for name, some in self.nets.items()}
        return replace(self, base=self.base.to(device), nets=nets)

    def run_level(self, level: int, level_input: LevelInput) -> np.ndarray:
        """(C,Z,h,w) float32 output of one level in a region."""
        if level < self.base.n_levels:
            return self.base.run_level(level, self.features.without_image(level_input))
        proba = self.joined(self.member_outputs(level_input))
        if not np.isfinite(proba).all():
            raise ModelError(
                "the convolutional networks of this model give no finite probabilities for this image; check the "
                "image, or copy the model file again if other images fail too."
            )
        return proba

    def joined(self, proba: Mapping[str, np.ndarray]) -> np.ndarray:
        """(C,Z,h,w) float32: the weighted sum of the members' class probabilities (C,Z,h,w)."""
        total = np.zeros_like(proba[STACK])
        for name, weight in self.weights.items():
            total += np.float32(weight) * proba[name]
        return total

    def member_outputs(self, level_input: LevelInput) -> dict[str, np.ndarray]:
        """The class probabilities (C,Z,h,w) of each member in a region of whole tiles."""
        n_features, n_inputs = self.base.features.n_features, self.base.features.n_inputs
        planes = np.stack(list(level_input.channels))
        features, image, before = np.split(planes, [n_features, n_features + n_inputs])
        outputs = {STACK: level_input.region.of_volume(before)}
        tiles = level_input.region.tiles((1, self.tile, self.tile))

        def proba(net_and_tile: tuple[ConvNet, Region]) -> np.ndarray:
            net, tile = net_and_tile
            z = tile.front  # slices of a volume are computed one by one
            return _tile_proba(net, tile, image[:, z], features[slice(*net.features), z], before[:, z])

        for name, nets in self.nets.items():
            work = [(net, tile) for tile in tiles for net in nets]
            parts = map_threads(proba, work)
            mean = np.zeros((self.n_classes, *level_input.region.shape), np.float32)
            with OneThread():
                for (_, tile), part in zip(work, parts, strict=True):
                    tile.within(level_input.region).of_volume(mean)[:, 0] += part / np.float32(len(nets))
            outputs[name] = mean
        return outputs

    def levels_and_members(
        self, planes: np.ndarray, region: Region, plan: LevelPlan | None = None
    ) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
        """Class probabilities (C,h,w) after each level in a region of an image (C,H,W), and those of each member.

        plan: for this region, shared with other models that read the same channels; None: made here
        """
        plan = plan or LevelPlan(self, planes, region, self.n_levels)
        outputs: list[np.ndarray] = []
        for level in range(self.base.n_levels):
            outputs.append(self.run_level(level, plan.read(level, outputs[-1] if outputs else None)))
        by_member = self.member_outputs(plan.read(self.base.n_levels, outputs[-1]))
        outputs.append(self.joined(by_member))
        levels = [plan.output(level, output) for level, output in enumerate(outputs)]
        return levels, {name: plan.output(self.base.n_levels, proba) for name, proba in by_member.items()}


def proba_by_tile(
    net: ConvNet, image: np.ndarray, features: np.ndarray | None, before: np.ndarray, tile_size: int = UNET_TILE
) -> np.ndarray:
    """(C,H,W) class probabilities of an image, computed tile by tile as in a model; arguments as of `ConvNet.read`."""
    height, width = image.shape[1:]
    proba = np.zeros((len(before), height, width), np.float32)
    for tile in Region.whole((height, width)).tiles(tile_size):
        tile.of(proba)[...] = _tile_proba(net, tile, image, features, before)
    return proba


def _tile_proba(
    net: ConvNet, tile: Region, image: np.ndarray, features: np.ndarray | None, before: np.ndarray
) -> np.ndarray:
    """(C,h,w) class probabilities of a tile of planes (M,H,W); the network reads the tile with its surroundings."""
    seen = tile.grown(net.network.reach, Region.whole(image.shape[1:]))
    read = None if features is None else seen.of(features)
    return tile.within(seen).of(net.proba(seen.of(image), read, seen.of(before)))
