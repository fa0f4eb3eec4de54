"""The devices that models run on, and a description of this computer."""

import copy
import importlib.metadata
import os
import platform
from dataclasses import replace
from typing import Any

from hedgerow import __version__
from hedgerow.errors import ConfigError
from hedgerow.forest.arrays import ForestStack
from hedgerow.kernels.backends import backend_for
from hedgerow.threads import get_threads

DEVICES = ("cpu", "cuda")
PACKAGES = ("numpy", "numba", "torch", "triton")


def no_cuda() -> str | None:
    """Why no CUDA device can be used here; None if one can."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    if torch.cuda.is_available():
        return None
    return "PyTorch was built without CUDA" if torch.version.cuda is None else "PyTorch finds no CUDA device"


def check_device(device: str, is_network: bool) -> None:
    """Raise a ConfigError unless models of this kind can run on the device."""
    if device not in DEVICES:
        raise ConfigError(f"the device is {device!r}; choose one of {', '.join(DEVICES)}.")
    why = no_cuda() if device == "cuda" else None
    if why is not None:
        raise ConfigError(f"the device cuda cannot be used, since {why}; use cpu.")
    if device == "cuda" and not is_network and backend_for(device).name == "definition":
        raise ConfigError("forests on the device cuda need Triton, which is not installed; use cpu.")


def moved(model: Any, device: str) -> Any:
    """A new copy of the stack or network that runs on this device."""
    is_stack = isinstance(model, ForestStack)
    check_device(str(device).partition(":")[0], not is_stack)
    if is_stack:
        return replace(model, device=str(device))
    from torch import nn

    if not isinstance(model, nn.Module):
        return model.moved(str(device))
    return nn.Module.to(copy.deepcopy(model), device)


def system() -> dict[str, str]:
    """Versions, cores, threads, and the kernels used on each device: name -> text, for display."""
    versions = {package: version(package) or "not installed" for package in PACKAGES}
    missing = no_cuda()
    on_cuda = f"unavailable: {missing}" if missing else backend_for("cuda").why
    return {
        "python": platform.python_version(),
        "hedgerow": __version__,
        **versions,
        "cores": str(os.cpu_count()),
        "threads": str(get_threads()),
        "networks on cpu": backend_for("cpu").why,
        "networks on cuda": on_cuda,
        "forests on cuda": on_cuda,
    }


def version(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
