"""Deep neural decision forests, the closest relative of the paper, on our stacks: splits and votes are trained in turn.

Splits are soft and votes are probabilities, so that the output is a mixture of leaves. Splits follow the gradient of
the log-likelihood while votes are fixed; then votes are multiplied by the gradient and normalised a few times, and each
time the likelihood rises. The published method does so for each tree alone; here, the mixture is that of all trees,
because the output of the forest is scored.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from experiments.bench import Bench, Row, timed
from hedgerow.config import RefineConfig
from hedgerow.forest.samples import hold_out
from hedgerow.images.array_checks import UNLABELLED_INDEX
from hedgerow.images.labelled import LabelledSet
from hedgerow.kernels.definition import level as definition
from hedgerow.network.layout import Grid, Source, lattice
from hedgerow.network.mapping import to_convnet
from hedgerow.network.stacknet import StackNet
from hedgerow.progress import Report
from hedgerow.refinement.loop import refine_labelled

ROUNDS, UPDATES = 10, 5  # turns of splits and votes, and updates of the votes in each turn
VOTE_STRIDE = 3  # votes are fitted on every third row and column
LEAST, SMALLEST = 1e-6, 1e-30  # smallest argument of a logarithm, and smallest divisor


class MixtureNet(StackNet):
    """The soft trees of a network as a mixture: the output is the mean of the leaves' votes, which are not trained."""

    def __init__(self, net: StackNet) -> None:
        super().__init__(net.stack, copy.deepcopy([net.level(number) for number in range(net.n_levels)]), "normalise")
        self.relaxed = net.relaxed
        for number in range(self.n_levels):
            votes = self.level(number).vote_weight
            votes.requires_grad_(False)
            with torch.no_grad():
                votes.div_(votes.sum(dim=1, keepdim=True).clamp(min=LEAST))

    def forward(self, source: Source, grids: Sequence[Grid], leaf_spread: list[Tensor] | None = None) -> list[Tensor]:
        """As in `StackNet`, but the last level returns log-probabilities, whose softmax is the mixture."""
        *inner, last = super().forward(source, grids, leaf_spread)
        return [*inner, definition.normalise(last).clamp(min=LEAST).log()]

    def update_votes(self, labelled: LabelledSet, stride: int) -> float:
        """Update the votes of every level once, for its own output on every n-th row and column.

        Returns the mean log-likelihood of the last level's output before the update.
        """
        gradients = [torch.zeros_like(self.level(number).vote_weight) for number in range(self.n_levels)]
        total, n_pixels = 0.0, 0
        for image in labelled:
            grids = self.grids((1, *image.size), lattice(image.size[0], image.size[1], 1))
            target = torch.from_numpy(image.target[::stride, ::stride].astype(np.int64).ravel()).to(self.device)
            known = target != UNLABELLED_INDEX
            source = self.source(image.planes)
            for number, grid in enumerate(grids):
                level = self.level(number)
                votes = level.vote_weight.requires_grad_(True)
                scores = level(source, grid)
                mixture = (
                    scores[:, 0, ::stride, ::stride].reshape(self.n_classes, -1) / self.stack.levels[number].n_trees
                )
                logs = mixture[:, known].gather(0, target[known][None]).clamp(min=LEAST).log().sum()
                gradients[number] += torch.autograd.grad(logs, votes)[0]
                votes.requires_grad_(False)
                source = replace(source, before=definition.normalise(scores.detach()), known=grid)
            total, n_pixels = total + logs.item(), n_pixels + int(known.sum())
        with torch.no_grad():
            for number, gradient in enumerate(gradients):
                votes = self.level(number).vote_weight
                updated = votes * gradient
                reached = updated.sum(dim=1, keepdim=True)
                votes.copy_(torch.where(reached > 0, updated / reached.clamp(min=SMALLEST), votes))
        return total / max(n_pixels, 1)


def alternated(net: StackNet, labelled: LabelledSet, config: RefineConfig, progress: Report) -> StackNet:
    """The network after its splits and votes have been trained in turn; `config` has the number of steps of splits."""
    mixture = MixtureNet(net)
    each = replace(config, n_steps=max(config.n_steps // ROUNDS, 1), dice=0.0, held_out=0.0)
    for number in range(ROUNDS):
        seeded = replace(each, seed=config.seed + number)
        mixture = cast(MixtureNet, refine_labelled(mixture, labelled, seeded, progress=progress))
        for _ in range(UPDATES):
            mixture.update_votes(labelled, VOTE_STRIDE)
    plain = StackNet(mixture.stack, [mixture.level(number) for number in range(mixture.n_levels)], "normalise")
    plain.refinements, plain.relaxed = mixture.refinements, mixture.relaxed
    return plain


def alternating(bench: Bench) -> list[Row]:
    """Hedgerow's forests, refined like deep neural decision forests."""
    stack, grown = bench.grown("own", bench.protocol.own_stack, bench.train)
    config = replace(bench.protocol.own_refine, seed=bench.seed)
    training, _ = hold_out(bench.train, config.held_out, config.seed)
    labelled = replace(bench.train, images=training)

    def trained() -> tuple[StackNet, float]:
        net, seconds = timed(lambda: alternated(to_convnet(stack).to(bench.device), labelled, config, bench.progress))
        return net, grown + seconds

    return [bench.score("alternating", "splits and votes in turn", trained)]
