"""Where encoders run: on a GPU when there is one, unless HEDGEROW_ENCODERS_ON=cpu says otherwise; and how."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def device() -> torch.device:
    """The device that encoders run on."""
    wants_cpu = os.environ.get("HEDGEROW_ENCODERS_ON") == "cpu"
    return torch.device("cuda" if torch.cuda.is_available() and not wants_cpu else "cpu")


class OneThread:
    """Within the block, PyTorch computes in this thread alone.

    Its convolutions add up in an order that depends on the number of threads, and two are no faster than one: patches
    are divided among threads instead.
    """

    def __enter__(self) -> None:
        self._before = torch.get_num_threads()
        torch.set_num_threads(1)

    def __exit__(self, *problem: object) -> None:
        torch.set_num_threads(self._before)


@contextmanager
def full_precision() -> Iterator[None]:
    """Within the block, a GPU's convolutions round as a CPU's do; PyTorch would leave them 10 bits of 23."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before
