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
from hedgerow.files import atomic_path

FORMAT = "hedgerow-refinement"
GROUPS = ("weights", "average", "best", "good")  # of a state: each names the weights of a whole network
Weights = dict[str, Tensor]


@dataclass
class State:
    """Where a refinement stands after `step` steps.

    weights, average, best: of the network, of its running mean, and of its best score; the last two may be empty
    moments: of the optimiser: parameter number, name -> tensor
    history: one entry a score: step, loss, mean_dice; the first, of step 0, also has the scores before
    good, good_step: the last network whose own loss was seen to be good, and its step
    """

    step: int
    weights: Weights
    average: Weights = field(default_factory=dict)
    best: Weights = field(default_factory=dict)
    moments: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    good: Weights = field(default_factory=dict)
    good_step: int = 0


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
    for group in GROUPS:
        tensors |= {f"{group}.{name}": tensor for name, tensor in getattr(state, group).items()}
    for number, moments in state.moments.items():
        tensors |= {f"moments.{number}.{name}": tensor for name, tensor in moments.items()}
    contiguous = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    document = {"mark": mark, "step": state.step, "good_step": state.good_step, "history": state.history}
    document["digest"] = _digest(document, contiguous)
    content = to_bytes(contiguous, metadata={FORMAT: json.dumps(document)})
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def load(path: Path, mark: str, expected: Weights, optimiser: torch.optim.Optimizer, n_steps: int) -> State:
    """Read a state that `save` wrote for the same network, images and settings.

    expected: weights of the network, whose names and shapes those of the file must have
    optimiser: of the network; it gets its memory back
    """
    try:
        state = _read(path, mark)
        _check(state, expected, optimiser, n_steps)
        for group in GROUPS:  # to where the network is
            there = {name: tensor.to(expected[name].device) for name, tensor in getattr(state, group).items()}
            setattr(state, group, there)
        whole = optimiser.state_dict()
        optimiser.load_state_dict({**whole, "state": state.moments})
    except HedgerowError:
        raise
    except Exception as error:  # whatever the bytes, the answer is one sentence
        raise ModelError(f"{path} is not a complete checkpoint; delete it to start again.") from error
    return state


def _read(path: Path, mark: str) -> State:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        document = json.loads((file.metadata() or {})[FORMAT])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    _require(document.pop("digest") == _digest(document, tensors))
    if document["mark"] != mark:
        raise ModelError(
            f"{path} is the checkpoint of another refinement: its network, images, labels, settings or "
            "device differ; delete it to start again, or give the same ones."
        )
    state = State(document["step"], {}, history=document["history"], good_step=document["good_step"])
    for name, tensor in tensors.items():
        group, _, rest = name.partition(".")
        if group == "moments":
            number, _, what = rest.partition(".")
            state.moments.setdefault(int(number), {})[what] = tensor
        else:
            _require(group in GROUPS)
            getattr(state, group)[rest] = tensor
    return state


def _check(state: State, expected: Weights, optimiser: torch.optim.Optimizer, n_steps: int) -> None:
    """A ValueError unless all parts fit the network, so that nothing fails or goes wrong later."""
    _require(type(state.step) is int and 0 <= state.step <= n_steps)
    _require(type(state.good_step) is int and 0 <= state.good_step <= state.step)
    for group in GROUPS:
        weights = getattr(state, group)
        may_be_empty = group in ("average", "best")
        _require(weights.keys() == expected.keys() or (may_be_empty and not weights))
        for name, tensor in weights.items():
            like = expected[name]
            _require(tensor.shape == like.shape and tensor.dtype == like.dtype and bool(tensor.isfinite().all()))
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    for number, moments in state.moments.items():
        _require(0 <= number < len(parameters))
        _require(all(moment.ndim == 0 or moment.shape == parameters[number].shape for moment in moments.values()))
    _require(isinstance(state.history, list) and len(state.history) > 0)
    for entry in state.history:
        _require(type(entry["step"]) is int and all(_is_score(entry[key]) for key in ("loss", "mean_dice")))
    scores = state.history[0]["scores"]
    _require(isinstance(scores, dict) and all(_is_score(score) for score in scores.values()))


def _is_score(value: Any) -> bool:
    return value is None or type(value) in (int, float)


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError


def _digest(document: dict[str, Any], tensors: Weights) -> str:
    """Of all that a file holds, but the digest itself."""
    return fingerprint(document, *(part for name in sorted(tensors) for part in (name, tensors[name])))


def moments_of(optimiser: torch.optim.Optimizer) -> dict[int, dict[str, Tensor]]:
    """The optimiser's memory by parameter number."""
    return {
        number: {name: torch.as_tensor(value) for name, value in memory.items() if value is not None}
        for number, memory in optimiser.state_dict()["state"].items()
    }
