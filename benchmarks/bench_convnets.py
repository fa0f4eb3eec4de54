"""Convolutional networks on a GPU: a step of training with our kernels, beside the same step in plain PyTorch.

Networks of 32 channels and six scales, 20 classes, in batches of 8 crops of 120 x 160 and of 4 crops of 256 x 256.
Steps are recorded and replayed in both. What is timed is scores, loss and gradient, without the optimiser and without
drawing the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from measure import installed, require, table

if TYPE_CHECKING:
    from hedgerow.deep.crops import Batch
    from hedgerow.deep.unet import UNet

TITLE = "Convolutional networks on a GPU"
N_CLASSES, N_STEPS = 20, 50
BATCHES = {"8 of 120 x 160": (8, 120, 160), "4 of 256 x 256": (4, 256, 256)}
KINDS = ("normalised by training", "normalised over each image", "pretrained, kept", "pretrained, trained along")
CLOSE = 0.05  # of a loss: both round to 8 bits on their ways
PLAIN = "plain PyTorch"


def run(small: bool = False) -> str:
    if not installed("torch", "triton"):
        return "Not run: PyTorch or Triton is not installed."
    import torch

    if not torch.cuda.is_available():
        return "Not run: there is no CUDA device."
    rows = []
    for name, shape in BATCHES.items():
        batch = drawn(*shape)
        for kind in KINDS:
            ours, loss = timed(kind, batch, 2 if small else N_STEPS)
            with in_plain_pytorch():
                theirs, right = timed(kind, batch, 2 if small else N_STEPS)
            require(abs(loss - right) <= CLOSE * right, f"the loss of {kind} is {loss:.4f}, not {right:.4f}.")
            rows.append([kind, name, f"{ours:.2f}", f"{theirs:.2f}", f"{ours / theirs:.2f}"])
    head = f"{torch.cuda.get_device_name()}, torch {torch.__version__}. Milliseconds of a step, mean of {N_STEPS}.\n\n"
    return head + table(["network", "crops", "ours", PLAIN, "ratio"], rows)


def drawn(n: int, height: int, width: int) -> Batch:
    """Noise, and classes at random."""
    import torch

    from hedgerow.deep.crops import Batch

    random = torch.Generator(device="cuda").manual_seed(0)
    planes = torch.randn(n, 1, height, width, device="cuda", generator=random)
    return Batch(planes, torch.randint(N_CLASSES, (n, height, width), device="cuda", generator=random))


def network(kind: str) -> UNet:
    """An untrained network."""
    import torch

    from hedgerow.deep.pretrained import PretrainedUNet
    from hedgerow.deep.unet import UNet

    torch.manual_seed(0)
    is_pretrained = kind.startswith("pretrained")
    norm = "batch" if kind == KINDS[0] else "image"
    net = (PretrainedUNet if is_pretrained else UNet)(1, N_CLASSES, 32, 5, 512, norm)
    if isinstance(net, PretrainedUNet):
        with torch.no_grad():  # what these weights are does not matter here, but that something gets through does
            for weight in net.pretrained.values():
                weight.normal_(std=0.1)
        net.pretrained.requires_grad_(kind == KINDS[3])
    return net.cuda().to(memory_format=torch.channels_last).train()  # type: ignore[call-overload, no-any-return]


def timed(kind: str, batch: Batch, n_steps: int) -> tuple[float, float]:
    """Milliseconds of a step, and its loss."""
    import torch

    from hedgerow.deep.network_training import UNRECORDED_STEPS, step_of

    step = step_of(network(kind), 1.0)
    for _ in range(UNRECORDED_STEPS + 2):
        loss = step(batch)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(n_steps):
        step(batch)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / n_steps, float(loss)


@contextmanager
def in_plain_pytorch() -> Iterator[None]:
    """Within the block, networks compute with the definitions instead of the kernels."""
    from hedgerow.deep import unet
    from hedgerow.kernels.backends import Backend, backend_for

    plain = Backend("definition", "to compare")
    unet.backend_for = lambda device: plain  # type: ignore[assignment]
    try:
        yield
    finally:
        unet.backend_for = backend_for
