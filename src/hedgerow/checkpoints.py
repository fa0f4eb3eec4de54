"""The state of a refinement, in one file that is data only: a run that was killed goes on as if it had not been."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hedgerow.errors import HedgerowError, ModelError
from hedgerow.images import atomic_path

FORMAT = "hedgerow-refinement"
Weights = dict[str, Tensor]


@dataclass
class State:
    """Where a refinement stands after `step` steps.

    weights, average, best: of the network, of its running mean, and of its best score; the last two may be empty
    moments: of the optimiser: parameter number, name -> tensor
    history: one entry a score: step, loss, mean_dice
    """

    step: int
    weights: Weights
    average: Weights = field(default_factory=dict)
    best: Weights = field(default_factory=dict)
    moments: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)


def fingerprint(*parts: Any) -> str:
    """A digest of all that a refinement depends on: arrays, tensors, and whatever JSON can write."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            part = part.detach().cpu().numpy()
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str} {part.shape}".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(json.dumps(part).encode())
    return digest.hexdigest()


def save(path: Path, state: State, mark: str) -> None:
    """Write a state; a kill at any moment leaves the one before."""
    from safetensors.torch import save as to_bytes

    tensors: Weights = {}
    for group in ("weights", "average", "best"):
        tensors |= {f"{group}.{name}": tensor for name, tensor in getattr(state, group).items()}
    for number, moments in state.moments.items():
        tensors |= {f"moments.{number}.{name}": tensor for name, tensor in moments.items()}
    document = {"mark": mark, "step": state.step, "history": state.history}
    contiguous = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    content = to_bytes(contiguous, metadata={FORMAT: json.dumps(document)})
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def load(path: Path, mark: str) -> State:
    """Read a state that `save` wrote for the same network, images and settings."""
    try:
        return _load(path, mark)
    except HedgerowError:
        raise
    except Exception as error:  # whatever the bytes, the answer is one sentence
        raise ModelError(f"{path} is not a complete checkpoint; delete it to start again.") from error


def _load(path: Path, mark: str) -> State:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        document = json.loads((file.metadata() or {})[FORMAT])
        if document["mark"] != mark:
            raise ModelError(
                f"{path} is the checkpoint of another refinement: its network, images, labels or settings differ; "
                "delete it to start again, or give the same ones."
            )
        state = State(document["step"], {}, history=document["history"])
        for name in file.keys():  # noqa: SIM118 (not a dict)
            group, _, rest = name.partition(".")
            if group == "moments":
                number, _, what = rest.partition(".")
                state.moments.setdefault(int(number), {})[what] = file.get_tensor(name)
            else:
                getattr(state, group)[rest] = file.get_tensor(name)
    return state


def moments_of(optimiser: torch.optim.Optimizer) -> dict[int, dict[str, Tensor]]:
    """The optimiser's memory by parameter number."""
    return {
        number: {name: torch.as_tensor(value) for name, value in memory.items() if value is not None}
        for number, memory in optimiser.state_dict()["state"].items()
    }


def restore_moments(optimiser: torch.optim.Optimizer, moments: dict[int, dict[str, Tensor]]) -> None:
    """Give the optimiser its memory back."""
    whole = optimiser.state_dict()
    optimiser.load_state_dict({**whole, "state": moments})
