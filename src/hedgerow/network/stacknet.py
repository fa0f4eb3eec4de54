"""`StackNet`: a stack of forests as the deep ConvNet that computes the same thing. No training code here.

Each level is a `LevelNet` of two hidden layers: H_{3k-2}, one neuron per split, and H_{3k-1}, one neuron per leaf. The
outputs of inner levels, H_{3k}, are normalised and become inputs of the next level, beside the features.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hedgerow.errors import ConfigError
from hedgerow.features.protocol import FeatureSet
from hedgerow.forest.arrays import ForestStack
from hedgerow.forest.history import Known, Refinement
from hedgerow.forest.level_input import LevelInput
from hedgerow.images.array_checks import as_volumes
from hedgerow.images.legend import Legend
from hedgerow.images.regions import Region
from hedgerow.kernels.cpu.level_work import in_stored_order
from hedgerow.kernels.definition import level as definition
from hedgerow.model_methods import ModelMethods
from hedgerow.network.layout import Grid, Source, region_grid
from hedgerow.network.levels import Layer, LevelNet
from hedgerow.network.soft_levels import is_walked, run_walked


class StackNet(ModelMethods, nn.Module):  # type: ignore[misc]  # in this order, so that `to` is that of `ModelMethods`
    """The network of a stack of forests, with 3K-1 hidden layers.

    stack:       the forests that it was mapped from
    output:      what follows the last level's scores: "softmax", or "normalise" as after the inner levels
    settings:    how the forests were made, for information
    refinements: those it has been through, in order
    relaxed:     whether its splits have been softened for training, which is done once
    tuned:       the features that it reads, if their encoder was refined with it; None: those of its forests
    walked:      whether levels of soft splits predict by walking, which is faster; not so for networks of 0.1.0, whose
                 predictions stay what they were to the last bit

    >>> images, labels = hr.synthetic.somites(n_images=2, size=(40, 48))
    >>> stack = hr.fit_stack(images, labels, hr.StackConfig(n_levels=1, n_trees=2))
    >>> net = hr.to_convnet(stack)
    >>> [layer.about for layer in net.layers()]
    ['splits, right and left', 'leaves', 'classes, softmax']
    """

    def __init__(self, stack: ForestStack, levels: Sequence[LevelNet], output: str) -> None:
        super().__init__()
        self.stack, self.output = stack, output
        self.levels = nn.ModuleList(levels)
        self.settings: dict[str, Any] = dict(stack.settings)
        self.refinements: tuple[Refinement, ...] = stack.refinements
        self.relaxed = stack.relaxed
        self.tuned: FeatureSet | None = None
        self.walked = True

    def __repr__(self) -> str:
        """One line; `layers()` lists the layers."""
        n_weights = sum(parameter.numel() for parameter in self.parameters())
        parts = [f"{self.split} splits", f"{self.n_levels} level{'s' * (self.n_levels != 1)}", f"{n_weights:,} weights"]
        parts.append(f"{self.n_classes} classes")
        if self.refinements:
            parts.append(f"refined for {self.refinements[-1].checks[-1].step:,} steps")
        return f"StackNet({', '.join(parts)})"

    @property
    def features(self) -> FeatureSet:
        return self.stack.features if self.tuned is None else self.tuned

    @property
    def classes(self) -> tuple[int, ...]:
        return self.stack.classes

    @property
    def unlabelled(self) -> int:
        return self.stack.unlabelled

    @property
    def image_dtype(self) -> str:
        return self.stack.image_dtype

    @property
    def legend(self) -> Legend:
        return self.stack.legend

    @property
    def known(self) -> Known:
        return self.stack.known

    @property
    def n_levels(self) -> int:
        return self.stack.n_levels

    @property
    def n_classes(self) -> int:
        return self.stack.n_classes

    @property
    def receptive_field(self) -> int:
        return self.stack.receptive_field

    def level_reach(self, level: int) -> int:
        """How far, in pixels of a slice, this level reads its channels from a pixel."""
        return self.stack.level_reach(level)

    def level_reach_z(self, level: int) -> int:
        """How many slices away this level reads its channels."""
        return self.stack.level_reach_z(level)

    @property
    def split(self) -> str:
        return self.level(0).split

    def level(self, number: int) -> LevelNet:
        net = self.levels[number]
        assert isinstance(net, LevelNet)
        return net

    @property
    def device(self) -> torch.device:
        return self.level(0).vote_weight.device

    def set_tolerance(self, tolerance: float) -> None:
        """Leave out branches that carry at most this much at a pixel (fused kernels, soft and crelu); 0: none."""
        if not 0 <= tolerance < 1:
            raise ConfigError(f"the tolerance is {tolerance}; it must be at least 0 and less than 1.")
        for number in range(self.n_levels):
            self.level(number).tolerance = tolerance

    def relax(self, factor: float) -> None:
        """Soften the splits of all levels."""
        for number in range(self.n_levels):
            self.level(number).relax(factor)
        self.relaxed = True

    def layers(self) -> list[Layer]:
        """The 3K-1 hidden layers and the output layer, in order."""
        layers = [layer for number in range(self.n_levels) for layer in self.level(number).layers(number + 1)]
        last = layers[-1]
        return [*layers[:-1], Layer("output", f"classes, {self.output}", last.neurons, last.weights)]

    def source(self, planes: np.ndarray) -> Source:
        """What the first level reads from an image (C,H,W) float32."""
        features = torch.from_numpy(as_volumes(self.features.compute(planes))).to(self.device)
        return Source(features, stretch=self.features.stretch(planes), outside=self.features.outside(self.n_classes))

    def grids(self, extent: tuple[int, ...], last: Grid) -> list[Grid]:
        """Where each level must be known for the last one to be known on grid `last` of an image of this size."""
        grids, whole = [last], Region.whole(extent)
        for number in range(self.n_levels - 1, 0, -1):
            reach = self.level_reach(number)
            grids.insert(0, grids[0].grown((self.level_reach_z(number), reach, reach), whole))
        return grids

    def forward(self, source: Source, grids: Sequence[Grid], leaf_sums: list[Tensor] | None = None) -> list[Tensor]:
        """Outputs (C,Z,h,w) of the levels, each on its grid: inner ones normalised, the last one's scores as they are.

        A list given as `leaf_sums` receives each level's sum of leaf activations, (Z,h,w).
        """
        outputs: list[Tensor] = []
        for number, grid in enumerate(grids):
            if outputs:
                source = Source(source.features, outputs[-1], grids[number - 1], source.stretch, source.outside)
            scores = self.level(number)(source, grid, leaf_sums is not None)
            if leaf_sums is not None:
                leaf_sums.append(scores[-1])
                scores = scores[:-1]
            outputs.append(scores if number + 1 == self.n_levels else definition.normalise(scores))
        return outputs

    def region_source(self, given: LevelInput) -> Source:
        """What a level reads, as tensors."""
        n_features, device = self.features.n_features, self.device
        planes = torch.from_numpy(np.stack(list(given.channels[:n_features]))).to(device)
        before, known = None, None
        if len(given.channels) > n_features:
            before = torch.from_numpy(np.stack(list(given.channels[n_features:]))).to(device)
            known = region_grid(Region.whole(given.size))
        return Source(planes, before, known, given.stretch, given.outside)

    def run_level(self, level: int, given: LevelInput) -> np.ndarray:
        """(C,Z,h,w) float32 output of one level in a region."""
        is_softmax = self.output == "softmax" and level + 1 == self.n_levels
        if self.walked and is_walked(self.level(level)):
            return run_walked(self.level(level), given, is_softmax)
        with torch.no_grad(), nullcontext() if self.walked else in_stored_order():
            scores = self.level(level)(self.region_source(given), region_grid(given.region))
            found: Tensor = definition.softmax(scores) if is_softmax else definition.normalise(scores)
            return found.cpu().numpy()
