"""Which kernels run the network on a device, and why. Asking loads neither PyTorch nor Triton."""

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec


@dataclass(frozen=True)
class Backend:
    """name: of the package in `hedgerow.kernels` that has a module `level`; why: for display."""

    name: str
    why: str


@cache
def backend_for(device: str) -> Backend:
    """The kernels for float32 networks with frozen trees, on "cpu", "cuda" or another kind of device."""
    if device == "cpu":
        return Backend("cpu", "fused kernels, compiled by Numba")
    if device != "cuda":
        return Backend("definition", f"plain PyTorch: there are no kernels for {device}")
    if find_spec("triton") is None:
        return Backend("definition", "plain PyTorch, slow: Triton is not installed")
    return Backend("gpu", "fused kernels, compiled by Triton")
