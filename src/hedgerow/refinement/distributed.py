"""Refinement by several processes, started by `torchrun` on one machine or many, each with another image.

Each process has the whole network and makes the same steps. A step follows the gradient of the summed losses of all
their images; float32 gradients are summed over the processes. With the same number of processes a run is reproducible;
with another number, steps use other images, so the network is another one.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def n_processes() -> int:
    """The number of processes; 1 without `torchrun`."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """The number of this process among them."""
    return int(os.environ.get("RANK", "0"))


def is_first() -> bool:
    """Whether this process is the one that writes."""
    return rank() == 0


def own_device(device: str) -> str:
    """The GPU of this process, if there are several."""
    local = os.environ.get("LOCAL_RANK", "0")
    return f"cuda:{local}" if device == "cuda" and n_processes() > 1 else device


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Within the block, the processes can communicate."""
    if n_processes() == 1 or dist.is_initialized():
        yield
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield
        dist.barrier()
    finally:
        dist.destroy_process_group()


def own(step: int) -> int:
    """The number of the image, counted over all steps, that this process uses in a step."""
    return step * n_processes() + rank()


def wait() -> None:
    """Wait until all processes have come this far."""
    if n_processes() > 1:
        dist.barrier()


def stepped(optimiser: torch.optim.Optimizer, loss: Tensor) -> float:
    """Make one step along the gradient of the losses, summed over the processes; returns the mean loss."""
    optimiser.zero_grad()
    torch.autograd.backward(loss)
    mean_loss = loss.detach()
    if n_processes() > 1:
        sum_gradients([weight for group in optimiser.param_groups for weight in group["params"]])
        mean_loss = mean_loss.clone()
        dist.all_reduce(mean_loss)
        mean_loss = mean_loss / n_processes()
    optimiser.step()
    return float(mean_loss)


def sum_gradients(weights: list[Tensor]) -> None:
    """Replace each gradient by its sum over the processes."""
    trained = [weight for weight in weights if weight.requires_grad]
    for weight in trained:
        if weight.grad is None:  # the loss of this process does not depend on it
            weight.grad = torch.zeros_like(weight)
    grads = [weight.grad for weight in trained if weight.grad is not None]
    flat = parameters_to_vector(grads)
    dist.all_reduce(flat)
    vector_to_parameters(flat, grads)
