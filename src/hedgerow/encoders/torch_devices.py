"""Where encoders run: on a GPU when there is one, unless HEDGEROW_ENCODERS_ON=cpu says otherwise; and how."""

import os
import threading

import torch


def device() -> torch.device:
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


class _FullPrecision:
    """Threads that compute at once share PyTorch's switch: the first turns it, the last turns it back."""

    def __init__(self) -> None:
        self._lock, self._n_inside, self._before = threading.Lock(), 0, True

    def __enter__(self) -> None:
        with self._lock:
            if self._n_inside == 0:
                self._before = torch.backends.cudnn.allow_tf32
                torch.backends.cudnn.allow_tf32 = False
            self._n_inside += 1

    def __exit__(self, *problem: object) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                torch.backends.cudnn.allow_tf32 = self._before


_full = _FullPrecision()


def full_precision() -> _FullPrecision:
    """Within the block, a GPU's convolutions round as a CPU's do; PyTorch would leave them 10 bits of 23."""
    return _full
