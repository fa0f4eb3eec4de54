"""`DeepStack`: a stack whose last level is convolutional, with members that vote together. No training code here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hedgerow.deep.convnet import ConvNet
from hedgerow.deep.image_features import WithImage, with_image
from hedgerow.deep.record import Deepening
from hedgerow.encoders.devices import OneThread
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

CELL = 512
"""Networks run on squares of this side with their surroundings, in a grid from the image's corner.

What surrounds a square is the same however an image is cut into tiles, so the prediction is the same to the last bit.
"""
STACK = "stack"  # the member that is not convolutional


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
        """How far, in pixels, this level reads its channels from a pixel; the last one, from its squares."""
        if level < self.base.n_levels:
            return self.base.level_reach(level)
        return max((net.network.reach for nets in self.nets.values() for net in nets), default=0)

    def level_cell(self, level: int) -> int:
        """The last level computes whole squares."""
        return 1 if level < self.base.n_levels else CELL

    @property
    def receptive_field(self) -> int:
        """How far, in pixels, the image can influence a prediction; of some networks, all of a square does."""
        sees_all = any(net.network.sees_all for nets in self.nets.values() for net in nets)
        return self.base.receptive_field + self.level_reach(self.base.n_levels) + (CELL if sees_all else 0)

    def moved(self, device: str) -> DeepStack:
        """A new copy that runs on another device."""
        check_device(device.partition(":")[0], is_network=True)
        nets = {name: tuple(net.moved(device) for net in some) for name, some in self.nets.items()}
        return replace(self, base=self.base.to(device), nets=nets)

    def run_level(self, level: int, given: LevelInput) -> np.ndarray:
        """(C,h,w) float32 output of one level in a region."""
        if level < self.base.n_levels:
            return self.base.run_level(level, self.features.without_image(given))
        found = self.joined(self.member_outputs(given))
        if not np.isfinite(found).all():
            raise ModelError(
                "the convolutional networks of this model give no numbers for this image; check the image, or, if "
                "others do not work either, copy the model file again."
            )
        return found

    def joined(self, proba: Mapping[str, np.ndarray]) -> np.ndarray:
        """(C,h,w) float32: what the members, each (C,h,w), say together."""
        total = np.zeros_like(proba[STACK])
        for name, weight in self.weights.items():
            total += np.float32(weight) * proba[name]
        return total

    def member_outputs(self, given: LevelInput) -> dict[str, np.ndarray]:
        """By member, class probabilities (C,h,w) in a region of whole squares, from what the last level reads."""
        n_features, n_inputs = self.base.features.n_features, self.base.features.n_inputs
        planes = np.stack(list(given.channels))
        features, image, before = np.split(planes, [n_features, n_features + n_inputs])
        found = {STACK: given.region.of(before)}
        squares = given.region.cells(CELL)
        for name, nets in self.nets.items():
            work = [(net, square) for square in squares for net in nets]
            parts = map_threads(lambda one: _square(*one, image, features[slice(*one[0].features)], before), work)
            result = np.zeros((self.n_classes, given.region.height, given.region.width), np.float32)
            with OneThread():
                for (_, square), part in zip(work, parts, strict=True):
                    square.within(given.region).of(result)[...] += part / np.float32(len(nets))
            found[name] = result
        return found


def in_squares(net: ConvNet, image: np.ndarray, features: np.ndarray | None, before: np.ndarray) -> np.ndarray:
    """(C,H,W) class probabilities of an image, as the model computes them; what is given as in `ConvNet.read`."""
    height, width = image.shape[1:]
    found = np.zeros((len(before), height, width), np.float32)
    for square in Region(0, height, 0, width).cells(CELL):
        square.of(found)[...] = _square(net, square, image, features, before)
    return found


def _square(
    net: ConvNet, square: Region, image: np.ndarray, features: np.ndarray | None, before: np.ndarray
) -> np.ndarray:
    """(C,h,w) class probabilities of a square of planes (M,H,W), by a network that sees its surroundings."""
    seen = square.grown(net.network.reach, *image.shape[1:])
    read = None if features is None else seen.of(features)
    return square.within(seen).of(net.proba(seen.of(image), read, seen.of(before)))
