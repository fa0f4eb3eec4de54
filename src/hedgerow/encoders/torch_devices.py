"""The device of encoders, a GPU if there is one unless HEDGEROW_ENCODERS_ON=cpu is set, and how PyTorch computes."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock, _n_full_precision, _allowed_tf32 = threading.Lock(), 0, True


def device() -> torch.device:
    wants_cpu = os.environ.get("HEDGEROW_ENCODERS_ON") == "cpu"
    return torch.device("cuda" if torch.cuda.is_available() and not wants_cpu else "cpu")


class OneThread:
    """Within the block, PyTorch computes in this thread only.

    The order in which its convolutions add up depends on the number of threads, and two threads are no faster than one:
    patches are divided among threads instead.
    """

    def __enter__(self) -> None:
        self._before = torch.get_num_threads()
        torch.set_num_threads(1)

    def __exit__(self, *problem: object) -> None:
        torch.set_num_threads(self._before)


@contextmanager
def full_precision() -> Iterator[None]:
    """Within the block, a GPU's convolutions round as a CPU's do; by default PyTorch keeps only 10 bits of 23.

    Threads share PyTorch's switch: the first one that enters turns it off, and the last one that leaves restores it.
    """
    global _n_full_precision, _allowed_tf32
    with _lock:
        if _n_full_precision == 0:
            _allowed_tf32, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False
        _n_full_precision += 1
    try:
        yield
    finally:
        with _lock:
            _n_full_precision -= 1
            if _n_full_precision == 0:
                torch.backends.cudnn.allow_tf32 = _allowed_tf32
