"""The state of a refinement in one file of data only, from which a killed run resumes as if never interrupted."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from hedgerow.documents import read_document
from hedgerow.errors import HedgerowError, ModelError
from hedgerow.files import atomic_path, digest
from hedgerow.forest.history import Check, are_numbers
from hedgerow.memory import ran_out

CHECKPOINT_FORMAT = "hedgerow-refinement"
WEIGHT_FIELDS = ("weights", "average", "best", "good")  # fields of a state that are the weights of a network
Weights = dict[str, Tensor]


@dataclass
class State:
    """The state of a refinement after `step` steps.

    weights, average, best: current, averaged over the steps, and at the best score; the last two may be empty
    moments: of the optimiser: parameter number, name -> tensor
    checks:  in order; the first is at step 0
    scores:  mean Dice of the forests and of the mapped network on the held-out images
    good, good_step: the last network whose own loss was good, and its step
    """

    step: int
    weights: Weights
    average: Weights = field(default_factory=dict)
    best: Weights = field(default_factory=dict)
    moments: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    scores: tuple[float | None, float | None] = (None, None)
    good: Weights = field(default_factory=dict)
    good_step: int = 0


def save(path: Path, state: State, mark: str) -> None:
    """Write a state; if the process is killed while writing, the previous one remains."""
    tensors: Weights = {}
    for group in WEIGHT_FIELDS:
        tensors |= {f"{group}.{name}": tensor for name, tensor in getattr(state, group).items()}
    for number, moments in state.moments.items():
        tensors |= {f"moments.{number}.{name}": tensor for name, tensor in moments.items()}
    contiguous = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    document: dict[str, Any] = {"mark": mark, "step": state.step, "good_step": state.good_step}
    document |= {"checks": [asdict(check) for check in state.checks], "scores": list(state.scores)}
    document["digest"] = digest(document, {name: tensor.numpy() for name, tensor in contiguous.items()})
    content = to_bytes(contiguous, metadata={CHECKPOINT_FORMAT: json.dumps(document)})
    with atomic_path(path, noted=False) as temporary:
        temporary.write_bytes(content)


def load(path: Path, mark: str, expected: Weights, optimiser: torch.optim.Optimizer, n_steps: int) -> State:
    """Read a state that `save` wrote for the same network, images and settings.

    expected: weights of the network; those in the file must have the same names and shapes
    optimiser: its moments are restored
    """
    try:
        state = _read(path, mark)
        if not _fits(state, expected, optimiser, n_steps):
            raise ValueError("it does not match the network")
        for group in WEIGHT_FIELDS:  # to the network's device
            there = {name: tensor.to(expected[name].device) for name, tensor in getattr(state, group).items()}
            setattr(state, group, there)
        whole = optimiser.state_dict()
        optimiser.load_state_dict({**whole, "state": state.moments})
    except HedgerowError:
        raise
    except Exception as error:  # whatever the bytes are, the error is one sentence
        if ran_out(error):  # which is no fault of the file
            raise
        raise ModelError(f"{path} is not a complete checkpoint; delete it to start again.") from error
    return state


def _read(path: Path, mark: str) -> State:
    with safe_open(path, framework="pt") as file:
        document = read_document((file.metadata() or {})[CHECKPOINT_FORMAT])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    stored = document.pop("digest")
    if stored != digest(document, {name: tensor.numpy() for name, tensor in tensors.items()}):
        raise ValueError("it does not match its digest")
    if document["mark"] != mark:
        raise ModelError(
            f"{path} is the checkpoint of another refinement: its network, images, labels, settings or device differ; "
            "delete it to start again, or use the same ones."
        )
    checks = [Check.from_dict(check) for check in document["checks"]]
    stack, mapped = document["scores"]
    state = State(document["step"], {}, good_step=document["good_step"], checks=checks, scores=(stack, mapped))
    for name, tensor in tensors.items():
        group, _, rest = name.partition(".")
        if group == "moments":
            number, _, moment = rest.partition(".")
            state.moments.setdefault(int(number), {})[moment] = tensor
        else:
            getattr(state, {name: name for name in WEIGHT_FIELDS}[group])[rest] = tensor
    return state


def _fits(state: State, expected: Weights, optimiser: torch.optim.Optimizer, n_steps: int) -> bool:
    """Whether all parts fit the network, so that nothing fails later."""
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    return (
        type(state.step) is type(state.good_step) is int
        and 0 <= state.good_step <= state.step <= n_steps
        # Either all checks have a score or none has; the last check is of this step.
        and len({check.mean_dice is None for check in state.checks}) == 1
        and state.checks[-1].step == state.step
        and are_numbers(*state.scores)
        and all(_are_weights(getattr(state, group), expected, group in ("average", "best")) for group in WEIGHT_FIELDS)
        and all(
            0 <= number < len(parameters)
            and all(m.ndim == 0 or m.shape == parameters[number].shape for m in ms.values())
            for number, ms in state.moments.items()
        )
    )


def _are_weights(weights: Weights, expected: Weights, may_be_empty: bool) -> bool:
    if not weights:
        return may_be_empty
    return weights.keys() == expected.keys() and all(
        tensor.shape == expected[name].shape and tensor.dtype == expected[name].dtype and bool(tensor.isfinite().all())
        for name, tensor in weights.items()
    )


def weights_of(network: torch.nn.Module) -> Weights:
    """A copy of all that a network has learned, by name."""
    return {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}


def moments_of(optimiser: torch.optim.Optimizer) -> dict[int, dict[str, Tensor]]:
    return {
        number: {name: torch.as_tensor(value) for name, value in memory.items() if value is not None}
        for number, memory in optimiser.state_dict()["state"].items()
    }
