"""`DeepStack`: a stack whose last level is convolutional, with members that vote together. No training code here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hedgerow.deep.convnet import ConvNet
from hedgerow.deep.image_features import WithImage, with_image
from hedgerow.deep.record import STACK, Deepening
from hedgerow.encoders.torch_devices import OneThread
from hedgerow.errors import ModelError
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.history import Known, Refinement
from hedgerow.forest.level_input import LevelInput
from hedgerow.images.legend import Legend
from hedgerow.images.regions import Region
from hedgerow.model_methods import ModelMethods
from hedgerow.network.stacknet import StackNet
from hedgerow.predict.devices import check_device
from hedgerow.threads import map_threads

TILE = 512
"""Networks run on tiles of this side with their surroundings, in a grid from the image's corner.

What surrounds a tile is the same whatever region is asked for, so the prediction is the same to the last bit.
"""


@dataclass(frozen=True, eq=False, repr=False)
class DeepStack(ModelMethods):
    """The network of a stack, and one more level: convolutional networks, whose class probabilities join its own.

    base:    the network of the stack, refined or not
    nets:    by member, its networks; they count the same
    weights: by member that counts, STACK among them if it does; they sum to 1
    record:  how it was made, and what each member scored on images that it did not see

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

    def __repr__(self) -> str:
        """One line: its members and their weights."""
        of = {name: f" of {len(nets)} networks" for name, nets in self.nets.items()}
        members = [f"{name}{of.get(name, '')} {weight:g}" for name, weight in self.weights.items()]
        return f"DeepStack({self.base.n_levels} levels and a convolutional one: {', '.join(members)})"

    @property
    def features(self) -> WithImage:
        return with_image(self.base.features)

    @property
    def stack(self) -> ForestStack:
        """The forests that it began with."""
        return self.base.stack

    @property
    def refinements(self) -> tuple[Refinement, ...]:
        return self.base.refinements

    @property
    def classes(self) -> tuple[int, ...]:
        return self.base.classes

    @property
    def n_classes(self) -> int:
        return self.base.n_classes

    @property
    def unlabelled(self) -> int:
        return self.base.unlabelled

    @property
    def image_dtype(self) -> str:
        return self.base.image_dtype

    @property
    def legend(self) -> Legend:
        return self.base.legend

    @property
    def known(self) -> Known:
        return self.base.known

    @property
    def settings(self) -> dict[str, Any]:
        return self.base.settings

    @property
    def device(self) -> Any:
        return self.base.device

    @property
    def n_levels(self) -> int:
        return self.base.n_levels + 1

    def level_reach(self, level: int) -> int:
        """How far, in pixels, this level reads its channels from a pixel; the last one, from its tiles."""
        if level < self.base.n_levels:
            return self.base.level_reach(level)
        return max((net.network.reach for nets in self.nets.values() for net in nets), default=0)

    def level_reach_z(self, level: int) -> int:
        """How many slices away this level reads its channels; the last one takes slices one by one."""
        return self.base.level_reach_z(level) if level < self.base.n_levels else 0

    def level_tile(self, level: int) -> int:
        """The last level computes whole tiles."""
        return 1 if level < self.base.n_levels else TILE

    @property
    def receptive_field(self) -> int:
        """How far, in pixels, the image can influence a prediction; of some networks, all of a tile does."""
        sees_all = any(net.network.sees_all for nets in self.nets.values() for net in nets)
        return self.base.receptive_field + self.level_reach(self.base.n_levels) + (TILE if sees_all else 0)

    def moved(self, device: str) -> DeepStack:
        """A new copy that runs on another device."""
        check_device(device.partition(":")[0], is_network=True)
        nets = {name: tuple(net.moved(device) for net in some) for name, some in self.nets.items()}
        return replace(self, base=self.base.to(device), nets=nets)

    def run_level(self, level: int, given: LevelInput) -> np.ndarray:
        """(C,Z,h,w) float32 output of one level in a region."""
        if level < self.base.n_levels:
            return self.base.run_level(level, self.features.without_image(given))
        proba = self.joined(self.member_outputs(given))
        if not np.isfinite(proba).all():
            raise ModelError(
                "the convolutional networks of this model give no numbers for this image; check the image, or, if "
                "others do not work either, copy the model file again."
            )
        return proba

    def joined(self, proba: Mapping[str, np.ndarray]) -> np.ndarray:
        """(C,Z,h,w) float32: what the members, each (C,Z,h,w), say together."""
        total = np.zeros_like(proba[STACK])
        for name, weight in self.weights.items():
            total += np.float32(weight) * proba[name]
        return total

    def member_outputs(self, given: LevelInput) -> dict[str, np.ndarray]:
        """By member, class probabilities (C,Z,h,w) in a region of whole tiles, from what the last level reads."""
        n_features, n_inputs = self.base.features.n_features, self.base.features.n_inputs
        planes = np.stack(list(given.channels))
        features, image, before = np.split(planes, [n_features, n_features + n_inputs])
        found = {STACK: given.region.of_volume(before)}
        tiles = given.region.tiles((1, TILE, TILE))
        for name, nets in self.nets.items():
            work = [(net, tile) for tile in tiles for net in nets]
            parts = map_threads(lambda one: _slice_proba(*one, image, features[slice(*one[0].features)], before), work)
            result = np.zeros((self.n_classes, *given.region.shape), np.float32)
            with OneThread():
                for (_, tile), part in zip(work, parts, strict=True):
                    tile.within(given.region).of_volume(result)[:, 0] += part / np.float32(len(nets))
            found[name] = result
        return found


def proba_by_tile(net: ConvNet, image: np.ndarray, features: np.ndarray | None, before: np.ndarray) -> np.ndarray:
    """(C,H,W) class probabilities of an image, as the model computes them; what is given as in `ConvNet.read`."""
    height, width = image.shape[1:]
    found = np.zeros((len(before), height, width), np.float32)
    for tile in Region.whole((height, width)).tiles(TILE):
        tile.of(found)[...] = _tile_proba(net, tile, image, features, before)
    return found


def _slice_proba(net: ConvNet, tile: Region, image: np.ndarray, features: np.ndarray, before: np.ndarray) -> np.ndarray:
    """`_tile_proba` of a tile in one slice of volumes (M,Z,H,W)."""
    return _tile_proba(net, tile, image[:, tile.front], features[:, tile.front], before[:, tile.front])


def _tile_proba(
    net: ConvNet, tile: Region, image: np.ndarray, features: np.ndarray | None, before: np.ndarray
) -> np.ndarray:
    """(C,h,w) class probabilities of a tile of planes (M,H,W), by a network that sees its surroundings."""
    seen = tile.grown(net.network.reach, Region.whole(image.shape[1:]))
    read = None if features is None else seen.of(features)
    return tile.within(seen).of(net.proba(seen.of(image), read, seen.of(before)))
