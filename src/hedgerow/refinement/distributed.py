"""Refinement by several processes, started by `torchrun`, on one machine or many: each shows the network another image.

Every process has the whole network and makes the same steps. A step follows the gradient of the sum of the losses of
all their images: float32 gradients are summed over the processes, which for two of them is one rounding. For a fixed
number of processes a run is reproducible; another number sees other images at a step, so it gives another network.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch import distributed as dist


def n_processes() -> int:
    """How many work together; 1 without `torchrun`."""
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
    """While the block runs, the processes can speak to each other."""
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
    """The number of the image, counted through all steps, that this process shows at a step."""
    return step * n_processes() + rank()


def wait() -> None:
    """Go on when all have come this far."""
    if n_processes() > 1:
        dist.barrier()


def stepped(optimiser: torch.optim.Optimizer, loss: Tensor) -> float:
    """Make one step by the gradient of the loss, summed over the processes; returns the mean of their losses."""
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
    """In place of each gradient the sum over the processes."""
    trained = [weight for weight in weights if weight.requires_grad]
    for weight in trained:
        if weight.grad is None:  # nothing of this process's image depends on it
            weight.grad = torch.zeros_like(weight)
    grads = [weight.grad for weight in trained if weight.grad is not None]
    flat = torch.cat([grad.reshape(-1) for grad in grads])
    dist.all_reduce(flat)
    first = 0
    for grad in grads:
        grad.copy_(flat[first : first + grad.numel()].view_as(grad))
        first += grad.numel()
