"""A step of training: scores, loss and gradient of a batch. On a GPU it is recorded once and replayed: a network of
this size has hundreds of small kernels, and starting them one by one takes longer than running them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hedgerow.deep.crops import Batch
from hedgerow.refinement.losses import batch_loss

Step = Callable[[Batch], Tensor]
"""Leaves the gradient of a batch in the weights and returns its loss, a number."""
UNRECORDED_STEPS = 3  # computed before one is recorded: libraries choose their kernels in these


def plain_step(network: nn.Module, dice: float) -> Step:
    """What a step is. On a GPU the network computes in bfloat16."""
    is_gpu = next(network.parameters()).device.type == "cuda"
    order = torch.channels_last if is_gpu else torch.contiguous_format

    def step(batch: Batch) -> Tensor:
        for weight in network.parameters():
            weight.grad = None
        # A recorded step must not keep weights that were rounded before it.
        with torch.autocast("cuda", torch.bfloat16, enabled=is_gpu, cache_enabled=False):
            scores = network(batch.planes.contiguous(memory_format=order))
        loss = batch_loss(scores.float(), batch.target, dice)
        torch.autograd.backward(loss)
        return loss.detach()

    return step


class RecordedStep:
    """The same on a GPU, for batches that are all of one shape."""

    def __init__(self, network: nn.Module, dice: float) -> None:
        self._step, self._n_done = plain_step(network, dice), 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._device = next(network.parameters()).device
        stream: Any = torch.cuda.Stream  # which has no types
        self._side = stream(self._device)  # recording must not begin on the usual one

    def __call__(self, batch: Batch) -> Tensor:
        with torch.cuda.device(self._device):  # what runs on another GPU than the current one would not be recorded
            return self._on_its_gpu(batch)

    def _on_its_gpu(self, batch: Batch) -> Tensor:
        if self._n_done < UNRECORDED_STEPS:
            self._n_done += 1
            return self._aside(batch)
        if self._graph is None:
            self._record(batch)
        assert self._graph is not None
        self._batch.planes.copy_(batch.planes)
        self._batch.target.copy_(batch.target)
        self._graph.replay()
        return self._loss.clone()

    def _aside(self, batch: Batch) -> Tensor:
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side):
            loss = self._step(batch)
        torch.cuda.current_stream().wait_stream(self._side)
        return loss

    def _record(self, batch: Batch) -> None:
        self._batch = Batch(batch.planes.clone(memory_format=torch.channels_last), batch.target.clone())
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._loss = self._step(self._batch)


def step_of(network: nn.Module, dice: float) -> Step:
    """The fastest form for the network's device."""
    is_gpu = next(network.parameters()).device.type == "cuda"
    return RecordedStep(network, dice) if is_gpu else plain_step(network, dice)
