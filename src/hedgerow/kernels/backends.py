"""Which form of the network's operations is used on a device, and why. PyTorch and Triton are not loaded to ask."""

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec


@dataclass(frozen=True)
class Backend:
    """name: of the room of `hedgerow.kernels` whose `level` has `level_scores`; why: for people to read."""

    name: str
    why: str


@cache
def backend_for(device: str) -> Backend:
    """The form for float32 networks whose trees are frozen, on "cpu", "cuda" or another kind of device."""
    if device == "cpu":
        return Backend("cpu", "fused kernels, compiled by Numba")
    if device != "cuda":
        return Backend("definition", f"plain PyTorch: there are no kernels for {device}")
    if find_spec("triton") is None:
        return Backend("definition", "plain PyTorch, slow: Triton is not installed")
    return Backend("gpu", "fused kernels, compiled by Triton")
