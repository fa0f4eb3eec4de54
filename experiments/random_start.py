"""The paper's question whether the forests matter: the same network, trained from random weights.

"sparse" keeps the connections of the tree and trains their weights; "full" connects every split with every leaf, which
is only possible in small networks.
"""

import torch

from hedgerow.config import UNALTERED, RefineConfig
from hedgerow.forest.arrays import ForestStack
from hedgerow.network.mapping import to_convnet
from hedgerow.network.stacknet import StackNet

SIGMA = 0.01  # the paper's standard deviation


def random_start(stack: ForestStack, connections: str, seed: int, sigma: float = SIGMA) -> StackNet:
    """The network of a stack, with all trainable weights drawn from a Gaussian, and tanh splits as in the paper."""
    net = to_convnet(stack, "tanh", connections=connections)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in net.named_parameters():
            if not weights.requires_grad:  # the frozen tree
                continue
            drawn = sigma * torch.randn(weights.shape, generator=generator)
            # A probe that the forest does not have keeps the weight 0.
            weights.copy_(torch.where(weights != 0, drawn, 0) if name.endswith("split_weight") else drawn)
    return net


def schedule(steps: int, seed: int) -> RefineConfig:
    """The paper's settings for a random start; it trained for 2,500 steps."""
    return RefineConfig(
        n_steps=steps, optimiser="sgd", learning_rate=3e-5, decay="halving", halving_steps=96.0, first_momentum=0.4,
        momentum_steps=96, max_momentum=0.99, loss="balanced", dice=0.0, stride=9, augment=UNALTERED, held_out=0.0,
        check_every=100, relax=1.0, tolerance=0.0, seed=seed,
    )  # fmt: skip
